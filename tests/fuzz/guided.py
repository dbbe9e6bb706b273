"""Let libFuzzer drive a harness, guided by what Python and the compiled core do.

    python -P -m tests.fuzz.guided scan --seconds 600
    python -P -m tests.fuzz.guided scan --keep

Starts from the inputs kept in the tree and those found before in out/fuzz/corpus. What
fails is written to out/fuzz/found; run that file with --again. --keep takes what was
found into the tree, as few inputs as reach all that was reached. tests/fuzz/guided.sh
builds the core for this and knows the environment it needs.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from pathlib import Path

import atheris

from tests.fuzz.corpus import keep, unpack

MAX_BYTES = {"scan": 400, "trie": 800, "encode": 1500}  # more of a case than it uses
OUT = Path("out/fuzz")
INPUT_SECONDS = 60  # the slowest input takes a second; other work may be going on


def main() -> None:
    """Fuzz, or look at what was found, from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("harness", choices=MAX_BYTES)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--again", type=Path, help="run a file that failed")
    args = parser.parse_args()
    # A panic is an answer here, and a fast one.
    os.environ["RUST_BACKTRACE"] = "0"
    with atheris.instrument_imports(include=["tokcache"]):
        harness = importlib.import_module(f"tests.fuzz.harnesses.{args.harness}")
    if args.again:
        harness.run(args.again.read_bytes())
        return
    corpus, found = OUT / "corpus" / args.harness, OUT / "found"
    unpack(args.harness, corpus)
    found.mkdir(parents=True, exist_ok=True)
    options = [
        f"-max_total_time={args.seconds}",
        f"-max_len={MAX_BYTES[args.harness]}",
        f"-timeout={INPUT_SECONDS}",
        f"-artifact_prefix={found}/{args.harness}-",
        "-len_control=10",  # longer inputs sooner: a short one is mostly the fixed tail
        "-rss_limit_mb=4096",
        "-close_fd_mask=2",  # panics of the tokenizers write there
        "-print_final_stats=1",
        str(corpus),
    ]
    atheris.Setup([sys.argv[0], *options], harness.run)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
