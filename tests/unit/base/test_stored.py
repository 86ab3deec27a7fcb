"""Small JSON files with a format version: a newer one is refused, one without is the first."""

import json
import os
import zlib

import msgspec
import pytest

from bicycle_runtime.base.errors import STORED_NEWER
from bicycle_runtime.base.process_identity import ProcessIdentity
from bicycle_runtime.base.stored import STORED_VERSION, decode_stored, encode_stored
from bicycle_runtime.connectors.files.ownership import OutputOwner
from bicycle_runtime.connectors.kafka.marker import Marker
from bicycle_runtime.dev.broker_options import BrokerOptions
from bicycle_runtime.dev.cluster_record import read_record, write_record
from bicycle_runtime.dev.kafka_broker import KafkaBroker
from bicycle_runtime.jobs.control.dead_letters import dead_letters, replayed_letters
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.shadow_note import ShadowNote, followed_epoch, read_shadow, write_shadow
from bicycle_runtime.jobs.status import RestartNote, write_status
from bicycle_runtime.jobs.upgrading.notes import noted_requests, require_no_upgrade
from bicycle_runtime.recovery.lease import LeaseHolder
from bicycle_runtime.service.address import (
    address_file,
    read_address,
    service_folder,
    write_address,
)
from bicycle_runtime.service.plugins.uploaded_plugins import find_uploaded, uploaded_plugins
from bicycle_runtime.service.plugins.wheels import UploadedPlugin
from tests.raising import raises
from tests.unit.jobs.job_samples import put_job

DIGEST = "a" * 64


class Note(msgspec.Struct):
    step: str


def newer(data):
    """Return stored data as a runtime of the next version would write it."""
    return json.dumps({**json.loads(data), "format_version": STORED_VERSION + 1}).encode()


@pytest.fixture
def home(tmp_path):
    home = Home(tmp_path / "home")
    home.prepare()
    return home


def test_what_was_written_is_read_with_and_without_its_version():
    data = encode_stored(Note("save"))

    assert json.loads(data) == {"format_version": STORED_VERSION, "step": "save"}
    assert decode_stored(data, Note, path="f") == Note("save")
    assert decode_stored(b'{"step": "save"}', Note, path="f") == Note("save")


def test_a_newer_version_is_refused_even_if_nothing_else_can_be_read():
    with raises(STORED_NEWER) as caught:
        decode_stored(b'{"format_version": 7, "stage": []}', Note, path="upgrade.json")
    assert caught.value.facts == {"path": "upgrade.json", "found": 7, "known": STORED_VERSION}


def test_newer_files_of_a_job_are_refused(home):
    folder = put_job(home, checkpoint=str(home.path / "checkpoints/job"))
    for path, read in (
        (folder.status_path, folder.status),
        (folder.request_path, folder.read_request),
    ):
        kept = path.read_bytes()
        path.write_bytes(newer(kept))
        with raises(STORED_NEWER):
            read()
        path.write_bytes(kept)
    (folder.path / "upgrade.json").write_bytes(newer(b'{"step": "of the next version"}'))
    for read in (require_no_upgrade, noted_requests):
        with raises(STORED_NEWER):
            read(home, "job")
    write_shadow(folder, ShadowNote(request={}, epoch=3))
    folder.shadow_path.write_bytes(newer(folder.shadow_path.read_bytes()))
    for read in (read_shadow, followed_epoch):
        with raises(STORED_NEWER):
            read(folder)


def test_newer_records_of_development_servers_are_refused_and_older_ones_are_read(tmp_path):
    broker = KafkaBroker(BrokerOptions(folder=tmp_path), cache_dir=tmp_path)
    process = {"host": "127.0.0.1", "pid": 1, "started": 2}
    record = {"master": process, "port": 3, "page_port": 4, "cores_per_host": 1, "memory": "1g"}
    for name, data, read in (
        ("broker.json", {"pid": 1, "started": 2, "port": 3, "users": ["ada"]}, broker.record),
        ("cluster.json", record | {"workers": [process]}, lambda: read_record(tmp_path)),
    ):
        path = tmp_path / name
        path.write_text(json.dumps(data))
        assert read().port == 3
        path.write_bytes(newer(path.read_bytes()))
        with raises(STORED_NEWER):
            read()
    (tmp_path / "cluster.json").write_text(json.dumps(record))
    write_record(tmp_path, read_record(tmp_path))
    assert json.loads((tmp_path / "cluster.json").read_text())["format_version"] == STORED_VERSION


