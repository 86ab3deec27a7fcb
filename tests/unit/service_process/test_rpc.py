"""gRPC against a real service: the objects of the REST API, and nobody gets in."""

import itertools
import json
import signal
import sqlite3
import threading
from contextlib import closing, suppress

import grpc
import pytest
from google.protobuf import json_format
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from bicycle_runtime.api.rpc.calls import JobManagerStub
from bicycle_runtime.api.rpc.generated import jobmanager_pb2 as shapes
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.status import JobState
from bicycle_runtime.service.address import read_address, service_folder
from bicycle_runtime.service_process.main import run_service
from bicycle_sdk.clock import SystemClock
from bicycle_streams.access.doors import Doors
from bicycle_streams.access.errors import ADDRESS_REFUSED, ADDRESS_TAKEN
from bicycle_streams.access.roles import Role
from bicycle_streams.access.tokens import tokens_of
from tests.raising import raises
from tests.unit.jobs.job_samples import put_job
from tests.unit.service_process import light_process
from tests.unit.service_process.served import Served
from tests.waiting import PATIENCE_S, until

SERVICE = "bicycle.v1.JobManager"
HOUR_MS = 3_600_000


class Door:
    """A service with gRPC, and a channel to it."""

    def __init__(self, home, credentials=None, **doors):
        self.served = Served(home, grpc_port=0, **doors).start()
        self.place = read_address(self.served.home)["grpc"]
        self.channel = (
            grpc.insecure_channel(self.place)
            if credentials is None
            else grpc.secure_channel(self.place.replace("127.0.0.1", "localhost"), credentials)
        )
        self.stub = JobManagerStub(self.channel)

    def close(self):
        self.channel.close()
        self.served.end(signal.SIGKILL)


def refused(call, *args, **kwargs):
    """Return the status of a call that must fail, and our error in it."""
    with pytest.raises(grpc.RpcError) as caught:
        answer = call(*args, timeout=PATIENCE_S, **kwargs)
        list(answer)  # Of a stream.
    found = dict(caught.value.trailing_metadata() or ())
    data = found.get("bicycle-error-bin")
    return caught.value.code(), json.loads(data) if data else None


def bearer(token):
    return (("authorization", f"Bearer {token}"),)


@pytest.fixture(scope="module")
def door(tmp_path_factory):
    home = Home(tmp_path_factory.mktemp("rpc") / "home")
    put_job(home, "over", state=JobState.FINISHED, started_ms=5, ended_ms=9, record_count=7)
    put_job(home, "alive", is_ours=True, started_ms=6, lag_records=3)
    put_job(home, "failed", state=JobState.FAILED, started_ms=4, error={
        "code": "BIC-1234", "message": "no", "fix": "yes", "facts": {"a": [1, None, "x"]}},
    )  # fmt: skip
    found = Door(home.path)
    yield found
    found.close()


def test_both_doors_give_the_same_objects(door):
    stub, get = door.stub, door.served.get

    def same(kind, plain):
        return json_format.ParseDict(plain, kind())

    listed = stub.ListJobs(shapes.ListJobsRequest(sort="name"))
    page = get("/api/v1/jobs?sort=name")
    assert list(listed.jobs) == [same(shapes.JobSummary, each) for each in page["items"]]
    assert listed.total == page["total"] == 3
    for job in ("over", "failed", "alive"):
        detail = stub.GetJobStatus(shapes.GetJobStatusRequest(job_id=job))
        assert detail == same(shapes.JobDetail, get(f"/api/v1/jobs/{job}"))
    metrics = stub.GetMetrics(shapes.GetMetricsRequest(job_id="over"))
    assert metrics == same(shapes.GetMetricsResponse, get("/api/v1/jobs/over/metrics"))
    assert len(stub.GetMetrics(shapes.GetMetricsRequest()).items) > len(metrics.items)
    workers = stub.ListWorkers(shapes.ListWorkersRequest())
    [row] = get("/api/v1/cluster/workers")["items"]
    assert [each.worker_id for each in workers.items] == ["alive"]
    assert {field.name for field in shapes.Worker.DESCRIPTOR.fields} == row.keys()
    info = stub.GetClusterInfo(shapes.GetClusterInfoRequest())
    cluster = same(shapes.ClusterInfo, get("/api/v1/cluster"))
    assert cluster.uptime_ms >= info.uptime_ms
    info.uptime_ms = cluster.uptime_ms
    assert info == cluster


