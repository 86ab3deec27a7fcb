"""Maps that all subtasks hold alike, when their entries do not live forever."""

import pytest

from bicycle_runtime.testing import Harness, script_source
from bicycle_sdk import (
    BroadcastProcessFunction,
    MapStateDescriptor,
    StateTtl,
    WatermarkStrategy,
)
from bicycle_sdk.errors import StateDefinitionError


class Rules(BroadcastProcessFunction[tuple, tuple, tuple]):
    """Tells which rules hold when a record comes."""

    def __init__(self, **ttl):
        self.rules = MapStateDescriptor("rules", str, int, ttl=StateTtl(100, **ttl))

    def process_element(self, value, ctx):
        return [(value[1], *ctx.get_broadcast_state(self.rules).keys())]

    def process_broadcast_element(self, value, ctx):
        ctx.get_broadcast_state(self.rules).put(*value)
        return []


def ruled(function):
    def job(env):
        strategy = WatermarkStrategy.ascending().with_timestamps(lambda record: record[1])
        timed = strategy.with_idle_timeout(None)
        records, rules = (
            env.add_source(script_source()).uid(uid).assign_timestamps(timed)
            for uid in ("records", "rules")
        )
        keyed = records.key_by(lambda record: record[0])
        keyed.connect(rules.broadcast()).process(function).uid("ruled").collect("out")

    return job


@pytest.mark.parametrize("time", ["event", "processing"])
def test_rules_expire_in_all_subtasks_alike(time):
    with Harness(ruled(Rules(time=time)), parallelism=2) as harness:
        now = harness.clock.now_ms()
        for at, rules, users in (
            (0, ["old"], "ab"), (60, ["new"], "ab"), (120, [], "ab"), (170, [], "abc")
        ):  # fmt: skip
            harness.clock.advance(now + at - harness.clock.now_ms())
            harness.push([(rule, at) for rule in rules], source="rules")
            harness.push([(user, at) for user in users], source="records")
            harness.run_epoch()
            harness.rescale(1 if at == 60 else 3)

        assert sorted(harness.results("out")) == [
            *[(0, "old")] * 2, *[(60, "new", "old")] * 2, *[(120, "new")] * 2, *[(170,)] * 3
        ]  # fmt: skip


def test_rules_cannot_live_on_by_being_read():
    with Harness(ruled(Rules(update="on_access"))) as harness:
        harness.push([("old", 0)], source="rules")
        with pytest.raises(StateDefinitionError) as caught:
            harness.run_epoch()

        assert caught.value.facts["state"] == "rules"
