"""Check the hash of all that decides a tokenizer's ids."""

from __future__ import annotations

import copy
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tokenizers import (
    Tokenizer,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

from tests.toys import plain, special, toy
from tokcache import CachedTokenizer, fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable


def build() -> Tokenizer:
    return toy(special("<s>"), special("</s>"))


def test_equal_content_has_equal_fingerprints() -> None:
    one = fingerprint(build())
    assert isinstance(one, bytes)
    assert len(one) == 32
    assert one == fingerprint(build())
    assert one == fingerprint(copy.deepcopy(build()))
    assert one == fingerprint(Tokenizer.from_str(build().to_str()))
    assert one == fingerprint(CachedTokenizer(build()))


CHANGES: list[Callable[[Any], object]] = [
    lambda t: t.add_tokens([plain("ell")]),
    lambda t: t.add_special_tokens([special("<s>", rstrip=True)]),
    lambda t: setattr(t, "normalizer", normalizers.Lowercase()),
    lambda t: setattr(t, "pre_tokenizer", pre_tokenizers.Whitespace()),
    lambda t: setattr(
        t,
        "post_processor",
        processors.TemplateProcessing(single="</s> $A", special_tokens=[("</s>", 1)]),
    ),
    lambda t: setattr(t.model, "dropout", 0.5),
    lambda t: setattr(t, "encode_special_tokens", True),
    lambda t: t.enable_truncation(5),
    lambda t: t.enable_padding(length=5),
]


@pytest.mark.parametrize("change", CHANGES)
def test_each_change_that_decides_ids_changes_it(
    change: Callable[[Any], object],
) -> None:
    tokenizer = build()
    change(tokenizer)
    assert fingerprint(tokenizer) != fingerprint(build())


@pytest.mark.parametrize("options", [{"alpha": 0.5}, {"alpha": 0.5, "nbest_size": 9}])
def test_what_the_json_leaves_out_counts(options: dict[str, Any]) -> None:
    pieces = [("a", -1.0), ("b", -1.0), ("ab", -1.5)]

    def unigram(**options: Any) -> Tokenizer:
        return Tokenizer(models.Unigram(pieces, 0, False, **options))

    try:
        changed = unigram(**options)
    except TypeError:
        pytest.skip("this version of tokenizers has no such option")
    assert changed.to_str() == unigram().to_str()
    assert fingerprint(changed) != fingerprint(unigram())


def test_parts_made_in_python_are_refused() -> None:
    class Part:
        def normalize(self, normalized: Any) -> None:
            """Change nothing."""

    tokenizer = build()
    tokenizer.normalizer = normalizers.Normalizer.custom(Part())
    with pytest.raises(ValueError, match="made in Python"):
        fingerprint(tokenizer)


def test_what_is_no_tokenizer_is_refused() -> None:
    with pytest.raises(TypeError):
        fingerprint("tokenizer.json")


def test_it_is_the_same_in_another_process() -> None:
    code = (
        "from tests.test_fingerprint import build; from tokcache import fingerprint; "
        "print(fingerprint(build()).hex())"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == fingerprint(build()).hex()
