"""The command line, ``tokcache``.

Nothing beyond the standard library is imported here, so that a missing extra is told
in one line.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tokcache.cli.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

# What which extra installs. A module missing from elsewhere is a defect, and keeps its
# traceback.
_EXTRAS = {
    "typer": "cli",
    "rich": "cli",
    "jinja2": "cli",
    "matplotlib": "cli",
    "pyarrow": "data",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    0: done; 1: the ids of the cached tokenizer differ; 2: a mistake of the user's,
    told in one line on stderr.
    """
    try:
        from tokcache.cli.app import app  # noqa: PLC0415 - see the module's docstring

        app(
            sys.argv[1:] if arguments is None else list(arguments),
            prog_name="tokcache",
        )
    except SystemExit as finished:
        return finished.code if isinstance(finished.code, int) else 1
    except ModuleNotFoundError as missing:
        name = (missing.name or "").partition(".")[0]
        if name not in _EXTRAS:
            raise
        extra = _EXTRAS[name]
        return _fail(f"{name} is not installed: pip install 'tokcache[{extra}]'")
    except UserError as mistake:
        return _fail(str(mistake))
    return 0


def _fail(message: str) -> int:
    line = " ".join(message.split())
    sys.stderr.write(f"tokcache: {line}\n")
    return 2
