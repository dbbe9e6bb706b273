"""Find what writes messages as prompts: a plain format, or a template."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tokcache.chat import ChatError, ChatTemplate, chat_format, chat_formats
from tokcache.cli.errors import UserError
from tokcache.cli.load import read_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokcache.chat import Renderer
    from tokcache.cli.inputs import Conversation
    from tokcache.cli.load import TokenizerFile

__all__ = ["Rendering", "find_renderer", "find_rendering"]


@dataclass(frozen=True, slots=True)
class Rendering:
    """A plain format by its name, or a template by its source; neither: there is none.

    It can be sent to another process, which a template that was read cannot.
    """

    name: str
    option: str
    chat: str | None = None
    template: str | None = None
    file: str | None = None
    bos_token: str | None = None
    eos_token: str | None = None

    def renderer(self) -> Renderer:
        """Return the renderer; raise :class:`UserError` if it cannot be had."""
        try:
            if self.chat is not None:
                return chat_format(self.chat)
            if self.template is not None:
                return ChatTemplate(
                    self.template, bos_token=self.bos_token, eos_token=self.eos_token
                )
        except ChatError as problem:
            where = f"{self.file}: " if self.file is not None else ""
            error = f"{where}{problem}"
            raise UserError(error) from problem
        known = ", ".join(chat_formats())
        error = (
            "no chat template beside the tokenizer: name one with --template, or"
            f" a plain format with {self.option} ({known})"
        )
        raise UserError(error)


def find_rendering(
    file: TokenizerFile,
    chat: str | None,
    template: str | None,
    option: str = "--format",
) -> Rendering:
    """Return what the options ask for, else the template beside the tokenizer.

    ``option`` is what the one for plain formats is called.
    """
    if chat is not None and template is not None:
        error = f"{option} and --template exclude each other"
        raise UserError(error)
    if chat is not None:
        return Rendering(chat, option, chat)
    if template is not None:
        source: str | None = read_text(Path(template))
    else:
        source = file.chat_template()
    return Rendering(
        template or "its own chat template",
        option,
        template=source,
        file=template,
        bos_token=file.special_token("bos_token"),
        eos_token=file.special_token("eos_token"),
    )


def find_renderer(
    conversations: Sequence[Conversation],
    file: TokenizerFile,
    chat: str | None,
    template: str | None,
) -> tuple[str, Renderer | None]:
    """Return what writes messages as prompts, and a name for it."""
    if (chat, template) == (None, None) and all(
        each.messages is None for each in conversations
    ):
        return "text", None
    found = find_rendering(file, chat, template)
    return found.name, found.renderer()
