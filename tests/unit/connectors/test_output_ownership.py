"""Jobs with one savepoint and one output directory: which may go on with its parts."""

import shutil
from dataclasses import replace

import pytest

from bicycle_runtime.base.process_identity import this_process
from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.connectors.errors import OUTPUT_HELD, OUTPUT_TAKEN_OVER
from bicycle_runtime.connectors.files.ownership import OutputClaim, OutputOwner
from bicycle_runtime.connectors.registry import create_sink
from bicycle_runtime.contract import ConnectorSpec
from bicycle_runtime.testing.connectors.running import SinkRun, services_in
from tests.raising import raises

HERE = this_process()
GONE = replace(HERE, started=HERE.started + 1)
ELSEWHERE = replace(HERE, host="other", space="another boot")
UNKNOWN = replace(HERE, space="")


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


@pytest.fixture
def run(tmp_path, out):
    """A sink of the job `shop` that has sealed and published an epoch, and goes on."""
    spec = ConnectorSpec(
        vertex_id="v", connector_type="jsonl_file", properties={"path": str(out), "roll_bytes": 1}
    )
    run = SinkRun(spec, replace(services_in(tmp_path / "shop"), job="shop")).start()
    run.run_epoch([["before"]])
    yield run
    run.stop()


def copied(run, tmp_path, *, name="shop-2", place="copy"):
    """The sink of a job that begins with what the other one has sealed."""
    storage = LocalStorage(str(tmp_path / place), is_synced=False)
    for path in run.services.storage.list("connectors"):
        storage.write(path, run.services.storage.read(path))
    services = replace(run.services, storage=storage, job=name)
    return replace(run, services=services, is_sealed=False, lost=[])


def texts(out):
    return [path.read_text() for path in sorted(out.glob("part-*"))]


@pytest.mark.parametrize("name", ["shop", "shop-2"])
def test_a_job_from_a_savepoint_is_refused_while_another_goes_on_with_the_parts(
    run, out, tmp_path, name
):
    other = copied(run, tmp_path, name=name)
    run.run_epoch([["after"]])

    with raises(OUTPUT_HELD) as caught:
        other.start()

    assert {name: caught.value.facts[name] for name in ("vertex", "path", "owner", "pid")} == {
        "vertex": "v", "path": str(out), "owner": "shop", "pid": HERE.pid,
    }  # fmt: skip
    assert texts(out) == ['"before"\n', '"after"\n']  # It would have been taken back.
    other.sink.stop()
    run.run_epoch([["later"]])
    assert len(texts(out)) == 3


def test_two_jobs_from_one_savepoint_are_told_apart_after_the_first_has_ended(run, out, tmp_path):
    run.sink.stop()
    assert [path.name for path in out.iterdir() if path.name.startswith(".")] == []
    first = copied(run, tmp_path, name="first", place="one").start()

    with raises(OUTPUT_HELD) as caught:
        copied(run, tmp_path, name="second", place="two").start()

    assert caught.value.facts["owner"] == "first"
    first.stop()
    copied(run, tmp_path, name="second", place="two").start().stop()


def test_the_one_who_comes_after_a_dead_process_goes_on(run, out, tmp_path):
    leave_mark(run, out, process=GONE)

    other = copied(run, tmp_path).start()

    other.run_epoch([["after"]])
    other.stop()
    assert texts(out) == ['"before"\n', '"after"\n']


@pytest.mark.parametrize("process", [ELSEWHERE, UNKNOWN], ids=["elsewhere", "unknown"])
def test_a_job_of_the_same_name_goes_on_on_another_machine_and_another_name_does_not(
    run, out, tmp_path, process, caplog
):
    leave_mark(run, out, process=process)

    with raises(OUTPUT_HELD):
        copied(run, tmp_path, name="shop-2", place="one").start()
    moved = copied(run, tmp_path, name="shop", place="two").start()

    [warning] = [record for record in caplog.records if record.levelname == "WARNING"]
    assert (warning.message, warning.bicycle_fields["host"]) == ("output_taken_over", process.host)
    moved.run_epoch([["after"]])
    moved.stop()
    with raises(OUTPUT_TAKEN_OVER):  # Should the other machine wake up.
        run.run_epoch([["doubled"]])
    assert texts(out) == ['"before"\n', '"after"\n']


def test_the_job_itself_goes_on_whatever_it_has_left_behind(run, out):
    leave_mark(run, out, process=ELSEWHERE)
    run.lose()
    run.run_epoch([["after"]])

    assert texts(out) == ['"before"\n', '"after"\n']


def test_a_mark_that_a_power_cut_has_damaged_holds_nobody(run, out, tmp_path):
    [mark] = out.glob(".owner-*")
    mark.write_bytes(mark.read_bytes()[:20])

    copied(run, tmp_path).start().stop()


def test_an_output_that_was_removed_while_the_job_runs_is_made_again(run, out):
    shutil.rmtree(out)
    run.run_epoch([["after"]])

    assert texts(out) == ['"after"\n']
    assert len(list(out.glob(".owner-*"))) == 1


def test_who_was_replaced_does_not_take_the_mark_away(run, out, tmp_path):
    leave_mark(run, out, process=GONE)
    other = copied(run, tmp_path).start()
    run.sink.stop()

    other.run_epoch([["after"]])
    other.stop()
    assert texts(out) == ['"before"\n', '"after"\n']


def test_a_mark_reads_back_as_it_was_written():
    owner = OutputOwner(
        job="j", folder="s3://b/j/connectors/v", process=HERE, since_ms=1, token="t"
    )

    assert OutputOwner.from_bytes(owner.to_bytes(), path="f") == owner
    assert OutputOwner.from_bytes(b"{}", path="f") is None


def test_a_look_before_the_beginning_changes_nothing(run, out, tmp_path):
    services = copied(run, tmp_path).services
    sink = create_sink(run.spec)

    with raises(OUTPUT_HELD):
        sink.check(services, run.state)

    sink.check(services, {})
    shutil.rmtree(out)
    sink.check(services, run.state)
    assert not out.exists()
    out.write_text("a file")
    sink.check(services, run.state)  # That is another error, and told by the start.


def leave_mark(run, out, *, process):
    """Let the mark be one that another process of the same job has made."""
    [mark] = out.glob(".owner-*")
    token = mark.name.removeprefix(".owner-")
    output = LocalStorage(str(out), is_synced=False)
    OutputClaim(output, run=token, vertex="v", services=run.services, process=process).take()
