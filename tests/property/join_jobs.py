"""Two disordered inputs, and what may happen to a job that joins them."""

import contextlib
from dataclasses import dataclass

from hypothesis import strategies as st

from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.testing import Harness, script_source
from bicycle_runtime.testing.errors import HarnessError
from bicycle_sdk import WatermarkStrategy
from tests.property.mishaps import act, actions

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
def disordered(draw, checkpoint_id, max_size=12):
    """Rows of one shard, none older than the newest before it less the bound."""
    rows, newest = [], 0
    for number in range(draw(st.integers(0, max_size))):
        newest += draw(st.integers(0, 70))
        rows.append((draw(st.sampled_from("xy")), newest - draw(st.integers(0, DISORDER)),
                     f"{checkpoint_id}{number}"))  # fmt: skip
    return rows


ACTIONS = actions(["left", "right"])


@dataclass(frozen=True)
class Run:
    """How a job runs: most records of an epoch, backend, and what becomes of calls that fail."""

    budget: int
    backend: str = "memory"
    policy: object = None


def run(job, rows, actions, way):
    """Run a job over rows by source, with what happens to it; return results and what is kept."""
    left = {source: list(found) for source, found in rows.items()}
    engine = EngineOptions(max_records_per_epoch=way.budget, state_backend=way.backend)
    with Harness(job, engine=engine) as harness:
        for action in actions:
            act(harness, action, left)
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
