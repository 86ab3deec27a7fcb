"""Hooks of the site: its navigation, the pages beside ``docs``, and links that leave ``docs``.

``docs/contents.md`` is the list of all pages. Its headings and links become the navigation, so
there is no second list. CONTRIBUTING, SECURITY and others lie at the root of the repository, where
people look for them; the site gets copies of them. Links to anything else lead to the sources.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
# Pages at the root of the repository -> where the site has them.
ROOT_PAGES = {
    "CHANGELOG.md": "changelog.md",
    "CODE_OF_CONDUCT.md": "code-of-conduct.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
# First part of the path of a page -> factor of its score in the search.
_BOOSTS = {
    "how-to": 4.0,
    "tutorial": 4.0,
    "explanation": 2.0,
    "adr": 0.2,
    "benchmarks.md": 0.2,
    "changelog.md": 0.2,
    "contributing.md": 0.5,
    "testing.md": 0.5,
}
_SECTION = re.compile(
    r"^## (?P<title>.+)$|^- \[(?P<name>[^]]+)\]\((?P<page>[^)#]+)\)", re.MULTILINE
)
_MODULE = re.compile(
    r"^## (?P<name>bicycle_sdk\.(?P<word>\w+))\n(?P<rest>(?:(?!## ).*\n)*)", re.MULTILINE
)
_LINK = re.compile(r"(?<=\]\()(?P<target>[^)\s#:]+)(?P<anchor>#[^)\s]*)?(?=\))")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Make the navigation."""
    config.nav = navigation((DOCS / "contents.md").read_text(encoding="utf-8"))
    return config


def navigation(index: str) -> list[dict[str, Any]]:
    """Return the sections of the index with their pages, and the decisions in order."""
    sections: dict[str, list[dict[str, Any]]] = {}
    title = ""
    for found in _SECTION.finditer(index):
        if found["title"]:
            title = found["title"]
            sections[title] = []
        else:
            page = found["page"].removeprefix("../")
            sections[title].append({found["name"]: ROOT_PAGES.get(page, page)})
    modules = [{word: f"reference/sdk/{word}.md"} for word in sdk_pages()]
    sections["Reference"][0] = {"The SDK": [{"Overview": "reference/sdk.md"}, *modules]}
    records = sorted(path.relative_to(DOCS).as_posix() for path in (DOCS / "adr").glob("*.md"))
    sections["Explanation"].append({"Decisions": records})
    sections["The project"].append({"Code of conduct": ROOT_PAGES["CODE_OF_CONDUCT.md"]})
    sections["The project"].append({"All pages": "contents.md"})
    return [{"Home": "index.md"}, *({title: pages} for title, pages in sections.items())]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages at the root of the repository, and one for each module of the SDK."""
    # Tests of what needs no site have no mkdocs.
    from mkdocs.structure.files import File

    for word, text in sdk_pages().items():
        files.append(File.generated(config, f"reference/sdk/{word}.md", content=text))
    for name, page in ROOT_PAGES.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=text))
    return files


def sdk_pages() -> dict[str, str]:
    """Return a page for each module that ``docs/reference/sdk.md`` lists, by its last word.

    mkdocstrings fills in what stands behind ``:::``.
    """
    pages = {}
    for found in _MODULE.finditer((DOCS / "reference/sdk.md").read_text(encoding="utf-8")):
        names = re.findall(r"^\| `(\w+)`", found["rest"], re.MULTILINE)
        members = "".join(f"        - {name}\n" for name in names)
        hidden = "      show_root_heading: false\n      show_root_toc_entry: false\n"
        options = f"    options:\n{hidden}      members:\n{members}"
        pages[found["word"]] = f"# {found['name']}\n\n::: {found['name']}\n{options}"
    return pages


def on_page_markdown(markdown: str, *, page: Any, config: MkDocsConfig, **_: Any) -> str:
    """Rewrite links that leave ``docs``, and set the weight of the page in search results."""
    uri = page.file.src_uri
    page.meta.setdefault("search", {})["boost"] = search_boost(uri)
    root_names = {site: name for name, site in ROOT_PAGES.items()}
    return with_site_links(
        markdown, uri=uri, origin=root_names.get(uri, f"docs/{uri}"), source_url=config.repo_url
    )


def search_boost(uri: str) -> float:
    """Return the factor by which the search multiplies the score of a page.

    A reader who searches wants to do something: guides come first, decision records and
    measurements last.

    Args:
        uri: Path of the page in the site.
    """
    return _BOOSTS.get(uri.partition("/")[0], 1.0)


def with_site_links(markdown: str, *, uri: str, origin: str, source_url: str) -> str:
    """Return a page with links as the site needs them.

    Args:
        markdown: The page.
        uri: Its place in the site.
        origin: Its place in the repository, which its links start from.
        source_url: Where the sources are.
    """

    def led(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(origin), found["target"]))
        anchor = found["anchor"] or ""
        page = ROOT_PAGES.get(target) or target.removeprefix("docs/")
        if target not in ROOT_PAGES and page == target:
            return f"{source_url}{target}{anchor}"
        return posixpath.relpath(page, posixpath.dirname(uri) or ".") + anchor

    return _LINK.sub(led, markdown)
