"""``tokcache inspect``: say what the cache makes of a tokenizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tokcache.cached import CachedTokenizer
from tokcache.cli.answer import print_json
from tokcache.cli.errors import UserError
from tokcache.cli.load import find_tokenizer
from tokcache.cli.options import (  # noqa: TC001 - typer reads annotations
    AsJson,
    TokenizerPath,
)

if TYPE_CHECKING:
    from tokcache.eligibility import Explanation

__all__ = ["inspect"]


def inspect(
    tokenizer: TokenizerPath,
    special_token: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOKEN",
            help="Let only these tokens be boundaries (may be given many times).",
        ),
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Say which tokens are boundaries of the cache, which are not, and why."""
    inner = find_tokenizer(tokenizer).load()
    try:
        explanation = CachedTokenizer(inner, special_token or None).explain()
    except ValueError as problem:
        raise UserError(str(problem)) from problem
    if as_json:
        print_json(to_dict(explanation))
    else:
        typer.echo(str(explanation))


def to_dict(explanation: Explanation) -> dict[str, Any]:
    """Return the explanation as an object for JSON."""
    return {
        "enabled": explanation.enabled,
        "reason": explanation.reason,
        "boundary_tokens": list(explanation.boundary_tokens),
        "refused_tokens": dict(explanation.refused_tokens),
        "add_special_tokens": explanation.add_special_tokens,
        "bypass": explanation.bypass,
        "notes": list(explanation.notes),
    }
