"""The commands, gathered."""

from __future__ import annotations

import typer

from tokcache.cli.encode import encode
from tokcache.cli.inspect import inspect
from tokcache.cli.plan import plan
from tokcache.cli.replay import replay

__all__ = ["app"]

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: boxes leave the long options no room
    help="Try an exact prefix cache for tokenizers on your own prompts.",
)
app.command()(replay)
app.command()(plan)
app.command()(inspect)
app.command()(encode)
