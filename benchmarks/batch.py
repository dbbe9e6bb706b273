"""Time batches against the batch calls of other libraries: ``make bench-batch``.

Four kinds of work, each with the redundancy of its text: all characters to the
characters that are left when shared prefixes are counted once. Every library sees the
same texts on the same cores in the same run, in turns; the fastest round counts. What
it caches for a text is dropped before each round, where it can be. The ids of each
batch are compared with the library's own for each text alone.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import itertools
import json
import random
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from benchmarks import prompts
from tests import data
from tokcache import CachedTokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

CHARACTERS = 4_000_000
SYSTEM_TOKENS = 2000
AGENT_MESSAGES = 40
LONG = 400  # characters of a message that is taken for a document
QUESTION = 120
COPIES = 8


@dataclass(frozen=True)
class Work:
    """Some texts, and what the ratio to ``encode_batch_fast`` ought to be."""

    name: str
    texts: list[str]
    goal: Callable[[float], float]


@dataclass(frozen=True)
class Library:
    """A batch call, the call for one text that it must agree with, and a clean-up."""

    name: str
    batch: Callable[[list[str]], Any]
    loop: Callable[[str], list[int]]
    to_lists: Callable[[Any], list[list[int]]]
    reset: Callable[[], object] = lambda: None


def redundancy(texts: Sequence[str]) -> float:
    """Return all characters over those that are left after sharing prefixes."""
    left = 0
    before = ""
    for text in sorted(texts):
        left += len(text) - _shared(before, text)
        before = text
    return sum(map(len, texts)) / max(1, left)


def _shared(a: str, b: str) -> int:
    """Return how many characters two texts begin with alike."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _talks() -> list[list[data.Message]]:
    """Return all real conversations, shuffled."""
    found = [
        talk
        for file in data.conversation_files()
        for talk in data.conversations(file)
        if file != "own"
    ] or data.conversations("own")
    random.Random(3).shuffle(found)
    return found


def _messages(talks: Sequence[list[data.Message]]) -> list[str]:
    """Return long texts that share nothing: single messages, each once."""
    contents = [message["content"] for talk in talks for message in talk]
    long = [content for content in contents if len(content) > LONG]
    return list(dict.fromkeys(long or contents))


def conversations(family: str) -> list[str]:
    """Return whole conversations as prompts."""
    return [data.render(family, talk) for talk in _talks()]


def documents(characters: int) -> list[str]:
    """Return unrelated texts without markers, of so many characters in all."""
    return _upto(_messages(_talks()), characters)


