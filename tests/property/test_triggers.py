"""Triggers and evictors on all windows against brute force: epochs, crashes, parallelism."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bicycle_runtime.testing import Harness
from bicycle_sdk.windows import (
    ContinuousEventTimeTrigger,
    CountTrigger,
    EventTimeTrigger,
    PurgingTrigger,
)
from tests.examples import examples
from tests.property import trigger_model
from tests.property.mishaps import ENGINES
from tests.property.test_counted_windows import EVICTORS
from tests.property.test_windows import FIXED, KEPT_SESSIONS, job_of, windowed

DELAY = 10
NUMBERS = st.integers(1, 5)
RULES = st.one_of(
    st.just(("watermark",)),
    *(st.tuples(st.just(kind), NUMBERS) for kind in ("count", "early", "continuous")),
)
EPOCHS = st.lists(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(-20, 15)), min_size=1, max_size=8),
    min_size=1,
    max_size=6,
)


def trigger_of(rule, *, purges):
    kind, *number = rule
    made = {
        "watermark": EventTimeTrigger,
        "count": CountTrigger,
        "early": lambda count: EventTimeTrigger().early(count=count),
        "continuous": ContinuousEventTimeTrigger,
    }[kind](*number)
    return PurgingTrigger(made) if purges else made


def numbers(records, ctx):
    return [(ctx.current_key(), ctx.window.start, ctx.window.end, sorted(r[2] for r in records))]


@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    kind=st.one_of(FIXED, KEPT_SESSIONS, st.just(("global",))),
    rule=RULES,
    purges=st.booleans(),
    evictor=st.one_of(st.just((None, list)), EVICTORS),
    epochs=EPOCHS,
    lateness=st.integers(0, 25),
    parallelism=st.integers(1, 3),
    host=st.tuples(ENGINES, st.booleans()),
)
def test_windows_fire_as_their_triggers_say(
    kind, rule, purges, evictor, epochs, lateness, parallelism, host
):
    (made, evict), (engine, crashes) = evictor, host
    is_global = kind[0] == "global"

    def make(keyed):
        window = keyed.global_window() if is_global else windowed(keyed, kind)
        window = window.trigger(trigger_of(rule, purges=purges))
        window = window if made is None else window.evictor(made)
        if not is_global:
            window = window.allowed_lateness(lateness).late_to("late")
        results = window.process(numbers).uid("window")
        results.collect("out")
        results.side_output("late").map(lambda late: late.value).collect("late")

    model = trigger_model.TriggeredWindows(
        kind, rule, purges=purges, evict=evict, lateness=lateness
    )
    number = 0
    with Harness(job_of(make, delay=DELAY), parallelism=parallelism, engine=engine) as harness:
        for later, epoch in enumerate(epochs):
            # Event time goes on from epoch to epoch, so that there is something to be late for.
            records = [(key, time + 8 * later, number + i) for i, (key, time) in enumerate(epoch)]
            number += len(records)
            harness.push(records)
            harness.run_epoch()
            for record in records:
                model.take(record)
            model.advance(max(time for _, time, _ in records) - DELAY)
            if crashes:
                harness.crash()
        harness.end()
        harness.run()
        model.advance(trigger_model.NEVER)
        found, late = harness.results("out"), harness.results("late")

    expected = [(key, *bounds, sorted(map(trigger_model.arrival, rows)))
                for key, *bounds, rows in model.fired]  # fmt: skip
    assert sorted(found) == sorted(expected)
    assert sorted(late) == sorted(model.late)
