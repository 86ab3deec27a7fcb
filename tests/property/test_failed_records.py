"""Windows that leave records out: as if these had never come, whatever epochs and crashes do."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bicycle_runtime.testing import Harness, script_source
from bicycle_sdk import skip
from bicycle_sdk.windows import AggregateFunction, CountTrigger, PurgingTrigger, Sum
from tests.examples import examples
from tests.property.mishaps import ENGINES

FEW = settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))
GAP = 10


class Gathered(AggregateFunction):
    """Changes its accumulator before it refuses a record."""

    def create_accumulator(self):
        return []

    def add(self, accumulator, value):
        accumulator.append(value[0])
        if value[1]:
            raise ValueError(value)
        return accumulator

    def get_result(self, accumulator):
        return list(accumulator)

    def merge(self, a, b):
        a.extend(b)
        return a


def worth(record):
    """Return what cannot be added to an int when the record is to fail."""
    return "bad" if record[1] else record[0]


KINDS = {
    "session": lambda s: s.session_window(GAP),
    "triggered session": lambda s: s.session_window(GAP).trigger(CountTrigger(1)),
    "purged session": lambda s: s.session_window(GAP).trigger(PurgingTrigger(CountTrigger(2))),
    "purged": lambda s: s.tumbling_window(GAP).trigger(PurgingTrigger(CountTrigger(2))),
}
AGGREGATES = {"whole": Gathered, "sum": lambda: Sum(worth)}
RECORDS = st.tuples(st.integers(0, 60), st.booleans())
EPOCHS = st.lists(st.lists(RECORDS, max_size=5), min_size=1, max_size=4)


def outcome(job, epochs, *, crashes, **options):
    with Harness(job, **options) as harness:
        for records in epochs:
            harness.push(records)
            harness.run_epoch()
            if crashes:
                harness.crash()
        harness.end()
        harness.run()
        return {name: harness.results(name) for name in KINDS}


@pytest.mark.parametrize("aggregate", AGGREGATES)
@FEW
@given(epochs=EPOCHS, engine=ENGINES)
def test_records_that_fail_leave_no_trace_in_any_window(aggregate, epochs, engine):
    def job(env):
        records = env.add_source(script_source())
        keyed = records.assign_timestamps(lambda r: r[0]).key_by(lambda r: 0)
        for name, windowed in KINDS.items():
            windows = windowed(keyed).aggregate(AGGREGATES[aggregate]()).on_error(skip()).uid(name)
            windows.map(lambda r: (r.start, r.end, r.value)).collect(name)

    good = [[record for record in records if not record[1]] for records in epochs]
    given_all = outcome(job, epochs, crashes=True, engine=engine)
    assert given_all == outcome(job, good, crashes=False)
