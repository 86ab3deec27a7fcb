"""Two disordered inputs, and what may happen to a job that joins them."""

import contextlib

from hypothesis import strategies as st

from bicycle_runtime.base.faults import FAULT_POINTS
from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.testing import Harness, script_source
from bicycle_runtime.testing.errors import HarnessError
from bicycle_sdk import WatermarkStrategy

DISORDER = 50
STRATEGY = WatermarkStrategy.bounded_out_of_orderness(DISORDER).with_timestamps(lambda row: row[1])


def key_of(row):
    return row[0]


def sides(env):
    """Return two keyed streams of rows ``(key, time, number)``."""
    return [
        env.add_source(script_source()).uid(uid).assign_timestamps(STRATEGY).key_by(key_of)
        for uid in ("left", "right")
    ]


@st.composite
def disordered(draw, label, max_size=12):
    """Rows of one shard, none older than the newest before it less the bound."""
    rows, newest = [], 0
    for number in range(draw(st.integers(0, max_size))):
        newest += draw(st.integers(0, 70))
        rows.append((draw(st.sampled_from("xy")), newest - draw(st.integers(0, DISORDER)),
                     f"{label}{number}"))  # fmt: skip
    return rows


FAULTS = st.tuples(st.just("crash"), st.sampled_from(sorted(FAULT_POINTS)), st.integers(1, 4))
RESCALES = st.tuples(st.sampled_from(["rescale", "rescale_live"]), st.sampled_from([1, 2, 3]))


def actions(*sources):
    """What may happen to a job with these sources."""
    pushes = st.tuples(st.just("push"), st.sampled_from(sources), st.integers(1, 4))
    return st.lists(
        st.one_of(pushes, pushes, st.just("epoch"), FAULTS, RESCALES, st.just("lose workers")),
        max_size=12,
    )


ACTIONS = actions("left", "right")


def fail_in_next_epoch(harness, event):
    """Let the job crash on its way, if the event says so."""
    match event:
        case ("crash", point, passage):
            harness.fail_at(point, passage=passage)


def happen(harness, event):
    """Let something happen to the job between two epochs."""
    match event:
        case ("rescale" | "rescale_live" as how, parallelism):
            getattr(harness, how)(parallelism)
        case "crash":
            harness.crash()
        case "lose workers":
            harness.lose_workers()


def run(job, rows, actions, budget):
    """Run a job over rows by source, with what happens to it; return results and what is kept."""
    left = {source: list(found) for source, found in rows.items()}
    engine = EngineOptions(max_records_per_epoch=budget)
    with Harness(job, engine=engine) as harness:
        for action in actions:
            match action:
                case ("push", source, count):
                    harness.push(left[source][:count], source=source)
                    del left[source][:count]
                case "epoch":
                    harness.run_epoch()
                case _:
                    fail_in_next_epoch(harness, action)
                    happen(harness, action)
        for source, found in left.items():
            harness.push(found, source=source)
        harness.end()
        harness.run()
        names = harness.sink_names()
        return {name: harness.results(name) for name in names}, states_of(harness)


def states_of(harness):
    """Return what the operator ``join`` still keeps."""
    found = []
    for key in "xy":
        with contextlib.suppress(HarnessError):
            found.append(harness.state("join", key))
    return found
