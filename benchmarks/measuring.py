"""Measuring and telling: what every benchmark here shares, and nothing about jobs.

The idea: contenders take turns within one run, so that a busy machine is busy for all of them, and
a claim is the ratio between two of them. ``Report`` prints machine, payload, results and targets;
it can write the same into ``docs/benchmarks.md`` and compare with the figures of the last release
in ``benchmarks/released.json``. A missed target is told, not raised; wrong output is an error.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

from report_age import measured_line
from report_summary import with_summary
from this_machine import Watch, machine

__all__ = [
    "BUILD",
    "ROOT",
    "Report",
    "Table",
    "Target",
    "WrongOutputError",
    "add_peers",
    "arguments",
    "in_turns",
    "millions",
    "percentile",
    "ratios",
    "run_program",
    "steady_rate",
]

ROOT = Path(__file__).parents[1]
BUILD = ROOT / ".build" / "benchmarks"
_DOCS = ROOT / "docs" / "benchmarks.md"
_RELEASED = ROOT / "benchmarks" / "released.json"
_WORSE = 1.05  # Less is told by every two runs.
_watch = Watch()  # This module is imported before anything runs.

# Installed wheels are compiled; so are these sources, whatever the machine's default is.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


class WrongOutputError(Exception):
    """A contender gave wrong results; its time says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Results as texts; the first column is the name of the row."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        """Return the table with columns of even width."""
        rows = [list(self.columns), *map(list, self.rows)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(self.columns))]
        lines = [_line(row, widths) for row in rows]
        rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
        return "\n".join([f"**{self.title}**", "", lines[0], rule, *lines[1:]])


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (
        cell.ljust(width) if index == 0 else cell.rjust(width)
        for index, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return "| " + " | ".join(padded) + " |"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A figure with its bound: ``low`` is the least, ``high`` the most that fulfils the claim.

    Without a bound it is only told, for comparison.

    ``best`` is the same figure from the best rounds, which a noisy machine disturbs least.
    """

    name: str
    value: float
    unit: str = ""
    low: float | None = None
    high: float | None = None
    best: float | None = None

    @property
    def is_reached(self) -> bool:
        """Whether the median is within the bound."""
        return (self.low is None or self.value >= self.low) and (
            self.high is None or self.value <= self.high
        )

    def is_worse_than(self, before: float) -> bool:
        """Whether it is worse than a figure of before, by more than two runs may differ."""
        if self.high is not None:
            return self.value > before * _WORSE
        return self.low is not None and self.value * _WORSE < before

    def cells(self, released: float | None, *, is_judged: bool) -> list[str]:
        """Return the row of the table of targets."""
        unit = f" {self.unit}" if self.unit else ""
        value, best = _short(self.value), _short(self.best)
        bound = "-"
        if self.low is not None:
            bound = f"≥ {self.low:,g}{unit}"
        elif self.high is not None:
            bound = f"≤ {self.high:,g}{unit}"
        before = "-" if not released else f"{self.value / released:.2f} x"
        best = f"{best}{unit}" if best else "-"
        verdict = "reached" if self.is_reached else "MISSED"
        verdict = verdict if is_judged and bound != "-" else "not judged"
        return [self.name, f"{value}{unit}", best, bound, verdict, before]


