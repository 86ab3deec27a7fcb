"""The service in this process: what it finds, keeps, and does after any end."""

import asyncio
import json
import logging
import sqlite3
from contextlib import contextmanager
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bicycle_runtime.api.operation_bodies import body_of
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.options import JobOptions, JobRequest
from bicycle_runtime.jobs.status import (
    JobState,
    OpenPublication,
    OperatorStatus,
    RestartNote,
    ShardLag,
    write_status,
)
from bicycle_runtime.operators.metrics import FailureCount
from bicycle_runtime.service.errors import (
    OPERATION_FACTS_INVALID,
    OPERATION_UNKNOWN,
    SERVICE_RUNNING,
)
from bicycle_runtime.service.metrics.metrics import MetricsText
from bicycle_runtime.service.metrics.names import METRICS
from bicycle_runtime.service.operations.kinds import KINDS
from bicycle_runtime.service.readings import Readings
from bicycle_runtime.service.service import Service
from bicycle_runtime.service.store.history import HISTORY, History
from bicycle_runtime.service.users.redaction import JobSecrets, redacted
from bicycle_runtime.service.watching.fleet import Change, Fleet
from bicycle_runtime.service.watching.states import State
from bicycle_sdk.clock import ManualClock, SystemClock
from bicycle_sdk.errors import ConfigError
from bicycle_streams.access.control import CONTROL
from bicycle_streams.access.database import SqliteDatabase
from bicycle_streams.access.errors import DATABASE_UNUSABLE
from bicycle_streams.access.opening import database_of
from bicycle_streams.access.roles import LOCAL
from tests.raising import raises
from tests.unit.jobs.job_samples import put_job, status_of
from tests.unit.service.fleets import known
from tests.waiting import PATIENCE_S, until


@pytest.fixture
def home(tmp_path):
    home = Home(tmp_path / "home")
    home.prepare()
    return home


@pytest.fixture
def database_server():
    """The database server of the service: none, but where these tests run on PostgreSQL."""
    return None


@pytest.fixture
def opened(database_server):
    return lambda home: Service(home, clock=SystemClock(), database=database_server)


@pytest.fixture
def databases(tmp_path, database_server):
    """The control tables, and the samples, in a folder."""

    @contextmanager
    def open_both(folder=tmp_path):
        facts = {"server": database_server, "synchronous": "NORMAL"}
        with (
            database_of(folder, "control", CONTROL, **facts) as control,
            database_of(folder, "history", HISTORY, **facts) as samples,
        ):
            yield control, samples

    return open_both


def ask(service, kind, job, facts=None, **more):
    return service.operations.ask(kind, job, facts or {}, identity=LOCAL, **more)


def over(service, operation):
    def look():
        found = service.operations.get(operation.id)
        return found if found.is_over else None

    return until(look, f"operation {operation.id}")


def put_open(control, kind, job, facts, *, state="running", asked_ms=10):
    """Put an operation into the book as a service leaves it that was killed."""
    sql = (
        "INSERT INTO operations (actor, body_digest, job, kind, facts, state, asked_ms)"
        " VALUES ('ada', '', ?, ?, ?, ?, ?)"
    )
    values = (job, kind, json.dumps(facts), state, asked_ms)
    control.write(lambda connection: connection.execute(sql, values)).result()


def test_a_killed_service_finds_of_each_open_operation_what_became_of_it(home, opened, databases):
    put_job(home, "ended", state=JobState.STOPPED, started_ms=50, ended_ms=60)
    with opened(home):
        pass
    with databases(home.path / "service") as (control, _):
        put_open(control, "stop", "ended", {}, state="waiting", asked_ms=55)
        put_open(control, "submit", "ended", {"plugin": "a", "name": "ended"}, asked_ms=40)
        put_open(control, "submit", "ended", {"plugin": "a", "name": "ended"}, asked_ms=70)
        put_open(control, "savepoint", "ended", {"name": "never"})
        put_open(control, "rescale", "ended", {"operators": {"a": 2}})

    with opened(home) as service:
        found = [over(service, service.operations.get(number)) for number in range(1, 6)]

    assert [each.state for each in found] == [
        "done", "done", "interrupted", "interrupted", "interrupted",
    ]  # fmt: skip
    assert found[1].result == {"job_id": "ended", "state": "STOPPED"}
    assert found[2].error["code"] == "BIC-2307"


