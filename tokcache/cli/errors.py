"""The one exception that the command line shows without a traceback."""

from __future__ import annotations

__all__ = ["UserError"]


class UserError(Exception):
    """Tell, in one readable line, of something that the user can put right."""