def test_jobs_are_listed_page_by_page(door):
    first = door.stub.ListJobs(shapes.ListJobsRequest(page_size=2))
    rest = door.stub.ListJobs(shapes.ListJobsRequest(page_size=2, page_token=first.next_page_token))
    failed = door.stub.ListJobs(shapes.ListJobsRequest(states=["failed"]))

    assert [job.job_id for job in first.jobs] == ["alive", "over"]
    assert [job.job_id for job in rest.jobs] == ["failed"]
    assert not rest.next_page_token
    assert [job.job_id for job in failed.jobs] == ["failed"]


@pytest.mark.parametrize(
    ("name", "request_", "status", "code"),
    [
        ("GetJobStatus", shapes.GetJobStatusRequest(job_id="nobody"), "NOT_FOUND", "BIC-1902"),
        ("CancelJob", shapes.CancelJobRequest(job_id="nobody"), "NOT_FOUND", "BIC-1902"),
        ("WatchJobs", shapes.WatchJobsRequest(job_ids=["nobody"]), "NOT_FOUND", "BIC-1902"),
        ("WaitOperation", shapes.WaitOperationRequest(id=10**6), "NOT_FOUND", "BIC-2304"),
        ("WaitOperation", shapes.WaitOperationRequest(wait_seconds=float("nan")),
         "INVALID_ARGUMENT", "BIC-2403"),
        ("ListJobs", shapes.ListJobsRequest(page_size=-1), "INVALID_ARGUMENT", "BIC-2403"),
        ("ListJobs", shapes.ListJobsRequest(page_token="x"), "INVALID_ARGUMENT", "BIC-2309"),
        ("ListJobs", shapes.ListJobsRequest(states=["happy"]), "INVALID_ARGUMENT", "BIC-2309"),
        ("SubmitJob", shapes.SubmitJobRequest(plugin="a.py"), "INVALID_ARGUMENT", "BIC-2305"),
        ("SubmitJob", shapes.SubmitJobRequest(idempotency_key=""), "INVALID_ARGUMENT", "BIC-2305"),
        ("CancelJob", shapes.CancelJobRequest(job_id="over", savepoint=True),
         "FAILED_PRECONDITION", "BIC-2308"),
        ("SubmitJob", shapes.SubmitJobRequest(
            plugin="x", pipeline=shapes.PipelineFile(file="a.toml", text="name = 'a'")),
         "INVALID_ARGUMENT", "BIC-2305"),
        ("SubmitJob", shapes.SubmitJobRequest(
            pipeline=shapes.PipelineFile(file="../a.toml", text="name = 'a'")),
         "INVALID_ARGUMENT", "BIC-2305"),
        ("SubmitJob", shapes.SubmitJobRequest(
            pipeline=shapes.PipelineFile(file="a.toml", text="name = ")),
         "INVALID_ARGUMENT", "BIC-2700"),
        ("StartOperation", shapes.StartOperationRequest(kind="stop", job_id="nobody"),
         "NOT_FOUND", "BIC-1902"),
        ("StartOperation", shapes.StartOperationRequest(kind="install", job_id="alive"),
         "INVALID_ARGUMENT", "BIC-2403"),
        ("StartOperation", shapes.StartOperationRequest(
            kind="rescale", job_id="alive", options={"parallelism": 0}),
         "INVALID_ARGUMENT", "BIC-1101"),
        ("StartOperation", shapes.StartOperationRequest(
            kind="rescale", job_id="over", options={"parallelism": 2}),
         "FAILED_PRECONDITION", "BIC-2308"),
        ("UpgradeJob", shapes.UpgradeJobRequest(job_id="nobody"), "NOT_FOUND", "BIC-1902"),
        ("UpgradeJob", shapes.UpgradeJobRequest(job_id="over", plan_only=True),
         "FAILED_PRECONDITION", "BIC-2308"),
        ("UpgradeJob", shapes.UpgradeJobRequest(job_id="alive", digest="0" * 64), "NOT_FOUND",
         "BIC-2340"),
        ("UpgradeJob", shapes.UpgradeJobRequest(job_id="alive", strategy="big-bang"),
         "INVALID_ARGUMENT", "BIC-1101"),
        ("UpgradeJob", shapes.UpgradeJobRequest(job_id="alive", epochs=0), "INVALID_ARGUMENT",
         "BIC-1101"),
    ],
)  # fmt: skip
def test_an_error_is_a_status_with_our_code_and_fix(door, name, request_, status, code):
    found, error = refused(getattr(door.stub, name), request_)

    assert found is grpc.StatusCode[status]
    assert error["message"]
    assert error["fix"]
    assert error["code"] == code


