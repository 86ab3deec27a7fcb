"""The pipelines that stand in pages."""

import re

from tests.docs.scripts import ROOT

_BLOCK = re.compile(r"^```(toml|yaml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def pipelines_in(page):
    """Return notation and text of each block of a page."""
    return _BLOCK.findall((ROOT / page).read_text("utf-8"))


def readme_pipeline():
    """Return the pipeline that the README shows."""
    (found,) = [text for _, text in pipelines_in("README.md") if "[source]" in text]
    return found
