"""Check ``tokcache encode``: the ids, the order, the shards, and what is refused."""

from __future__ import annotations

import errno
import gzip
import json
import os
import sys
import tracemalloc
from functools import partial
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from tokenizers import pre_tokenizers

from tests.encoding_runs import (
    build,
    command,
    content,
    fill_folder,
    lines_of,
    make_texts,
    mistake_of,
    read_ids,
    report_of,
    start,
)
from tokcache.chat import render
from tokcache.cli import gauge, main
from tokcache.cli.errors import UserError
from tokcache.cli.ledger import Ledger
from tokcache.cli.stream import Place, Source, Stamp, read_chunks

if TYPE_CHECKING:
    from pathlib import Path

    from _pytest.capture import CaptureFixture
    from _pytest.monkeypatch import MonkeyPatch

KINDS = ["parquet", "arrow", "npy"]
SMALL = ("--shard-size", "4KiB", "--chunk-size", "2KiB")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill_folder(tmp_path_factory.mktemp("encode"))


def want(texts: list[str], *, special: bool = False) -> list[list[int]]:
    tokenizer = build()
    return [tokenizer.encode(text, add_special_tokens=special).ids for text in texts]


@pytest.mark.parametrize("kind", KINDS)
def test_shards_hold_the_ids_of_every_line_in_order(
    folder: Path, tmp_path: Path, capsys: CaptureFixture[str], kind: str
) -> None:
    texts = make_texts(300)
    files = [folder / "texts.jsonl"]
    arguments = command(folder, tmp_path / "o", "--format", kind, *SMALL, files=files)
    report = report_of(capsys, arguments)
    assert read_ids(tmp_path / "o", kind) == want(texts)
    assert report["n_texts"] == 300
    assert report["n_ids"] == report["run_ids"] == sum(map(len, want(texts)))
    assert report["n_shards"] == len(list((tmp_path / "o").glob("shard-*.*"))) // (
        2 if kind == "npy" else 1
    )
    assert report["n_shards"] > 3
    assert 0 < report["token_hit_ratio"] < 1
    assert not list((tmp_path / "o").glob("*.tmp"))


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_in_the_input_is_nothing_in_the_output(
    folder: Path, tmp_path: Path, capsys: CaptureFixture[str], kind: str
) -> None:
    (tmp_path / "blank.jsonl").write_bytes(b"\n  \n")
    (tmp_path / "empty.jsonl").write_bytes(b"")
    files = [tmp_path / "blank.jsonl", tmp_path / "empty.jsonl"]
    report = report_of(
        capsys, command(folder, tmp_path / "o", "--format", kind, files=files)
    )
    assert (report["n_texts"], report["n_ids"]) == (0, 0)
    assert read_ids(tmp_path / "o", kind) == []


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_several_processes_write_the_same_bytes(
    folder: Path, tmp_path: Path, method: str
) -> None:
    files = [folder / "texts.jsonl", folder / "texts.jsonl"]
    one = command(folder, tmp_path / "one", *SMALL, files=files)
    assert main(one) == 0
    more = ("--processes", 3, "--start-method", method)
    run = start(command(folder, tmp_path / "three", *SMALL, *more, files=files))
    assert (run.communicate()[1], run.returncode) == ("", 0)
    assert content(tmp_path / "three") == content(tmp_path / "one")
    assert read_ids(tmp_path / "three", "parquet") == want(make_texts(300) * 2)


