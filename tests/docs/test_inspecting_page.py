"""The page about looking into state names what there is."""

import re
import typing

from bicycle_runtime.jobs.checkpoints import sealed_export
from bicycle_runtime.state.stores.sealed_entries import StateKind
from tests.docs.scripts import DOCS

PAGE = (DOCS / "how-to/inspecting-state.md").read_text("utf-8")


def test_the_table_of_kinds_is_complete():
    rows = re.findall(r"^\| (`[a-z-]+`[^|]*) \|", PAGE, re.MULTILINE)
    named = {word for row in rows for word in re.findall(r"`([a-z-]+)`", row.partition(" (")[0])}

    assert named == set(typing.get_args(StateKind))


def test_the_columns_of_an_export_are_named_in_order():
    [sentence] = re.findall(r"with the columns\n(.*?)\. In Parquet", PAGE, re.DOTALL)

    assert tuple(re.findall(r"`(\w+)`", sentence)) == sealed_export.COLUMNS