def test_a_start_that_fails_says_so_and_a_key_is_met_once(door):
    asked = shapes.SubmitJobRequest(plugin="nothing", idempotency_key="one", wait_seconds=60)

    first, again = door.stub.SubmitJob(asked), door.stub.SubmitJob(asked)

    assert not first.success
    assert first.message.startswith("BIC-")
    assert first.operation.id == again.operation.id
    shown = door.stub.WaitOperation(shapes.WaitOperationRequest(id=first.operation.id))
    assert shown == first.operation


def test_who_does_not_know_the_service_can_ask_what_it_has(door):
    stub = reflection_pb2_grpc.ServerReflectionStub(door.channel)
    answers = stub.ServerReflectionInfo(
        iter([reflection_pb2.ServerReflectionRequest(list_services="")])
    )
    names = {each.name for each in next(answers).list_services_response.service}
    health = health_pb2_grpc.HealthStub(door.channel)

    assert SERVICE in names
    [watched] = itertools.islice(health.Watch(health_pb2.HealthCheckRequest()), 1)
    state = health.Check(health_pb2.HealthCheckRequest(service=SERVICE))
    assert watched.status == health_pb2.HealthCheckResponse.SERVING
    assert state.status == health_pb2.HealthCheckResponse.SERVING


def test_too_large_a_message_is_not_taken_and_the_service_goes_on(door):
    large = shapes.SubmitJobRequest(plugin="x" * (2 << 20))

    code, _ = refused(door.stub.SubmitJob, large)

    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert door.stub.ListJobs(shapes.ListJobsRequest()).total == 3


def test_what_is_no_message_is_refused(door):
    call = door.channel.unary_unary(f"/{SERVICE}/GetJobStatus")
    unknown = door.channel.unary_unary(f"/{SERVICE}/DropAll")

    with pytest.raises(grpc.RpcError) as broken:
        call(b"\xff\xff\xff", timeout=PATIENCE_S)
    with pytest.raises(grpc.RpcError) as nothing:
        unknown(b"", timeout=PATIENCE_S)

    assert broken.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert broken.value.details().startswith("BIC-2412")
    assert nothing.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert door.stub.ListJobs(shapes.ListJobsRequest()).total == 3


def test_a_reader_who_goes_is_not_told_to_any_more(door):
    def subscribers():
        text = door.served.ask("GET", "/metrics")[2].decode()
        [line] = [x for x in text.splitlines() if x.startswith("bicycle_service_subscribers ")]
        return float(line.split()[1])

    before = subscribers()
    streams = [door.stub.WatchJobs(shapes.WatchJobsRequest()) for _ in range(3)]
    for stream in streams:
        assert next(stream).job.job_id
    assert subscribers() == before + 3

    for stream in streams:
        stream.cancel()

    until(lambda: subscribers() == before, "the end of the streams")


@pytest.mark.extended
def test_events_are_followed_from_where_a_reader_was(tmp_path):
    process = light_process.start(tmp_path, "ada bob ada\n")
    door = Door(tmp_path / "home")
    try:
        until(lambda: door.stub.ListJobs(shapes.ListJobsRequest(states=["running"])).total, "it")
        news = door.stub.WatchJobs(shapes.WatchJobsRequest(job_ids=["job"]))
        assert next(news).job.job_id == "job"
        saved = door.stub.CancelJob(
            shapes.CancelJobRequest(job_id="job", savepoint=True, savepoint_name="last")
        )
        number, seen = 0, []
        for each in news:
            if each.WhichOneof("news") == "event" and each.event.kind == "state":
                number = number or each.id
                seen.append(each.event.facts["new"])
                if seen[-1] == "SUSPENDED":
                    break
        behind = door.stub.WatchJobs(shapes.WatchJobsRequest(after_event=number))
        again = next(e for e in behind if e.WhichOneof("news") == "event")
        process.wait(PATIENCE_S)
    finally:
        process.kill()
        process.wait(PATIENCE_S)
        door.close()

    assert saved.savepoint_path.endswith("/savepoints/last")
    assert saved.operation.state == "done"
    assert again.id > number
    assert seen[-1] == "SUSPENDED"


