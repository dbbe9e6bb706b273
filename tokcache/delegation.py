"""Attributes of a wrapper that are its tokenizer's."""

from __future__ import annotations

from typing import Any

from tokcache.flow import Flow

# Methods of the inner tokenizer that change which ids a text has.
_MUTATORS = frozenset(
    {"add_special_tokens", "add_tokens", "train", "train_from_iterator"}
)
# Methods that switch a state which is looked at in every call.
_SWITCHES = frozenset(
    {"enable_padding", "enable_truncation", "no_padding", "no_truncation"}
)
# Attributes whose value is looked at in every call, so that setting one changes nothing
# that is cached.
_LIVE_STATE = frozenset({"encode_special_tokens"})


class Delegation(Flow):
    """Take what a wrapper does not have from its tokenizer, and set it there.

    Whatever changes the tokenizer on this way is noticed.
    """

    _inner: Any

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_inner":  # an object that is not made yet
            raise AttributeError(name)
        value = getattr(self._inner, name)
        if name not in _MUTATORS and name not in _SWITCHES:
            return value

        def change(*args: Any, **options: Any) -> Any:
            # An encode that is under way notices, even if it is switched back.
            with self._changing():
                try:
                    return value(*args, **options)
                finally:
                    if name in _MUTATORS:
                        self._read_anew()

        return change

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            object.__setattr__(self, name, value)
            return
        # Not yet there when a subclass sets a field before it calls the constructor.
        inner = getattr(self, "_inner", None)
        if not hasattr(type(inner), name) and name not in getattr(
            inner, "__dict__", ()
        ):
            # A subclass may keep fields of its own.
            object.__setattr__(self, name, value)
            return
        with self._changing():
            setattr(self._inner, name, value)
            if name not in _LIVE_STATE:
                self._read_anew()
