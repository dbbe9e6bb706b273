"""The one exception that the command line shows without a traceback."""

from __future__ import annotations

__all__ = ["UserError"]


class UserError(Exception):
    """Something that the user can put right; its text is one readable line."""