@dataclass(slots=True, kw_only=True)
class Report:
    """What one benchmark found; ``judged`` is what it said of its judged rows before it ran."""

    name: str
    claim: str
    payload: str
    method: str
    tables: list[Table] = field(default_factory=list)
    judged: str = ""
    targets: list[Target] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def compare(
        self, title: str, ours: Sequence[float], theirs: Sequence[float], *, low: float | None
    ) -> None:
        """Judge how many times the pace of another we have, round by round."""
        median, best = ratios(ours, theirs)
        self.targets.append(Target(name=title, value=median, best=best, low=low, unit="x"))

    def judge_idle(self, title: str, shares: Sequence[float]) -> None:
        """Judge which share of the cores was idle while jobs ran, from their second epoch on."""
        percent = [100 * share for share in shares]
        self.targets.append(
            Target(
                name=f"idle cores, {title}", value=statistics.median(percent), best=min(percent),
                high=10, unit="%",
            )
        )  # fmt: skip

    def compare_growth(self, costs: Mapping[int, float], what: str) -> None:
        """Judge that something costs the same in a large input as in a small one.

        Args:
            costs: Of one, by the size of the input; one size says nothing.
            what: Its name, with ``{}`` for the two sizes.
        """
        if len(costs) > 1:
            small, large = min(costs), max(costs)
            title = what.format(f"{large:,} ÷ {small:,}")
            value = costs[large] / costs[small]
            self.targets.append(Target(name=title, value=value, high=1.15, unit="x"))

    def tell(self, options: argparse.Namespace) -> None:
        """Print the report; write it into the docs or keep its figures when asked for."""
        self.judged = self.judged or options.judged
        if not options.quick:
            self.notes += worse_notes(_DOCS.read_text(), name=self.name, targets=self.targets)
        text = self.markdown(is_quick=options.quick)
        print(text, flush=True)
        if options.write_docs:
            page = with_section(_DOCS.read_text(), name=self.name, text=text)
            _DOCS.write_text(with_summary(page))
            print(f"\nwritten to {_DOCS.relative_to(ROOT)}")
        if options.keep_as_release:
            _keep_figures(self.name, self.targets)
            print(f"\nkept in {_RELEASED.relative_to(ROOT)}")

    def markdown(self, *, is_quick: bool = False) -> str:
        """Return the whole report."""
        parts = [
            f"{self.claim}",
            f"{measured_line(self.name)}\n- machine: {machine()}; {_watch.told()}\n"
            f"- payload: {self.payload}\n- method: {self.method}",
        ]
        if self.judged:
            parts[1] += f"\n- targets, set before the run: {self.judged}"
        if is_quick:
            parts.append("**A quick run: sizes too small for results; only the outputs count.**")
        parts += [table.markdown() for table in self.tables]
        released = _released().get(self.name, {})
        if self.targets:
            columns = ["result", "median", "best", "target", "verdict", "to last release"]
            rows = [
                target.cells(released.get(target.name), is_judged=not is_quick)
                for target in self.targets
            ]
            parts.append(Table(title="Against the targets", columns=columns, rows=rows).markdown())
        parts += [f"Note: {note}" for note in self.notes]
        return "\n\n".join(parts)


def _short(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def with_section(document: str, *, name: str, text: str) -> str:
    """Return a document with the text between the markers of a name.

    Raises:
        ValueError: the document has no such markers.
    """
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    head, found, rest = document.partition(begin)
    _, closed, tail = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"no markers {begin} and {end} in the document")
    return f"{head}{begin}\n{text}\n{end}{tail}"


def worse_notes(document: str, *, name: str, targets: Sequence[Target]) -> list[str]:
    """Return a note on each figure that is worse than in the report that a document holds."""
    section = document.partition(f"<!-- begin {name} -->")[2].partition(f"<!-- end {name} -->")[0]
    when = re.search(r"^- measured: (.*?) \(code", section, re.MULTILINE)
    rows = re.findall(r"^\| (.+?) +\| +(-?[\d,.e+-]+)(?: [^|]*)?\|", section, re.MULTILINE)
    before = {title: float(value.replace(",", "")) for title, value in rows if value != "-"}
    notes = []
    for target in targets:
        old = before.get(target.name)
        if old and when and target.is_worse_than(old):
            then, now = (f"{_short(value)} {target.unit}".rstrip() for value in (old, target.value))
            notes.append(f"Worse than on {when[1]}: {target.name}, {then} then and {now} now.")
    return notes


def _released() -> Mapping[str, Mapping[str, float]]:
    return json.loads(_RELEASED.read_text()) if _RELEASED.is_file() else {}


