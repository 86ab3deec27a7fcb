"""Decisions of the autoscaling: limits, periods, hysteresis, and the record of decisions."""

from bicycle_operator.autoscaling import DECISIONS_MAX, autoscale
from tests.operator.clusters import apply

POLICY = {
    "minParallelism": 2, "maxParallelism": 12, "scaleUpLag": 1_000, "scaleUpSeconds": 60,
    "scaleDownLag": 100, "scaleDownSeconds": 600,
}  # fmt: skip


class Scaled:
    """A job whose parallelism follows the decisions."""

    def __init__(self, parallelism):
        self.spec = {"parallelism": parallelism, "autoscaling": POLICY}
        self.state, self.now_s = {}, 0.0

    def see(self, lag, for_s):
        """Report a lag each 10 s; return the parallelism afterwards."""
        end_s = self.now_s + for_s
        while self.now_s < end_s:
            self.state, width = autoscale(self.spec, self.state, lag=lag, now_s=self.now_s)
            if width is not None:
                self.spec["parallelism"] = width
            self.now_s += 10
        return self.spec["parallelism"]


def test_a_lag_that_stays_above_the_limit_doubles_the_parallelism_up_to_the_maximum():
    job = Scaled(4)

    assert job.see(5_000, 60) == 4
    assert job.see(5_000, 10) == 8
    assert job.see(5_000, 120) == 12
    assert job.see(5_000, 1_000) == 12


def test_a_lag_that_stays_below_the_limit_reduces_the_parallelism_slowly_to_the_minimum():
    job = Scaled(8)

    assert job.see(0, 600) == 8
    assert job.see(0, 10) == 6
    assert job.see(0, 10_000) == 2


def test_a_lag_between_the_limits_changes_nothing_and_begins_a_new_period():
    job = Scaled(4)

    for _ in range(5):
        job.see(5_000, 50)
        job.see(500, 50)
    assert job.see(500, 10_000) == 4


def test_an_unknown_lag_begins_a_new_period():
    job = Scaled(4)
    job.see(5_000, 60)
    job.see(None, 10)

    assert job.see(5_000, 60) == 4
    assert job.see(5_000, 10) == 8


def test_the_state_is_only_written_when_it_changes():
    job = Scaled(4)
    job.see(500, 10)
    former = job.state
    job.see(500, 1_000)

    assert job.state is former


def test_the_last_decisions_are_recorded_with_their_reason():
    job = Scaled(12)
    for _ in range(DECISIONS_MAX):
        job.see(0, 1_300)
        job.see(5_000, 200)
    decisions = job.state["decisions"]

    assert len(decisions) == DECISIONS_MAX
    assert decisions[0]["at"] > decisions[-1]["at"]
    assert decisions[0]["reason"] == "a lag of 5000 records, beyond scaleUpLag for 60 s"


def test_a_lag_between_the_limits_is_written_once():
    spec, status, count = {"parallelism": 4, "autoscaling": POLICY}, {}, 0
    for now_s in range(0, 60, 2):
        state, _ = autoscale(spec, status.get("autoscaling", {}), lag=500, now_s=now_s)
        count += {"autoscaling": state} != status
        apply(status, {"autoscaling": state})

    assert count == 1
