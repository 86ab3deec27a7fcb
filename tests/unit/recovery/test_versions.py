"""Epochs that a newer version sealed: refused as that, never taken for damaged, never put aside."""

from dataclasses import replace

import pytest

from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.engine.resuming.restoring import refuse_newer_connectors
from bicycle_runtime.layouts.manifest import MANIFEST_VERSION, PlanRecord, TimeRecord
from bicycle_runtime.recovery.errors import (
    CONNECTOR_STATE_NEWER,
    ManifestVersionError,
)
from bicycle_runtime.recovery.fields import FileForm
from bicycle_runtime.recovery.ledger import EpochLedger
from bicycle_runtime.recovery.manifest import Manifest, decode_manifest, encode_manifest
from tests.raising import raises

PLAN = PlanRecord(bundle_digest="d", parallelism={}, now_ms=1)
PATH = "epochs/{:012d}.manifest"


def manifest(epoch=1, **fields):
    return Manifest(epoch=epoch, plan=PLAN, **fields)


def of_version(epoch):
    """Return a manifest as a runtime of the next version would end it."""
    data = encode_manifest(manifest(epoch))
    return FileForm(magic=b"BICM", version=MANIFEST_VERSION + 1).sealed(data[:-12])


def with_entry(epoch):
    """Return a manifest with one more entry, which this version does not know."""
    known, newer = b"source:in", b"newest:in"
    data = encode_manifest(manifest(epoch, sources={"in": {}}))
    body = data[:-12]
    assert known in body
    return FileForm(magic=b"BICM", version=MANIFEST_VERSION).sealed(body.replace(known, newer))


def of_form(epoch):
    return encode_manifest(manifest(epoch, time=TimeRecord(clock_ms=1, form=3)))


NEWER = {"the file": of_version, "an entry": with_entry, "its times": of_form}


@pytest.mark.parametrize("newer", NEWER.values(), ids=NEWER)
def test_a_newer_epoch_is_refused_and_an_older_one_beside_it_does_not_take_its_place(
    tmp_path, newer
):
    storage = LocalStorage(str(tmp_path), is_synced=False)
    storage.write(PATH.format(1), encode_manifest(manifest(1)))
    storage.write(PATH.format(2), newer(2))
    ledger = EpochLedger(storage, job="j", retained_count=2, sink_paths=lambda _: set())
    with raises(ManifestVersionError):
        ledger.last()

    assert storage.list("epochs") == [PATH.format(1), PATH.format(2)]


def test_versions_of_connectors_travel_in_manifests_and_leave_others_as_they_were():
    versions = {"in": 2, "out": 3}
    sealed = manifest(sources={"in": {"files": []}, "other": {"a": 1}}, sinks={"out": {}})
    plain, versioned = (
        decode_manifest(encode_manifest(each), path=PATH.format(1))
        for each in (sealed, replace(sealed, connector_versions=versions))
    )

    assert plain == sealed
    assert versioned == replace(sealed, connector_versions=versions)
    assert b"state_version" not in encode_manifest(sealed)


class Connector:
    def __init__(self, state_version):
        self.state_version = state_version


def test_state_of_a_newer_connector_is_refused_by_name_and_older_state_is_read():
    sealed = manifest(connector_versions={"in": 2, "gone": 9})
    for known in (2, 3):
        refuse_newer_connectors(sealed, {"in": Connector(known)}, {}, "j")
    with raises(CONNECTOR_STATE_NEWER) as caught:
        refuse_newer_connectors(sealed, {"in": Connector(1)}, {}, "j")

    assert caught.value.facts["operator"] == "in"
    assert (caught.value.facts["found"], caught.value.facts["known"]) == (2, 1)
