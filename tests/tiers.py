"""Tiers of tests: which run in every `make test`, which in slices, which need the machine alone.

Every test has one tier. In the folders of ``EXTENDED_PLACES`` it is the extended one unless the
test is marked ``core``; elsewhere it is the core tier unless the test is marked ``extended``.
``--extended`` says what runs of the extended tier beside the core tests: ``all`` (the default),
``none`` (`make test`), or a slice such as ``3/5`` (the pipeline). Slices consist of whole files and
take about equally long.

`durations.tsv` holds how long tests took, and their tiers, on the machine that last recorded them
(`make durations`). It orders the files, the longest first, so that the processes end at about
the same time, and `tests/tidy` checks it against the limits of the tiers.

Processes of pytest-xdist share the machine, but for tests marked ``alone``: these run last, and
wait until no other test is running.
"""

from __future__ import annotations

import fcntl
import re
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

CORE = "core"
EXTENDED = "extended"
ALONE = "alone"
# Folders of tests on real systems and of long schedules: few of them run in every `make test`.
EXTENDED_PLACES = (
    "browser",
    "cluster",
    "kafka",
    "lakes",
    "postgres",
    "pulsar",
    "redis",
    "s3",
    "simulation",
    "spark",
)
# Seconds that a test of a tier may take, its fixtures included, on the machine of `TABLE`.
LIMITS_S = {CORE: 120.0, EXTENDED: 400.0}
# Seconds after which a test on real systems hangs, for each visit of its crash points. It is no
# limit of speed: on a machine with a load of 50, a start of Java takes minutes.
HANGS_S = 1_800
# Shorter tests are not in the table.
RECORDED_S_MIN = 0.5
_TIER = "tier"
TABLE = Path(__file__).with_name("durations.tsv")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tiers")
    group.addoption(
        "--extended",
        default="all",
        metavar="all|none|K/N",
        help="What runs of the extended tier: everything, nothing, or one slice of N.",
    )
    group.addoption(
        "--record-durations",
        action="store_true",
        help=f"Write how long the tests took into {TABLE.name}.",
    )


def pytest_configure(config: pytest.Config) -> None:
    chosen_slice(config.getoption("--extended"))
    if config.getoption("--record-durations") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder())


