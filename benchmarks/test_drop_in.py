"""What an accelerated tokenizer of transformers costs."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
from transformers import PreTrainedTokenizerFast

from benchmarks import prompts
from tests import data
from tokcache.transformers import accelerate

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture


@pytest.fixture(scope="module")
def plain() -> Any:
    kind: Any = PreTrainedTokenizerFast  # typed as what it never is
    return kind(tokenizer_object=data.load_family(prompts.family()))


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
