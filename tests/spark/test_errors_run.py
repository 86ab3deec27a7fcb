"""What goes wrong while a job runs: functions that raise, full disks, a request to stop."""

from __future__ import annotations

import resource
import signal
from collections import Counter

import pytest

from tests.plugin_zoo.zoo import Beast, install, whole
from tests.spark.jobsite import (
    JobSite,
    expected_counts,
    leftovers,
    visible_counts,
)
from tests.waiting import until

pytestmark = pytest.mark.spark

FAILED, STATE = 1, 5
FIRST_LINES = 15
NO_RESTART = ("--restart-attempts", "0")
LINES = [f"w{number % 13} w{number % 101}" for number in range(4_000)]
WORDS = " ".join(LINES).split()


def _plugin(version: str, pipeline: str) -> Beast:
    head = """
from dataclasses import dataclass, field

from bicycle_sdk import RichAsyncFunction, RuntimeContext, StreamEnvironment, bicycle_plugin
from bicycle_sdk import file_sink


@dataclass(frozen=True, kw_only=True)
class Params:
    input: str
    output: str


def parse(line: str) -> int:
    return int(line)  # Here it raises.


def refuse(line: str) -> str:
    raise ValueError("out of order")


@dataclass
class Tally(RichAsyncFunction[str, int]):
    counts: dict[str, int] = field(default_factory=dict)

    async def process(self, value: str, ctx: RuntimeContext) -> list[int]:
        if value == "thirteen":
            raise KeyError(value)  # Here the tally raises.
        self.counts[value] = self.counts.get(value, 0) + 1
        return [self.counts[value]]


def itself(line: str) -> str:
    return line
"""
    body = f"""

@bicycle_plugin(name="fallible", version="{version}")
def job(env: StreamEnvironment, params: Params) -> None:
    lines = env.read_text(params.input).uid("lines")
    lines{pipeline}.sink_to(file_sink(params.output)).uid("out")
"""
    return whole("fallible", head + body)


def _install(site: JobSite, plugin: Beast, *, version: str = "3.1") -> str:
    """Install a plugin in place of what was there; returns the path of its module."""
    site.plugin = "fallible"
    for path in site.plugins.glob("*.dist-info"):
        path.rename(site.root / f"{path.name}.old")
    return str(install(site.plugins, plugin, version=version))


PARSING = '.map(parse).uid("parse").name("parse numbers")'
TALLYING = '.key_by(itself).process(Tally()).uid("tally").name("tally sheet")'


@pytest.mark.parametrize(
    ("pipeline", "bad", "mark", "parts"),
    [
        (
            PARSING,
            "4711x",
            "Here it raises.",
            ("ValueError", "4711x", "'parse' (parse numbers)", "orders.txt line 42, key none"),
        ),
        (
            TALLYING,
            "thirteen",
            "Here the tally raises.",
            (
                *("KeyError", "'tally' (tally sheet)", "key 'thirteen'"),
                # Behind an exchange the span of the batch is known, and the key.
                *("orders.txt line 1 or later", "before "),
            ),
        ),
    ],
)
def test_the_first_lines_of_a_failure_say_what_where_and_on_which_record(
    site: JobSite, pipeline: str, bad: str, mark: str, parts: tuple[str, ...]
):
    plugin = _plugin("3.1", pipeline)
    module = _install(site, plugin)
    numbers = [str(number) for number in range(100)]
    (site.input / "orders.txt").write_text("\n".join([*numbers[:41], bad, *numbers[41:]]) + "\n")

    life = site.start(*NO_RESTART)

    assert life.wait() == FAILED
    lines = life.stderr[life.stderr.index("error: BIC-1401") :].splitlines()
    first = "\n".join(lines[:FIRST_LINES])
    places = (f"{module}:{plugin.line_of(mark)} in", "of plugin fallible 3.1")
    assert [part for part in (*parts, *places) if part not in first] == [], first
    assert first.index(f"{module}:") < first.index("of plugin")
    assert "bicycle_runtime" not in life.stderr[life.stderr.index("error: ") :]
    assert "Traceback (most recent call last)" not in life.stderr
    assert life.stderr.count("error: BIC-") == 1
    assert not site.output.exists() or not list(site.output.iterdir())

    (site.input / "orders.txt").write_text("\n".join(numbers) + "\n")
    site.finish()


def test_the_same_error_in_all_tasks_is_shown_once_with_a_count(site: JobSite):
    _install(site, _plugin("3.1", '.rebalance().map(refuse).uid("refuse")'))
    (site.input / "in.txt").write_text("line\n" * 50)

    life = site.start("--parallelism", "2", *NO_RESTART)

    assert life.wait() == FAILED
    assert life.stderr.count("out of order") - life.stderr.count('"out of order"') == 1
    assert "the same in 2 tasks" in life.stderr


