import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs" / "benchmarks.md"


@pytest.fixture(scope="module")
def measuring(load):
    return load("measuring")


@pytest.fixture(scope="module")
def workloads(load):
    return load("workloads")


def test_contenders_take_turns_and_every_other_round_goes_backwards(measuring):
    calls = []

    def contender(name):
        def run():
            calls.append(name)
            return float(len(calls))

        return run

    found = measuring.in_turns({name: contender(name) for name in "abc"}, rounds=3)

    assert "".join(calls) == "abccbaabc"
    assert found == {"a": [1.0, 6.0, 7.0], "b": [2.0, 5.0, 8.0], "c": [3.0, 4.0, 9.0]}


def test_further_rounds_follow_until_there_were_enough(measuring):
    calls = []

    measuring.in_turns(
        {"a": lambda: calls.append(1.0) or 1.0}, rounds=2, is_enough=lambda: len(calls) >= 5
    )

    assert len(calls) == 5


def test_a_ratio_is_the_median_round_by_round_beside_the_ratio_of_the_best(measuring):
    assert measuring.ratios([10.0, 30.0, 20.0], [10.0, 10.0, 5.0]) == (3.0, 3.0)
    assert measuring.ratios([10.0, 12.0], [5.0, 4.0]) == (2.5, 2.4)


def test_a_report_compares_paces_and_the_costs_of_sizes_if_there_are_two(measuring):
    report = measuring.Report(name="x", claim="x", payload="x", method="x")

    report.compare("ours ÷ theirs", [10.0, 12.0], [5.0, 4.0], low=2.0)
    report.compare_growth({1_000: 4.0, 20_000: 5.0}, "cost per word, {}")
    report.compare_growth({1_000: 4.0}, "cost of one size, {}")

    found = [(target.name, target.value, target.is_reached) for target in report.targets]
    assert found == [
        ("ours ÷ theirs", 2.5, True),
        ("cost per word, 20,000 ÷ 1,000", 1.25, False),
    ]


def test_a_percentile_is_a_value_that_was_measured(measuring):
    values = [float(number) for number in range(100, 0, -1)]

    assert measuring.percentile(values, 0.5) == 51
    assert measuring.percentile(values, 0.95) == 96
    assert measuring.percentile([7.0], 0.99) == 7


@pytest.mark.parametrize(
    ("bound", "is_reached"),
    [({"low": 2.0}, True), ({"low": 2.1}, False), ({"high": 2.0}, True), ({"high": 1.9}, False)],
)
def test_a_target_is_judged_by_its_bound(measuring, bound, is_reached):
    target = measuring.Target(name="figure", value=2.0, **bound)

    assert target.is_reached == is_reached
    assert ("reached" in target.cells(None, is_judged=True)) == is_reached
    assert "not judged" in target.cells(None, is_judged=False)


def test_a_figure_without_bound_is_told_but_not_judged(measuring):
    assert "not judged" in measuring.Target(name="figure", value=2.0).cells(None, is_judged=True)


def test_a_figure_is_compared_with_the_last_release(measuring):
    cells = measuring.Target(name="figure", value=3.0, low=1.0).cells(2.0, is_judged=True)

    assert cells[-1] == "1.50 x"


def report_of(figures):
    rows = "".join(f"| {name}  |  {value} x | 9 x | - | reached | - |\n" for name, value in figures)
    return (
        "<!-- begin x -->\n- measured: 2026-01-02 on commit abc (code 1)\n\n"
        f"| result | median | best | target | verdict | to last release |\n{rows}<!-- end x -->\n"
    )


