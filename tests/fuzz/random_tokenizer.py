"""Draw random, real tokenizers and hostile texts for them.

Everything comes from a `random.Random`, so a seed is a reproduction. A tokenizer is
read back from its own JSON before it is used: what a failure prints is what failed.

Left out by construction, because `tokenizers` itself fails on them:

- an added token that is matched after normalization and normalizes to nothing (its
  encode never returns) or to what another one normalizes to (which of the two is
  matched is settled by chance for each instance);
- templates with ``$B`` for a single text, and merges whose second part lacks the
  continuing prefix (both panic).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

T = TypeVar("T")

# Seeds of added tokens: bracketed, nested, touching, self-overlapping, with letters,
# digits, white space, upper case, and characters that normalizers change.
CONTENTS = (
    *("<s>", "</s>", "<|", "|>", "<|a|>", "<|EOS|>", "|x|", "|", "[INST]", "[UNK]"),
    *("a<s>", "aba", "aa", "ab", "EOT", "Tool", "hello", "tool", "A", "x", "1", "42"),
    *(" a", "a ", " ", "\n", "\n\n", "\t", " <s>", "<s> ", "<s>\n", "▁", "▁a", "##a"),
    *(
        "é",
        "e\u0301",
        "ß",
        "İ",
        "ﬁ",
        "\uff1cs\uff1e",
        "〈|",
        "〈|EOS|〉",
        "中",
        "한국",
        "🙂",
    ),
    *("👩\u200d🚀", "\u00a0", "\u3000", "<unk>", "#", "<0x41>", "'s", "½", "\u0301"),
)
WORDS = (
    *("hello", "foo", "ab", "aba", "the", "Tool", "EOT", "tool", "\n\n", "  ", " a"),
    *("▁hello", "▁", "▁a", "12", "1a", "naïve", "straße", "中文", "<s", "s>", "||"),
    *("<|", "|x", "🙂", "e\u0301", "don't", "_x_", " foo", "▁<s>", "a\u00a0b"),
)
SPACES = (
    *(" ", " ", "  ", "\n", "\n", "\n\n", "\t", "\r\n", "\u00a0", "\u3000", "\u0085"),
    *("\u2028", "\u200b", "\ufeff", "\x1c", "\u2003", "\v", " \u00a0", " \n "),
)
MARKS = (
    *("\u0301", "\u0308", "\u0335", "\u20e3", "\ufe0f", "\u200d", "\u3099", "\u05b0"),
    *("\u0327\u0301", "\u11a8"),
)
CHARACTERS: tuple[str, ...] = (
    *"abxsAEZ019<>|/_#.,-'\"[]()éßİKﬁ½中文ก한٣▁Ġ🙂👩𐍈\u017f\uff21\u0627\U0001d4b3",
    *"\0\x7f\ufffd\u1100\uac00\U000e0001",
)
UNK_NAMES = ("<unk>", "[UNK]", "x", "<s>", "A")
MAX_CHARS = 8000
HAS_FIXED_LENGTH = hasattr(pre_tokenizers, "FixedLength")  # from 0.21 on


@dataclass(frozen=True, slots=True)
class Fragments:
    """What texts for one tokenizer are made of."""

    tokens: tuple[str, ...]
    pieces: tuple[str, ...]


def pick(rng: Random, *weighted: tuple[float, T]) -> T:
    """Choose one of the values by weight."""
    weights = [weight for weight, _ in weighted]
    return rng.choices([value for _, value in weighted], weights)[0]


def chance(rng: Random, probability: float) -> bool:
    """Toss a coin."""
    return rng.random() < probability


def _vary(rng: Random, contents: Sequence[str]) -> str:
    """Make a content that nests in, overlaps or resembles those there are."""
    first, second = rng.choice(contents), rng.choice(contents)
    cut = rng.randint(0, len(first))
    letter, space = rng.choice(CHARACTERS), rng.choice(SPACES)
    return rng.choice(
        (
            *(first + second, first[cut:], first[:cut], first * 2, first + first[cut:]),
            *(letter + first, first[cut:] + letter, first + letter, first + space),
            *(space + first, first.swapcase(), first.upper()),
            first[cut:] + second[: rng.randint(0, len(second))],
            first + rng.choice(MARKS),
        )
    )


def _contents(rng: Random) -> list[str]:
    """Draw the distinct contents of up to twelve added tokens."""
    target = pick(rng, (1, 0), (4, 1), (8, 2), (20, rng.randint(3, 6)), (5, 12))
    plain = rng.choice((0.9, 0.4, 0.1))
    contents: dict[str, None] = {}
    for _ in range(4 * target):
        if len(contents) < target:
            is_plain = not contents or chance(rng, plain)
            known = tuple(contents)
            contents[rng.choice(CONTENTS) if is_plain else _vary(rng, known)] = None
    contents.pop("", None)
    return list(contents)


def _add_tokens(rng: Random, tokenizer: Tokenizer, contents: Sequence[str]) -> None:
    """Add tokens; how common each flag is varies by tokenizer."""
    # A flag of one token can rule out many others, so half have no flags at all.
    most = rng.choice((0.0, 0.0, 0.15, 0.5))
    single_word, lstrip, rstrip = rng.choices((most, 0.0), k=3)
    normalized = pick(rng, (2, 0.0), (4, 0.5), (2, 1.0))
    special = pick(rng, (2, 1.0), (2, 0.5), (1, 0.0))
    normalizer = tokenizer.normalizer
    taken = {""}
    for content in contents:
        token = AddedToken(
            content,
            single_word=chance(rng, single_word),
            lstrip=chance(rng, lstrip),
            rstrip=chance(rng, rstrip),
            normalized=chance(rng, normalized),
        )
        if token.normalized and normalizer is not None:
            sought = normalizer.normalize_str(content)
            if sought in taken:
                continue
            taken.add(sought)
        if chance(rng, special):
            tokenizer.add_special_tokens([token])
        else:
            tokenizer.add_tokens([token])


# --- models --------------------------------------------------------------------------


def _numbered(rng: Random, tokens: Sequence[str]) -> dict[str, int]:
    """Give the tokens ids in random order, now and then with gaps."""
    shuffled = list(dict.fromkeys(tokens))
    rng.shuffle(shuffled)
    step = pick(rng, (20, 1), (1, 3))
    return {token: number * step for number, token in enumerate(shuffled)}


def _fallback_bytes(rng: Random) -> list[str]:
    """List the byte tokens of a byte-fallback vocabulary, rarely with holes."""
    holes = pick(rng, (4, 0.0), (1, 0.2))
    return [f"<0x{byte:02X}>" for byte in range(256) if not chance(rng, holes)]


def _bpe(rng: Random, words: Sequence[str], *, byte_level: bool) -> models.Model:
    """Draw a BPE model whose merges spell parts of the words."""
    prefix = pick(rng, (12, ""), (1, "##"), (1, "@"))
    suffix = pick(rng, (12, ""), (1, "</w>"))
    unk = pick(rng, (3, None), (2, rng.choice(UNK_NAMES)))
    byte_fallback = not byte_level and chance(rng, 0.4)
    alphabet = list(dict.fromkeys("".join((*words, " ▁", *CHARACTERS))))
    if byte_level:
        spell = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        words = ["".join(p for p, _ in spell.pre_tokenize_str(w)) for w in words]
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    dropped = pick(rng, (3, 0.0), (2, 0.15))
    symbols = {c: None for c in alphabet if not chance(rng, dropped)}
    for char in list(symbols) if prefix or suffix else ():
        symbols[prefix + char] = symbols[char + suffix] = None
        symbols[prefix + char + suffix] = None
    split: list[list[str]] = []
    for word in words:
        parts = [prefix + char if at else char for at, char in enumerate(word)]
        parts[-1] += suffix
        split.append([part for part in parts if part in symbols])
    merges: list[tuple[str, str]] = []
    for _ in range(rng.choice((0, 5, 30, 80))):
        parts = rng.choice(split)
        if len(parts) < 2:
            continue
        at = rng.randrange(len(parts) - 1)
        left, right = parts[at], parts[at + 1]
        if not right.startswith(prefix):
            continue
        parts[at : at + 2] = [left + right[len(prefix) :]]
        symbols[parts[at]] = None
        if (left, right) not in merges:
            merges.append((left, right))
    tokens = [*symbols, *(_fallback_bytes(rng) if byte_fallback else ())]
    if unk is not None and chance(rng, 0.95):
        tokens.append(unk)
    ignore_merges = chance(rng, 0.2)
    if ignore_merges:
        tokens += rng.sample(words, min(4, len(words)))
    names = {"continuing_subword_prefix": prefix, "end_of_word_suffix": suffix}
    names["unk_token"] = unk or ""
    return models.BPE(
        _numbered(rng, tokens),
        merges,
        fuse_unk=chance(rng, 0.5),
        byte_fallback=byte_fallback,
        ignore_merges=ignore_merges,
        **{option: name for option, name in names.items() if name},  # None is refused
    )


def _parts(rng: Random, words: Sequence[str]) -> list[str]:
    """List the words, pieces of them, and most of the single characters."""
    parts = [*words]
    for word in words:
        start, end = sorted(rng.choices(range(len(word) + 1), k=2))
        parts.append(word[start:end])
    holes = pick(rng, (3, 0.0), (2, 0.2))
    parts += [c for c in "".join((*words, " ▁", *CHARACTERS)) if not chance(rng, holes)]
    return [part for part in dict.fromkeys(parts) if part]


def _unigram(rng: Random, words: Sequence[str]) -> models.Model:
    """Draw a Unigram model."""
    byte_fallback = chance(rng, 0.3)
    parts = _parts(rng, words)
    unk_id = pick(rng, (9, 0), (0.5, None), (1, rng.randrange(len(parts))))
    tokens = [rng.choice(UNK_NAMES), *parts]
    if byte_fallback:
        tokens += _fallback_bytes(rng)
    vocab = [(part, -10 * rng.random()) for part in dict.fromkeys(tokens)]
    return models.Unigram(vocab, unk_id, byte_fallback)


def _word_model(rng: Random, words: Sequence[str], *, pieces: bool) -> models.Model:
    """Draw a WordPiece or a WordLevel model."""
    unk = rng.choice(UNK_NAMES)
    tokens = _parts(rng, words)
    if chance(rng, 0.97):
        tokens.append(unk)
    if not pieces:
        return models.WordLevel(_numbered(rng, tokens), unk)
    prefix = pick(rng, (3, "##"), (1, "@"), (1, ""))
    return models.WordPiece(
        _numbered(rng, [*tokens, *(prefix + part for part in tokens)]),
        unk_token=unk,
        max_input_chars_per_word=rng.choice((3, 20, 100)),
        continuing_subword_prefix=prefix,
    )


def _model(
    rng: Random, words: Sequence[str]
) -> tuple[models.Model, Callable[[Random], pre_tokenizers.PreTokenizer]]:
    """Draw a model and the kind of pre-tokenizer that suits it."""
    kind = pick(rng, (5, "bytes"), (3, "bpe"), (3, "unigram"), (1.5, "piece"), (1, ""))
    if kind == "unigram":
        return _unigram(rng, words), PRE_TOKENIZERS[1]
    if kind in {"bytes", "bpe"}:
        byte_level = kind == "bytes"
        model = _bpe(rng, words, byte_level=byte_level)
        return model, PRE_TOKENIZERS[0 if byte_level else 1]
    model = _word_model(rng, words, pieces=kind == "piece")
    return model, PRE_TOKENIZERS[4 if kind == "piece" else 2]


# --- normalizers, pre-tokenizers, post-processors ------------------------------------

NORMALIZERS: tuple[Callable[[Random], normalizers.Normalizer], ...] = (
    lambda _: normalizers.NFC(),
    lambda _: normalizers.NFD(),
    lambda _: normalizers.NFKC(),
    lambda _: normalizers.NFKD(),
    lambda _: normalizers.Lowercase(),
    lambda _: normalizers.StripAccents(),
    lambda _: normalizers.Nmt(),
    lambda _: normalizers.ByteLevel(),
    lambda rng: normalizers.Strip(left=chance(rng, 0.7), right=chance(rng, 0.7)),
    lambda rng: normalizers.Prepend(rng.choice("▁a ")),
    lambda _: normalizers.Replace(" ", "▁"),
    lambda rng: normalizers.Replace(Regex(r"\s+"), rng.choice((" ", "", "▁"))),
    lambda rng: normalizers.Replace(rng.choice("a<|"), rng.choice(("", "b", "<s>"))),
    lambda rng: normalizers.Replace(Regex(rng.choice(("^a", "b$", "[0-9]+"))), "x"),
    lambda rng: normalizers.BertNormalizer(*rng.choices((True, False), k=4)),
)

BEHAVIOURS = (
    *("removed", "isolated", "merged_with_previous", "merged_with_next"),
    "contiguous",
)
SPLIT_PATTERNS: tuple[str | Regex, ...] = (
    *(" ", "a", "▁", "|"),
    Regex(r"\s+(?!\S)|\s+"),
    Regex(r" ?\p{L}+| ?\p{N}{1,3}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"),
    Regex(r"(?i:'s|'t|'ll)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|\s*[\r\n]+|\s+"),
    *(Regex(r"^\w|\w$"), Regex(r"(?<=a)b|\bx"), Regex(r"\p{N}{1,3}"), Regex(r"\w+")),
)

PRE_TOKENIZERS: tuple[Callable[[Random], pre_tokenizers.PreTokenizer], ...] = (
    lambda rng: pre_tokenizers.ByteLevel(
        add_prefix_space=chance(rng, 0.5), use_regex=chance(rng, 0.7)
    ),
    lambda rng: pre_tokenizers.Metaspace(
        replacement=rng.choice("▁▁▁_"),
        prepend_scheme=rng.choice(("always", "first", "never")),
        split=chance(rng, 0.5),
    ),
    lambda _: pre_tokenizers.Whitespace(),
    lambda _: pre_tokenizers.WhitespaceSplit(),
    lambda _: pre_tokenizers.BertPreTokenizer(),
    lambda rng: pre_tokenizers.Punctuation(rng.choice(BEHAVIOURS)),
    lambda rng: pre_tokenizers.Digits(individual_digits=chance(rng, 0.5)),
    lambda rng: pre_tokenizers.Split(
        rng.choice(SPLIT_PATTERNS), rng.choice(BEHAVIOURS), invert=chance(rng, 0.3)
    ),
    lambda rng: pre_tokenizers.CharDelimiterSplit(rng.choice(" a|▁")),
    lambda _: pre_tokenizers.UnicodeScripts(),
    *((lambda rng: pre_tokenizers.FixedLength(rng.randint(1, 6)),) * HAS_FIXED_LENGTH),
)


def _normalizer(rng: Random) -> normalizers.Normalizer | None:
    """Draw a normalizer, half of the time one without effect."""
    empty = normalizers.Sequence([])
    llama = [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    some = [make(rng) for make in rng.choices(NORMALIZERS, k=rng.randint(1, 3))]
    return pick(
        rng,
        *((52, None), (8, empty), (4, normalizers.Sequence([empty]))),
        *((6, normalizers.Sequence(llama)), (10, normalizers.Sequence(some))),
        (20, some[0]),
    )


def _pre_tokenizer(
    rng: Random, suits: Callable[[Random], pre_tokenizers.PreTokenizer]
) -> pre_tokenizers.PreTokenizer | None:
    """Draw a pre-tokenizer, mostly with the part that suits the model."""
    make = suits if chance(rng, 0.85) else rng.choice(PRE_TOKENIZERS)
    some = [rng.choice(PRE_TOKENIZERS)(rng) for _ in range(rng.randint(0, 2))]
    sequence = pre_tokenizers.Sequence([*some, make(rng)])
    return pick(rng, (4, None), (70, make(rng)), (26, sequence))


TEMPLATES = (
    *("[A] $A", "[A] $A", "$A [B]", "[A] $A [B]", "[A] [A] $A [W] [B]", "$A", "$A:1"),
    *("[A] $A [B] $A", "$A $A", "[A] [B]", "[W] $A:1 [B]:1"),
)


def _template(rng: Random, top: int) -> processors.PostProcessor:
    """Draw a template, now and then one that repeats or drops the text."""
    ids = [rng.randint(0, top) for _ in range(4)]
    wide = {"id": "[W]", "ids": ids[:2], "tokens": ["w", "W"]}
    named = [("[A]", ids[2]), ("[B]", ids[3]), wide]
    return processors.TemplateProcessing(
        single=rng.choice(TEMPLATES), pair="$A $B", special_tokens=named
    )


def _post_processor(rng: Random, top: int) -> processors.PostProcessor | None:
    """Draw a post-processor; `top` is the highest id that it may insert."""
    cls, sep = ("c", rng.randint(0, top)), ("s", rng.randint(0, top))
    bert, template = processors.BertProcessing(sep, cls), _template(rng, top)
    parts = [processors.ByteLevel(trim_offsets=chance(rng, 0.5)), template, bert]
    # A second template would panic wherever the first makes more than two parts.
    some = processors.Sequence(rng.sample(parts, rng.randint(0, 3)))
    roberta = processors.RobertaProcessing(sep, cls)
    return pick(
        rng, (3, None), (3, template), (1, parts[0]), (1, bert), (1, roberta), (1, some)
    )


def random_tokenizer(
    rng: Random, details: Random | None = None
) -> tuple[Tokenizer, Fragments]:
    """Draw a tokenizer and what texts for it are best made of.

    A vocabulary takes hundreds of draws; they may come from another generator.
    """
    contents = _contents(rng)
    words = [
        *rng.sample(WORDS, rng.randint(3, 12)),
        *(content for content in contents if chance(rng, 0.4)),
        *(content[1:] for content in contents if len(content) > 1 and chance(rng, 0.2)),
    ]
    model, suits = _model(details or rng, words)
    tokenizer = Tokenizer(model)
    parts = {
        "normalizer": _normalizer(rng),
        "pre_tokenizer": _pre_tokenizer(rng, suits),
        "post_processor": _post_processor(rng, tokenizer.get_vocab_size()),
    }
    for name, part in parts.items():
        if part is not None:  # 0.20 takes no None
            setattr(tokenizer, name, part)
    _add_tokens(rng, tokenizer, contents)
    tokenizer = Tokenizer.from_str(tokenizer.to_str())
    pieces = [*rng.sample(words, 3), *rng.sample(CHARACTERS, 6)]
    pieces += [*rng.sample(SPACES, 3), *rng.sample(MARKS, 2)]
    tokens = [t.content for t in tokenizer.get_added_tokens_decoder().values()]
    return tokenizer, Fragments(tuple(tokens), tuple(dict.fromkeys(pieces)))


# --- texts ---------------------------------------------------------------------------


def _bent(rng: Random, tokens: Sequence[str], text: str) -> str:
    """Append a token to a text, one that overlaps with its end if any does."""
    rests = [
        token[size:]
        for token in tokens
        for size in range(1, len(token))
        if text.endswith(token[:size])
    ]
    return text + rng.choice(rests or tokens or ("",))


def _chunk(rng: Random, fragments: Fragments) -> str:
    """Draw one small part of a text."""
    kind = rng.random()
    if fragments.tokens and kind < 0.68:
        token = rng.choice(fragments.tokens)
        cut = rng.randint(0, len(token))
        # Spelled in fullwidth forms, which NFKC folds back.
        wide = "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in token)
        return pick(
            rng,
            *((50, token), (4, token[:cut]), (4, token[cut:]), (1, wide)),
            *((2, token.swapcase()), (2, token.lower()), (2, token + token[cut:])),
            *((3, token + rng.choice(MARKS)), (3, token + rng.choice(CHARACTERS))),
            *((6, token + rng.choice(SPACES)), (3, rng.choice(SPACES) + token)),
            (4, _bent(rng, fragments.tokens, token)),
        )
    if kind < 0.90:
        return rng.choice(fragments.pieces)
    if kind < 0.95:
        return rng.choice(SPACES)
    return rng.choice(CHARACTERS + MARKS)


def _fresh(rng: Random, fragments: Fragments) -> str:
    """Draw a text that owes nothing to earlier ones."""
    size = pick(rng, (4, 6), (6, 15), (2, 60), (0.15, 400))
    text = "".join(_chunk(rng, fragments) for _ in range(rng.randint(0, size)))
    if chance(rng, 0.03):  # a long run of one thing: words of the model, sightings
        text += _chunk(rng, fragments) * rng.randint(20, 300)
    return text


def place_to_cut(rng: Random, fragments: Fragments, text: str) -> int:
    """Choose where to cut a text: mostly right after one of the added tokens."""
    at = rng.randint(0, len(text))
    if fragments.tokens and chance(rng, 0.7):
        token = rng.choice(fragments.tokens)
        found = text.find(token, at)
        if found >= 0:
            return found + len(token)
    return at


def random_text(rng: Random, fragments: Fragments, earlier: Sequence[str] = ()) -> str:
    """Draw a text, often a recombination of the earlier ones of the same case."""
    if not earlier or chance(rng, 0.15):
        text = _fresh(rng, fragments)
    else:
        # The newest texts most: what was evicted long ago says little.
        one = earlier[-1 - min(int(rng.expovariate(0.3)), len(earlier) - 1)]
        two = rng.choice(earlier)
        head = one[: place_to_cut(rng, fragments, one)]
        rest = two[place_to_cut(rng, fragments, two) :]
        bent = _bent(rng, fragments.tokens, head)
        odd = rng.choice(SPACES + MARKS + CHARACTERS)
        middle = "".join(_chunk(rng, fragments) for _ in range(rng.randint(0, 4)))
        tail = one[len(head) :]
        text = rng.choice(
            (
                *(one, head, one + _fresh(rng, fragments)),
                *(head + _fresh(rng, fragments), head + rest, head + middle + rest),
                *(head + middle + tail, head + odd + tail, bent + tail, bent + rest),
            )
        )
    if chance(rng, 0.003):
        text += "\ud800"  # a lone surrogate: every tokenizer raises
    return text[:MAX_CHARS]
