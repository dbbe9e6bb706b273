"""Build the pages: ``make docs``.

The source folder is the repository, so that one link serves there and in the pages.
"""

import os

from tokcache import __version__

# It would say that there is no PyTorch.
os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")

project = "tokcache"
author = "the tokcache authors"
project_copyright = "the tokcache authors. Apache-2.0"
release = version = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.viewcode",
    "sphinx_external_toc",
]
include_patterns = ["*.md", "docs/*.md"]
exclude_patterns = [".*", "out", "build", "dist", "*.egg-info"]
external_toc_path = "docs/toc.yml"
external_toc_exclude_missing = False

# Enough for every "#heading" that a page links to.
myst_heading_anchors = 3

# What stands in single backticks in docstrings.
default_role = "py:obj"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True

html_theme = "furo"
html_title = f"tokcache {version}"
html_copy_source = False
html_show_sourcelink = False
templates_path = ["templates"]
# The first page is the README; a web server asks for this one.
html_additional_pages = {"index": "redirect.html"}