@pytest.fixture(scope="module")
def closed(tmp_path_factory, certificates):
    """A service with TLS and tokens, and the token of each role."""
    home = Home(tmp_path_factory.mktemp("closed") / "home")
    put_job(home, "over", state=JobState.FINISHED)
    with tokens_of(home.path, SystemClock()) as tokens:
        made = {
            role: tokens.create(role.name, role=role, lifetime_ms=HOUR_MS, by="test")
            for role in (Role.VIEWER, Role.OPERATOR)
        }
    cert, key = (str(certificates / f"service.{end}") for end in ("pem", "key"))
    credentials = grpc.ssl_channel_credentials((certificates / "service.pem").read_bytes())
    found = Door(home.path, credentials, tls_cert=cert, tls_key=key, needs_login=True)
    found.tokens = made
    yield found
    found.close()


@pytest.mark.parametrize("token", [None, "", "x", "bic_a_b", "bic_" + "a" * 5_000])
def test_nobody_gets_in_without_a_token(closed, token):
    words = {} if token is None else {"metadata": bearer(token)}
    for name, request in (
        ("ListJobs", shapes.ListJobsRequest()), ("WatchJobs", shapes.WatchJobsRequest()),
        ("CancelJob", shapes.CancelJobRequest(job_id="over")),
    ):  # fmt: skip
        code, error = refused(getattr(closed.stub, name), request, **words)
        assert code in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.RESOURCE_EXHAUSTED)
        assert error["code"] in ("BIC-2320", "BIC-2321", "BIC-2326")
    stub = reflection_pb2_grpc.ServerReflectionStub(closed.channel)
    asked = iter([reflection_pb2.ServerReflectionRequest(list_services="")])
    assert refused(stub.ServerReflectionInfo, asked)[0] is grpc.StatusCode.UNAUTHENTICATED
    health = health_pb2_grpc.HealthStub(closed.channel)
    assert health.Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE_S).status


def test_bytes_of_strangers_are_not_parsed_and_leave_no_traceback(closed):
    call = closed.channel.unary_unary(f"/{SERVICE}/ListJobs")
    with pytest.raises(grpc.RpcError) as broken:
        call(b"\xff\xff\xff", timeout=PATIENCE_S)
    with pytest.raises(grpc.RpcError) as known:
        call(b"\xff\xff\xff", timeout=PATIENCE_S, metadata=bearer(closed.tokens[Role.VIEWER][1]))

    assert broken.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert known.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "Traceback" not in (closed.served.home.path / "served.log").read_text()


def test_calls_that_are_held_open_keep_nobody_out(closed, certificates):
    viewer = closed.tokens[Role.VIEWER][1]
    credentials = grpc.ssl_channel_credentials((certificates / "service.pem").read_bytes())
    words = [("grpc.use_local_subchannel_pool", 1)]
    place = closed.place.replace("127.0.0.1", "localhost")
    channels = [grpc.secure_channel(place, credentials, words) for _ in range(3)]
    over = threading.Event()

    def nothing():
        over.wait(PATIENCE_S)
        yield from ()

    try:
        silent = channels[0].stream_unary(f"/{SERVICE}/ListJobs")
        held = [silent.future(nothing(), metadata=bearer(viewer)) for _ in range(80)]
        for channel in channels[1:]:
            health = health_pb2_grpc.HealthStub(channel)
            watched = [health.Watch(health_pb2.HealthCheckRequest()) for _ in range(90)]
            assert next(watched[-1]).status
        until(lambda: sum(each.done() for each in held) >= 80 - 64, "calls that are too many")
        operator = bearer(closed.tokens[Role.OPERATOR][1])
        seen = closed.stub.ListJobs(shapes.ListJobsRequest(), metadata=operator)
        code, error = refused(
            closed.stub.ListJobs, shapes.ListJobsRequest(), metadata=bearer(viewer)
        )
    finally:
        for channel in channels:
            channel.close()
        over.set()

    assert seen.total == 1
    assert (code, error["code"]) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "BIC-2330")


