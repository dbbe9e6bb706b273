"""What an accelerated tokenizer of transformers costs, and what metrics add."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry
from transformers import PreTrainedTokenizerFast

from benchmarks import prompts
from tests import data
from tests.toys import special, toy
from tokcache import CachedTokenizer
from tokcache.observers import publish_metrics
from tokcache.transformers import accelerate

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

PROMPT = "<s>hello<s>foo<s>"


@pytest.fixture(scope="module")
def plain() -> Any:
    backend = data.load_family(prompts.family())
    return PreTrainedTokenizerFast(tokenizer_object=backend)  # type: ignore[no-untyped-call]


@pytest.fixture(scope="module")
def fast(plain: Any) -> Any:
    return accelerate(copy.deepcopy(plain))


@pytest.mark.benchmark(group="transformers, prompt of 200 segments, all cached")
def test_plain_prompt(benchmark: BenchmarkFixture, plain: Any) -> None:
    benchmark(plain, prompts.chat())


@pytest.mark.benchmark(group="transformers, prompt of 200 segments, all cached")
def test_accelerated_prompt(benchmark: BenchmarkFixture, plain: Any, fast: Any) -> None:
    for _ in range(3):
        assert dict(fast(prompts.chat())) == dict(plain(prompts.chat()))
    benchmark(fast, prompts.chat())


@pytest.mark.benchmark(group="transformers, a word that cannot be cached")
def test_plain_word(benchmark: BenchmarkFixture, plain: Any) -> None:
    benchmark(plain, "hello")


@pytest.mark.benchmark(group="transformers, a word that cannot be cached")
def test_accelerated_word(benchmark: BenchmarkFixture, fast: Any) -> None:
    benchmark(fast, "hello")


@pytest.mark.benchmark(group="a hit, without and with metrics")
def test_hit_without_metrics(benchmark: BenchmarkFixture) -> None:
    cached = CachedTokenizer(toy(special("<s>")))
    cached.encode(PROMPT)
    benchmark(cached.encode, PROMPT)


@pytest.mark.benchmark(group="a hit, without and with metrics")
def test_hit_with_metrics(benchmark: BenchmarkFixture) -> None:
    cached = CachedTokenizer(toy(special("<s>")))
    publish_metrics(cached, registry=CollectorRegistry())
    cached.encode(PROMPT)
    benchmark(cached.encode, PROMPT)