def test_one_service_at_a_time_has_a_home(home, opened):
    with opened(home), raises(SERVICE_RUNNING):
        opened(home).__enter__()
    with opened(home):
        pass


def test_a_run_that_is_started_again_begins_a_new_life_in_the_history(home, opened):
    put_job(home, "job", state=JobState.FINISHED, started_ms=1, ended_ms=2)
    error = {"code": "BIC-1", "message": "m", "fix": "f"}
    again = status_of("job", state=JobState.FAILED, started_ms=5, error=error)
    with opened(home) as service:
        write_status(home.folder("job").status_path, again)
        service.watcher.wake()
        until(lambda: service.fleet.view.get("job").summary.start_time == 5, "the look")
        changes = until(lambda: service.history.state_changes("job")[3:], "the steps")
        whole = [each.new for each in service.history.state_changes("job")]
        failures = [e.facts["code"] for e in service.history.events("job") if e.kind == "failure"]

    assert changes
    assert whole == ["FAILED", "FAILING", "CREATED", "FINISHED"]
    assert failures == ["BIC-1"]


def test_an_impossible_change_is_shown_and_told_as_refused(home, opened, caplog):
    put_job(home, "job", state=JobState.FINISHED, started_ms=1, ended_ms=2)
    with opened(home) as service, caplog.at_level(logging.WARNING):
        write_status(
            home.folder("job").status_path, status_of("job", state=JobState.STOPPED, started_ms=1)
        )
        service.watcher.wake()
        until(lambda: service.fleet.view.get("job").summary.state == "STOPPED", "the look")
        until(
            lambda: [e for e in service.history.events("job") if e.kind == "refused"], "the event"
        )


def test_jobs_that_are_removed_leave_the_list_and_keep_their_history(home, opened):
    folder = put_job(home, "job", state=JobState.FINISHED, started_ms=1, ended_ms=2)
    with opened(home) as service:
        for path in (folder.status_path, folder.request_path):
            path.unlink()
        folder.path.rmdir()
        service.watcher.wake()
        until(lambda: service.fleet.view.get("job") is None, "the look")

        changes = until(lambda: service.history.state_changes("job"), "the first look's row")
        assert [each.new for each in changes] == ["FINISHED"]


def test_restarts_are_told_once_each(home, opened):
    notes = [
        RestartNote(time_ms=n, code=f"BIC-{n}", message="m", epoch=n, attempt=1, delay_ms=n)
        for n in (1, 2)
    ]
    fields = {"state": JobState.RUNNING, "running_ms": 1, "started_ms": 1, "updated_ms": 1}
    put_job(home, "job", is_ours=True, **fields, restarts=notes[:1], restart_count=1)
    with opened(home) as service:
        put_job(home, "job", is_ours=True, **fields, restarts=notes, restart_count=2)
        service.watcher.wake()
        until(lambda: len(service.history.events("job")) == 3, "two failures")
        codes = [e.facts["code"] for e in service.history.events("job") if e.kind == "failure"]
        exceptions = service.readings.exceptions("job")

    assert codes == ["BIC-1", "BIC-2"]
    assert {each["code"]: each["count"] for each in exceptions} == {"BIC-1": 1, "BIC-2": 1}


def test_a_failure_that_ends_a_job_is_of_the_kind_that_its_restarts_noted(home, opened):
    note = RestartNote(
        time_ms=1, code="BIC-1401", message="ValueError: no", epoch=4, attempt=1, delay_ms=1,
        position="in a 7", operator="map", subtask=2,
    )  # fmt: skip
    message = 'ValueError: no\n  at job.py:3 in parse\n  File "job.py", line 3, in parse\n    ^^^'
    error = {"code": "BIC-1401", "message": message, "fix": "f",
             "facts": {"location": "job.py:3", "operator": "map", "subtask": 2}}  # fmt: skip
    failure = FailureCount(count=3, example="KeyError: 'a' (in a 9)")
    operators = {"map": OperatorStatus(failed=3, failures={"KeyError at job.py:9 in f": failure})}
    put_job(
        home, "job", state=JobState.FAILED, started_ms=1, ended_ms=2, restarts=[note],
        restart_count=1, error=error, operators=operators,
    )  # fmt: skip
    with opened(home) as service:
        until(lambda: len(service.history.events("job")) >= 3, "both failures")
        last, record = service.readings.exceptions("job")
        tasks = [task["task_id"] for task in service.readings.tasks("job")]
        reason = service.fleet.view.get("job").summary.reason

    assert (last["count"], last["position"], last["location"]) == (2, "in a 7", "job.py:3")
    assert (record["message"], record["location"]) == (failure.example, "job.py:9 in f")
    assert (record["operator_name"], record["count"]) == ("map", 3)
    assert (last["task_id"], last["task_index"]) == ("job-map", 2)
    assert (record["task_id"], record["task_index"]) == ("job-map", None)
    assert tasks == ["job-map"]
    assert reason == "BIC-1401 ValueError: no at job.py:3 in parse"


