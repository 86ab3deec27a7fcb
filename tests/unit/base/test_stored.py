"""Small JSON files with a format version: a newer one is refused, one without is the first."""

import json

import msgspec
import pytest

from bicycle_runtime.base.errors import STORED_NEWER
from bicycle_runtime.base.stored import STORED_VERSION, decode_stored, encode_stored
from bicycle_runtime.jobs.control.dead_letters import dead_letters, replayed_letters
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.shadow_note import ShadowNote, followed_epoch, read_shadow, write_shadow
from bicycle_runtime.jobs.upgrading.notes import former_request, require_no_upgrade
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
    for read in (require_no_upgrade, former_request):
        with raises(STORED_NEWER):
            read(home, "job")
    write_shadow(folder, ShadowNote(request={}, epoch=3))
    folder.shadow_path.write_bytes(newer(folder.shadow_path.read_bytes()))
    for read in (read_shadow, followed_epoch):
        with raises(STORED_NEWER):
            read(folder)


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
