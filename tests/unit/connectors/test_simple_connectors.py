"""Generator, console and collect: what the contract suite does not ask."""

from dataclasses import dataclass

from bicycle_runtime.contract import Budget, ConnectorSpec
from bicycle_runtime.testing import Harness
from bicycle_runtime.testing.connectors.running import SinkRun, SourceRun, services_in, values_of
from bicycle_sdk.sinks import console_table_sink


def generator(tmp_path, **properties):
    spec = ConnectorSpec(vertex_id="v", connector_type="generator", properties=properties)
    return SourceRun(spec, services_in(tmp_path)).start()


def test_a_generator_gives_one_word_per_interval(tmp_path):
    run = generator(tmp_path)
    assert values_of(run.drain()) == ["hello"]
    status = run.source.poll()
    assert (status.has_input, status.next_poll_ms) == (False, 100)
    run.services.clock.advance(250)

    assert values_of(run.drain()) == ["world", "bicycle"]
    assert run.source.poll().next_poll_ms == 50


def test_a_restarted_generator_keeps_its_rhythm(tmp_path):
    run = generator(tmp_path, rate_ms=1_000)
    run.drain()
    run.services.clock.advance(2_500)
    run.restart()

    assert values_of(run.drain()) == ["world", "bicycle"]


def test_a_generator_keeps_its_rhythm_when_the_wall_clock_is_set(tmp_path):
    run = generator(tmp_path, rate_ms=1_000)
    clock = run.services.clock
    for restarts in (False, True):
        for jump_ms in (-3_600_000, 7_200_000, -7_200_000):
            assert len(values_of(run.drain())) == 1
            clock.set_wall(clock.now_ms() + jump_ms)
            if restarts and jump_ms < 0:  # What passes while a job is down, only this clock tells.
                run.restart()
            assert not run.source.poll().has_input
            assert run.source.poll().next_poll_ms <= 1_000
            clock.advance(1_000)


def test_a_counted_generator_ends(tmp_path):
    run = generator(tmp_path, rate_ms=0, count=3)

    assert values_of(run.drain()) == ["hello", "world", "bicycle"]
    assert run.source.poll().is_finished


def test_an_endless_generator_is_bounded_by_the_budget(tmp_path):
    run = generator(tmp_path, rate_ms=0)
    status = run.source.poll()

    epoch = run.read(Budget(record_count=10_000, byte_count=1, parallelism=3))

    assert status.lag.record_count is None
    assert len(epoch.values) == 10_000


def test_the_console_unwraps_strings_and_shows_others_as_json(tmp_path):
    printed = []
    spec = ConnectorSpec(vertex_id="v", connector_type="console", properties={})
    run = SinkRun(spec, services_in(tmp_path, printed)).start()

    run.run_epoch([["plain", {"a": [1]}], [(1, None)]])

    assert printed == ["[SINK] plain", '[SINK] {"a":[1]}', "[SINK] [1,null]"]


@dataclass
class Point:
    x: int


def test_collected_values_come_back_equal_and_of_their_type(tmp_path):
    services = services_in(tmp_path)
    values = [Point(1), (1, "a"), {"k": {1, 2}}, b"x", None, 1.5, ["l"]]
    spec = ConnectorSpec(vertex_id="v", connector_type="collect", properties={"name": "out"})
    run = SinkRun(spec, services).start()

    run.run_epoch([values])

    assert services.collected["out"] == values
    assert [type(value) for value in services.collected["out"]] == [type(v) for v in values]


def test_two_collect_sinks_may_share_a_name(tmp_path):
    services = services_in(tmp_path)
    for vertex in ("a", "b"):
        spec = ConnectorSpec(vertex_id=vertex, connector_type="collect", properties={})
        SinkRun(spec, services).start().run_epoch([[vertex]])

    assert services.collected["collected"] == ["a", "b"]


def test_a_list_made_by_somebody_else_is_kept(tmp_path):
    services = services_in(tmp_path)
    services.collected["collected"] = ["before"]
    spec = ConnectorSpec(vertex_id="v", connector_type="collect", properties={})

    SinkRun(spec, services).start().run_epoch([["after"]])

    assert services.collected["collected"] == ["before", "after"]


def test_a_console_table_shows_the_first_rows_of_an_epoch_and_how_many_there_are():
    def job(env):
        rows = [{"id": number, "text": "[b]x[/b]" * number} for number in range(12)]
        sink = console_table_sink(columns={"id": int, "text": str}, rows=3)
        env.from_collection(rows).sink_to(sink).uid("out")

    with Harness(job, real_sinks=["out"]) as harness:
        harness.run()
        title, *lines = harness.console

    assert title.strip() == "epoch 1: 3 of 12 rows"
    assert [line.split() for line in lines if line.split()[0].isdecimal()] == [
        ["0"], ["1", "[b]x[/b]"], ["2", "[b]x[/b][b]x[/b]"],
    ]  # fmt: skip
