from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[3] / "docs" / "benchmarks.md").read_text("utf-8")
MARKS = "<!-- the worst -->\nold\n<!-- end of the worst -->\n"


@pytest.fixture(scope="module")
def summary(load):
    return load("report_summary").with_summary


def report(name, *rows):
    lines = "".join("| " + " | ".join(row) + " |\n" for row in rows)
    return f"<!-- begin {name} -->\n{lines}<!-- end {name} -->\n"


def test_the_figure_that_is_farthest_behind_its_target_is_told(summary):
    page = MARKS + report(
        "pace",
        ("result", "median", "best", "target", "verdict", "to last release"),
        ("near", "1.9 x", "2 x", "≥ 2 x", "MISSED", "-"),
        ("far", "1,500 ms", "9 ms", "≤ 1,000 ms", "MISSED", "-"),
        ("told", "0.1 x", "-", "-", "not judged", "-"),
        ("good", "0 %", "-", "≤ 10 %", "reached", "-"),
    )

    told = summary(page)

    assert "old" not in told.partition("<!-- end of the worst -->")[0].splitlines()
    assert "| pace | 2 of 3 | far | 1,500 ms | ≤ 1,000 ms |" in told.splitlines()
    assert summary(told) == told


def test_a_report_without_judged_figures_is_left_out(summary):
    page = MARKS + report("quick", ("near", "1.9 x", "2 x", "≥ 2 x", "not judged", "-"))

    assert "quick" not in summary(page).partition("<!-- end of the worst -->")[0]


def test_the_page_has_the_table_of_now(summary):
    assert summary(PAGE) == PAGE, "run `make docs`"
    assert "| w2-wordcount |" in PAGE