def _keep_figures(name: str, targets: Sequence[Target]) -> None:
    kept = {**_released(), name: {target.name: round(target.value, 4) for target in targets}}
    _RELEASED.write_text(json.dumps(kept, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


def arguments(
    description: str | None, *, repeats: int, add: Callable[[argparse.ArgumentParser], object],
    judged: str = "",
) -> argparse.Namespace:  # fmt: skip
    """Read the command line.

    Args:
        description: Docstring of the benchmark.
        repeats: Default number of rounds.
        add: Adds the options of this benchmark.
        judged: Which rows are held against targets; said before anything runs.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small sizes: do outputs hold?")
    parser.add_argument("--repeats", type=int, default=repeats, help="rounds (default %(default)s)")
    parser.add_argument(
        "--write-docs", action="store_true", help="write the report into docs/benchmarks.md"
    )
    parser.add_argument(
        "--keep-as-release", action="store_true",
        help="keep the figures in benchmarks/released.json, to compare later runs with",
    )  # fmt: skip
    add(parser)
    options = parser.parse_args()
    options.judged = judged
    if judged:
        print(f"  judged: {judged}", file=sys.stderr, flush=True)
    if options.quick:
        options.repeats = min(options.repeats, 1)
    BUILD.mkdir(parents=True, exist_ok=True)
    return options


def add_peers(parser: argparse.ArgumentParser, names: str) -> None:
    """Add the option that leaves other systems out."""
    parser.add_argument(
        "--peers", action=argparse.BooleanOptionalAction, default=True, help=f"with {names}"
    )


def in_turns(
    contenders: Mapping[str, Callable[[], float]], *, rounds: int,
    is_enough: Callable[[], bool] = lambda: True,
) -> dict[str, list[float]]:  # fmt: skip
    """Let contenders take turns and return what each gave in each round.

    Every other round goes backwards, so that none always runs behind the same neighbor.

    Args:
        contenders: By their names.
        rounds: How many there are at least.
        is_enough: Asked behind them; further rounds follow until it says so.
    """
    found: dict[str, list[float]] = {name: [] for name in contenders}
    number = 0
    while number < rounds or not is_enough():
        names = list(contenders) if number % 2 == 0 else list(reversed(contenders))
        for name in names:
            print(
                f"  round {number + 1} of {rounds} or more: {name} …", file=sys.stderr, flush=True
            )
            found[name].append(contenders[name]())
        number += 1
    return found


def ratios(numerators: Sequence[float], denominators: Sequence[float]) -> tuple[float, float]:
    """Return the median of the ratios round by round, and the ratio of the largest values."""
    pairs = zip(numerators, denominators, strict=True)
    return statistics.median(a / b for a, b in pairs), max(numerators) / max(denominators)


def steady_rate(batches: Sequence[tuple[int, float]]) -> float:
    """Return the rate behind the first third of all records; of all, when too few are left then.

    Args:
        batches: Records and seconds of each, in order; one without records counts by its time.
    """
    total = sum(count for count, _ in batches)
    done = accumulate(count for count, _ in batches)
    first = next(index for index, count in enumerate(done, start=1) if count * 3 >= total)
    steady = batches[first:]
    if sum(count for count, _ in steady) * 3 < total:
        steady = batches
    return sum(count for count, _ in steady) / sum(seconds for _, seconds in steady)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which ``share`` (0 to 1) of the values lie."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def millions(rates: Sequence[float]) -> list[str]:
    """Return median and best of rates as cells in millions per second."""
    return [f"{statistics.median(rates) / 1e6:.3f}", f"{max(rates) / 1e6:.3f}"]


def run_program(command: Sequence[str | Path], **environment: str) -> str:
    """Run a program of a contender and return its standard output.

    Raises:
        RuntimeError: it failed; with the end of what it wrote to standard error.
    """
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=False,
        env={**os.environ, **environment},
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{command[:4]} ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout
