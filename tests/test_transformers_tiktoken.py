"""Check tokenizers of transformers that are written around a tiktoken encoding."""

from __future__ import annotations

import base64
import copy
import copyreg
import functools
import importlib.metadata
import importlib.util
import sys
from typing import TYPE_CHECKING, Any

import pytest
import tiktoken.registry
from tiktoken import Encoding

from .encodings import PATTERN, encodings, small_encoding, small_ranks
from .hf_tokenizers import assert_same, make, pickled, transformers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

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


@pytest.fixture
def wrapper(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return llm-foundry's TiktokenTokenizerWrapper, which came with the DBRX models.

    Only its module is run: the package needs torch.
    """
    try:
        found = importlib.metadata.distribution("llm-foundry")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("llm-foundry is not installed")
    file = str(found.locate_file("llmfoundry/tokenizers/tiktoken.py"))
    spec = importlib.util.spec_from_file_location("llmfoundry_tiktoken", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    reducers = copyreg.dispatch_table.copy()
    spec.loader.exec_module(module)
    yield module.TiktokenTokenizerWrapper
    # It has its own way to pickle an encoding.
    copyreg.dispatch_table.clear()
    copyreg.dispatch_table.update(reducers)


TALK = [
    {"role": "system", "content": "hello foo"},
    {"role": "user", "content": "foo hello"},
    {"role": "assistant", "content": "hello  hello\n\n"},
    {"role": "user", "content": "<|im_end|>hello"},
]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"add_special_tokens": False},
    {"truncation": True, "max_length": 3},
    {"padding": "max_length", "max_length": 20, "return_tensors": "np"},
    {"split_special_tokens": True},
    {"return_offsets_mapping": True},
]


def _small() -> Encoding:
    return small_encoding("<|endoftext|>", "<|im_start|>", "<|im_end|>")


@pytest.mark.parametrize("name", ["small", *encodings()])
def test_a_real_class_around_tiktoken(
    wrapper: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every way to call it, cold and warm, and copies of it."""
    encoding = encodings().get(name, _small)()
    monkeypatch.setitem(tiktoken.registry.ENCODINGS, name, encoding)
    pad = min(encoding.special_tokens_set)
    build = functools.partial(
        wrapper, encoding_name=name, unk_token=pad, eos_token=pad, bos_token=pad
    )
    raw, fast = build(pad_token=pad), accelerate(build(pad_token=pad))
    assert type(fast) is wrapper
    prompts = [
        raw.apply_chat_template(TALK[:end], tokenize=False, add_generation_prompt=True)
        for end in range(1, len(TALK) + 1)
    ]
    prompts += ["", "hello", pad * 9]

    def calls(options: dict[str, Any]) -> Iterator[Callable[[Any], Any]]:
        for prompt in prompts:
            yield lambda t: t(prompt, **options)  # noqa: B023 - called at once
            yield lambda t: t.encode(prompt, **options)  # noqa: B023 - the same
            yield lambda t: t._tokenize(prompt)  # noqa: B023 - the same
        yield lambda t: t(prompts, **{"padding": True, **options})
        yield lambda t: t(prompts[0], prompts[1], **options)
        yield lambda t: t(["hello", prompts[0]], is_split_into_words=True, **options)
        yield lambda t: t.apply_chat_template(TALK)
        yield lambda t: t.encoding.encode(prompts[1])

    for made in (fast, copy.copy(fast), copy.deepcopy(fast), pickled(fast)):
        for options in OPTIONS * 2:
            for call in calls(options):
                assert_same(raw, made, call, deep=False)
        ids = raw.encode(prompts[-3])
        assert made.decode(ids) == raw.decode(ids)
        assert cached_tokenizer(made).cache_stats().hits
    assert type(unaccelerate(fast).encoding) is Encoding


def test_saved_files_of_a_real_class_know_nothing_of_it(
    wrapper: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(tiktoken.registry.ENCODINGS, "small", _small())
    accelerate(wrapper(encoding_name="small")).save_pretrained(tmp_path / "fast")
    wrapper(encoding_name="small").save_pretrained(tmp_path / "plain")
    for path in (tmp_path / "plain").iterdir():
        assert (tmp_path / "fast" / path.name).read_bytes() == path.read_bytes()
    loaded = wrapper.from_pretrained(tmp_path / "fast")
    assert type(loaded.encoding) is Encoding
    text = "<|im_start|>hello<|im_end|>hello"
    want = loaded.encode(text)
    for _ in range(2):
        assert accelerate(loaded).encode(text) == want


def test_a_tokenizer_that_is_converted_from_tiktoken(tmp_path: Path) -> None:
    """Transformers makes a fast tokenizer of a file of ranks, such as Llama 3's."""
    file = tmp_path / "tokenizer.model"
    ranks = small_ranks().items()
    file.write_bytes(b"".join(base64.b64encode(t) + b" %d\n" % r for t, r in ranks))
    # The tokens' argument has another name in version 4.
    converter = transformers.convert_slow_tokenizer.TikTokenConverter(
        str(file), PATTERN, False, ["<s>", "<im>"]
    )
    raw, fast = make(converter.converted()), accelerate(make(converter.converted()))
    want = small_encoding(ids={"<s>": len(ranks), "<im>": len(ranks) + 1})
    for text in ("<im>hello hello<im>foo", "<im>hello hello<im>", "hello") * 2:
        assert fast.encode(text) == raw.encode(text)
        assert fast.encode(text) == want.encode(text, allowed_special="all")
    assert cached_tokenizer(fast).cache_stats().hits
