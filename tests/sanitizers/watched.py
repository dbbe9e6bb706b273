"""Run tests on a core of its own build, with a sanitizer or valgrind watching it.

``python -m tests.sanitizers.watched asan`` or ``valgrind``, then arguments for pytest.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
# What the tests need of the repository, besides the interpreter's packages.
LAID_OUT = (
    "benchmarks",
    "docs",
    "examples",
    "requirements",
    "tests",
    "tokcache",
    "LICENSE",
    "README.md",
    "pyproject.toml",
    "setup.py",
)

# What the processes wrote there. One sanitizer can report nowhere else, which is why
# pytest captures what Python writes only.
STDERR = "stderr"
OVERFLOWS = re.compile(r"^.*: runtime error: .*(?:\n +#\d.*)*", re.MULTILINE)
# A block that was lost, with the frame that asked malloc for it, in both notations.
LEAK = re.compile(
    r"(?:^(?:Direct|Indirect) leak of|are definitely lost in loss record)"
    r".*\n.*\n(?P<allocator>.*)",
    re.MULTILINE,
)
# How Cython names our functions.
IS_OURS = re.compile(r"__pyx_\w*?_(?:8tokcache|5tests_10sanitizers)_")
# A child that was forked while other threads ran has none of them, and what only they
# had at hand is taken for lost. The sanitizer says so itself.
CANNOT_TELL = re.compile(
    r"==\d+==Running thread \d+ was not suspended\. False leaks are possible\."
)
# What stands around the leaks of one process, and a malloc that tells so, as it must.
IS_NO_FINDING = re.compile(
    r"=*\s*==\d+==ERROR: LeakSanitizer: detected memory leaks"
    r"|SUMMARY: AddressSanitizer: \d+ byte\(s\) leaked in \d+ allocation\(s\)\."
    r"|==\d+==WARNING: AddressSanitizer failed to allocate 0x[0-9a-f]+ bytes"
    rf"|{CANNOT_TELL.pattern}|",
)


def main() -> int:
    """Build, run, and tell of everything that was seen; 0 if that is nothing."""
    kind, *arguments = sys.argv[1:]
    out = REPOSITORY / "out" / kind
    tree, reports = out / "tree", out / "reports"
    shutil.rmtree(reports, ignore_errors=True)
    reports.mkdir(parents=True)
    lay_out(tree)
    command, build, environment = KINDS[kind](reports)
    everywhere = {
        **os.environ,
        "PYTHONPATH": str(tree),
        "TOKCACHE_PLANTED": "1",
        "TOKCACHE_WATCHED_BY": kind,
    }
    data = REPOSITORY.parent / "shared" / "data"
    if data.exists():
        everywhere.setdefault("TOKCACHE_DATA", str(data))
    subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"],
        cwd=tree,
        env=everywhere | build,
        check=True,
    )
    python = [*command, sys.executable, "-m", "pytest", "--capture=sys"]
    with (reports / STDERR).open("w") as stderr:
        done = subprocess.run(
            [*python, *chosen(kind), *arguments],
            cwd=tree,
            env=everywhere | environment,
            stderr=stderr,
            check=False,
        )
    return verdict(done.returncode, findings(reports))


def verdict(status: int, found: list[str]) -> int:
    """Return the exit code of a run, and print what was reported of any process."""
    for finding in found:
        sys.stderr.write(f"{finding}\n\n")
    sys.stderr.write(f"{len(found)} reports, pytest ended with {status}\n")
    return status or int(bool(found))


def lay_out(tree: Path) -> None:
    """Copy the sources; what is compiled there stays, and never comes back here.

    Files keep their times, so that only what changed is compiled again.
    """
    for name in LAID_OUT:
        source = REPOSITORY / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.so", "_*.c", "target")
            shutil.copytree(source, tree / name, dirs_exist_ok=True, ignore=ignored)
        else:
            shutil.copy2(source, tree / name)
    # What was removed from the repository must not go on being tested.
    for file in tree.rglob("*.p*"):
        if (
            file.suffix in {".py", ".pyx", ".pxd"}
            and not (REPOSITORY / file.relative_to(tree)).exists()
        ):
            file.unlink()


def asan(reports: Path) -> tuple[list[str], dict[str, str], dict[str, str]]:
    """Return the prefix of a command, what changes the build, and what the run."""
    libraries = [library(name) for name in ("libasan.so", "libubsan.so")]
    common = (
        f"log_path={reports}/report:abort_on_error=1"
        # One line a frame, with the module that it is of: see `findings`.
        f":stack_trace_format='    #%n %f %S in (%m)'"
    )
    return (
        [],
        {"TOKCACHE_SANITIZE": "1"},
        {
            "LD_PRELOAD": " ".join(libraries),
            # Else the interpreter's objects are out of sight, in arenas of its own.
            "PYTHONMALLOC": "malloc",
            # Faults abort. Leaks do not change an exit code, for the interpreter and
            # other programs that tests start have some: they are judged by `findings`.
            # A refused allocation is a NULL, as without. No handler of pytest's comes
            # between a crash and its report.
            "ASAN_OPTIONS": f"{common}:exitcode=0:detect_leaks=1"
            ":allocator_may_return_null=1:detect_stack_use_after_return=1"
            ":handle_segv=2:handle_sigbus=2:handle_sigfpe=2",
            "UBSAN_OPTIONS": f"{common}:print_stacktrace=1",
        },
    )


def valgrind(reports: Path) -> tuple[list[str], dict[str, str], dict[str, str]]:
    """Return the prefix of a command, what changes the build, and what the run."""
    command = [
        "valgrind",
        "--quiet",
        "--error-exitcode=9",
        "--leak-check=full",
        "--show-leak-kinds=definite",
        "--errors-for-leak-kinds=none",  # judged by `findings`
        "--num-callers=40",
        f"--suppressions={HERE}/valgrind.supp",
        f"--log-file={reports}/report.%p",
    ]
    return (
        command,
        {"TOKCACHE_PROFILE": "1"},
        {
            # As "malloc", but filled: of its own objects the interpreter decides by
            # what it never wrote (it multiplies that by zero). The core's blocks are
            # not its, and stay as malloc gives them.
            "PYTHONMALLOC": "malloc_debug",
            "HYPOTHESIS_PROFILE": "brief",
        },
    )


KINDS = {"asan": asan, "valgrind": valgrind}


def library(name: str) -> str:
    """Return where the compiler has one of its libraries."""
    found = subprocess.run(
        [shutil.which("cc") or "cc", f"-print-file-name={name}"],
        capture_output=True,
        text=True,
        check=True,
    )
    path = Path(found.stdout.strip()).resolve()
    if not path.exists():
        message = f"the compiler has no {name}"
        raise FileNotFoundError(message)
    return str(path)


def chosen(kind: str) -> list[str]:
    """Return the arguments for pytest that are in the list of a kind of run."""
    lines = (HERE / f"{kind}.txt").read_text(encoding="utf-8").splitlines()
    return [line.strip() for line in lines if line.strip() and line[0] != "#"]


def findings(reports: Path) -> list[str]:
    """Return what was reported by any process of a run.

    Of leaks, only blocks that were allocated by functions of ours, where leaks can be
    told. A list of what to suppress cannot say that: it matches frames anywhere in a
    stack, and below ours there are always the interpreter's.
    """
    found = []
    for file in sorted(reports.iterdir()):
        text = file.read_text(errors="replace")
        if file.name == STDERR:
            found += OVERFLOWS.findall(text)
            continue
        for part in re.split(r"\n(?:==\d+== ?)?\n", text):
            if leak := LEAK.search(part):
                if CANNOT_TELL.search(text) or not IS_OURS.search(leak["allocator"]):
                    continue
            elif IS_NO_FINDING.fullmatch(part.strip()):
                continue
            found.append(part.strip())
    return found


if __name__ == "__main__":
    raise SystemExit(main())
