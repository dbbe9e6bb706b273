"""Build a source distribution and from it a wheel; use that outside of the tree."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from .data import REPOSITORY

tomllib = pytest.importorskip("tomllib")  # not before CPython 3.11

COMPILED = {"_batch", "_counters", "_ids", "_plan", "_scan", "_trie", "_walker"}

# What git has and a source distribution need not.
ONLY_IN_GIT = {".gitignore"}

# What setuptools adds.
MADE = {"PKG-INFO", "setup.cfg"}

START = """
import pathlib, sys
import tokcache
from tokenizers import Tokenizer, models, pre_tokenizers

assert pathlib.Path(tokcache.__file__).is_relative_to(sys.argv[1]), tokcache.__file__
alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
inner = Tokenizer(models.BPE({each: i for i, each in enumerate(alphabet)}, []))
inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
inner.add_special_tokens(["<|user|>"])
cached = tokcache.CachedTokenizer(inner)
for text in ("<|user|>hello<|user|>", "<|user|>hello<|user|>bye"):
    assert cached.encode(text).ids == inner.encode(text).ids
assert cached.cache_stats().hits == 1
print("same ids")
"""


def run(*command: object, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=cwd,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout


def build_source(folder: Path) -> Path:
    """Build a source distribution from the tree and unpack it; git is not there."""
    run("-m", "build", "--sdist", "--no-isolation", "--outdir", folder, cwd=REPOSITORY)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    (found,) = (path for path in folder.iterdir() if path.is_dir())
    return found


def build_wheel(unpacked: Path, folder: Path) -> Path:
    """Build a wheel from the unpacked source, fast and with the core's own checks."""
    options = ("--wheel", "--no-isolation", "--outdir", folder)
    switches = {"TOKCACHE_DEBUG": "1", "TOKCACHE_SANITIZE": "", "TOKCACHE_PROFILE": ""}
    run("-m", "build", *options, cwd=unpacked, **switches)
    (found,) = folder.glob("*.whl")
    return found


def files_in(folder: Path) -> set[str]:
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file()
    }


def cibuildwheel() -> dict[str, Any]:
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))
    found: dict[str, Any] = settings["tool"]["cibuildwheel"]
    return found


def listed_by_git(*options: str) -> set[str]:
    done = subprocess.run(
        ["git", "ls-files", "-z", *options],  # noqa: S607
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    return {name for name in done.stdout.split("\0") if (REPOSITORY / name).is_file()}


def check_against_git(unpacked: Path) -> None:
    """Ask for all that is committed, and allow what soon may be."""
    found = {
        name
        for name in files_in(unpacked) - MADE
        if not name.startswith("tokcache.egg-info/")
    }
    assert sorted(listed_by_git() - ONLY_IN_GIT - found) == []
    known = listed_by_git("--cached", "--others", "--exclude-standard")
    assert sorted(found - known) == []


def check_source(unpacked: Path) -> None:
    found = files_in(unpacked)
    assert {"LICENSE", "README.md", "CHANGELOG.md", "SECURITY.md", "setup.py"} <= found
    assert {"tokcache/py.typed", "tokcache/chat_formats.json", "docs/api.md"} <= found
    assert {"tests/test_sdist.py", "tests/allocator.c", "Makefile"} <= found
    for name in COMPILED:
        assert {f"tokcache/{name}.pyx", f"tokcache/{name}.pyi"} <= found
    built = {
        name
        for name in found
        if PurePosixPath(name).suffix in {".c", ".so", ".pyc", ".pyd", ".o", ".html"}
        or {"__pycache__", "out", "build", "target"} & set(PurePosixPath(name).parts)
    }
    assert built == {"tests/allocator.c", "docs/templates/redirect.html"}


def check_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        found = packed.namelist()
    for name in COMPILED:
        assert f"tokcache/{name}.pyi" in found
        assert sum(each.startswith(f"tokcache/{name}.cpython-") for each in found) == 1
    assert {"tokcache/py.typed", "tokcache/chat_formats.json"} <= set(found)
    assert any(name.endswith("dist-info/licenses/LICENSE") for name in found)
    tops = {PurePosixPath(name).parts[0] for name in found}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"tokcache"}
    assert not [name for name in found if name.endswith((".c", ".pyc"))]


def run_guards(site: Path, folder: Path) -> None:
    """Run the tests that cibuildwheel would, from the files that it would copy."""
    settings = cibuildwheel()
    for name in settings["test-sources"]:
        source = REPOSITORY / name
        if source.is_dir():
            unbuilt = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, folder / name, ignore=unbuilt)
        else:
            shutil.copy(source, folder / name)
    python, *command = shlex.split(settings["test-command"])
    assert python == "python"
    assert " passed" in run(*command, cwd=folder, PYTHONPATH=str(site))


def test_a_source_distribution_and_a_wheel_from_it(tmp_path: Path) -> None:
    """One test, since two workers would both compile, and both write to the tree."""
    folders = [tmp_path / name for name in ("source", "wheel", "site", "elsewhere")]
    for folder in folders:
        folder.mkdir()
    source, outdir, site, elsewhere = folders
    unpacked = build_source(source)
    check_source(unpacked)
    if (REPOSITORY / ".git").exists():
        check_against_git(unpacked)
    wheel = build_wheel(unpacked, outdir)
    check_wheel(wheel)
    options = ("--quiet", "--no-deps", "--no-index", "--target", site)
    run("-m", "pip", "install", *options, wheel, cwd=elsewhere)
    said = run("-c", START, site, cwd=elsewhere, PYTHONPATH=str(site))
    assert said.endswith("same ids\n")
    run_guards(site, elsewhere)


@pytest.mark.parametrize(
    ("platform", "machines"),
    [
        ("linux", ("manylinux_x86_64", "manylinux_aarch64")),
        ("macos", ("macosx_x86_64", "macosx_arm64")),
    ],
)
def test_which_wheels_would_be_built(platform: str, machines: tuple[str, ...]) -> None:
    """Let cibuildwheel itself read its settings; it needs no network for that."""
    pytest.importorskip("cibuildwheel")
    pythons = ("cp310", "cp311", "cp312", "cp313", "cp314", "cp314t")
    said = run(
        *("-m", "cibuildwheel", "--print-build-identifiers", "--platform", platform),
        cwd=REPOSITORY,
    )
    wanted = {f"{python}-{machine}" for python in pythons for machine in machines}
    assert set(said.split()) == wanted
