r"""Serve a tokenizer over HTTP: ``/tokenize``, ``/count``, ``/metrics``.

    python examples/server.py tokenizer.json --format qwen3 --port 8000
    curl localhost:8000/tokenize -H 'content-type: application/json' \\
      -d '{"messages": [{"role": "user", "content": "hello"}]}'

Needs ``pip install 'tokcache[server]'``.
"""

# No `from __future__ import annotations`: FastAPI reads the annotations of the routes.

import argparse
from pathlib import Path
from typing import Annotated, Any

import uvicorn
from fastapi import FastAPI, HTTPException, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from pydantic import BaseModel, Field
from tokenizers import Tokenizer

from tokcache import CachedTokenizer
from tokcache.chat import ChatError, ChatTemplate, Renderer, chat_format
from tokcache.observers import publish_metrics


class Request(BaseModel):
    """A text, or the messages of a chat."""

    model: str | None = None
    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    add_generation_prompt: bool = True
    add_special_tokens: Annotated[
        bool | None,
        Field(description="By default true for a prompt, false for messages."),
    ] = None


class Count(BaseModel):
    """How many tokens a request has."""

    count: int


class Tokens(Count):
    """The tokens of a request."""

    tokens: list[int]


def make_app(cached: CachedTokenizer, renderer: Renderer, model: str = "") -> FastAPI:
    """Make the application for one tokenizer."""
    app = FastAPI(title="tokcache")
    registry = CollectorRegistry()
    publish_metrics(cached, model=model, registry=registry)

    def prompt_of(request: Request) -> tuple[str, bool]:
        """Return the text of a request, and whether special tokens go around it."""
        special = request.add_special_tokens
        if (request.prompt is None) == (request.messages is None):
            raise HTTPException(422, "give either a prompt or messages")
        if request.prompt is not None:
            return request.prompt, special is not False
        try:
            text = renderer.render(
                request.messages or [],
                tools=request.tools,
                add_generation_prompt=request.add_generation_prompt,
            )
        except ChatError as error:
            raise HTTPException(422, f"{error}") from error
        return text, bool(special)

    async def ids_of(request: Request) -> Any:
        text, special = prompt_of(request)
        return await cached.aencode(text, add_special_tokens=special)

    @app.post("/tokenize")
    async def tokenize(request: Request) -> Tokens:
        ids = (await ids_of(request)).ids
        return Tokens(count=len(ids), tokens=ids)

    @app.post("/count")
    async def count(request: Request) -> Count:
        return Count(count=len(await ids_of(request)))

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    return app


def main() -> None:
    """Read the command line and serve until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tokenizer", help="a tokenizer.json")
    parser.add_argument("--format", default="qwen3", help="a plain chat format")
    parser.add_argument(
        "--template", type=Path, help="a file with a Jinja chat template"
    )
    parser.add_argument("--model", default="", help="a label in the metrics")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    given = parser.parse_args()
    renderer: Renderer = chat_format(given.format)
    if given.template is not None:
        renderer = ChatTemplate(given.template.read_text("utf-8"))
    cached = CachedTokenizer(Tokenizer.from_file(given.tokenizer))
    app = make_app(cached, renderer, given.model)
    uvicorn.run(app, host=given.host, port=given.port, log_level="warning")


if __name__ == "__main__":
    main()