def works(family: str, characters: int) -> list[Work]:
    """Make the kinds of work."""
    talks = _talks()
    agents = [talk for talk in talks if len(talk) >= AGENT_MESSAGES] or talks[-4:]
    long = _messages(talks)
    whole = conversations(family)
    system = _tokens("\n\n".join(long[-200:]), family, SYSTEM_TOKENS)
    questions = [
        data.render(
            family,
            [
                {"role": "system", "content": system},
                {"role": "user", "content": text[:QUESTION]},
            ],
        )
        for text in long[: characters // (len(system) + QUESTION)]
    ]
    copies = _upto(whole, characters // COPIES) * COPIES
    random.Random(3).shuffle(copies)
    half = characters // 2
    return [
        Work("growing conversations", _growing(family, talks, characters), _share),
        Work("growing, agents of 40 turns", _growing(family, agents, characters), _ten),
        Work("one system prompt, short questions", questions, lambda _: 5.0),
        Work("unrelated documents", _upto(long, half), lambda _: 0.95),
        Work("unrelated conversations", _upto(whole, half), lambda _: 0.95),
        Work("every conversation eight times", copies, _share),
    ]


def _share(found: float) -> float:
    return 0.7 * found


def _ten(found: float) -> float:
    return max(10.0, 0.7 * found)


def _growing(
    family: str, talks: Sequence[list[data.Message]], characters: int
) -> list[str]:
    """Return the prompts of all turns, talk by talk."""
    found: list[str] = []
    n = 0
    for talk in talks:
        for length in range(1, len(talk) + 1):
            found.append(data.render(family, talk[:length]))
            n += len(found[-1])
        if n > characters:
            break
    return found


def _upto(texts: Sequence[str], characters: int) -> list[str]:
    ends = itertools.accumulate(map(len, texts))
    return [text for text, end in zip(texts, ends, strict=False) if end <= characters]


def _tokens(text: str, family: str, n: int) -> str:
    raw = data.load_family(family)
    encoding = raw.encode(text[: 12 * n], add_special_tokens=False)
    return text[: encoding.offsets[min(n, len(encoding.ids)) - 1][1]]


# --------------------------------------------------------------------------- libraries


def libraries(family: str) -> list[Library]:
    """Make one object of each library that is installed."""
    raw = data.load_family(family)
    raw.no_truncation()
    raw.no_padding()
    cached = CachedTokenizer(raw, max_memory_bytes=2**28)

    def loop(text: str) -> list[int]:
        return raw.encode(text).ids

    def flat_lists(answer: Any) -> list[list[int]]:
        ids, ends = answer[0].tolist(), list(answer[1])
        return [ids[a:b] for a, b in itertools.pairwise(ends)]

    found = [
        Library(
            "tokenizers.encode_batch_fast",
            raw.encode_batch_fast,
            loop,
            lambda answer: [encoding.ids for encoding in answer],
        ),
        Library(
            "tokenizers, ids as lists",
            lambda texts: [each.ids for each in raw.encode_batch_fast(texts)],
            loop,
            lambda answer: answer,
        ),
        Library(
            "tokcache.encode_batch",
            cached.encode_batch,
            loop,
            lambda answer: [ids.ids for ids in answer],
            cached.clear_cache,
        ),
        Library(
            "tokcache.encode_batch_flat",
            cached.encode_batch_flat,
            loop,
            flat_lists,
            cached.clear_cache,
        ),
    ]
    for name, make in (("fastokens", _fastokens), ("gigatoken", _gigatoken)):
        if importlib.util.find_spec(name) is None:
            print(f"left out: {name} is not installed")
        else:
            found += make(data.family_text(family))
    return found


def _fastokens(content: str) -> list[Library]:
    native = importlib.import_module("fastokens._native")
    tokenizer, with_cache, plain = (
        native.Tokenizer.from_json_str(content) for _ in range(3)
    )

    def loop(text: str) -> list[int]:
        return plain.encode(text, add_special_tokens=True).ids  # type: ignore[no-any-return]

    def to_lists(answer: Any) -> list[list[int]]:
        return [list(encoding.ids) for encoding in answer]

    return [
        Library(
            "fastokens.encode_batch",
            lambda texts: tokenizer.encode_batch(texts, add_special_tokens=True),
            loop,
            to_lists,
        ),
        Library(
            "fastokens, segment cache",
            lambda texts: with_cache.encode_batch(texts, add_special_tokens=True),
            loop,
            to_lists,
            lambda: with_cache.enable_segment_cache(2**30),
        ),
    ]


def _gigatoken(content: str) -> list[Library]:
    tokenizer = importlib.import_module("gigatoken").Tokenizer.from_json(content)
    return [
        Library(
            "gigatoken.encode_batch",
            tokenizer.encode_batch,
            lambda text: list(tokenizer.encode(text).tolist()),
            lambda answer: [list(ids) for ids in answer.tolist()],
        )
    ]


# --------------------------------------------------------------------------- measuring


def measure(work: Work, contenders: Sequence[Library], rounds: int) -> dict[str, Any]:
    """Time each library in turns and check its ids; return one object for JSON."""
    times: dict[str, list[float]] = {library.name: [] for library in contenders}
    same: dict[str, bool] = {}
    for number in range(rounds):
        for library in contenders:
            library.reset()
            begin = perf_counter()
            answer = library.batch(work.texts)
            times[library.name].append(perf_counter() - begin)
            if not number:
                want = [library.loop(text) for text in work.texts]
                same[library.name] = library.to_lists(answer) == want
            del answer
    base = min(times["tokenizers.encode_batch_fast"])
    ratio = redundancy(work.texts)
    return {
        "work": work.name,
        "texts": len(work.texts),
        "characters": sum(map(len, work.texts)),
        "redundancy": ratio,
        "goal": work.goal(ratio),
        "libraries": {
            name: {
                "seconds": min(each),
                "all_seconds": each,
                "speed_up": base / min(each),
                "own_ids": same[name],
            }
            for name, each in times.items()
        },
    }


def show(found: dict[str, Any]) -> None:
    """Print a table of one kind of work."""
    print(
        f"\n{found['work']}: {found['texts']:,} texts, "
        f"{found['characters']:,} characters, redundancy "
        f"{found['redundancy']:.1f}, goal {found['goal']:.2f} x"
    )
    for name, each in found["libraries"].items():
        print(
            f"  {name:30}{each['seconds'] * 1000:10.1f} ms"
            f"{found['characters'] / each['seconds'] / 1e6:10.1f} MB/s"
            f"{each['speed_up']:8.2f} x  "
            + ("ids as alone" if each["own_ids"] else "OTHER IDS than alone")
        )


def main() -> None:
    """Measure what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--family", default=prompts.family())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--characters", type=int, default=CHARACTERS)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    contenders = libraries(options.family)
    results = []
    for work in works(options.family, options.characters):
        results.append(measure(work, contenders, options.rounds))
        show(results[-1])
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(results, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
