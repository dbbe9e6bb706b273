"""Check the pages: links, the list of metrics, the API reference."""

from __future__ import annotations

import importlib
import re
from collections import defaultdict
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import pytest

import tokcache
from tokcache import CachedTokenizer
from tokcache.observers import publish_metrics

from . import markdown
from .data import REPOSITORY
from .toys import special, toy

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

# Nothing is fetched: a link to elsewhere is only compared with these.
HOSTS = {"cibuildwheel.pypa.io", "github.com", "keepachangelog.com", "semver.org"}

# The packages and modules whose public names the reference has.
DOCUMENTED = (
    "tokcache",
    "tokcache.backends",
    "tokcache.chat",
    "tokcache.transformers",
)

API = REPOSITORY / "docs" / "api.md"
METRICS = REPOSITORY / "docs" / "metrics.md"
METRIC = re.compile(r"\btokcache_[a-z_]*[a-z]\b")


def broken_links(page: Path) -> list[str]:
    """Return the links of a page that lead nowhere."""
    broken = []
    for link in markdown.links(page):
        url = urlsplit(link)
        if url.scheme or url.netloc:
            if url.scheme != "https" or url.netloc not in HOSTS:
                broken.append(link)
            continue
        target = (page.parent / unquote(url.path)).resolve() if url.path else page
        if not target.is_file() or (
            url.fragment
            and (target.suffix != ".md" or url.fragment not in markdown.anchors(target))
        ):
            broken.append(link)
    return broken


@pytest.mark.parametrize("page", markdown.PAGES, ids=markdown.name_of)
def test_links_lead_somewhere(page: Path) -> None:
    assert broken_links(page) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    (tmp_path / "there.md").write_text("# Two words, `code`\n", "utf-8")
    good = [
        "there.md",
        "there.md#two-words-code",
        "#here",
        "https://semver.org/",
    ]
    bad = [
        "gone.md",
        "there.md#gone",
        "#gone",
        "http://semver.org/",
        "https://elsewhere.example/",
        "gone.png",
    ]
    lines = [f"[link]({link})\n" for link in [*good, *bad[:-1]]]
    lines.append(f"![image]({bad[-1]})\n")
    page.write_text("# Here\n\n" + "\n".join(lines), "utf-8")
    assert broken_links(page) == bad


def test_the_site_has_every_page() -> None:
    text = (REPOSITORY / "docs" / "toc.yml").read_text("utf-8")
    listed = re.findall(r"(?:root|- file): (\S+)$", text, re.MULTILINE)
    names = {markdown.name_of(page) for page in markdown.PAGES}
    assert {"README.md", "SECURITY.md", "CHANGELOG.md", "docs/design.md"} <= names
    assert sorted(f"{name}.md" for name in listed) == sorted(names)


Metrics = dict[tuple[str, str], dict[str, set[str]]]


def scraped() -> tuple[Metrics, set[str]]:
    """Return the metrics of a real scrape with their labels, and all sample names."""
    prometheus_client = pytest.importorskip("prometheus_client")
    parser = importlib.import_module("prometheus_client.parser")
    registry = prometheus_client.CollectorRegistry()
    cached = CachedTokenizer(toy(special("<s>")))
    publish_metrics(cached, registry=registry)
    cached.encode("<s>hello")
    text = prometheus_client.generate_latest(registry).decode()
    found: Metrics = {}
    names = set()
    for family in parser.text_string_to_metric_families(text):
        labels: dict[str, set[str]] = defaultdict(set)
        for sample in family.samples:
            names.add(sample.name)
            for label, value in sample.labels.items():
                labels[label].add(value)
        assert labels.pop("model") == labels.pop("namespace") == {""}
        labels.pop("le", None)
        suffix = "_total" if family.type == "counter" else ""
        found[family.name + suffix, family.type] = dict(labels)
    return found, names


def test_the_page_of_metrics_names_those_of_a_scrape() -> None:
    documented: Metrics = {}
    for cells in markdown.rows(METRICS):
        if cells[0].content.startswith("`tokcache_"):
            name, kind, labels, meaning = cells
            spans = [
                part.content
                for part in labels.children or ()
                if part.type == "code_inline"
            ]
            documented[name.content.strip("`"), kind.content] = (
                {spans[0]: set(spans[1:])} if spans else {}
            )
            assert meaning.content
    assert documented == scraped()[0]


def test_no_page_names_a_metric_that_is_not_there() -> None:
    named = set()
    for page in markdown.PAGES:
        spans = markdown.code_spans(page)
        spans += [
            block.code for block in markdown.blocks(page) if block.language == "promql"
        ]
        named |= {name for span in spans for name in METRIC.findall(span)}
    metrics, samples = scraped()
    assert {"tokcache_tokens_total", "tokcache_encode_seconds_bucket"} <= named
    assert named <= samples | {name for name, _ in metrics}


def referenced() -> dict[str, object]:
    """Return what the API reference has, by its full name."""
    pytest.importorskip("transformers")
    text = "".join(block.code for block in markdown.blocks(API))
    found: dict[str, object] = {}
    for kind, name in re.findall(r"^\.\. auto(\w+):: (\S+)$", text, re.MULTILINE):
        if kind == "module":
            module = importlib.import_module(name)
            found |= {
                f"{name}.{each}": getattr(module, each) for each in public(module)
            }
        else:
            path, _, attribute = name.rpartition(".")
            found[name] = getattr(importlib.import_module(path), attribute)
    return found


def public(module: ModuleType) -> list[str]:
    """Return the names that a module gives away."""
    names: list[str] = module.__all__
    return names


@pytest.mark.parametrize("name", DOCUMENTED)
def test_the_reference_has_every_public_name(name: str) -> None:
    found = referenced()
    module = importlib.import_module(name)
    assert {f"{name}.{each}" for each in public(module)} <= found.keys()


def test_the_reference_has_what_a_backend_needs() -> None:
    found = referenced()
    for needed in ("base.Backend", "backend_for", "shape.Shape"):
        assert f"tokcache.backends.{needed}" in found
    assert found["tokcache.CachedTokenizer"] is tokcache.CachedTokenizer
