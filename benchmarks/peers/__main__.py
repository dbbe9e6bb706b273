"""The command: measure every peer that is here, and write table, plot and JSON."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import machine, prompts
from benchmarks.interleaved import CLOCKS, measure
from benchmarks.peers import binding, memory
from benchmarks.peers.cases import Case, cases
from benchmarks.peers.catalogue import FACTORIES
from benchmarks.peers.peer import MissingPeerError, Peer
from benchmarks.peers.report import Report, Row, table, write_json, write_plot
from tests import data

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

OUT = data.REPOSITORY / "out"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _build_binding(left_out: dict[str, str]) -> None:
    _say("building the binding to upstream (minutes, the first time)")
    try:
        binding.build()
    except binding.BindingError as error:
        left_out["upstream"] = str(error)


def _make(keys: Iterable[str], left_out: dict[str, str]) -> dict[str, Peer]:
    peers = {}
    for key in keys:
        if key in left_out:
            continue
        _say(f"loading {key}")
        try:
            peers[key] = FACTORIES[key]()
        except MissingPeerError as missing:
            left_out[key] = str(missing)
    return peers


def _compare(
    peers: dict[str, Peer], rows: dict[str, Row], texts: Sequence[str]
) -> None:
    """Compare the ids of each peer: new to its cache, and as they come back."""
    reference = data.load_family(prompts.family())
    for text in texts:
        expected = reference.encode(text).ids
        for key, peer in peers.items():
            row = rows[key]
            raw = peer.raw(text)
            for _ in range(3):
                row.equals_raw &= peer.to_list(peer.encode(text)) == raw
            if peer.has_family_ids:
                row.equals_tokenizers = (
                    row.equals_tokenizers is not False and raw == expected
                )


def _measure_case(
    case: Case, peers: dict[str, Peer], rows: dict[str, Row], rounds: int, clock: str
) -> None:
    _say(f"measuring {case.name}")
    _compare(peers, rows, case.texts(1))
    found = measure(
        {key: peer.encode for key, peer in peers.items()},
        case.texts,
        rounds=rounds,
        most_calls=case.most_calls,
        clock=clock,
    )
    for key, latency in found.items():
        rows[key].latencies[case.name] = latency
    _compare(peers, rows, case.texts(1))  # what all the calls have left in the caches


def run(keys: Sequence[str], names: Sequence[str], rounds: int, clock: str) -> Report:
    """Measure."""
    left_out: dict[str, str] = {}
    if "upstream" in keys:
        _build_binding(left_out)
    peers = _make(keys, left_out)
    rows = {key: Row(key, peer.name, peer.version) for key, peer in peers.items()}
    chosen = [case for case in cases() if case.name in names]
    for case in chosen:
        _measure_case(case, peers, rows, rounds, clock)
    for key, row in rows.items():
        _say(f"measuring the memory of {key}")
        row.memory = memory.measure(key)
    return Report(
        machine=f"{machine.describe()}; {prompts.family()}; {clock} time",
        cases={case.name: case.about for case in chosen},
        rows=[*rows.values()],
        left_out=left_out,
    )


def main() -> int:
    """Run the command; 1 if any peer's ids differ from its own library's."""
    names = [case.name for case in cases()]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers")
    parser.add_argument("--peers", nargs="+", choices=FACTORIES, default=[*FACTORIES])
    parser.add_argument("--prompts", nargs="+", choices=names, default=names)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument(
        "--clock", choices=CLOCKS, default="wall", help="cpu: for a busy machine"
    )
    parser.add_argument("--plot", type=Path, default=OUT / "peers.png")
    parser.add_argument("--json", type=Path, default=OUT / "peers.json")
    options = parser.parse_args()
    keys = ["tokcache", *(key for key in options.peers if key != "tokcache")]
    report = run(keys, options.prompts, options.rounds, options.clock)
    print(table(report))
    write_json(report, options.json)
    write_plot(report, options.plot)
    print(f"\nplot: {options.plot}\njson: {options.json}")
    return 0 if all(row.equals_raw for row in report.rows) else 1


if __name__ == "__main__":
    sys.exit(main())
