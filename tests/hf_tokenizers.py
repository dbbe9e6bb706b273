"""Make fast tokenizers of transformers, and tell all that a call of one answers."""

from __future__ import annotations

import functools
import gzip
import json
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from . import data
from .toys import special, toy

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tokenizers import Tokenizer

transformers = pytest.importorskip("transformers")

TEMPLATE = (
    "{% for m in messages %}{{ bos_token or '' }}{{ m.role }}\n{{ m.content }}"
    "{{ eos_token }}\n{% endfor %}{% if add_generation_prompt %}assistant\n{% endif %}"
)


def make(backend: Tokenizer) -> Any:
    """Make a tokenizer of transformers with some named special tokens."""
    added = [t.content for _, t in sorted(backend.get_added_tokens_decoder().items())]
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=added[0],
        eos_token=added[-1],
        chat_template=TEMPLATE,
        model_max_length=100_000,
    )


@functools.lru_cache(maxsize=1)
def plain_tokenizer(family: str) -> Any:
    return make(data.load_family(family))


def small() -> Any:
    """Make a small tokenizer that begins prompts with a special token."""
    return make(toy(special("<s>"), special("<im>"), template="<s> $A"))


def texts_of(family: str) -> list[str]:
    """Return prompts that share prefixes, and texts that are hard in other ways."""
    prompts = [
        data.render(family, talk[: end + 1])
        for talk in data.conversations("own", 3)
        for end in (0, 2)
    ]
    added = data.load_family(family).get_added_tokens_decoder().values()
    marks = "".join(token.content for token in list(added)[:4])
    return [*prompts, "", " ", "hello", f"{marks} x{marks}", "Übung 中文 👩‍👩‍👧 \n\n"]


CONFIGURATION = ("tokenizer_config.json", "chat_template.jinja")

ENCODING = (
    "ids",
    "type_ids",
    "tokens",
    "offsets",
    "attention_mask",
    "special_tokens_mask",
    "word_ids",
    "sequence_ids",
    "n_sequences",
)


def facts(encoding: Any) -> tuple[Any, ...]:
    overflowing = [facts(each) for each in encoding.overflowing]
    return *(getattr(encoding, name) for name in ENCODING), overflowing, len(encoding)


def outcome(call: Callable[[], Any], *, deep: bool) -> Any:
    """Return all that a call answers, or how it fails."""
    try:
        found = call()
    except BaseException as error:  # noqa: BLE001 - a panic of Rust is one too
        return type(error), str(error)
    if not isinstance(found, transformers.BatchEncoding):
        return comparable(found)
    return {name: comparable(value) for name, value in found.items()}, [
        facts(each) for each in found.encodings or () if deep
    ]


def comparable(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.dtype, comparable(value.tolist())
    if isinstance(value, (list, tuple)):
        return type(value), [comparable(each) for each in value]
    return value


def assert_same(raw: Any, fast: Any, call: Callable[[Any], Any], *, deep: bool) -> None:
    """Check that a call of both answers the same, or fails alike."""
    got, want = (outcome(lambda t=t: call(t), deep=deep) for t in (fast, raw))  # type: ignore[misc]
    assert got == want


def pickled(tokenizer: Any) -> Any:
    """Return what comes of a pickle."""
    return pickle.loads(pickle.dumps(tokenizer))  # noqa: S301 - our own bytes


def configuration(family: str) -> dict[str, bytes]:
    """Return the files beside a family's ``tokenizer.json`` that make it the user's."""
    packed = data.DATA / "tokenizers" / family
    found = {
        name: gzip.decompress((packed / f"{name}.gz").read_bytes())
        for name in CONFIGURATION
        if (packed / f"{name}.gz").is_file()
    }
    file = data._packaged_file(family) if family in data.PACKAGED else None
    if not found and file is not None:
        beside = [file.with_name(name) for name in CONFIGURATION]
        found = {path.name: path.read_bytes() for path in beside if path.is_file()}
    return found


def configured(family: str, folder: Path) -> Any:
    """Load a family as users do: with its own class, special tokens and template."""
    folder.joinpath("tokenizer.json").write_text(data.family_text(family), "utf-8")
    for name, content in configuration(family).items():
        (folder / name).write_bytes(content)
    config = json.loads((folder / "tokenizer_config.json").read_bytes())
    if config.get("tokenizer_class", "PreTrainedTokenizer") == "PreTrainedTokenizer":
        return transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    return transformers.AutoTokenizer.from_pretrained(folder)
