"""Beginning with what another home made: trusted by a word or a key, or refused before that."""

import json
import shutil
import stat
from pathlib import Path
from zlib import crc32

import pytest

from bicycle_runtime.jobs.status import JobState
from bicycle_runtime.recovery.savepoints import epoch_paths
from bicycle_runtime.testing import Harness
from tests.unit.cli.conftest import Shell
from tests.unit.cli.state_jobs import every_state


@pytest.fixture
def harness():
    with Harness(every_state) as harness:
        harness.push([("tea", 3)], source="prices")
        harness.push([("ada", 1), ("bob", 2)], source="records")
        harness.run_epoch()
        yield harness


@pytest.fixture
def away(shell, harness, tmp_path):
    """Return a savepoint of a home, outside the checkpoint directories of its jobs."""
    shell.put_job("shop", checkpoint=harness.storage.url, state=JobState.STOPPED)
    words = ("savepoint", "create", "shop", "--name", "one", "--to", str(tmp_path / "to"))
    return Path(shell.answer(*words)["url"])


@pytest.fixture
def stranger(tmp_path, monkeypatch):
    """Return the command line with another home."""

    def enter():
        monkeypatch.setenv("BICYCLE_HOME", str(tmp_path / "other home"))
        return Shell(tmp_path / "other home")

    return enter


def restore(shell, url, target, *words):
    """Return the exit code and the code of the error, if any."""
    name = ("--checkpoint-dir", str(target), "--name", "job")
    done = shell.run("savepoint", "restore", str(url), *name, *words, "--json")
    answer = json.loads(done.stdout)
    return done.exit_code, answer.get("code")


def test_a_home_begins_with_its_own_savepoint_wherever_it_lies(shell, away, harness, tmp_path):
    assert restore(shell, away, tmp_path / "a") == (0, None)
    moved = shutil.copytree(away, tmp_path / "moved")
    assert restore(shell, moved, tmp_path / "b") == (0, None)
    assert restore(shell, harness.storage.url, tmp_path / "c") == (0, None)
    mode = (shell.home.path / "savepoint.key").stat().st_mode
    assert stat.S_IMODE(mode) == 0o600


def test_what_another_home_made_is_refused_until_somebody_trusts_it(
    shell, away, harness, stranger, tmp_path
):
    shell = stranger()
    for origin in (away, harness.storage.url):
        code, error = restore(shell, origin, tmp_path / "job")
        assert (code != 0, error) == (True, "BIC-1937")
        assert not (tmp_path / "job" / "job" / "epochs").exists()
    assert restore(shell, away, tmp_path / "job", "--trust") == (0, None)


def test_a_run_is_refused_before_anything_is_copied(shell, away, stranger, tmp_path):
    shell = stranger()
    words = ("run", "--plugin", "wordcount", "--checkpoint-dir", str(tmp_path / "cp"))
    more = ("--set", f"input={tmp_path}", "--set", f"output={tmp_path / 'out'}")
    done = shell.run(*words, *more, "--from", str(away))

    assert done.exit_code != 0
    assert "BIC-1937" in done.output
    assert not (tmp_path / "cp").exists()


@pytest.mark.parametrize("name", ["manifest", "state", "description", "published"])
def test_a_signed_savepoint_that_was_changed_is_not_the_homes_any_more(shell, away, tmp_path, name):
    described = json.loads((away / "savepoint.json").read_text())
    if name == "description":
        described["event_count"] += 1
        (away / "savepoint.json").write_text(json.dumps(described))
    else:
        suffix = {"manifest": ".manifest", "state": ".delta", "published": ".published"}[name]
        path = next(path for path in away.rglob(f"*{suffix}"))
        path.write_bytes(path.read_bytes()[:-8] + b"\0\1\2\3\4\5\6\7")

    code, error = restore(shell, away, tmp_path / "job")
    assert (code != 0, error) == (True, "BIC-1937" if name == "description" else "BIC-1524")


def test_a_forged_checksum_does_not_help_the_one_who_has_no_key(shell, away, stranger, tmp_path):
    """CRC-32 can be made to fit by anybody, so a signature holds for digests."""
    path = away / epoch_paths(1)[1]
    data = path.read_bytes() + b"more"
    path.write_bytes(data)
    described = json.loads((away / "savepoint.json").read_text())
    for file in described["files"]:
        if file["path"].endswith(".manifest"):
            assert len(file["sha256"]) == 64
            file |= {"byte_count": len(data), "crc32": crc32(data)}
    (away / "savepoint.json").write_text(json.dumps(described))

    assert restore(shell, away, tmp_path / "job")[1] == "BIC-1937"


def test_homes_that_share_a_key_begin_with_each_others_savepoints(
    shell, harness, stranger, tmp_path
):
    key, other = tmp_path / "key", tmp_path / "other key"
    key.write_text("0123456789abcdef0123456789abcdef\n")
    other.write_text("fedcba9876543210fedcba9876543210\n")
    shell.put_job("shop", checkpoint=harness.storage.url, state=JobState.STOPPED)
    request = json.loads(shell.home.folder("shop").request_path.read_text())
    request["options"]["savepoint_key"] = str(key)
    shell.home.folder("shop").request_path.write_text(json.dumps(request))
    words = ("savepoint", "create", "shop", "--name", "one", "--to", str(tmp_path / "to"))
    url = shell.answer(*words)["url"]
    shell = stranger()

    assert restore(shell, url, tmp_path / "a")[1] == "BIC-1937"
    assert restore(shell, url, tmp_path / "a", "--savepoint-key", str(other))[1] == "BIC-1531"
    trusted = ("--trust", "--savepoint-key", str(other))
    assert restore(shell, url, tmp_path / "a", *trusted)[1] == "BIC-1531"
    assert restore(shell, url, tmp_path / "a", "--savepoint-key", str(key)) == (0, None)
    other.write_text("short")
    assert restore(shell, url, tmp_path / "b", "--savepoint-key", str(other))[1] == "BIC-1938"
    missing = ("--savepoint-key", str(tmp_path / "no key"))
    assert restore(shell, url, tmp_path / "b", *missing)[1] == "BIC-1938"


def test_a_savepoint_that_nobody_signed_needs_trust_outside_its_job(
    shell, away, stranger, tmp_path
):
    """As those are that were made before there were signatures."""
    (away / "savepoint.hmac").unlink()
    described = json.loads((away / "savepoint.json").read_text())
    for file in described["files"]:
        del file["sha256"]
    (away / "savepoint.json").write_text(json.dumps(described))

    assert restore(shell, away, tmp_path / "a")[1] == "BIC-1937"
    assert restore(shell, away, tmp_path / "a", "--trust") == (0, None)
    shell.put_job("shop", checkpoint=str(away.parent), state=JobState.STOPPED)
    assert restore(shell, away, tmp_path / "b") == (0, None)


def test_a_path_that_does_not_exist_is_not_a_matter_of_trust(stranger, tmp_path):
    assert restore(stranger(), tmp_path / "nowhere", tmp_path / "a")[1] == "BIC-1520"
