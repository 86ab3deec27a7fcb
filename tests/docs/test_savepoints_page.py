"""The page about savepoints names what there is."""

import re

from bicycle_runtime.layouts.savepoint import Savepoint
from tests.docs.scripts import DOCS

PAGE = (DOCS / "how-to/savepoints.md").read_text("utf-8")


def test_the_fields_of_the_description_are_named():
    [sentence] = re.findall(r"`savepoint.json`\nhas (.*?)\. Versions and", PAGE, re.DOTALL)

    assert set(re.findall(r"`(\w+)`", sentence)) == set(Savepoint.__struct_fields__)


def test_every_folder_of_a_savepoint_is_drawn():
    drawing = PAGE.partition("<savepoint>/\n")[2].partition("```")[0]

    for name in ("savepoint.json", "job.json", "epochs/", "state/", "staged/", "connectors/"):
        assert name in drawing
