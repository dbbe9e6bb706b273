"""Options that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["AddSpecialTokens", "AsJson", "Chat", "Template", "TokenizerPath"]

TokenizerPath = Annotated[
    str,
    typer.Option(
        metavar="PATH",
        help="tokenizer.json (or .gz), a directory with one, or package:NAME/FILE.",
    ),
]

Chat = Annotated[
    str | None,
    typer.Option("--format", metavar="NAME", help="Plain chat format to write in."),
]

Template = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Jinja chat template to write in. Without this and without --format:"
        " the template that lies beside the tokenizer.",
    ),
]

AddSpecialTokens = Annotated[
    bool,
    typer.Option(help="Let the tokenizer add its own; chat formats have theirs."),
]

AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON object and nothing else.")
]