def test_what_is_kept_of_an_operation_is_what_it_goes_on_with():
    names = {name for kind in KINDS.values() for name in body_of(kind).__struct_fields__}

    assert redacted(dict.fromkeys(names, "word")) == dict.fromkeys(names, "word")


def test_an_operation_that_another_version_asked_for_is_interrupted(home, opened, databases):
    put_job(home, "job", is_ours=True, running_ms=1, started_ms=1)
    with opened(home):
        pass
    with databases(home.path / "service") as (control, _):
        put_open(control, "upgrade", "job", {"strange": 1})
    with opened(home) as service:
        assert service.operations.get(1).state == "interrupted"


def test_facts_are_checked_before_anything_is_promised(home, opened):
    put_job(home, "job", is_ours=True, running_ms=1, started_ms=1)
    with opened(home) as service:
        for kind, facts in (
            ("stop", {"now": True}), ("rescale", {}), ("rescale", {"parallelism": "two"}),
            ("rescale", {"operators": {"a": 0}}), ("savepoint", {"timeout_ms": 1}),
            ("savepoint", {}),
        ):  # fmt: skip
            with pytest.raises(ConfigError):
                ask(service, kind, "job", facts)
        with raises(OPERATION_FACTS_INVALID):
            ask(service, "explode", "job", {})
        for facts in ({"plugin": "a", "options": {"name": "b"}}, {"plugin": "a" * 5_000}):
            with raises(OPERATION_FACTS_INVALID):
                ask(service, "submit", None, facts)
        with raises(OPERATION_FACTS_INVALID):
            ask(service, "stop", "job", key="k" * 201)
        with raises(OPERATION_UNKNOWN):
            service.operations.get(1)


def test_secrets_of_a_start_are_neither_stored_nor_shown(home, opened):
    canary = "canary-4711"
    params = {"password": canary, "broker": f"kafka://ada:{canary}@host/", "token": "env:TOKEN"}
    request = JobRequest(options=JobOptions(plugin="sample", name="job"), params=params)
    put_job(home, "job", state=JobState.FINISHED, ended_ms=1)
    home.folder("job").write_request(request)
    with opened(home) as service:
        asked = ask(
            service, "submit", None, {"plugin": "nowhere", "name": "lost", "params": params}
        )
        done = over(service, asked)
        config = service.readings.config("job")
    files = [path for path in (home.path / "service").rglob("*") if path.is_file()]
    stored = b"".join(path.read_bytes() for path in files)

    assert canary not in json.dumps([config, done.facts, done.error])
    assert canary.encode() not in stored
    assert config["params"]["token"] == "env:TOKEN"
    assert asked.facts["params"]["password"] == "***"


def test_the_audit_log_cannot_be_changed(home, opened):
    with opened(home) as service:
        entry = dict.fromkeys(("actor", "address", "action", "target", "outcome"), "x")
        service.history.note_audit(entry, {}, at_ms=1).result()
        for sql in ("UPDATE audit SET actor = 'y'", "DELETE FROM audit"):
            done = service._control.write(lambda connection, sql=sql: connection.execute(sql))
            assert "the audit log is not changed" in str(done.exception())

        assert [each.actor for each in service.history.audit()] == ["x"]


@pytest.mark.parametrize("content", ["newer", "foreign"])
def test_a_database_that_is_not_ours_is_refused_and_left_alone(tmp_path, content):
    path = tmp_path / "control.db"
    if content == "newer":
        with sqlite3.connect(path) as connection:
            connection.execute("PRAGMA user_version = 99")
        connection.close()
    else:
        path.write_bytes(b"no database" * 1_000)
    before = path.read_bytes()

    with raises(DATABASE_UNUSABLE):
        SqliteDatabase(path, CONTROL, synchronous="FULL").__enter__()

    assert path.read_bytes() == before