def test_a_figure_that_is_worse_than_in_the_report_before_is_noted(measuring):
    before = report_of([("pace", "1,200"), ("cost", 2.0), ("told", 5.0), ("same", 3.0)])
    now = [
        measuring.Target(name="pace", value=1_000.0, low=1.0, unit="x"),
        measuring.Target(name="cost", value=2.2, high=3.0, unit="x"),
        measuring.Target(name="told", value=1.0, unit="x"),
        measuring.Target(name="same", value=2.9, low=1.0, unit="x"),
        measuring.Target(name="new", value=2.9, low=1.0, unit="x"),
    ]

    assert measuring.worse_notes(before, name="x", targets=now) == [
        "Worse than on 2026-01-02 on commit abc: pace, 1,200 x then and 1,000 x now.",
        "Worse than on 2026-01-02 on commit abc: cost, 2 x then and 2.2 x now.",
    ]
    assert measuring.worse_notes("no report", name="x", targets=now) == []


def test_what_is_judged_is_said_before_the_run_and_in_the_report(measuring, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["bench", "--quick"])
    options = measuring.arguments("x", repeats=3, add=lambda _: None, judged="the whole run")
    assert "judged: the whole run" in capsys.readouterr().err
    report = measuring.Report(name="w1-json", claim="x", payload="x", method="x")

    report.tell(options)

    told = capsys.readouterr().out
    assert "- targets, set before the run: the whole run" in told
    assert re.search(
        r"load [\d.]+ at the start and [\d.]+ at the end, \d+ % of its cores idle", told
    )


def test_a_section_is_replaced_and_the_rest_stays(measuring):
    page = "a\n<!-- begin x -->\nold\n<!-- end x -->\nb\n<!-- begin y -->\n<!-- end y -->\n"

    once = measuring.with_section(page, name="x", text="new")

    assert once == page.replace("old", "new")
    assert measuring.with_section(once, name="x", text="new") == once
    with pytest.raises(ValueError, match="no markers"):
        measuring.with_section(page, name="z", text="new")


def test_every_report_has_its_section_in_the_docs():
    by_file = {
        file.name: re.findall(r'^        name="([\w-]+)",$', file.read_text(), re.M)
        for file in (ROOT / "benchmarks").glob("bench_*.py")
    }
    names = [name for found in by_file.values() for name in found]
    page = DOCS.read_text()

    assert [file for file, found in by_file.items() if not found] == []
    assert sorted(names) == sorted(re.findall(r"<!-- begin ([\w-]+) -->", page))
    assert sorted(names) == sorted(re.findall(r"<!-- end ([\w-]+) -->", page))


def write_counts(folder, records):
    lines = [json.dumps({"word": word, "count": count}) for word, count in records]
    (folder / "part.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "_log").mkdir()
    (folder / "_log" / "0").write_text("not a record\n")


GOOD = [("a", 1), ("b", 1), ("a", 2), ("a", 3)]


@pytest.mark.parametrize(
    ("records", "is_right"),
    [
        (GOOD, True),
        (GOOD[::-1], True),
        (GOOD[:-1], False),
        ([*GOOD, ("a", 3)], False),
        ([("a", 1), ("b", 1), ("a", 2), ("a", 2)], False),
        ([("a", 1), ("b", 1), ("a", 1), ("a", 4)], False),
        ([("a", 1), ("c", 1), ("a", 2), ("a", 3)], False),
    ],
)
def test_counts_that_are_not_1_to_n_once_each_are_found(workloads, tmp_path, records, is_right):
    (tmp_path / "input").mkdir()
    (tmp_path / "input" / "words.txt").write_text("a b a\na\n")
    (tmp_path / "output").mkdir()
    write_counts(tmp_path / "output", records)
    words = GivenWords(workloads, tmp_path / "input")

    if is_right:
        workloads.check_counts(tmp_path / "output", words)
    else:
        with pytest.raises(workloads.WrongOutputError):
            workloads.check_counts(tmp_path / "output", words)


class GivenWords:
    """Words of a test in place of drawn ones."""

    def __init__(self, workloads, folder):
        self._workloads, self._folder = workloads, folder

    def truth(self):
        return self._workloads._counted(self._folder)
