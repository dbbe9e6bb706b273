"""Every peer by name: each factory makes a new object, with nothing cached in it.

The libraries are imported inside, so that one that is missing is left out alone, and a
child process that measures one peer's memory holds no other.
"""

from __future__ import annotations

import array
import functools
import importlib
import importlib.metadata
import json
from typing import TYPE_CHECKING, Any

from benchmarks import prompts
from benchmarks.peers import binding
from benchmarks.peers.peer import MissingPeerError, Peer
from tests import data
from tokcache import CachedTokenizer

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

# Nothing is evicted: what is measured is a hit, and what it takes to hold it.
BUDGET = 2**30
QWEN_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingPeerError(str(error)) from None


def _ids(answer: Any) -> list[int]:
    return list(answer.ids)


def _u32(answer: bytes) -> list[int]:
    return array.array("I", answer).tolist()


def _same(answer: list[int]) -> list[int]:
    return answer


def _tokenizers() -> Peer:
    raw = data.load_family(prompts.family())
    return Peer(
        name="tokenizers",
        version=importlib.metadata.version("tokenizers"),
        encode=raw.encode,
        raw=lambda text: raw.encode(text).ids,
        to_list=_ids,
    )


def _tokcache(*, as_list: bool) -> Peer:
    raw = data.load_family(prompts.family())
    cached = CachedTokenizer(raw, max_memory_bytes=BUDGET)
    encode: Callable[[str], Any] = cached.encode
    return Peer(
        name="tokcache, as a list" if as_list else "tokcache",
        version=importlib.metadata.version("tokcache"),
        encode=(lambda text: cached.encode(text).ids) if as_list else encode,
        raw=lambda text: raw.encode(text).ids,
        to_list=_same if as_list else _ids,
        held_bytes=lambda: cached.cache_stats().resident_bytes,
    )


def _lru_cache() -> Peer:
    raw = data.load_family(prompts.family())
    return Peer(
        name="functools.lru_cache over tokenizers",
        version=importlib.metadata.version("tokenizers"),
        encode=functools.lru_cache(maxsize=None)(lambda text: raw.encode(text).ids),
        raw=lambda text: raw.encode(text).ids,
        to_list=_same,
    )


def _fastokens(*, segment_cache: bool, answer: str = "encoding") -> Peer:
    native = _module("fastokens._native")
    tokenizer = native.Tokenizer.from_json_str(data.family_text(prompts.family()))
    plain = native.Tokenizer.from_json_str(data.family_text(prompts.family()))
    if segment_cache:
        tokenizer.enable_segment_cache(BUDGET)
    name = "fastokens, segment cache" if segment_cache else "fastokens"
    encode, to_list = tokenizer.encode, _ids
    if answer == "list":
        name += ", .ids"
        encode, to_list = (lambda text: tokenizer.encode(text).ids), _same
    elif answer == "flat":
        name += ", encode_batch_flat"
        encode = lambda text: tokenizer.encode_batch_flat([text])[0]  # noqa: E731
        to_list = _u32
    return Peer(
        name=name,
        version=importlib.metadata.version("fastokens"),
        encode=encode,
        raw=lambda text: plain.encode(text).ids,
        to_list=to_list,
        held_bytes=(lambda: tokenizer.segment_cache_stats()["bytes"])
        if segment_cache
        else lambda: None,
    )


def _gigatoken() -> Peer:
    module = _module("gigatoken")
    tokenizer = module.Tokenizer.from_json(data.family_text(prompts.family()))
    return Peer(
        name="gigatoken",
        version=importlib.metadata.version("gigatoken"),
        encode=tokenizer.encode,
        raw=lambda text: tokenizer.encode(text).tolist(),
        to_list=lambda answer: answer.tolist(),
    )


def _byte_of() -> dict[str, int]:
    """Return the byte that each character of a byte-level vocabulary stands for."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(256 + i): byte for i, byte in enumerate(others)
    }


def _tiktoken() -> Peer:
    """Take Qwen3's vocabulary as ranks: it was made as such.

    The added tokens of the measured family are its special tokens, so that it sees the
    prompts as the others do.
    """
    module = _module("tiktoken")
    if "qwen3" not in data.families():
        raise MissingPeerError("no ranks: Qwen3's vocabulary is not here")
    vocabulary: dict[str, int] = json.loads(data.family_text("qwen3"))["model"]["vocab"]
    byte_of = _byte_of()
    ranks = {
        bytes(byte_of[character] for character in word): rank
        for word, rank in vocabulary.items()
    }
    added = data.load_family(prompts.family()).get_added_tokens_decoder().values()
    markers = {token.content: len(ranks) + i for i, token in enumerate(added)}
    encoding = module.Encoding(
        "qwen3", pat_str=QWEN_PATTERN, mergeable_ranks=ranks, special_tokens=markers
    )

    def encode(text: str) -> list[int]:
        ids: list[int] = encoding.encode(text, allowed_special="all")
        return ids

    return Peer(
        name="tiktoken",
        version=importlib.metadata.version("tiktoken"),
        encode=encode,
        raw=encode,
        to_list=_same,
        has_family_ids=False,
    )


def upstream_markers() -> list[str]:
    """Return the boundaries to give to upstream: those of tokcache that it accepts.

    It turns its cache off if any two of the list can overlap. Of the many placeholders
    that no prompt here contains, none is given to it, so that its scan is not slowed.
    """
    contents = prompts.scanner(prompts.family()).contents
    texts = [prompts.chat(script=script) for script in prompts.SCRIPTS]
    texts.append(prompts.short())
    return [token for token in contents if any(token in text for text in texts)]


def _upstream() -> Peer:
    try:
        module = binding.load()
    except binding.BindingError as error:
        raise MissingPeerError(str(error)) from None
    upstream = module.Upstream(
        data.family_text(prompts.family()), upstream_markers(), BUDGET
    )
    return Peer(
        name="dynamo-tokenizers CachedTokenizer",
        version=module.VERSION,
        encode=upstream.encode,
        raw=lambda text: _u32(upstream.encode_raw(text)),
        to_list=_u32,
        held_bytes=lambda: upstream.stats()[3],
    )


# The first one is what the others are compared with.
FACTORIES: dict[str, Callable[[], Peer]] = {
    "tokcache": functools.partial(_tokcache, as_list=False),
    "tokcache-list": functools.partial(_tokcache, as_list=True),
    "tokenizers": _tokenizers,
    "tiktoken": _tiktoken,
    "gigatoken": _gigatoken,
    "fastokens": functools.partial(_fastokens, segment_cache=False),
    "fastokens-flat": functools.partial(_fastokens, segment_cache=False, answer="flat"),
    "fastokens-cache": functools.partial(_fastokens, segment_cache=True),
    "fastokens-cache-list": functools.partial(
        _fastokens, segment_cache=True, answer="list"
    ),
    "fastokens-cache-flat": functools.partial(
        _fastokens, segment_cache=True, answer="flat"
    ),
    "lru_cache": _lru_cache,
    "upstream": _upstream,
}
