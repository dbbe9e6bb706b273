"""Check which tokens of a ``tokenizer.json`` are offered as boundaries."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tokenizers import AddedToken, normalizers

from tokcache import special_tokens_of

from .toys import plain, special, toy

if TYPE_CHECKING:
    from pathlib import Path


def test_tokens_are_read_from_a_path_a_text_or_what_was_parsed(tmp_path: Path) -> None:
    tokenizer = toy(special("<a>"), plain("<b>"), plain("word", single_word=True))
    text = tokenizer.to_str(pretty=True)
    path = tmp_path / "tokenizer.json"
    path.write_text(text, "utf-8")
    for source in (path, str(path), text, json.loads(text)):
        assert special_tokens_of(source) == ["<a>", "<b>"]
    assert special_tokens_of({}) == []
    assert special_tokens_of({"added_tokens": None, "model": None}) == []


@pytest.mark.parametrize(
    ("added", "expected"),
    [
        ([special("<|"), special("|>"), special("<|EOS|>")], ["|>", "<|EOS|>"]),
        ([special("|x|")], ["|x|"]),
        ([special("<a>", rstrip=True), special("<b>", lstrip=True)], ["<a>", "<b>"]),
        ([special(" "), special("\n\n")], []),
        # In another library one of them may be looked for first.
        ([special("ab", normalized=True), special("abc")], ["abc"]),
        ([special("<unk>"), special("<a>")], ["<unk>", "<a>"]),
    ],
)
def test_only_tokens_that_are_boundaries_in_any_way_of_matching_are_listed(
    added: list[AddedToken], expected: list[str]
) -> None:
    assert special_tokens_of(toy(*added).to_str()) == expected


def test_normalized_tokens_are_listed_if_there_is_no_normalizer() -> None:
    added = special("<a>", normalized=True)
    empty = normalizers.Sequence([])
    effective = normalizers.Sequence([empty, normalizers.NFC()])
    for none in (None, empty):
        assert special_tokens_of(toy(added, normalizer=none).to_str()) == ["<a>"]
    for some in (normalizers.NFC(), effective):
        assert special_tokens_of(toy(added, normalizer=some).to_str()) == []


def test_the_models_unknown_token_is_not_listed() -> None:
    state = json.loads(toy(special("<unk>"), special("<a>")).to_str())
    state["model"] |= {"unk_token": "<unk>"}
    assert special_tokens_of(state) == ["<a>"]
    state["model"] = {"type": "Unigram", "unk_id": state["added_tokens"][1]["id"]}
    assert special_tokens_of(state) == ["<unk>"]
