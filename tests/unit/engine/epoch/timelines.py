"""A timeline that is driven by hand, from epoch to epoch."""

from bicycle_runtime.engine.epoch.watermarks import SourceView, Timeline
from bicycle_runtime.engine.planning.stages import plan_stages
from bicycle_runtime.layouts.manifest import ShardTime
from bicycle_runtime.operators.spec import WatermarkSpec
from bicycle_runtime.operators.tasks.task_reports import TaskReport
from bicycle_runtime.testing import script_source
from bicycle_sdk import ProcessFunction, StreamEnvironment
from bicycle_sdk.clock import ManualClock

IDLE = 10_000


def spec_of(uid, **fields):
    defaults = {
        "kind": "bounded", "delay_ms": 0, "idle_timeout_ms": IDLE, "is_by_shard": True,
        "sources": (uid,),
    }  # fmt: skip
    return WatermarkSpec(uid=uid, **{**defaults, **fields})


def at(watermark_ms, active_ms=0):
    return ShardTime(watermark_ms=watermark_ms, event_ms=watermark_ms, active_ms=active_ms)


class Reader(ProcessFunction[object, object]):
    def process_element(self, value, ctx):
        return [value]


def plan_of(build, parallelism=2):
    env = StreamEnvironment()
    env.set_parallelism(parallelism)
    build(env)
    return plan_stages(env.build_graph("job"))


def one_source(env):
    stream = env.add_source(script_source()).uid("source")
    stream.process_fn(Reader()).uid("reader").print()


def behind_an_exchange(env):
    stream = env.add_source(script_source()).uid("source").rebalance()
    timed = stream.assign_timestamps(lambda value: value).uid("times")
    timed.process_fn(Reader()).uid("reader").print()


def two_sources(env):
    sources = [env.add_source(script_source()).uid(uid) for uid in ("near", "far")]
    timed = sources[0].union(sources[1]).assign_timestamps(lambda value: value).uid("times")
    timed.process_fn(Reader()).uid("reader").print()


class Driver:
    """Runs epochs of a timeline by hand, and forgets all but what is sealed when it crashes."""

    def __init__(self, plan):
        self.plan, self.clock = plan, ManualClock()
        self.timeline = Timeline(plan, self.clock)
        self.marks = []

    def epoch(self, seen, *, waiting=None, planned=None, **view):
        """Run an epoch in which tasks saw newest records, by shard."""
        planned = frozenset(seen if planned is None else planned)
        defaults = {"is_finished": False, "waiting": waiting, "planned": planned}
        order = self.timeline.order({"source": SourceView(**{**defaults, **view})})
        times = {shard: at(newest, order.clock_ms) for shard, newest in seen.items()}
        report = TaskReport(level=0, subtask=0, attempt="", times={"source": times})
        record = self.timeline.sealed_after(order, [report])
        self.timeline.take(record)
        self.marks.append(record.watermarks["reader"])
        return record

    def restart(self):
        record = self.timeline.record
        self.timeline = Timeline(self.plan, self.clock)
        self.timeline.resume(record)