@pytest.mark.extended
@pytest.mark.parametrize("exception", ["ValueError", "InvalidOperation"])
def test_a_bounded_job_starts_once_more_for_an_error_that_repeats(site: JobSite, exception: str):
    source = _plugin("3.1", PARSING).source
    if exception == "InvalidOperation":  # Of a library, and no built-in name.
        source = source.replace("return int(line)", "return int(Decimal(line))")
        source = f"from decimal import Decimal\n{source}"
    _install(site, whole("fallible", source))
    (site.input / "orders.txt").write_text("1\n2\n4711x\n")

    life = site.start()

    assert life.wait() == FAILED
    notes = site.status()["restarts"]
    assert [note["delay_ms"] for note in notes] == [0, None]
    assert exception in notes[-1]["message"]


@pytest.mark.extended
@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
def test_a_function_that_fails_once_is_opened_again_on_the_same_spark(site: JobSite, backend: str):
    mark = site.root / "has-failed"
    code = f"""
class Once(Tally):
    async def process(self, value: str, ctx: RuntimeContext) -> list[int]:
        from pathlib import Path

        if value == "thirteen" and not Path({str(mark)!r}).exists():
            Path({str(mark)!r}).touch()
            raise ConnectionError("gone for a moment")
        return await RichTally.process(self, value, ctx)
"""
    plugin = _plugin("3.1", TALLYING.replace("Tally()", "Once()"))
    calm = plugin.source.replace('if value == "thirteen":', "if not value:")
    head, builder = calm.split("@bicycle_plugin(", 1)
    source = f"{head}RichTally = Tally\n{code}\n\n@bicycle_plugin({builder}"
    _install(site, whole("fallible", source))
    words = ["a", "b", "a", "thirteen", "a", "b"] * 20
    (site.input / "in.txt").write_text("\n".join(words) + "\n")

    life = site.run("--state-backend", backend, "--max-records-per-epoch", "30")

    assert life.process.returncode == 0, life.stderr
    assert [note["code"] for note in site.status()["restarts"]] == ["BIC-1401"]
    text = "".join(part.read_text() for part in site.output.glob("part-*"))
    counts = sorted(map(int, text.split()))
    expected = sorted(n for total in Counter(words).values() for n in range(1, total + 1))
    assert counts == expected


def test_a_job_that_lost_an_operator_with_state_is_refused_and_its_checkpoint_kept(site: JobSite):
    _install(site, _plugin("3.1", TALLYING))
    (site.input / "in.txt").write_text("ada\nbob\nada\n")
    site.finish()
    before = {path.name: path.read_bytes() for path in site.manifest_paths()}
    _install(site, _plugin("3.2", '.map(len).uid("length")'), version="3.2")

    life = site.run()

    assert life.process.returncode == STATE, life.stderr
    assert life.answer["code"] == "BIC-1505"
    assert "tally" in life.answer["facts"]["lost"]
    assert {path.name: path.read_bytes() for path in site.manifest_paths()} == before


def test_a_stopped_job_ends_in_time_and_the_next_start_reads_nothing_again(site: JobSite):
    _write_words(site)
    life = site.start("--max-records-per-epoch", "20", "--json")
    until(lambda: site.newest_epoch() >= 5, "epoch 5")

    life.process.send_signal(signal.SIGTERM)
    assert life.wait() == 0, life.stderr  # One that takes too long ends with 1.
    site.wait_for_no_process()

    stopped = life.answer
    assert (stopped["state"], stopped["was_aborted"]) == ("STOPPED", False)
    assert 0 < stopped["event_count"] == stopped["record_count"] < len(LINES)
    assert site.manifest().event_count == stopped["event_count"]
    assert leftovers(site) == []

    finished = site.finish().answer
    assert stopped["record_count"] + finished["record_count"] == len(LINES)
    assert finished["event_count"] == len(LINES)
    assert visible_counts(site.output) == expected_counts(WORDS)


@pytest.mark.parametrize("victim", ["worker", "driver"])
def test_a_file_that_cannot_grow_stops_the_job_and_costs_nothing(site: JobSite, victim: str):
    """The kernel refuses the write, as on a full disk: while staging, or while publishing."""
    _write_words(site)
    hold = "before_publish@2=hold"
    life = site.start("--max-records-per-epoch", "400", "--json", faults=hold)
    life.wait_for_fault(hold)
    pids = [life.process.pid] if victim == "driver" else [found.pid for found in site.workers()]
    for pid in pids:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (12_000, 12_000))
    life.release()

    assert life.wait() == STATE, life.stderr
    assert life.answer["code"] == "BIC-1130"
    assert "too large" in life.answer["facts"]["reason"]
    site.wait_for_no_process()

    site.finish()
    assert visible_counts(site.output) == expected_counts(WORDS)
    assert leftovers(site) == []


def _write_words(site: JobSite) -> None:
    (site.input / "in.txt").write_text("".join(f"{line}\n" for line in LINES))
