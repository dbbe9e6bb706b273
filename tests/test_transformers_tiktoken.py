"""Check tokenizers of transformers that are written around a tiktoken encoding."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

from .encodings import small_encoding
from .hf_tokenizers import pickled, transformers

if TYPE_CHECKING:
    from collections.abc import Callable

from tokcache.transformers import accelerate, cached_tokenizer, unaccelerate


class Around(transformers.PreTrainedTokenizer):  # type: ignore[misc]
    """Wrap a tiktoken encoding as Kimi's own tokenizer does."""

    def __init__(self, **options: Any) -> None:
        self.model = small_encoding("<s>", "<e>")
        super().__init__(**options)

    @property
    def vocab_size(self) -> int:
        return int(self.model.n_vocab)

    def get_vocab(self) -> dict[str, int]:
        return {f"{i}": i for i in range(self.vocab_size)}

    def encode(self, text: str, **_: Any) -> list[int]:
        found: list[int] = []
        for start in range(0, len(text), 64):
            part = text[start : start + 64]
            found += self.model.encode(part, allowed_special="all")
        return found + self.model.encode("", disallowed_special=())

    def ordinary(self, text: str) -> list[int]:
        found: list[int] = self.model.encode_ordinary(text)
        return found


@pytest.mark.parametrize("copied", [lambda t: t, copy.copy, copy.deepcopy, pickled])
def test_a_tokenizer_around_tiktoken(copied: Callable[[Any], Any]) -> None:
    raw = Around()
    fast = copied(accelerate(Around()))
    assert type(fast) is Around
    texts = ["<s>ab ba<e>", "<s>ab ba<e>aab", "", "ab", "<s>" * 50 + "a"]
    for text in texts * 3:
        assert fast.encode(text) == raw.encode(text)
        assert type(fast.encode(text)) is list
        assert fast.ordinary(text) == raw.ordinary(text)
        assert fast.model.decode(fast.encode(text)) == raw.model.decode(
            raw.encode(text)
        )
    assert fast.model.encode_batch(texts, allowed_special="all") == (
        raw.model.encode_batch(texts, allowed_special="all")
    )
    for each in (raw, fast):
        with pytest.raises(ValueError, match="disallowed special token"):
            each.model.encode("<s>")
    assert fast.vocab_size == raw.vocab_size
    assert cached_tokenizer(fast).cache_stats().hits
    unaccelerate(fast)
    assert type(fast.model) is type(raw.model)


def test_a_tokenizer_of_neither_kind() -> None:
    neither = Around()
    neither.__dict__["model"] = None
    with pytest.raises(TypeError, match=r"around a tiktoken\.Encoding"):
        accelerate(neither)
