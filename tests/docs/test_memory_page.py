"""The page about memory: its examples use the figures of its tables, and their sums are right."""

import re
from pathlib import Path

import pytest

_FILE = Path(__file__).parents[2] / "docs/how-to/memory.md"
PAGE = _FILE.read_text("utf-8").replace("\N{MULTIPLICATION SIGN}", "*")
_ROW = re.compile(r"^\| (?P<state>[^|]+?) +\| +(?P<memory>[\d,]+) \| +[\d,]+ \|$", re.MULTILINE)
BYTES = {row["state"]: row["memory"] for row in _ROW.finditer(PAGE)}
# A machine, its calculation, and its gigabytes; the second example has the sum in one cell.
_EXAMPLE = re.compile(r"\| ([^|]*[+*][^|]*?) (?:\||=) ([\d.]+) GB(?: per host)? \|$", re.MULTILINE)
SUMS = _EXAMPLE.findall(PAGE)


def value(calculation):
    """Return the value of a calculation, whose words are ignored."""
    return eval(re.sub(r"[A-Za-z,]+", "", calculation))


def test_examples_use_the_bytes_of_the_tables():
    count, session = BYTES["running `count()`"], BYTES["session, `count()`"]
    records = BYTES["session, `process`, 10 records"]

    assert f"A running `count()` needs {count} bytes per key: 10,000,000 * {count} bytes" in PAGE
    assert f"259,471 * {count} bytes" in PAGE
    assert f"| `count()`, or another aggregate | {session} |" in PAGE
    assert f"| `process`, 10 short records per session | {records} |" in PAGE


@pytest.mark.parametrize(("calculation", "gigabytes"), SUMS)
def test_the_sums_of_examples_are_right(calculation, gigabytes):
    digits = len(gigabytes.partition(".")[2])

    assert round(value(calculation), digits) == float(gigabytes)


def test_all_sums_are_found():
    assert len(SUMS) == 6