def test_work_that_fails_is_undone_alone(databases):
    with databases() as (_, database):

        def put(name, fails):
            def work(connection):
                connection.execute("INSERT INTO job_numbers (job) VALUES (?)", (name,))
                if fails:
                    raise ValueError(name)

            return database.write(work)

        done = [put("a", False), put("b", True), put("c", False)]
        failure = done[1].exception()
        done[2].result()
        rows = database.read(lambda c: c.execute("SELECT job FROM job_numbers").fetchall())

    assert isinstance(failure, ValueError)
    assert [row["job"] for row in rows] == ["a", "c"]


def test_what_is_written_to_a_closed_database_fails_at_once(databases):
    with databases() as (control, _):
        pass

    assert isinstance(control.write(lambda _: None).exception(PATIENCE_S), control.errors)


def test_samples_keep_an_hour_and_seven_days_and_show_gaps(databases):
    values = {
        "lag_records": None,
        "lag_bytes": 5,
        "lag_ms": 1,
        "state_bytes": 2,
        "errors": 0,
        "late": 0,
    }
    with databases() as (control, samples):
        history = History(control, samples)
        for at_s in (*range(30_000, 34_000, 5), *range(34_500, 35_100, 5)):
            own = {"map": [at_s, 0, 0, 0, 0.5, None, 7]}
            row = ("job", {**values, "records_per_second": float(at_s % 300)}, own)
            last = history.note_samples([row], at_s=at_s)
        last.result()
        fine, coarse = history.samples("job"), history.samples("job", tier="5m")
        map_fine = history.operator_samples("job", "map")
        map_coarse = history.operator_samples("job", "map", tier="5m")
        nobody = history.operator_samples("job", "nobody")

    at_s = fine["at_s"]
    assert (at_s[-1], at_s == sorted(at_s)) == (35_095, True)
    assert at_s[0] > at_s[-1] - 3_600
    assert len(at_s) <= 721
    assert fine["records_per_second"][at_s.index(34_000)] is None
    assert set(fine["lag_records"]) == {None}
    assert coarse["at_s"][1:3] == [30_300, 30_600]
    assert coarse["records_per_second"][1] == 147.5
    assert map_fine["at_s"] == at_s
    assert map_fine["records_in"][-1] == map_fine["at_s"][-1]
    assert map_fine["records_in"][at_s.index(34_000)] is None
    assert map_coarse["records_in"][1:3] == [30_300, 30_600]
    assert (set(map_coarse["busy_share"]), nobody["at_s"]) == ({0.5}, [])


def test_a_slow_reader_gets_one_change_that_has_everything():
    async def scenario():
        fleet = Fleet()
        fleet.attach(asyncio.get_running_loop())
        fleet.publish((known("a"), known("b")), ["a", "b"], [], as_of_ms=1)
        await asyncio.sleep(0)
        async with fleet.changes() as changes:
            first = await anext(changes)
            fleet.publish((known("a"),), ["a"], ["b"], as_of_ms=2)
            fleet.publish((known("a"), known("c")), ["c"], [], as_of_ms=3)
            fleet.tell_operation(7)
            await asyncio.sleep(0)
            second = await anext(changes)
            fleet.close()
            rest = [change async for change in changes]
        return first, second, rest

    first, second, rest = asyncio.run(scenario())

    assert first == Change(revision=1, jobs=frozenset("ab"))
    assert second == Change(
        revision=3, jobs=frozenset("ac"), removed=frozenset("b"), operations=frozenset({7})
    )
    assert rest == []


def test_the_log_is_read_on_where_it_was_left_in_whole_lines(home):
    folder = put_job(home, "job", is_ours=True)
    readings = Readings(home, Fleet(), None, secrets=JobSecrets(home), clock=ManualClock())
    folder.log_path.write_bytes(b"".join(b"line %d\n" % n for n in range(10)) + b"unfinish")

    last = readings.logs("job", limit=2)
    begin = readings.logs("job", after=0, limit=3)
    going_on = readings.logs("job", after=begin["next"], limit=1)
    with folder.log_path.open("ab") as log:
        log.write(b"ed\n\xff\n")
    new = readings.logs("job", after=last["next"])

    assert last["lines"] == ["line 8", "line 9"]
    assert begin["lines"] == ["line 0", "line 1", "line 2"]
    assert going_on["lines"] == ["line 3"]
    assert new["lines"] == ["unfinished", "\N{REPLACEMENT CHARACTER}"]
    assert new["next"] == new["size"]
    assert readings.logs("job", after=10**9)["lines"] == []


