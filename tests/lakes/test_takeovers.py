"""Drivers that are stopped while they publish rows, replaced by another one, and continued.

The first driver loses its lease. It must write nothing after the takeover, and end with the error
that names its successor; each row is in the table once.
"""

import json
import signal

import pytest

from bicycle_sdk.sinks import Rolling, postgres_sink
from bicycle_sdk.sinks.addresses import sink_from_uri
from tests.lakes.conftest import DeltaLake, Iceberg
from tests.postgres.postgres_server import PostgresServer
from tests.simulation.leased_site import LeasedSite, ended
from tests.unit.jobs.job_samples import bundle_of
from tests.unit.streams.ss_decoder import decode

pytestmark = pytest.mark.crash

ROWS = 300
RECORDS_MAX, BEAT_MS = 30, 200
POINTS = ("before_seal", "after_seal", "transaction_begun", "transaction_produced")


class Postgres:
    """A table of a server of its own, as the lakes of ``conftest``."""

    def __init__(self, folder):
        self.server = PostgresServer()

    def read(self):
        return [row[0] for row in self.server.query("select id from rows")]

    def write(self, rows):
        sink = postgres_sink(self.server.url, "rows", columns={"id": "int"}, create_table=True)
        rows.sink_to(sink)

    def stop(self):
        self.server.remove()


class Delta(DeltaLake):
    def read(self):
        return super().read()["id"].to_pylist()

    def write(self, rows):
        rows.sink_to(self.descriptor(columns={"id": "int"}, rolling=Rolling(rows=1)))


class IcebergTable(Iceberg):
    def read(self):
        return super().read()["id"].to_pylist()

    def write(self, rows):
        rows.sink_to(self.descriptor(columns={"id": "int"}, rolling=Rolling(rows=1)))


class StreamFile:
    def __init__(self, folder):
        self.path = folder / "rows.ss"

    def read(self):
        messages = decode(self.path.read_bytes()).messages
        return [json.loads(payload)["id"] for key, *_, payload in messages if key == "rows"]

    def write(self, rows):
        rows.sink_to(sink_from_uri(f"file://{self.path}/rows?format=json"))

    def stop(self):
        """Do nothing: the file is removed with its folder."""


CASES = [
    (kind, point)
    for kind in (Delta, IcebergTable, Postgres, StreamFile)
    for point in POINTS
    # A driver that stands still there has the lock of the file: nobody takes over.
    if (kind, point) != (StreamFile, "transaction_produced")
]


@pytest.fixture
def target(request, tmp_path):
    folder = tmp_path / "target"
    folder.mkdir()
    target = request.param(folder)
    yield target
    target.stop()


def row_of(line):
    return {"id": int(line)}


@pytest.fixture
def site(target, tmp_path):
    root = tmp_path / "site"

    def job(env):
        target.write(env.read_text(str(root / "input")).uid("lines").map(row_of).uid("rows"))

    lines = [str(number) for number in range(ROWS)]
    bundle = bundle_of(job, by_value=True)
    site = LeasedSite(root, str(root / "checkpoint"), lines, bundle=bundle)
    with ended(site):
        yield site


@pytest.mark.parametrize(("target", "point"), CASES, indirect=["target"])
def test_a_driver_that_was_replaced_while_it_stood_still_writes_no_row(site, target, point):
    fault = f"{point}@3=hold"
    first = site.launch(fault, str(BEAT_MS), str(RECORDS_MAX))
    first.wait_for_fault(fault)
    first.process.send_signal(signal.SIGSTOP)
    second = site.launch("", str(BEAT_MS), str(RECORDS_MAX))
    assert second.wait() == 0, second.stdout
    rows = sorted(target.read())

    first.release()
    first.process.send_signal(signal.SIGCONT)
    assert first.wait() == 1, first.stderr
    error = json.loads(first.stdout)
    assert (error["code"], error["facts"]["pid"]) == ("BIC-1541", second.process.pid), error
    assert rows == list(range(ROWS)) == sorted(target.read())
