from bicycle_runtime.engine.epoch.stats import Stopwatch
from bicycle_sdk.clock import ManualClock


def test_an_epoch_takes_as_long_as_the_clock_of_its_job_says():
    clock = ManualClock()
    watch = Stopwatch(clock)
    with watch.phase("run"):
        clock.advance(70)
    clock.advance(5)

    assert watch.phases_ms == {"run": 70}
    assert watch.elapsed_ms == 75