def test_samples_of_all_jobs_are_sums_but_for_the_age_of_the_lag(databases):
    with databases() as (control, samples):
        history = History(control, samples)
        blank = {"lag_bytes": None, "state_bytes": 0, "errors": 0, "late": 0}
        one = {"records_per_second": 1.5, "lag_records": 3, "lag_ms": 9, **blank}
        other = {"records_per_second": 2.0, "lag_records": None, "lag_ms": 4, **blank}
        history.note_samples([("a", one, {}), ("b", other, {})], at_s=1_000).result(10)
        history.note_samples([("b", other, {})], at_s=1_005).result(10)

        found = history.samples_of_all()

    assert found["at_s"] == [1_000, 1_005]
    assert found["records_per_second"] == [3.5, 2.0]
    assert (found["lag_records"], found["lag_ms"]) == ([3, None], [9, 4])


def test_metrics_are_what_prometheus_reads_with_the_names_of_the_table():
    fleet = Fleet()
    operator = OperatorStatus(records_in=10**12 + 1, skew=1.5, watermark_ms=500)
    job = known(
        'a"b\\c\nd', operators={"op": operator}, lags={"op": {"0": ShardLag(records=3)}},
        lag_records=3, watermark_ms=2_000, updated_ms=500, silent_sources={"op": 400},
        epoch_began_ms=1_000, fixed_ms=2_500,
        publication=OpenPublication(epoch=3, sink="op", since_ms=600),
    )  # fmt: skip
    fleet.publish((job, known("gone", state=State.FAILED)), ["a"], [], as_of_ms=1)
    metrics = MetricsText(fleet)

    text = metrics.text(now_ms=1_500)
    families = {f.name: f for f in text_string_to_metric_families(text)}
    samples = [sample for family in families.values() for sample in family.samples]
    value = {s.name: s.value for s in samples if s.labels["job"] == 'a"b\\c\nd'}

    assert set(families) <= {metric.name.removesuffix("_total") for metric in METRICS}
    assert value["bicycle_operator_records_in_total"] == 10**12 + 1
    assert value["pulse_watermark_lag_ms"] == 0
    assert value["bicycle_source_silent_seconds"] == 1.1
    assert value["bicycle_job_epoch_age_seconds"] == 0.5
    assert value["bicycle_sink_publishing_seconds"] == 0.9
    assert value["bicycle_job_stalled_seconds"] == 0.9
    assert value["bicycle_job_epoch_fixed_seconds"] == 2.5
    assert metrics.text(now_ms=1_500) == text


def test_a_second_is_enough_for_a_look_at_two_hundred_running_jobs(home, opened):
    for number in range(200):
        put_job(home, f"job{number}", is_ours=True, running_ms=1, started_ms=number)
    before = len(list(Path("/proc/self/fd").iterdir()))  # Other tests left some open, too.
    with opened(home) as service:
        descriptors = len(list(Path("/proc/self/fd").iterdir())) - before
        totals = service.fleet.totals()

    assert totals["running"] == 200
    assert descriptors < 100  # One handle for each process, not for each job.


def test_what_happened_before_the_service_came_has_its_own_time(home, opened):
    note = RestartNote(time_ms=40, code="BIC-7", message="m", epoch=1, attempt=1, delay_ms=0)
    error = {"code": "BIC-1", "message": "m", "fix": "f"}
    failure = FailureCount(count=2, example="KeyError: 'a'", first_ms=20, last_ms=30)
    put_job(
        home, "job", state=JobState.FAILED, started_ms=10, running_ms=15, ended_ms=50, error=error,
        restarts=[note], restart_count=1,
        operators={"map": OperatorStatus(failed=2, failures={"KeyError at job.py:9": failure})},
    )  # fmt: skip
    with opened(home) as service:
        events = until(lambda: service.history.events("job")[2:], "the events")
        whole = service.history.events("job")
        changes = service.history.state_changes("job")
        rows = {row["is_record"]: row for row in service.readings.exceptions("job")}

    assert events
    assert [(event.kind, event.at_ms) for event in whole] == [
        ("state", 50), ("failure", 40), ("failure", 50),
    ]  # fmt: skip
    assert [(each.new, each.at_ms) for each in changes] == [("FAILED", 50)]
    assert (rows[True]["first_ms"], rows[True]["last_ms"]) == (20, 30)
    assert rows[True]["timestamp"] == 30
