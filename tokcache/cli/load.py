"""Load a tokenizer, and what lies beside it, from where the user says."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer

from tokcache.cli.errors import UserError
from tokcache.cli.inputs import file_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["TokenizerFile", "find_tokenizer"]

PACKAGE_PREFIX = "package:"


@dataclass(frozen=True, slots=True)
class TokenizerFile:
    """Hold a ``tokenizer.json``, packed or not, and know the folder it lies in."""

    name: str
    path: Path
    content: str

    def load(self) -> Tokenizer:
        """Return a new tokenizer, which shares no state with others."""
        try:
            return Tokenizer.from_str(self.content)
        except Exception as problem:  # the library raises plain Exception
            error = f"{self.name}: not a tokenizer.json: {problem}"
            raise UserError(error) from problem

    def chat_template(self) -> str | None:
        """Return the chat template that came with the tokenizer, if one did."""
        for name in ("chat_template.jinja", "chat_template.jinja.gz"):
            path = self.path.with_name(name)
            if path.is_file():
                return read_text(path)
        template = self._config().get("chat_template")
        if isinstance(template, list):  # several, each with a name
            named = {entry.get("name"): entry.get("template") for entry in template}
            template = named.get("default")
        return template if isinstance(template, str) else None

    def special_token(self, name: str) -> str | None:
        """Return ``bos_token`` or ``eos_token`` of the tokenizer's configuration."""
        token = self._config().get(name)
        if isinstance(token, dict):
            token = token.get("content")
        return token if isinstance(token, str) else None

    def _config(self) -> Mapping[str, Any]:
        for name in ("tokenizer_config.json", "tokenizer_config.json.gz"):
            path = self.path.with_name(name)
            if path.is_file():
                try:
                    config = json.loads(read_text(path))
                except ValueError as problem:
                    error = f"{path}: not JSON: {problem}"
                    raise UserError(error) from problem
                return config if isinstance(config, dict) else {}
        return {}


def find_tokenizer(name: str) -> TokenizerFile:
    """Find a tokenizer and read its file.

    ``name`` is a ``tokenizer.json`` or ``tokenizer.json.gz``, a directory with one, or
    ``package:NAME/FILE``, a file inside an installed package.
    """
    if name.startswith(PACKAGE_PREFIX):
        path = _in_package(name.removeprefix(PACKAGE_PREFIX))
    else:
        path = Path(name)
    if path.is_dir():
        path = _in_directory(path)
    return TokenizerFile(name, path, read_text(path))


def read_text(path: Path) -> str:
    """Return a file's text, unpacked if it is gzipped."""
    try:
        return file_bytes(path).decode("utf-8")
    except UnicodeDecodeError as problem:
        error = f"{path}: not UTF-8 text"
        raise UserError(error) from problem


def _in_directory(directory: Path) -> Path:
    for name in ("tokenizer.json", "tokenizer.json.gz"):
        if (directory / name).is_file():
            return directory / name
    error = f"{directory}: no tokenizer.json or tokenizer.json.gz in this directory"
    raise UserError(error)


def _in_package(resource: str) -> Path:
    package, _, file = resource.partition("/")
    # Found by its spec, not by importlib.resources: that imports the package, and some
    # tokenizer packages parse their vocabulary when imported.
    try:
        spec = find_spec(package) if package.isidentifier() else None
    except ValueError:
        spec = None
    if spec is None:
        error = f"{PACKAGE_PREFIX}{resource}: no package {package!r} is installed"
        raise UserError(error)
    for folder in spec.submodule_search_locations or ():
        if file and (Path(folder) / file).exists():
            return Path(folder) / file
    error = f"{PACKAGE_PREFIX}{resource}: no file {file!r} in the package {package!r}"
    raise UserError(error)