def test_newer_facts_of_an_upload_are_refused(home):
    plugin = UploadedPlugin(
        digest=DIGEST, name="demo", version="1.0", file="a.whl", byte_count=1, plugins={},
        libraries=[], has_lock=False, python="3.11", platform="linux", owner="ada", uploaded_ms=1,
    )  # fmt: skip
    path = home.path / "plugins" / DIGEST / "plugin.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(encode_stored(plugin))
    assert uploaded_plugins(home) == [plugin]

    path.write_bytes(newer(path.read_bytes()))
    with raises(STORED_NEWER):
        find_uploaded(home, DIGEST)


def test_newer_dead_letters_are_refused_with_their_line(home):
    put_job(home, checkpoint=str(home.path / "checkpoints/job"))
    folder = home.path / "checkpoints/job/dead_letters"
    (folder / "replayed").mkdir(parents=True)
    (folder / "part-1.jsonl").write_bytes(newer(b'{"operator": "o"}') + b"\n")
    with raises(STORED_NEWER) as caught:
        dead_letters(home, "job")
    assert caught.value.facts["path"] == f"{folder}/part-1.jsonl:1"

    (folder / "replayed/part-1.jsonl").write_bytes(newer(b'{"letter": "l", "epoch": 1}') + b"\n")
    with raises(STORED_NEWER):
        replayed_letters(folder)


def test_newer_marks_of_outputs_leases_and_epochs_are_refused():
    process = ProcessIdentity(host="h", space="s", pid=1, started=2)
    owner = OutputOwner(job="j", folder="f", process=process, since_ms=1, token="t")
    lease = LeaseHolder(
        number=1, job="j", process=process, since_ms=1, beat_ms=1, token="t", is_contested=False
    )
    unchecked = json.loads(newer(lease.to_bytes()))
    del unchecked["crc32"]
    checked = {**unchecked, "crc32": zlib.crc32(json.dumps(unchecked, sort_keys=True).encode())}
    marker = Marker(identity="i", epoch=3).to_bytes()
    for data, kind in (
        (newer(owner.to_bytes()), OutputOwner),
        (json.dumps(checked).encode(), LeaseHolder),
        (marker.replace(b'"version": 1', b'"version": 2'), Marker),
    ):
        with raises(STORED_NEWER, match="the-file") as caught:
            kind.from_bytes(data, path="the-file")
        assert caught.value.facts["found"] == STORED_VERSION + 1


def test_an_owner_of_an_output_without_a_version_is_of_the_first():
    process = ProcessIdentity(host="h", space="s", pid=1, started=2)
    owner = OutputOwner(job="j", folder="f", process=process, since_ms=1, token="t")
    data = json.loads(owner.to_bytes())
    del data["format_version"]

    assert OutputOwner.from_bytes(json.dumps(data).encode(), path="f") == owner


def test_the_address_of_a_newer_service_is_refused(home):
    service_folder(home).mkdir(parents=True)
    write_address(home, "http://here", is_open=True, grpc=None)
    found = read_address(home)
    assert (found["url"], found["pid"], found["is_open"]) == ("http://here", os.getpid(), True)

    file = address_file(home)
    file.write_bytes(newer(file.read_bytes()))
    with raises(STORED_NEWER):
        read_address(home)


def test_a_restart_in_a_status_of_an_earlier_version_has_its_position(home):
    folder = put_job(home, checkpoint=str(home.path / "checkpoints/job"))
    status = folder.status()
    note = RestartNote(time_ms=1, code="c", message="m", epoch=2, attempt=1, position="line 3")
    status.restarts = [note]
    write_status(folder.status_path, status)
    data = folder.status_path.read_bytes()
    assert b'"place"' not in data
    folder.status_path.write_bytes(data.replace(b'"position": "line 3"', b'"place": "line 3"'))

    assert folder.status().restarts == [note]
