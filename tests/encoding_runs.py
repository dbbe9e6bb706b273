"""Run ``tokcache encode`` and read what it wrote."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.commands import told
from tests.data import REPOSITORY
from tests.toys import special, toy
from tokcache.cli import main

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from _pytest.capture import CaptureFixture
    from tokenizers import Tokenizer

WORDS = ["hello", " hello", "foo", "x", "\n\n", "é", "🙂", "<|im_end|>", "\u2028", "中"]


def build() -> Tokenizer:
    """Make the tokenizer of all runs."""
    return toy(special("<|im_start|>"), special("<|im_end|>"))


def make_texts(n: int, seed: int = 7, longest: int = 40) -> list[str]:
    """Make texts of any length, some of them empty."""
    draw = random.Random(seed)
    return ["".join(draw.choices(WORDS, k=draw.randrange(longest))) for _ in range(n)]


def lines_of(texts: Iterable[str]) -> bytes:
    """Write texts as JSONL."""
    return b"".join(json.dumps({"text": text}).encode() + b"\n" for text in texts)


def command(
    folder: Path, out: Path, *more: object, files: Sequence[object]
) -> list[str]:
    """Return the arguments of a run in a folder that has ``tokenizer.json``."""
    given = ("encode", *files, "--tokenizer", folder / "tokenizer.json", "--out", out)
    return [*map(str, given), *map(str, more)]


def start(arguments: Sequence[str]) -> subprocess.Popen[str]:
    """Begin a run in a new interpreter."""
    return subprocess.Popen(
        [sys.executable, "-m", "tokcache", *arguments],
        cwd=REPOSITORY,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def report_of(capsys: CaptureFixture[str], arguments: Sequence[str]) -> dict[str, Any]:
    """Run here with ``--json``; return the report."""
    code = main([*arguments, "--json"])
    told = capsys.readouterr()
    assert (code, told.err) == (0, "")
    found: dict[str, Any] = json.loads(told.out)
    return found


def mistake_of(capsys: CaptureFixture[str], arguments: Sequence[str]) -> str:
    """Run here what must fail; return the one line that says why."""
    return told(main(list(arguments)), capsys)


def content(out: Path) -> dict[str, bytes]:
    """Return every file of a folder."""
    return {path.name: path.read_bytes() for path in sorted(out.iterdir())}


def read_ids(out: Path, kind: str) -> list[list[int]]:
    """Read all shards in order; check the offsets on the way."""
    if kind == "npy":
        return _read_npy(out)
    import pyarrow as pa  # noqa: PLC0415 - not for npy
    import pyarrow.parquet as pq  # noqa: PLC0415

    found: list[list[int]] = []
    n_ids = 0
    for path in sorted(out.glob(f"*.{kind}")):
        if kind == "parquet":
            table = pq.read_table(path)
        else:
            with pa.ipc.open_file(str(path)) as reader:
                table = reader.read_all()
        assert table.schema.field("ids").type.value_type == pa.uint32()
        assert table.schema.field("offset").type == pa.int64()
        for ids, offset in zip(
            table["ids"].to_pylist(), table["offset"].to_pylist(), strict=True
        ):
            assert offset == n_ids
            n_ids += len(ids)
            found.append(ids)
    return found


def _read_npy(out: Path) -> list[list[int]]:
    found: list[list[int]] = []
    for path in sorted(out.glob("*.ids.npy")):
        ids = np.load(path, mmap_mode="r")
        ends = np.load(path.with_name(path.name.replace(".ids.", ".offsets.")))
        assert (ids.dtype, ends.dtype) == (np.dtype("u4"), np.dtype("i8"))
        assert (ends[0], ends[-1]) == (0, len(ids))
        found += [ids[a:b].tolist() for a, b in itertools.pairwise(ends)]
    return found


def fill_folder(folder: Path) -> Path:
    """Put a tokenizer and three hundred texts into a folder."""
    build().save(str(folder / "tokenizer.json"))
    (folder / "texts.jsonl").write_bytes(lines_of(make_texts(300)))
    return folder
