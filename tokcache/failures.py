"""Tell a tokenizer that failed from a process that is told to stop."""

from __future__ import annotations


def is_failure(error: BaseException) -> bool:
    """Tell whether a tokenizer failed; a panic of Rust code is no ``Exception``."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"