def test_files_packed_or_not_are_one_stream(
    folder: Path, tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    texts = make_texts(60)
    (tmp_path / "a.jsonl").write_bytes(lines_of(texts[:20]).rstrip(b"\n"))
    (tmp_path / "b.gz").write_bytes(gzip.compress(lines_of(texts[20:50])))
    (tmp_path / "c.jsonl").write_bytes(
        b"\xef\xbb\xbf" + lines_of(texts[50:]).replace(b"\n", b"\r\n\n")
    )
    files = [tmp_path / name for name in ("a.jsonl", "b.gz", "c.jsonl")]
    report_of(capsys, command(folder, tmp_path / "o", *SMALL, files=files))
    assert read_ids(tmp_path / "o", "parquet") == want(texts)


def test_messages_are_written_in_a_chat_format_and_keys_can_be_named(
    folder: Path, tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    talk = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "x"}]
    lines = [{"turns": talk}, {"body": "foo", "text": 7}]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    keys = ("--text-key", "body", "--messages-key", "turns", "--chat", "qwen3")
    files = [tmp_path / "in.jsonl"]
    report_of(capsys, command(folder, tmp_path / "o", *keys, files=files))
    assert read_ids(tmp_path / "o", "parquet") == want([render(talk, "qwen3"), "foo"])
    told = mistake_of(capsys, command(folder, tmp_path / "p", *keys[:4], files=files))
    assert told.startswith(f"{files[0]}:1: no chat template beside the tokenizer")
    assert "--chat (" in told


BAD = [
    (b"{", "not JSON"),
    (b'{"text": "\xff"}', "not UTF-8"),
    (b'{"text": 7}', 'no "messages" (a list) and no "text" (a string)'),
    (b'{"text": "\\ud800"}', "cannot be encoded"),
    (b'{"messages": [{"role": "user", "content": "x"}]}', "no chat template"),
    (b"7" * 5000, "not JSON"),
]


@pytest.mark.parametrize(("line", "reason"), BAD, ids=[reason for _, reason in BAD])
def test_a_bad_line_is_an_error_that_names_it(
    folder: Path,
    tmp_path: Path,
    capsys: CaptureFixture[str],
    line: bytes,
    reason: str,
) -> None:
    texts = make_texts(90)
    (tmp_path / "in.jsonl").write_bytes(
        lines_of(texts[:70]) + line + b"\n" + lines_of(texts[70:])
    )
    arguments = command(folder, tmp_path / "o", *SMALL, files=[tmp_path / "in.jsonl"])
    told = mistake_of(capsys, arguments)
    assert told.startswith(f"{tmp_path / 'in.jsonl'}:71: ")
    assert reason in told
    assert not list((tmp_path / "o").glob("*.tmp"))
    # What came before it is kept; it fails again, and can be left out.
    shards = len(list((tmp_path / "o").glob("*.parquet")))
    assert shards > 0
    assert mistake_of(capsys, [*arguments, "--resume"]) == told
    report = report_of(capsys, [*arguments, "--resume", "--skip-bad"])
    assert (report["n_bad"], report["n_texts"]) == (1, 90)
    assert read_ids(tmp_path / "o", "parquet") == want(texts)
    [entry] = (tmp_path / "o" / "bad_lines.jsonl").read_text().splitlines()
    assert json.loads(entry)["error"] == told


