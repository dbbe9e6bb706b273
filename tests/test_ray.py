"""Run the example for Ray Data on a Ray of this machine, where Ray is installed."""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.data import REPOSITORY
from tests.encoding_runs import build, make_texts

if TYPE_CHECKING:
    from collections.abc import Iterator

ray = pytest.importorskip("ray")
pytest.importorskip("ray.data")

# Ray's own, on its way down and in its workers' logs.
pytestmark = pytest.mark.filterwarnings("ignore")


def example() -> Any:
    path = REPOSITORY / "examples" / "ray_data.py"
    spec = importlib.util.spec_from_file_location("ray_data_example", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def local_ray(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(
        num_cpus=2,
        object_store_memory=80 * 2**20,
        include_dashboard=False,
        log_to_driver=False,
        configure_logging=False,
    )
    yield
    ray.shutdown()


@pytest.mark.usefixtures("local_ray")
def test_one_cache_an_actor() -> None:
    module = example()
    ray.cloudpickle.register_pickle_by_value(module)
    texts = make_texts(80) * 2
    rows = ray.data.from_items([{"text": text} for text in texts])
    found = rows.map_batches(
        module.Encode,
        fn_constructor_args=(build().to_str(),),
        fn_constructor_kwargs={"max_memory_bytes": 2**20},
        compute=ray.data.ActorPoolStrategy(size=1),
        batch_size=20,
        batch_format="pyarrow",
    ).take_all()
    tokenizer = build()
    got = sorted((row["text"], list(row["ids"])) for row in found)
    assert got == sorted((text, tokenizer.encode(text).ids) for text in texts)