def chosen_slice(text: str) -> tuple[int, int]:
    """Return number and count of the slice that ``--extended`` asks for.

    Returns:
        ``(1, 1)`` for ``all``, ``(0, 1)`` for ``none``, ``(3, 5)`` for ``3/5``.

    Raises:
        pytest.UsageError: It is none of these.
    """
    if text in ("all", "none"):
        return (int(text == "all"), 1)
    found = re.fullmatch(r"([1-9]\d?)/([1-9]\d?)", text)
    if found is None or int(found[1]) > int(found[2]):
        raise pytest.UsageError(f"--extended takes all, none, or K/N with K <= N, not '{text}'")
    return int(found[1]), int(found[2])


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what this run does not ask for, and put the longest files first."""
    seconds = seconds_by_file(recorded())
    tiers = {item.nodeid: tier_of(item) for item in items}
    number, count = chosen_slice(config.getoption("--extended"))
    extended = [item for item in items if tiers[item.nodeid] == EXTENDED]
    weights = seconds_by_file(row for row in recorded() if row.tier == EXTENDED)
    slices = slices_of({_file(item) for item in extended}, weights, count=count)
    left_out = {item for item in extended if slices[_file(item)] != number}
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]
    last = {_file(item) for item in items if _is(item, ALONE)}
    items.sort(key=lambda item: (_file(item) in last, -seconds[_file(item)], _file(item)))
    for item in items:
        item.user_properties.append((_TIER, tiers[item.nodeid]))
        if not _is(item, "timeout") and (_is_in_extended_place(item) or _is(item, "spark")):
            rounds = config.getoption("--crash-rounds") if _is(item, "crash") else 1
            item.add_marker(pytest.mark.timeout(HANGS_S * rounds))


def tier_of(item: pytest.Item) -> str:
    """Return the tier of a test: that of its marker, else that of its folder.

    Raises:
        pytest.UsageError: It is marked with both.
    """
    marked = [tier for tier in LIMITS_S if _is(item, tier)]
    if len(marked) > 1:
        raise pytest.UsageError(f"{item.nodeid} is marked with two tiers")
    return marked[0] if marked else EXTENDED if _is_in_extended_place(item) else CORE


def _is_in_extended_place(item: pytest.Item) -> bool:
    return item.path.parent.parent == TABLE.parent and item.path.parent.name in EXTENDED_PLACES


def slices_of(files: Iterable[str], seconds: Mapping[str, float], *, count: int) -> dict[str, int]:
    """Return the slice of each file, 1 to ``count``: the longest goes where least is so far."""
    loads = [0.0] * count
    slices = {}
    for file in sorted(files, key=lambda file: (-seconds.get(file, 0.0), file)):
        index = loads.index(min(loads))
        loads[index] += max(seconds.get(file, 0.0), RECORDED_S_MIN)
        slices[file] = index + 1
    return slices


@dataclass(frozen=True)
class Recorded:
    """A row of the table."""

    seconds: float
    tier: str
    test: str


def recorded() -> list[Recorded]:
    """Return the rows of the table, in their order."""
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    rows = (line.split("\t", 2) for line in lines)
    return [Recorded(float(seconds), tier, test) for seconds, tier, test in rows]


def seconds_by_file(rows: Iterable[Recorded]) -> Counter[str]:
    """Return the seconds that the recorded tests of each file take together."""
    files: Counter[str] = Counter()
    for row in rows:
        files[_file_of(row.test)] += row.seconds
    return files


class Recorder:
    """Adds up setup, call and teardown of each test, and writes the table at the end.

    With pytest-xdist it works in the process that starts the others, which tell it of tiers by
    properties of their reports.
    """

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self.tiers: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        tier = dict(report.user_properties).get(_TIER)
        if tier is not None:  # None in the report of a process that died with its test.
            self.seconds[report.nodeid] += report.duration
            self.tiers[report.nodeid] = tier

    def pytest_sessionfinish(self) -> None:
        """Replace what this run has seen; keep the rows of files and of tiers that it has not."""
        seen = {(_file_of(test), self.tiers[test]) for test in self.seconds}
        rows = [row for row in recorded() if (_file_of(row.test), row.tier) not in seen]
        for test, seconds in self.seconds.items():
            if seconds >= RECORDED_S_MIN:
                rows.append(Recorded(seconds, self.tiers[test], test))
        rows.sort(key=lambda row: row.test)
        text = "".join(f"{row.seconds:.1f}\t{row.tier}\t{row.test}\n" for row in rows)
        TABLE.write_text(text, encoding="utf-8")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, bool, bool]:
    """Run a test beside others, or alone. Waiting does not count against its time-out."""
    if not hasattr(item.config, "workerinput"):
        return (yield)
    with _share_of_machine(item.config, is_alone=_is(item, ALONE)):
        return (yield)


@contextmanager
def _share_of_machine(config: pytest.Config, *, is_alone: bool) -> Iterator[None]:
    folder = config.rootpath / ".build" / "machine"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "machine").open("wb") as machine:
        # Who waits to be alone holds the turnstile: no other test begins meanwhile.
        with (folder / "turnstile").open("wb") as turnstile:
            fcntl.flock(turnstile, fcntl.LOCK_EX)
            fcntl.flock(machine, fcntl.LOCK_EX if is_alone else fcntl.LOCK_SH)
        yield


def _is(item: pytest.Item, marker: str) -> bool:
    return item.get_closest_marker(marker) is not None


def _file(item: pytest.Item) -> str:
    return _file_of(item.nodeid)


def _file_of(test: str) -> str:
    return test.partition("::")[0]
