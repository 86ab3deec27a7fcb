"""Hooks of the site: its navigation, the pages beside ``docs``, and links that leave ``docs``.

``docs/index.md`` is the list of all pages. Its headings and links become the navigation, so there
is no second list. CONTRIBUTING, SECURITY and others lie at the root of the repository, where
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
_SECTION = re.compile(
    r"^## (?P<title>.+)$|^- \[(?P<name>[^]]+)\]\((?P<page>[^)#]+)\)", re.MULTILINE
)
_MODULE = re.compile(
    r"^## (?P<name>bicycle_sdk\.(?P<word>\w+))\n(?P<rest>(?:(?!## ).*\n)*)", re.MULTILINE
)
_LINK = re.compile(r"(?<=\]\()(?P<target>[^)\s#:]+)(?P<anchor>#[^)\s]*)?(?=\))")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Make the navigation."""
    config.nav = navigation((DOCS / "index.md").read_text(encoding="utf-8"))
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
    """Lead links out of ``docs`` to where the site, or the sources, have what they name."""
    uri = page.file.src_uri
    root_names = {site: name for name, site in ROOT_PAGES.items()}
    return with_site_links(
        markdown, uri=uri, origin=root_names.get(uri, f"docs/{uri}"), source_url=config.repo_url
    )


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
