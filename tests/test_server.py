"""Check the example server over real HTTP, with many clients at once."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from tokcache.chat import render

from . import data

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokenizers import Tokenizer

for needed in ("fastapi", "uvicorn", "prometheus_client"):
    pytest.importorskip(needed)
from prometheus_client.parser import text_string_to_metric_families  # noqa: E402

SERVER = data.REPOSITORY / "examples" / "server.py"
FAMILY = "qwen3" if "qwen3" in data.families() else data.families()[0]


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start the server as a user does."""
    file = tmp_path_factory.mktemp("server") / "tokenizer.json"
    file.write_text(data.family_text(FAMILY), "utf-8")
    port = _free_port()
    command = [sys.executable, str(SERVER), str(file), "--port", str(port)]
    with subprocess.Popen([*command, "--model", "m"], stderr=subprocess.PIPE) as server:
        found = f"http://127.0.0.1:{port}"
        for _ in range(600):
            if server.poll() is not None:
                assert server.stderr is not None
                pytest.fail(server.stderr.read().decode())
            try:
                get(f"{found}/health")
                break
            except urllib.error.URLError:
                time.sleep(0.1)
        yield found
        server.terminate()


@pytest.fixture(scope="module")
def raw() -> Tokenizer:
    return data.load_family(FAMILY)


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:  # noqa: S310 - our own
        content: bytes = answer.read()
        return content.decode()


def post(url: str, body: Any) -> Any:
    request = urllib.request.Request(  # noqa: S310 - our own
        url, json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - our own
        return json.load(answer)


def test_clients_at_once_get_their_own_ids(address: str, raw: Tokenizer) -> None:
    """Growing chats of several clients, all at the same time, as ids and as counts."""
    talks = data.conversations("own", 6)

    def client(talk: list[data.Message]) -> int:
        for end in range(1, len(talk) + 1):
            body = {"messages": talk[:end]}
            text = render(talk[:end], "qwen3", add_generation_prompt=True)
            want = raw.encode(text, add_special_tokens=False).ids
            got = post(f"{address}/tokenize", body)
            assert got == {"count": len(want), "tokens": want}
            assert post(f"{address}/count", body) == {"count": len(want)}
        return len(talk)

    with ThreadPoolExecutor(12) as pool:
        assert sum(pool.map(client, talks * 2)) == sum(map(len, talks)) * 2


def test_a_prompt_with_and_without_special_tokens(address: str, raw: Tokenizer) -> None:
    for text in ("hello", "", "a" * 100_000):
        for flag in (None, True, False):
            want = raw.encode(text, add_special_tokens=flag is not False).ids
            body = {"prompt": text, "add_special_tokens": flag}
            assert post(f"{address}/tokenize", body)["tokens"] == want


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"prompt": "a", "messages": []},
        {"messages": [{"role": "nobody", "content": ""}]},
        {"prompt": 7},
    ],
)
def test_a_request_that_is_not_clear_is_refused(address: str, body: Any) -> None:
    with pytest.raises(urllib.error.HTTPError, match="422") as refused:
        post(f"{address}/count", body)
    refused.value.close()


def test_the_metrics_of_what_was_served(address: str) -> None:
    def hits() -> float:
        families = text_string_to_metric_families(get(f"{address}/metrics"))
        return sum(
            sample.value
            for family in families
            for sample in family.samples
            if sample.name == "tokcache_requests_total"
            and sample.labels == {"model": "m", "namespace": "", "result": "hit"}
        )

    body = {"messages": [{"role": "user", "content": "hello"}]}
    post(f"{address}/count", body)
    before = hits()
    for _ in range(3):
        post(f"{address}/count", body)
    assert hits() == before + 3