def test_a_viewer_changes_nothing_and_that_is_noted(closed):
    viewer, operator = (bearer(closed.tokens[role][1]) for role in (Role.VIEWER, Role.OPERATOR))
    cancel = shapes.CancelJobRequest(job_id="over")

    seen = closed.stub.ListJobs(shapes.ListJobsRequest(), metadata=viewer)
    code, error = refused(closed.stub.CancelJob, cancel, metadata=viewer)
    done = closed.stub.CancelJob(cancel, metadata=operator)

    assert seen.total == 1
    assert (code, error["code"]) == (grpc.StatusCode.PERMISSION_DENIED, "BIC-2322")
    assert done.operation.actor == "OPERATOR"
    with closing(sqlite3.connect(service_folder(closed.served.home) / "control.db")) as book:
        told = book.execute("SELECT actor, target, outcome FROM audit").fetchall()
    assert ("VIEWER", f"/{SERVICE}/CancelJob", "refused") in told
    assert ("OPERATOR", "over", "accepted") in told


def test_a_stream_ends_with_its_token(closed):
    with tokens_of(closed.served.home.path, SystemClock()) as tokens:
        token = tokens.create("eve", role=Role.VIEWER, lifetime_ms=HOUR_MS, by="test")
        stream = closed.stub.WatchJobs(shapes.WatchJobsRequest(), metadata=bearer(token[1]))
        assert next(stream).job.job_id == "over"
        ended = threading.Event()
        threading.Thread(target=lambda: (list(stream), ended.set()), daemon=True).start()

        tokens.revoke(token[0].id, by="test")

        assert ended.wait(PATIENCE_S)
    code, _ = refused(closed.stub.ListJobs, shapes.ListJobsRequest(), metadata=bearer(token[1]))
    # Tokens of this address that are not taken may have been too many already.
    assert code in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.RESOURCE_EXHAUSTED)


def test_without_tls_nothing_is_answered_where_tls_is_spoken(closed):
    with grpc.insecure_channel(closed.place) as channel:
        code, _ = refused(JobManagerStub(channel).ListJobs, shapes.ListJobsRequest())

    assert code is grpc.StatusCode.UNAVAILABLE


@pytest.mark.extended
def test_a_client_with_a_certificate_has_its_role(tmp_path, certificates):
    files = {name: (certificates / name).read_bytes() for name in (
        "service.pem", "ada.pem", "ada.key", "stranger.pem", "stranger.key")}  # fmt: skip
    put_job(Home(tmp_path / "home"), "over", state=JobState.FINISHED)
    ada = grpc.ssl_channel_credentials(files["service.pem"], files["ada.key"], files["ada.pem"])
    stranger = grpc.ssl_channel_credentials(
        files["service.pem"], files["stranger.key"], files["stranger.pem"]
    )
    cert, key = (str(certificates / f"service.{end}") for end in ("pem", "key"))
    door = Door(
        tmp_path / "home", ada, tls_cert=cert, tls_key=key, needs_login=True,
        tls_client_ca=str(certificates / "ca.pem"), client_roles={"ada": "viewer"},
    )  # fmt: skip
    try:
        seen = door.stub.ListJobs(shapes.ListJobsRequest()).total
        code, error = refused(door.stub.CancelJob, shapes.CancelJobRequest(job_id="over"))
        with grpc.secure_channel(door.place.replace("127.0.0.1", "localhost"), stranger) as other:
            foreign, _ = refused(JobManagerStub(other).ListJobs, shapes.ListJobsRequest())
    finally:
        door.close()

    assert seen == 1
    assert (code, error["code"]) == (grpc.StatusCode.PERMISSION_DENIED, "BIC-2322")
    assert foreign is grpc.StatusCode.UNAVAILABLE


def test_a_port_that_is_taken_is_told(tmp_path, door):
    port = int(door.place.rpartition(":")[2])

    with raises(ADDRESS_TAKEN):
        run_service(Home(tmp_path), host="127.0.0.1", port=0, doors=Doors(grpc_port=port))


def test_an_address_that_others_reach_needs_tls_for_grpc_too(tmp_path):
    with raises(ADDRESS_REFUSED):
        run_service(Home(tmp_path), host="0.0.0.0", port=0, doors=Doors(grpc_port=0))


@pytest.mark.extended
def test_an_end_in_order_ends_streams_at_once(tmp_path):
    put_job(Home(tmp_path / "home"), "over", state=JobState.FINISHED)
    door = Door(tmp_path / "home")
    stream = door.stub.WatchJobs(shapes.WatchJobsRequest())
    assert next(stream).job.job_id == "over"

    code = door.served.end(signal.SIGTERM)

    with suppress(grpc.RpcError):  # Whether it ends in order or not is a race.
        list(stream)
    door.close()
    assert code == 0
