"""The site has every page, in the order of the index, and links that lead somewhere."""

import re
import subprocess

import pytest

from tests.docs.scripts import DOCS, ROOT, load

SETTINGS = ROOT / "tools/mkdocs.yml"
SOURCES = "https://bicycle.example/source/"


@pytest.fixture(scope="module")
def site():
    return load("tools/site_pages.py")


def pages_of(navigation: list) -> list[str]:
    """Return the pages of a navigation, from top to bottom."""
    pages = []
    for entry in navigation:
        values = entry.values() if isinstance(entry, dict) else [entry]
        for value in values:
            pages += [value] if isinstance(value, str) else pages_of(value)
    return pages


def test_the_navigation_has_each_page_once(site):
    listed = pages_of(site.navigation((DOCS / "contents.md").read_text("utf-8")))
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    modules = {f"reference/sdk/{word}.md" for word in site.sdk_pages()}

    assert len(listed) == len(set(listed))
    assert set(listed) == pages | modules | set(site.ROOT_PAGES.values())


def test_each_module_of_the_sdk_has_a_page_with_its_names(site):
    page = site.sdk_pages()["failures"]

    assert page.startswith("# bicycle_sdk.failures\n\n::: bicycle_sdk.failures\n")
    assert "        - dead_letter\n" in page


@pytest.mark.parametrize(
    ("uri", "origin", "link", "led"),
    [
        ("how-to/a.md", "docs/how-to/a.md", "b.md#c", "b.md#c"),
        ("how-to/a.md", "docs/how-to/a.md", "../glossary.md", "../glossary.md"),
        ("how-to/a.md", "docs/how-to/a.md", "../../SECURITY.md#x", "../security.md#x"),
        ("index.md", "docs/index.md", "../README.md", f"{SOURCES}README.md"),
        ("contributing.md", "CONTRIBUTING.md", "docs/how-to/a.md", "how-to/a.md"),
        ("contributing.md", "CONTRIBUTING.md", "CODE_OF_CONDUCT.md", "code-of-conduct.md"),
        ("contributing.md", "CONTRIBUTING.md", "LICENSE", f"{SOURCES}LICENSE"),
        ("a.md", "docs/a.md", "https://spark.apache.org", "https://spark.apache.org"),
        ("a.md", "docs/a.md", "#below", "#below"),
    ],
)
def test_links_lead_to_where_the_site_has_what_they_name(site, uri, origin, link, led):
    text = site.with_site_links(f"[x]({link})", uri=uri, origin=origin, source_url=SOURCES)

    assert text == f"[x]({led})"


def test_the_address_of_the_sources_is_that_of_the_distributions():
    text = SETTINGS.read_text("utf-8")

    assert re.findall(r"^repo_url: (.*)$", text, re.MULTILINE) == [SOURCES]


@pytest.mark.extended
def test_the_site_is_built_without_a_warning(tmp_path):
    built = subprocess.run(["make", "site"], capture_output=True, text=True, check=False, cwd=ROOT)

    assert built.returncode == 0, built.stdout + built.stderr
    streams = (ROOT / ".build/site/reference/sdk/datastream/index.html").read_text("utf-8")
    assert 'id="bicycle_sdk.datastream.DataStream.map"' in streams
    index = (ROOT / ".build/site/search/search_index.json").read_text("utf-8")
    assert "tumbling_window" in index


@pytest.mark.extended
def test_a_link_that_leads_nowhere_ends_the_build(tmp_path):
    settings = SETTINGS.with_name(f".mkdocs-{tmp_path.name}.yml")
    (tmp_path / "index.md").write_text("# Title\n\n[gone](gone.md), [nowhere](#nowhere)\n", "utf-8")
    text = SETTINGS.read_text("utf-8").replace("docs_dir: ../docs", f"docs_dir: {tmp_path}")
    text = text.replace(".build/site", ".build/broken-site")
    text = text.replace("hooks:\n  - site_pages.py\n", "")
    settings.write_text(text, "utf-8")
    try:
        command = [".venv-site/bin/mkdocs", "build", "--strict", "--config-file", str(settings)]
        built = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    finally:
        settings.unlink()

    assert built.returncode != 0
    assert "gone.md" in built.stderr
    assert "#nowhere" in built.stderr
