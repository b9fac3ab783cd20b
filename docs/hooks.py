"""Build the site from the whole repository: MkDocs itself reads only the folder docs.

The site also holds the README, the examples and the measurements, to which pages link. These hooks
add those files and rewrite the links, so that every link works in a clone and on the site.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
ADDED = ("*.md", "LICENSE", "bench/*.py", "bench/results/*", "examples/**/*.py")
DOCTEST = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)
LINK = re.compile(r"(?<!`)\[([^\]]*)\]\(([^)#\s:]+)(#[^)]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replace `folder/*.md` in the navigation by the pages that the lines before it do not name."""

    def expanded(items: list[Any]) -> list[Any]:
        found: list[Any] = []
        for item in items:
            if isinstance(item, dict):
                named = {k: expanded(v) if isinstance(v, list) else v for k, v in item.items()}
                found.append(named)
            elif "*" in item:
                pages = sorted(p.relative_to(ROOT / "docs") for p in (ROOT / "docs").glob(item))
                found += [p.as_posix() for p in pages if p.as_posix() not in found]
            else:
                found.append(item)
        return found

    config.nav = expanded(config.nav or [])
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files outside docs to which pages link."""
    for pattern in ADDED:
        for path in sorted(ROOT.glob(pattern)):
            name = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Rewrite links, which are relative to a place in the repository, to places on the site."""
    own = page.file.src_uri
    folder = posixpath.dirname(own if page.file.generated_by else f"docs/{own}")

    def rewritten(link: re.Match[str]) -> str:
        text, target, anchor = link.groups()
        place = posixpath.normpath(posixpath.join(folder, target))
        if (ROOT / place).is_dir():
            return text  # a site has no page for a folder
        there = place.removeprefix("docs/")
        return f"[{text}]({posixpath.relpath(there, posixpath.dirname(own))}{anchor or ''})"

    return LINK.sub(rewritten, markdown)


class Doctests(griffe.Extension):
    """Shows the doctests of a docstring as code; Markdown would take `>>>` for a quotation."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Put a fence around each block of doctests."""
        if obj.docstring is not None:
            fenced = DOCTEST.sub(lambda block: f"```pycon\n{block[0]}\n```", obj.docstring.value)
            obj.docstring.value = fenced
