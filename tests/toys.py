"""Make small tokenizers: one by hand for exact expectations, some trained for bulk."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tokenizers.normalizers import Normalizer
    from tokenizers.pre_tokenizers import PreTokenizer
    from typing_extensions import Unpack

# Ġ and Ċ are the byte-level alphabet's space and newline; ▁ is Metaspace's space.
MERGES = [
    ("h", "e"),
    ("he", "l"),
    ("hel", "l"),
    ("hell", "o"),
    ("Ġ", "hello"),
    ("▁", "hello"),
    ("f", "o"),
    ("fo", "o"),
    ("Ċ", "Ċ"),
]
# Characters beyond the alphabet, for the tokenizers that are not byte-level.
EXTRA = ["▁", " ", "\n"]
UNKNOWN, UNKNOWN_WORD = "<unk>", "[UNK]"


class Flags(TypedDict, total=False):
    """Name the flags of an added token; all are off unless given."""

    single_word: bool
    lstrip: bool
    rstrip: bool
    normalized: bool


def special(content: str, **flags: Unpack[Flags]) -> AddedToken:
    """Make a special added token, every flag off unless given."""
    return AddedToken(content, special=True, **{"normalized": False, **flags})


def plain(content: str, **flags: Unpack[Flags]) -> AddedToken:
    """Make an added token that is not special, every flag off unless given."""
    return AddedToken(content, special=False, **{"normalized": False, **flags})


def token_id(tokenizer: Tokenizer, content: str) -> int:
    """Return the id of a token that is there."""
    found = tokenizer.token_to_id(content)
    assert found is not None
    return found


def vocabulary() -> dict[str, int]:
    """Return the hand-made vocabulary: the alphabet, then the merges' results."""
    words = sorted({*pre_tokenizers.ByteLevel.alphabet(), *EXTRA})
    words += [left + right for left, right in MERGES]
    return {word: i for i, word in enumerate(words)}


def toy(
    *added: AddedToken,
    pre: PreTokenizer | None = None,
    normalizer: Normalizer | None = None,
    dropout: float | None = None,
    template: str | None = None,
    unigram: bool = False,
) -> Tokenizer:
    """Make a tokenizer that knows "hello", " hello", "▁hello", "foo" and two newlines.

    It is byte-level unless another pre-tokenizer is given.
    """
    if unigram:
        pieces = [(word, -10.0 + len(word)) for word in vocabulary()]
        model = models.Unigram(pieces, unk_id=0, byte_fallback=False)
        tokenizer = Tokenizer(model)
    else:
        tokenizer = Tokenizer(models.BPE(vocabulary(), MERGES, dropout=dropout))
    tokenizer.pre_tokenizer = pre or pre_tokenizers.ByteLevel(add_prefix_space=False)
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if pre is None:
        tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens(list(added))
    if template is not None:
        used = [
            (token.content, tokenizer.token_to_id(token.content))
            for token in added
            if token.content in template.split()
        ]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=template, special_tokens=used
        )
    return tokenizer


def _trained_byte_level() -> tuple[Tokenizer, trainers.Trainer]:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer, trainers.BpeTrainer(
        vocab_size=600,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )


def _trained_metaspace() -> tuple[Tokenizer, trainers.Trainer]:
    tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="first")
    return tokenizer, trainers.BpeTrainer(
        vocab_size=600, show_progress=False, special_tokens=[UNKNOWN]
    )


def _trained_unigram() -> tuple[Tokenizer, trainers.Trainer]:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer, trainers.UnigramTrainer(
        vocab_size=600,
        show_progress=False,
        special_tokens=[UNKNOWN],
        unk_token=UNKNOWN,
    )


def _trained_word_piece() -> tuple[Tokenizer, trainers.Trainer]:
    tokenizer = Tokenizer(models.WordPiece(unk_token=UNKNOWN_WORD))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer, trainers.WordPieceTrainer(
        vocab_size=600, show_progress=False, special_tokens=[UNKNOWN_WORD]
    )


TRAINED: dict[str, Callable[[], tuple[Tokenizer, trainers.Trainer]]] = {
    "trained_byte_level": _trained_byte_level,
    "trained_metaspace": _trained_metaspace,
    "trained_unigram": _trained_unigram,
    "trained_word_piece": _trained_word_piece,
}


def train(name: str, corpus: Sequence[str]) -> str:
    """Train a small tokenizer and return it as JSON.

    It has chat markers, one with ``rstrip``, and begins with ``<bos>`` on request.
    """
    tokenizer, trainer = TRAINED[name]()
    tokenizer.train_from_iterator(corpus, trainer)
    tokenizer.add_tokens(
        [
            special("<bos>"),
            special("<|im_start|>"),
            special("<|im_end|>", rstrip=True),
            plain("<tool_call>"),
            plain("word", single_word=True),
        ]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<bos> $A", special_tokens=[("<bos>", tokenizer.token_to_id("<bos>"))]
    )
    return tokenizer.to_str()
