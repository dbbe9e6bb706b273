"""Let libFuzzer drive a harness, guided by what Python and the compiled core do.

    python tests/fuzz/guided.py scan --seconds 600
    python tests/fuzz/guided.py scan --keep

Starts from the inputs kept in the tree and those found before in out/fuzz/corpus. What
fails is written to out/fuzz/found; run that file with --again. --keep takes what was
found into the tree, as few inputs as reach all that was reached. Other options are
libFuzzer's. tests/fuzz/guided.sh builds the core for this and knows the environment.
"""

from __future__ import annotations

import argparse
import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import atheris

from tests.fuzz.inputs import keep, unpack

MAX_BYTES = {"scan": 400, "trie": 400, "encode": 800}  # more than most cases use
INPUT_SECONDS = 60  # the slowest takes a second or two; other work may be going on
OUT = Path("out/fuzz")
MODELS = ("", "_policy", "_scan", "_store", "_trie")
ITSELF = (sys.executable, __file__)  # as a script, or the folder would come first


def _fuzzing(name: str, seconds: int) -> list[str]:
    """Return the options for some time of fuzzing."""
    corpus = OUT / "corpus" / name
    unpack(name, corpus)
    # Long inputs at once: a short one is mostly what follows its end.
    times = [f"-max_total_time={seconds}", "-len_control=0", "-print_final_stats=1"]
    return [*times, str(corpus)]


def _keep_fewest(name: str) -> None:
    """Take found inputs into the tree: as few as reach all that all of them reach."""
    fewest = OUT / "fewest" / name
    shutil.rmtree(fewest, ignore_errors=True)
    fewest.mkdir(parents=True)
    # libFuzzer ends the process that it runs in.
    merge = ["-set_cover_merge=1", str(fewest), str(OUT / "corpus" / name)]
    subprocess.run([*ITSELF, name, *merge], check=True)
    keep(name, (path.read_bytes() for path in fewest.iterdir()))


def main() -> None:
    """Fuzz, or look at what was found, from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("harness", choices=MAX_BYTES)
    parser.add_argument("--seconds", type=int)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--again", type=Path, help="run a file that failed")
    args, options = parser.parse_known_args()
    if args.keep:
        _keep_fewest(args.harness)
        return
    # A panic is an answer here, and a fast one.
    os.environ["RUST_BACKTRACE"] = "0"
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    # The models need not guide where the core itself does, and are slowed by half.
    is_core_seen = str((OUT / "lib").resolve()) in map(os.path.realpath, sys.path)
    models = [f"tokcache.reference{part}" for part in MODELS] if is_core_seen else []
    with atheris.instrument_imports(include=["tokcache"], exclude=models):
        harness = importlib.import_module(f"tests.fuzz.harnesses.{args.harness}")
    if args.again:
        harness.run(args.again.read_bytes())
        return
    found = OUT / "found"
    found.mkdir(parents=True, exist_ok=True)
    options += [
        f"-artifact_prefix={found}/{args.harness}-",
        f"-max_len={MAX_BYTES[args.harness]}",
        f"-timeout={INPUT_SECONDS}",
        "-rss_limit_mb=4096",
        "-close_fd_mask=2",  # panics of the tokenizers write there
    ]
    if args.seconds is not None:
        options += _fuzzing(args.harness, args.seconds)
    # libFuzzer starts itself anew by the first of its arguments, unquoted.
    atheris.Setup([" ".join([*ITSELF, args.harness]), *options], harness.run)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
