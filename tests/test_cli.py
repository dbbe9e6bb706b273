"""Run the command line as users do, and inside this process where it is bent."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from tokcache import CachedTokenizer, TokenIds
from tokcache.cli import main
from tokcache.cli.errors import UserError
from tokcache.cli.inputs import parse_size
from tokcache.cli.report import duration, percentile

from .data import REPOSITORY

if TYPE_CHECKING:
    from pathlib import Path

    from _pytest.capture import CaptureFixture
    from _pytest.monkeypatch import MonkeyPatch

SPECIALS = ("<|im_start|>", "<|im_end|>")

TALKS = [
    {
        "messages": [
            {"role": "system", "content": "Be brief. " * 40},
            {"role": "user", "content": f"Question {number}"},
            {"role": "assistant", "content": f"Answer {number}"},
            {"role": "user", "content": f"And {number} + 1? ü 🙂"},
            {"role": "assistant", "content": f"{number + 1}"},
        ]
    }
    for number in range(4)
]

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}"
    "<|im_start|>{{ m.role }}: {{ m.content }}<|im_end|>{% endfor %}"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with a small tokenizer and conversations, plain and packed."""
    folder = tmp_path_factory.mktemp("cli")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: index for index, character in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in SPECIALS]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    packed = gzip.compress((folder / "tokenizer.json").read_bytes())
    (folder / "small.json.gz").write_bytes(packed)
    lines = "".join(json.dumps(talk) + "\n" for talk in TALKS)
    (folder / "talks.jsonl").write_text(lines + "\n", "utf-8")
    (folder / "talks.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    return folder


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the command line in a new interpreter."""
    return subprocess.run(
        [sys.executable, "-m", "tokcache", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
    )


def replay_arguments(folder: Path, *more: object) -> list[str]:
    arguments = (
        folder / "talks.jsonl",
        "--tokenizer",
        folder / "tokenizer.json",
        "--format",
        "qwen3",
        *more,
    )
    return ["replay", *map(str, arguments)]


def test_replay_shows_a_table(folder: Path) -> None:
    done = run(*replay_arguments(folder))
    assert (done.returncode, done.stderr) == (0, "")
    table = {
        cells[1].strip(): [cell.strip() for cell in cells[2:-1]]
        for cells in (line.split("│") for line in done.stdout.splitlines())
        if len(cells) > 2
    }
    assert table["conversations"] == ["4"]
    assert table["requests"] == ["12"]
    assert table["token ids"] == ["all identical"]
    assert table["hits, misses"] == ["11, 1"]
    assert table["evictions"] == ["0"]
    for name in ("median call", "p99 call", "all calls"):
        without_cache, with_cache, speed_up = table[name]
        assert without_cache.endswith("s")
        assert with_cache.endswith("s")
        assert speed_up.endswith(" x")
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_replay_as_json_is_one_object_and_nothing_else(folder: Path) -> None:
    done = run(*replay_arguments(folder, folder / "talks.jsonl.gz", "--json"))
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert (found["conversations"], found["requests"]) == (8, 24)
    assert found["identical"] is True
    assert found["differences"] == []
    assert found["bypass"] is None
    cache = found["cache"]
    assert cache["cached_tokens"] + cache["uncached_tokens"] == found["tokens"]
    assert found["token_hit_ratio"] == cache["cached_tokens"] / found["tokens"]
    assert cache["payload_bytes"] <= cache["max_memory_bytes"] == 64 * 2**20
    assert cache["resident_bytes"] > 0
    for side in ("raw", "cached"):
        assert 0 < found[side]["p50_seconds"] <= found[side]["p99_seconds"]
        assert found[side]["p99_seconds"] <= found[side]["total_seconds"]


def in_process(capsys: CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    """Run a command with ``--json`` here; return its object."""
    code = main([*map(str, arguments), "--json"])
    captured = capsys.readouterr()
    assert (code, captured.err) == (0, "")
    found: dict[str, Any] = json.loads(captured.out)
    return found


def test_limit_and_max_memory(folder: Path, capsys: CaptureFixture[str]) -> None:
    found = in_process(
        capsys, *replay_arguments(folder, "--limit", 3, "--max-memory", "2kB")
    )
    assert (found["conversations"], found["requests"]) == (3, 9)
    assert found["identical"] is True
    assert found["cache"]["max_memory_bytes"] == 2000
    assert found["cache"]["payload_bytes"] <= 2000


def test_texts_need_no_format(
    folder: Path, tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    texts = tmp_path / "texts.jsonl"
    texts.write_text(
        '\ufeff{"text": "<|im_start|>a<|im_end|>b"}\n{"text": ""}\n', "utf-8"
    )
    for special in ("--add-special-tokens", "--no-add-special-tokens"):
        found = in_process(
            capsys, "replay", texts, "--tokenizer", folder / "small.json.gz", special
        )
        assert (found["chat"], found["requests"], found["tokens"]) == ("text", 2, 4)


def test_a_template_is_given_or_lies_beside_the_tokenizer(
    folder: Path, tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    packed = (folder / "small.json.gz").read_bytes()
    (tmp_path / "tokenizer.json.gz").write_bytes(packed)
    config: dict[str, Any] = {"bos_token": {"content": "<|im_end|>"}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    template = tmp_path / "t.jinja"
    template.write_text(TEMPLATE, "utf-8")
    replay = ("replay", folder / "talks.jsonl", "--tokenizer", tmp_path)
    given = in_process(capsys, *replay, "--template", template)

    config["chat_template"] = TEMPLATE
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    in_config = in_process(capsys, *replay)
    config["chat_template"] = [
        {"name": "tool_use", "template": "x"},
        {"name": "default", "template": TEMPLATE},
    ]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    named = in_process(capsys, *replay)
    (tmp_path / "chat_template.jinja").write_text("x", "utf-8")
    beside = in_process(capsys, *replay)

    assert given["tokens"] == in_config["tokens"] == named["tokens"]
    assert given["tokens"] > beside["tokens"] == 12


def test_a_tokenizer_inside_a_package(
    folder: Path,
    tmp_path: Path,
    monkeypatch: MonkeyPatch,
    capsys: CaptureFixture[str],
) -> None:
    package = tmp_path / "tokens_of_ours"
    (package / "files").mkdir(parents=True)
    # It is found without being imported.
    (package / "__init__.py").write_text("raise SystemExit('imported')", "utf-8")
    content = (folder / "tokenizer.json").read_bytes()
    (package / "files" / "tokenizer.json").write_bytes(content)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("files/tokenizer.json", "files"):
        found = in_process(
            capsys, "inspect", "--tokenizer", f"package:tokens_of_ours/{name}"
        )
        assert set(found["boundary_tokens"]) == set(SPECIALS)


def test_the_plot_is_a_png(folder: Path, tmp_path: Path) -> None:
    plot = tmp_path / "new folder" / "times.png"
    done = run(*replay_arguments(folder, "--plot", plot))
    assert (done.returncode, done.stderr) == (0, f"made the folder {plot.parent}\n")
    assert done.stdout.splitlines()[-1] == f"plot: {plot}"
    content = plot.read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    assert len(content) > 10_000
    done = run(*replay_arguments(folder, "--plot", plot, "--json"))
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["plot"] == str(plot)


class OneWrongId(CachedTokenizer):
    """A cache with a defect: from the second prompt on, the third id is wrong."""

    _n_calls = 0

    def encode(self, *arguments: Any, **options: Any) -> Any:
        """Encode and damage the result."""
        ids = super().encode(*arguments, **options).ids
        self._n_calls += 1
        if self._n_calls > 1:
            ids[2] = 7
        return TokenIds(ids)


class OneIdLess(CachedTokenizer):
    """A cache with a defect: the last id is missing."""

    def encode(self, *arguments: Any, **options: Any) -> Any:
        """Encode and damage the result."""
        return TokenIds(super().encode(*arguments, **options).ids[:-1])


def test_a_different_id_is_reported(
    folder: Path, monkeypatch: MonkeyPatch, capsys: CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tokcache.cli.replay.CachedTokenizer", OneWrongId)
    assert main(replay_arguments(folder)) == 1
    captured = capsys.readouterr()
    first, *_, last = captured.err.splitlines()
    right = Tokenizer.from_file(str(folder / "tokenizer.json")).token_to_id("y")
    assert first == (
        f"{folder / 'talks.jsonl'}:1: turn 2: ids differ at position 2: {right} from"
        " the tokenizer, 7 from the cache"
    )
    assert last == "... and 6 more prompts with different ids"
    assert "different in 11" in captured.out

    assert main(replay_arguments(folder, "--json")) == 1
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert found["identical"] is False
    assert len(found["differences"]) == 11
    assert found["differences"][-1] == {
        "where": f"{folder / 'talks.jsonl'}:4",
        "turn": 3,
        "position": 2,
        "raw": right,
        "cached": 7,
    }


def test_a_missing_id_is_reported(
    folder: Path, monkeypatch: MonkeyPatch, capsys: CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tokcache.cli.replay.CachedTokenizer", OneIdLess)
    assert main(replay_arguments(folder, "--limit", 1)) == 1
    assert "from the tokenizer, no id from the cache" in capsys.readouterr().err


def test_a_cache_that_is_off_is_said(
    folder: Path, tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(5)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    arguments = (folder / "talks.jsonl", "--tokenizer", tmp_path, "--format", "qwen3")
    found = in_process(capsys, "replay", *arguments)
    assert "truncation" in found["bypass"]
    assert main(["replay", *map(str, arguments)]) == 0
    assert "calls went past the cache: " in capsys.readouterr().err


def test_inspect(folder: Path, capsys: CaptureFixture[str]) -> None:
    tokenizer = ("--tokenizer", folder)
    done = run("inspect", *tokenizer)
    assert (done.returncode, done.stderr) == (0, "")
    inner = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert done.stdout == f"{CachedTokenizer(inner).explain()}\n"

    found = in_process(capsys, "inspect", *tokenizer)
    assert found["enabled"] is True
    assert found["boundary_tokens"] == list(SPECIALS)
    listed = in_process(capsys, "inspect", *tokenizer, "--special-token", SPECIALS[1])
    assert listed["boundary_tokens"] == [SPECIALS[1]]
    assert list(listed["refused_tokens"]) == [SPECIALS[0]]


def test_help_names_the_commands() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert "replay" in done.stdout
    assert "inspect" in done.stdout


BAD_LINES = {
    '{"messages": [': ":1: not JSON: Expecting value (column 15)",
    '\n{"text": "x"}\n[1]': ':3: not a JSON object with "messages" or "text"',
    '{"messages": []}': ":1: no messages: the list is empty",
    '{"tools": []}': ':1: no "messages" (a list) and no "text" (a string)',
    '{"text": 3}': ':1: no "messages" (a list) and no "text" (a string)',
    '{"messages": "hi"}': ':1: "messages" is not a list',
    '{"messages": [{"role": "user", "tool_calls": 7}]}': (
        ':1: "tool_calls" of message 1 is not a list of objects'
    ),
    '{"messages": ["hi"]}': ':1: message 1 is not an object with a "role"',
    '{"messages": [{"role": "user"}], "tools": {}}': ':1: "tools" is not a list',
    '{"messages": [{"role": "robot"}]}': ":1: turn 1: no role 'robot' in the chat",
    '{"text": "\\ud800"}': ":1: the text has half of a surrogate pair",
    "[" * 100_000: ":1: not JSON",
    "\n\n": "no conversations in ",
}


@pytest.mark.parametrize("lines", BAD_LINES)
def test_a_bad_line_is_named(
    lines: str, folder: Path, tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text(lines, "utf-8")
    code = main(["replay", str(file), *replay_arguments(folder)[2:]])
    complain(code, capsys, BAD_LINES[lines], str(file))


def complain(code: int, capsys: CaptureFixture[str], *parts: str) -> None:
    """Check that one line on stderr says it, and nothing was printed."""
    captured = capsys.readouterr()
    assert (code, captured.out) == (2, "")
    assert captured.err.startswith("tokcache: ")
    assert captured.err.count("\n") == 1
    for part in parts:
        assert part in captured.err


def test_files_that_cannot_be_read(
    folder: Path, tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    latin, cut = tmp_path / "latin.jsonl", tmp_path / "cut.jsonl.gz"
    latin.write_bytes(b'{"text": "\xfc"}')
    cut.write_bytes((folder / "talks.jsonl.gz").read_bytes()[:-20])
    for file, complaint in {
        tmp_path / "none.jsonl": "No such file",
        tmp_path: "directory",
        latin: ":1: not UTF-8 (byte 11",
        cut: "ended before",
    }.items():
        code = main(["replay", str(file), *replay_arguments(folder)[2:]])
        complain(code, capsys, str(file), complaint)


def test_tokenizers_that_cannot_be_read(
    folder: Path, tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    (tmp_path / "list.json").write_text("[1]", "utf-8")
    (tmp_path / "bytes.json").write_bytes(b"\xff")
    (tmp_path / "cut.json.gz").write_bytes((folder / "small.json.gz").read_bytes()[:99])
    for name, complaint in {
        tmp_path / "none.json": "No such file",
        tmp_path / "list.json": "not a tokenizer.json: invalid type",
        tmp_path / "bytes.json": "not UTF-8",
        tmp_path / "cut.json.gz": "ended before",
        tmp_path: "no tokenizer.json or tokenizer.json.gz in this directory",
        "package:no_such_package/x.json": "no package 'no_such_package' is installed",
        "package:/x": "no package ''",
        "package:json/x.json": "no file 'x.json' in the package 'json'",
        "package:json": "no file ''",
    }.items():
        for command in (["inspect"], ["replay", str(folder / "talks.jsonl")]):
            code = main([*command, "--tokenizer", str(name)])
            complain(code, capsys, str(name), complaint)


def test_options_that_make_no_sense(
    folder: Path, tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    replay = replay_arguments(folder)[:-2]
    bad = tmp_path / "bad.jinja"
    bad.write_text("{% if %}", "utf-8")
    refuses = tmp_path / "refuses.jinja"
    refuses.write_text("{{ raise_exception('not this') }}", "utf-8")
    for options, complaint in {
        ("--format", "nope"): "unknown chat format 'nope' (known: claude_legacy, ",
        (): "no chat template beside the tokenizer",
        ("--template", bad): f"{bad}: chat template, line 1: ",
        ("--template", refuses): "talks.jsonl:1: turn 1: chat template: not this",
        ("--template", tmp_path / "none"): "No such file",
        ("--format", "qwen3", "--template", bad): "exclude each other",
        ("--format", "qwen3", "--max-memory", "12 apples"): "bad size '12 apples'",
        ("--format", "qwen3", "--plot", tmp_path): "is a directory",
        ("--format", "qwen3", "--plot", bad / "x.png"): "x.png: ",
    }.items():
        complain(main([*replay, *map(str, options)]), capsys, complaint)
    inspect = ["inspect", "--tokenizer", str(folder), "--special-token", "<nope>"]
    complain(main(inspect), capsys, "'<nope>'")


def test_a_wrong_command_line_is_exit_code_2() -> None:
    for arguments in (["replay"], ["nope"], ["inspect", "--nope"]):
        done = run(*arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("module", ["typer", "rich", "jinja2", "matplotlib"])
def test_a_missing_extra_is_said_in_one_line(
    module: str, folder: Path, tmp_path: Path
) -> None:
    template = tmp_path / "t.jinja"
    template.write_text(TEMPLATE, "utf-8")
    arguments = replay_arguments(folder)[:-2]
    arguments += ["--template", str(template), "--plot", str(tmp_path / "x.png")]
    code = (
        f"import sys; sys.modules[{module!r}] = None\n"
        "from tokcache.cli import main\n"
        f"sys.exit(main({arguments!r}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"tokcache: {module} is not installed: pip install 'tokcache[cli]'\n"
    )


@pytest.mark.parametrize(
    ("size", "n_bytes"),
    [
        ("4096", 4096),
        ("0", 0),
        ("64MiB", 64 * 2**20),
        ("64m", 64 * 2**20),
        ("1.5 GB", 1_500_000_000),
        ("20kB", 20_000),
        ("20K", 20 * 1024),
        ("7 b", 7),
    ],
)
def test_sizes(size: str, n_bytes: int) -> None:
    assert parse_size(size) == n_bytes


@pytest.mark.parametrize("size", ["", "MiB", "-1", "1e3", "3iB", "12q", "1" * 400])
def test_bad_sizes(size: str) -> None:
    with pytest.raises(UserError, match="bad size"):
        parse_size(size)


def test_percentiles_are_measured_values() -> None:
    assert percentile([5], 0.5) == percentile([5], 0.99) == 5
    assert percentile([4, 1, 3, 2], 0.5) == 2
    assert percentile(list(range(1, 101)), 0.99) == 99
    assert percentile(list(range(1, 102)), 0.99) == 100


def test_durations_have_three_digits() -> None:
    assert duration(1_234_567) == "1.23 ms"
    assert duration(52_340) == "52.3 µs"
    assert duration(2_073_000_000) == "2.07 s"
    assert duration(0) == "0 µs"