def test_bad_lines_are_counted_and_listed_in_order(
    folder: Path, tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    good = make_texts(40)
    lines = []
    for i, text in enumerate(good):
        lines += [lines_of([text]), BAD[i % len(BAD)][0] + b"\n"]
    (tmp_path / "in.jsonl").write_bytes(b"".join(lines))
    for processes in (1, 2):
        out = tmp_path / f"o{processes}"
        arguments = command(
            folder, out, "--skip-bad", *SMALL, files=[tmp_path / "in.jsonl"]
        )
        report = report_of(capsys, [*arguments, "--processes", str(processes)])
        assert (report["n_bad"], report["n_texts"]) == (40, 40)
        assert read_ids(out, "parquet") == want(good)
    assert content(tmp_path / "o1") == content(tmp_path / "o2")
    told = [
        json.loads(line)["error"].split(": ")[0].rpartition(":")[2]
        for line in (tmp_path / "o1" / "bad_lines.jsonl").read_text().splitlines()
    ]
    assert told == [str(2 * i + 2) for i in range(40)]


@pytest.mark.skipif(
    not hasattr(pre_tokenizers, "FixedLength"), reason="no part of it panics for a text"
)
def test_a_text_that_makes_the_tokenizer_panic_is_a_bad_line(
    tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    tokenizer = build()
    token = next(iter(tokenizer.get_added_tokens_decoder().values())).content
    tokenizer.pre_tokenizer = pre_tokenizers.FixedLength(0)  # takes tokens only
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "in.jsonl").write_bytes(lines_of([token, "text", token * 2]))
    files = [tmp_path / "in.jsonl"]
    told = mistake_of(capsys, command(tmp_path, tmp_path / "o", files=files))
    assert told.startswith(f"{files[0]}:2: cannot be encoded: chunk size")
    arguments = command(tmp_path, tmp_path / "p", "--skip-bad", files=files)
    report = report_of(capsys, arguments)
    assert (report["n_bad"], report["n_texts"]) == (1, 2)
    number = tokenizer.token_to_id(token)
    assert read_ids(tmp_path / "p", "parquet") == [[number], [number, number]]


def test_a_folder_that_is_not_empty_is_refused(
    folder: Path, tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    arguments = command(folder, tmp_path, files=[folder / "texts.jsonl"])
    (tmp_path / "mine.txt").write_text("x")
    assert "not empty" in mistake_of(capsys, arguments)
    assert "not empty" in mistake_of(capsys, [*arguments, "--resume"])
    assert list(content(tmp_path)) == ["mine.txt"]
    (tmp_path / "mine.txt").unlink()
    report_of(capsys, arguments)
    assert "not empty (--resume goes on" in mistake_of(capsys, arguments)


def test_what_is_complete_is_left_as_it_is(
    folder: Path, tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    arguments = command(
        folder, tmp_path / "o", "--resume", files=[folder / "texts.jsonl"]
    )
    first = report_of(capsys, arguments)
    before = content(tmp_path / "o")
    again = report_of(capsys, arguments)
    assert content(tmp_path / "o") == before
    assert again["n_ids"] == first["n_ids"] == first["run_ids"]
    assert again["run_ids"] == 0


OTHERS = [
    (("--shard-size", "5KiB"), "shard_bytes"),
    (("--chunk-size", "5KiB"), "chunk_bytes"),
    (("--format", "npy"), "format, versions"),
    (("--text-key", "body"), "text_key"),
    (("--messages-key", "turns"), "messages_key"),
    (("--add-special-tokens",), "add_special_tokens"),
    (("--chat", "qwen3"), "tokenizer_sha256"),
]


@pytest.mark.parametrize(("change", "name"), OTHERS, ids=[each[1] for each in OTHERS])
def test_other_settings_do_not_go_on_with_a_run(
    folder: Path,
    tmp_path: Path,
    capsys: CaptureFixture[str],
    change: tuple[str, ...],
    name: str,
) -> None:
    arguments = command(folder, tmp_path / "o", files=[folder / "texts.jsonl"])
    report_of(capsys, arguments)
    told = mistake_of(capsys, [*arguments, "--resume", *change])
    assert told.endswith(f"that run had other settings: {name}")


def test_other_inputs_do_not_go_on_with_a_run(
    folder: Path, tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(lines_of(make_texts(9)))
    arguments = command(folder, tmp_path / "o", "--resume", files=[path])
    report_of(capsys, arguments)
    os.utime(path, ns=(1, 1))
    assert mistake_of(capsys, arguments).endswith("other settings: inputs")
    two = command(folder, tmp_path / "o", "--resume", files=[path, path])
    assert mistake_of(capsys, two).endswith("other settings: inputs")


def test_processes_and_cache_are_not_such_settings(
    folder: Path, tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    arguments = command(
        folder, tmp_path / "o", "--resume", files=[folder / "texts.jsonl"]
    )
    report_of(capsys, arguments)
    more = ["--processes", "2", "--max-memory", "0"]
    assert report_of(capsys, [*arguments, *more])["run_ids"] == 0


def test_a_run_with_lines_left_out_goes_on_with_the_same_option_only(
    folder: Path, tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    (tmp_path / "in.jsonl").write_bytes(b"{\n" + lines_of(make_texts(9)))
    arguments = command(folder, tmp_path / "o", files=[tmp_path / "in.jsonl"])
    report_of(capsys, [*arguments, "--skip-bad"])
    assert "--skip-bad" in mistake_of(capsys, [*arguments, "--resume"])


def test_two_runs_are_not_at_work_in_one_folder(
    folder: Path, tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    arguments = command(
        folder, tmp_path / "o", "--resume", files=[folder / "texts.jsonl"]
    )
    report_of(capsys, arguments)
    settings = json.loads((tmp_path / "o" / "manifest.json").read_bytes())
    ledger = Ledger(tmp_path / "o", settings, resume=True)
    run = start(arguments)  # a lock keeps out other processes
    assert "another run is at work" in run.communicate()[1]
    ledger.close()
    report_of(capsys, arguments)


def test_a_file_that_changes_under_way_is_an_error(
    folder: Path, tmp_path: Path, monkeypatch: MonkeyPatch, capsys: CaptureFixture[str]
) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(lines_of(make_texts(300)))
    finish = Ledger.note_shard

    def note_shard(self: Ledger, *args: object) -> None:
        finish(self, *args)  # type: ignore[arg-type]
        with path.open("ab") as stream:
            stream.write(b"\n")

    monkeypatch.setattr(Ledger, "note_shard", note_shard)
    told = mistake_of(capsys, command(folder, tmp_path / "o", *SMALL, files=[path]))
    assert told == f"{path}: it changed while it was read"


@pytest.mark.parametrize(
    "more",
    [
        ("--format", "csv"),
        ("--start-method", "thread"),
        ("--shard-size", "0"),
        ("--chunk-size", "big"),
        ("--chat", "no such"),
        ("--chat", "qwen3", "--template", "x"),
        ("--template", "missing.jinja"),
    ],
)
def test_options_are_checked_before_anything_is_written(
    folder: Path, tmp_path: Path, capsys: CaptureFixture[str], more: tuple[str, ...]
) -> None:
    out = tmp_path / "o"
    told = mistake_of(
        capsys, command(folder, out, *more, files=[folder / "texts.jsonl"])
    )
    assert told
    assert not out.exists()


def test_files_that_cannot_be_read(
    folder: Path, tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    for path, reason in (
        (tmp_path / "missing.jsonl", "No such file"),
        (tmp_path, "not a file"),
    ):
        told = mistake_of(capsys, command(folder, tmp_path / "o", files=[path]))
        assert told.startswith(f"{path}: ")
        assert reason in told
    packed = gzip.compress(lines_of(make_texts(200)))
    (tmp_path / "cut.gz").write_bytes(packed[: len(packed) // 2])
    told = mistake_of(
        capsys, command(folder, tmp_path / "o", files=[tmp_path / "cut.gz"])
    )
    assert told.startswith(f"{tmp_path / 'cut.gz'}:")


def test_a_tokenizer_that_is_none_leaves_no_folder(
    folder: Path, tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    out = tmp_path / "o"
    arguments = command(tmp_path, out, files=[folder / "texts.jsonl"])
    assert "not a tokenizer.json" in mistake_of(capsys, arguments)
    assert not out.exists()


def test_padding_of_the_file_is_off_and_truncation_is_not(
    folder: Path, tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    tokenizer = build()
    tokenizer.enable_truncation(6)
    texts = make_texts(60)
    expected = [tokenizer.encode(text).ids for text in texts]
    tokenizer.enable_padding(pad_id=3)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    for size in ("100", "1MiB"):
        arguments = command(
            tmp_path, tmp_path / size, "--chunk-size", size, files=[folder / "t.jsonl"]
        )
        (folder / "t.jsonl").write_bytes(lines_of([*texts, "\ud800"]))
        report_of(capsys, [*arguments, "--skip-bad"])
        assert read_ids(tmp_path / size, "parquet") == expected


def test_a_missing_extra_is_told_in_one_line(
    folder: Path, tmp_path: Path, monkeypatch: MonkeyPatch, capsys: CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyarrow"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    arguments = command(folder, tmp_path / "o", files=[folder / "texts.jsonl"])
    told = mistake_of(capsys, arguments)
    assert told == "pyarrow is not installed: pip install 'tokcache[data]'"
    report_of(capsys, [*arguments[:-1], str(tmp_path / "p"), "--format", "npy"])


@pytest.mark.parametrize("kind", KINDS)
def test_a_disk_that_is_full_is_told_in_one_line(
    folder: Path,
    tmp_path: Path,
    monkeypatch: MonkeyPatch,
    capsys: CaptureFixture[str],
    kind: str,
) -> None:
    monkeypatch.setattr(os, "fsync", full_disk)
    arguments = command(
        folder, tmp_path / "o", "--format", kind, files=[folder / "texts.jsonl"]
    )
    assert "No space left" in mistake_of(capsys, arguments)
    monkeypatch.undo()
    report_of(capsys, [*arguments, "--resume"])
    assert read_ids(tmp_path / "o", kind) == want(make_texts(300))


def full_disk(_: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_terminal_is_shown_how_far_it_is(
    folder: Path, tmp_path: Path, monkeypatch: MonkeyPatch, capsys: CaptureFixture[str]
) -> None:
    # What makes a terminal is rich's to find out, by more of the environment than this.
    monkeypatch.setattr(gauge, "Console", partial(Console, force_terminal=True))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(gauge, "_SECONDS_BETWEEN_REFRESHES", 0)
    arguments = command(folder, tmp_path / "o", *SMALL, files=[folder / "texts.jsonl"])
    assert main(arguments) == 0
    told = capsys.readouterr()
    assert " tokens/s" in told.err
    assert "% cached" in told.err
    assert "300 texts" in told.out


@given(
    files=st.lists(
        st.lists(st.binary(max_size=12).map(lambda b: b.replace(b"\n", b"x"))),
        min_size=1,
        max_size=3,
    ),
    chunk_bytes=st.integers(1, 40),
    packed=st.booleans(),
)
def test_chunks_go_on_from_the_end_of_any(
    tmp_path_factory: pytest.TempPathFactory,
    files: list[list[bytes]],
    chunk_bytes: int,
    packed: bool,
) -> None:
    folder = tmp_path_factory.mktemp("chunks")
    sources = []
    for number, lines in enumerate(files):
        path = folder / str(number)
        whole = b"\n".join([*lines, b""] if number % 2 else lines)
        # A first line that looks like gzip is not one of ours.
        whole = b"" if whole.startswith(b"\x1f\x8b") else whole
        path.write_bytes(gzip.compress(whole) if packed else whole)
        sources.append(Source(str(path), Stamp.of(str(path))))
    chunks = list(read_chunks(sources, Place(), chunk_bytes))
    for i, chunk in enumerate(chunks):
        rest = list(read_chunks(sources, chunk.end, chunk_bytes))
        assert [(c.spans, c.end) for c in rest] == [
            (c.spans, c.end) for c in chunks[i + 1 :]
        ]
    for number, source in enumerate(sources):
        content = (folder / str(number)).read_bytes()
        content = gzip.decompress(content) if packed else content
        want = [
            (i, line.rstrip(b"\r"))
            for i, line in enumerate(content.split(b"\n"), 1)
            if line.strip()
        ]
        assert want == [
            each
            for chunk in chunks
            for path, lines in chunk.spans
            if path == source.path
            for each in lines
        ]


def test_memory_does_not_grow_with_the_input(
    folder: Path, tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    peaks: list[int] = []
    for times in (1, 1, 8):
        path = tmp_path / f"{times}.jsonl"
        path.write_bytes((folder / "texts.jsonl").read_bytes() * times)
        more = ("--max-memory", 0, "--format", "npy", *SMALL)
        tracemalloc.start()
        report_of(
            capsys, command(folder, tmp_path / f"o{len(peaks)}", *more, files=[path])
        )
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[2] < 1.2 * peaks[1]  # the first imports


def test_a_place_is_told_where_the_error_has_one() -> None:
    source = Source("missing", Stamp(0, 0))
    with pytest.raises(UserError, match="missing: No such file"):
        list(read_chunks([source], Place(), 1))
