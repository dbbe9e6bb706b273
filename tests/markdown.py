"""Read the Markdown pages: headings, links, tables, code."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markdown_it import MarkdownIt
from mdit_py_plugins.anchors import anchors_plugin

from .data import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from markdown_it.token import Token

PAGES = tuple(sorted([*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/*.md")]))

_parser = MarkdownIt("commonmark").enable("table").use(anchors_plugin, max_level=6)


@dataclass(frozen=True)
class Block:
    """Hold one fenced block of code; ``line`` is that of its fence, from 1."""

    page: Path
    line: int
    language: str
    code: str

    def __str__(self) -> str:
        return f"{name_of(self.page)}:{self.line}"


def name_of(page: Path) -> str:
    """Return a page's path in the repository, for the names of tests."""
    return page.relative_to(REPOSITORY).as_posix()


@functools.cache
def tokens(page: Path) -> list[Token]:
    """Parse a page."""
    return _parser.parse(page.read_text("utf-8"))


def _inline(page: Path) -> Iterator[Token]:
    for token in tokens(page):
        yield from token.children or ()


def anchors(page: Path) -> set[str]:
    """Return what ``#...`` can be behind a link to a page."""
    return {
        str(token.attrs["id"]) for token in tokens(page) if token.type == "heading_open"
    }


def links(page: Path) -> list[str]:
    """Return the targets of all links and images."""
    found = []
    for token in _inline(page):
        if token.type == "link_open":
            found.append(str(token.attrs["href"]))
        elif token.type == "image":
            found.append(str(token.attrs["src"]))
    return found


def code_spans(page: Path) -> list[str]:
    """Return what stands in single backticks."""
    return [token.content for token in _inline(page) if token.type == "code_inline"]


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of code."""
    found = []
    for token in tokens(page):
        if token.type in {"fence", "code_block"}:
            assert token.map is not None
            found.append(Block(page, token.map[0] + 1, token.info, token.content))
    return found


def rows(page: Path) -> list[list[Token]]:
    """Return the rows of all tables, each cell parsed."""
    found: list[list[Token]] = []
    is_cell = False
    for token in tokens(page):
        if token.type == "tr_open":
            found.append([])
        elif token.type in {"td_open", "th_open"}:
            is_cell = True
        elif is_cell and token.type == "inline":
            found[-1].append(token)
            is_cell = False
    return found
