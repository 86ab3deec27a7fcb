"""What is done to a job in its tests: pushes, epochs, and what may befall it on the way."""

from hypothesis import strategies as st

from bicycle_runtime.base.faults import FAULT_POINTS
from bicycle_runtime.engine.options import EngineOptions

FAULTS = st.tuples(st.just("crash"), st.sampled_from(sorted(FAULT_POINTS)), st.integers(1, 4))
RESCALES = st.tuples(st.sampled_from(["rescale", "rescale_live"]), st.sampled_from([1, 2, 3, 5]))
# State lies on disk in each third job: it takes longer to open.
ENGINES = st.sampled_from([*[EngineOptions()] * 2, EngineOptions(state_backend="rocksdb")])
LOSSES = st.sampled_from(["crash", "lose workers"])


def fail_in_next_epoch(harness, event):
    """Let the job crash on its way, if the event says so."""
    match event:
        case ("crash", point, passage):
            harness.fail_at(point, passage=passage)


def happen(harness, event):
    """Let something happen to the job between two epochs, if the event says so."""
    match event:
        case ("rescale" | "rescale_live" as how, parallelism):
            getattr(harness, how)(parallelism)
        case "crash":
            harness.crash()
        case "lose workers":
            harness.lose_workers()


def befall(harness, event):
    """Let something happen to the job now or in its next epoch."""
    fail_in_next_epoch(harness, event)
    happen(harness, event)


def actions(sources, *others):
    """Lists of what may be done with a job of these sources; ``others`` may be done, too."""
    pushes = st.tuples(st.just("push"), st.sampled_from(sources), st.integers(1, 4))
    return st.lists(
        st.one_of(pushes, pushes, st.just("epoch"), FAULTS, RESCALES, LOSSES, *others),
        max_size=14,
    )


def act(harness, action, left):
    """Do it; ``left`` has the rows of each source that were not pushed yet."""
    match action:
        case ("push", source, count):
            harness.push(left[source][:count], source=source)
            del left[source][:count]
        case "epoch":
            harness.run_epoch()
        case ("wait", duration_ms):
            harness.advance_time(duration_ms)
        case _:
            befall(harness, action)
