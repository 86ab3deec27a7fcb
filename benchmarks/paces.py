"""The paces of contenders over one input, told in one table and compared with each other.

Judged is the whole run, from the first record that is taken to the end of the output; the steady
state stands beside it. A contender with fewer rounds than ours is compared by medians.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from measuring import Report, Table, Target, millions, ratios

__all__ = ["PEER_ROUNDS", "Lap", "Paces", "best_settings"]

PEER_ROUNDS = 3  # of other systems, which are slower
WORK_S = 20.0  # that a contender works for a judged figure, in all of its rounds


@dataclass(frozen=True, slots=True, kw_only=True)
class Lap:
    """One run.

    Args:
        count: Records.
        seconds: The whole run, start-up left out.
        steady_rate: Records per second behind the first third; None where it is that of the whole.
        startup_s: Seconds before it; None for ours, which ``bench_startup.py`` measures.
        idle_share: Of all cores, from the second epoch on; None is not known.
    """

    count: int
    seconds: float
    steady_rate: float | None = None
    startup_s: float | None = None
    idle_share: float | None = None

    @property
    def rate(self) -> float:
        """Records per second of the whole run."""
        return self.count / self.seconds


@dataclass(slots=True, kw_only=True)
class Paces:
    """All runs over one input, by contender.

    Args:
        text: What the input is.
        unit: What is counted.
    """

    text: str
    unit: str
    laps: dict[str, list[Lap]] = field(default_factory=dict)

    def turn(
        self, name: str, run: Callable[[], Lap], *, most: int | None = None
    ) -> Callable[[], float]:
        """Return a contender for ``in_turns`` whose runs are kept here.

        Args:
            name: Of the contender.
            run: Runs it once.
            most: Runs at most; in later rounds it says its last rate again. None is no limit.
        """

        def contender() -> float:
            laps = self.laps.setdefault(name, [])
            if most is None or len(laps) < most:
                laps.append(run())
            return laps[-1].rate

        return contender

    def turns(
        self, runs: Mapping[str, Callable[[], Lap]], *, most: int | None = None
    ) -> dict[str, Callable[[], float]]:
        """Return ``turn`` of several contenders, by their names."""
        return {name: self.turn(name, run, most=most) for name, run in runs.items()}

    def enough(self, name: str, *, is_judged: bool) -> Callable[[], bool]:
        """Return what tells whether a contender has worked as long as a judged figure takes."""
        return lambda: not is_judged or self._worked_s(name) >= WORK_S

    def whole(self, name: str) -> list[float]:
        """Return the rates of whole runs."""
        return [lap.rate for lap in self.laps[name]]

    def steady(self, name: str) -> list[float]:
        """Return the rates of the steady state."""
        return [lap.steady_rate or lap.rate for lap in self.laps[name]]

    def table(self) -> Table:
        """Return the table of the contenders; seconds of work are those of all rounds together."""
        rows = []
        for name, laps in self.laps.items():
            waits = [lap.startup_s for lap in laps if lap.startup_s is not None]
            startup = f"{statistics.median(waits):.2f}" if waits else "see bench_startup"
            rates = [*millions(self.whole(name)), *millions(self.steady(name))]
            rows.append([name, *rates, f"{self._worked_s(name):.0f} in {len(laps)}", startup])
        columns = [
            f"M {self.unit}/s", "whole run: median", "best", "steady: median", "best",
            "work: s in rounds", "start-up s",
        ]  # fmt: skip
        return Table(title=self.text, columns=columns, rows=rows)

    def judge(self, report: Report, ours: str, bounds: Mapping[str, float | None]) -> None:
        """Compare ours with each of the others that has run; None is not judged."""
        for theirs, low in bounds.items():
            if theirs in self.laps:
                title = f"{ours} ÷ {theirs}, {self.text}"
                for kind, rates, bound in (
                    ("whole run", self.whole, low), ("steady", self.steady, None),
                ):  # fmt: skip
                    median, best = _compared(rates(ours), rates(theirs))
                    report.targets.append(
                        Target(
                            name=f"{title}, {kind}", value=median, best=best, low=bound, unit="x"
                        )
                    )

    def judge_idle(self, report: Report, ours: str) -> None:
        """Judge which share of the cores was idle in our runs, from the second epoch on."""
        shares = [lap.idle_share for lap in self.laps[ours] if lap.idle_share is not None]
        report.judge_idle(f"{ours}, {self.text}", shares)

    def _worked_s(self, name: str) -> float:
        return sum(lap.seconds for lap in self.laps[name])


def _compared(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float]:
    if len(ours) == len(theirs):
        return ratios(ours, theirs)
    return statistics.median(ours) / statistics.median(theirs), max(ours) / max(theirs)


def best_settings(
    title: str, unit: str, forms: Mapping[str, Callable[[], Lap]]
) -> tuple[Table, str]:
    """Run each form of another system once; return the table of them and the name of the fastest.

    Args:
        title: What is tried, on which input.
        unit: What is counted.
        forms: By what their settings are.
    """
    laps: dict[str, Lap] = {}
    for name, run in forms.items():
        print(f"  trying {title}: {name} …", file=sys.stderr, flush=True)
        laps[name] = run()
    best = max(laps, key=lambda name: laps[name].rate)
    rows = [
        [f"{name} (taken)" if name == best else name, f"{lap.rate / 1e6:.3f}", f"{lap.seconds:.1f}"]
        for name, lap in laps.items()
    ]
    return Table(title=title, columns=["settings", f"M {unit}/s", "s"], rows=rows), best
