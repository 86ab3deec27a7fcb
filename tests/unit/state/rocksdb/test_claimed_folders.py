"""Local folders: each process holds its own, and those of ranges without owner are removed."""

import os
import subprocess
import sys

import pytest

from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.state.rocksdb.claimed_folders import (
    claim_folder,
    folder_of,
    identity_of,
    remove_others,
)
from bicycle_runtime.state.settings import StateSettings
from bicycle_runtime.state.stores.backends import remove_unowned
from bicycle_runtime.testing import Harness, script_source

JOB, OTHER = "file:///checkpoints/shop", "file:///checkpoints/shop-2"
HALVES = [identity_of(JOB, "count", groups) for groups in (range(64), range(64, 128))]
WHOLE = identity_of(JOB, "count", range(128))
HOLDER = """
import sys
from pathlib import Path
from bicycle_runtime.state.rocksdb.claimed_folders import claim_folder
slot = claim_folder(Path(sys.argv[1]))
print(slot.path, flush=True)
sys.stdin.read()
"""


def filled(root, identity):
    """Let a process that is gone have left something there."""
    claimed = claim_folder(folder_of(str(root), identity))
    claimed.current().mkdir()
    (claimed.current() / "CURRENT").write_text("data")
    claimed.release()
    return claimed.path


def test_what_nobody_owns_any_more_is_removed_and_the_rest_stays(tmp_path):
    kept, gone = filled(tmp_path, WHOLE), [filled(tmp_path, half) for half in HALVES]
    others = [filled(tmp_path, identity_of(OTHER, "count", range(64)))]
    others.append(tmp_path / "something else")
    others[-1].mkdir()

    assert remove_others(str(tmp_path), JOB, [WHOLE]) == 2
    assert not any(path.parent.exists() for path in gone)
    assert (kept / "rocksdb-0" / "CURRENT").read_text() == "data"
    assert all(path.exists() for path in others)
    assert remove_others(str(tmp_path), JOB, [WHOLE]) == 0


def test_what_another_process_holds_stays_until_it_is_gone(tmp_path):
    folder = folder_of(str(tmp_path), HALVES[0])
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    with holder:
        assert holder.stdout.readline().strip() == str(folder / "slot-0")
        free = filled(tmp_path, HALVES[0])
        assert free.name == "slot-1"

        assert remove_others(str(tmp_path), JOB, [WHOLE]) == 0
        assert [path.name for path in folder.iterdir()] == ["slot-0"]
    assert remove_others(str(tmp_path), JOB, [WHOLE]) == 1


def test_a_folder_that_was_removed_is_made_anew(tmp_path):
    path = filled(tmp_path, WHOLE)
    assert remove_others(str(tmp_path), JOB, []) == 1

    claimed = claim_folder(path.parent)
    assert (claimed.path, claimed.number) == (path, 0)
    assert claim_folder(path.parent).number == 1
    claimed.release()


def test_a_removal_that_was_cut_short_is_finished_by_the_next(tmp_path):
    path = filled(tmp_path, WHOLE)
    path.rename(path.with_name(".gone-slot-0-99"))

    assert remove_others(str(tmp_path), JOB, []) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "settings", [StateSettings(), StateSettings(backend="rocksdb")], ids=["memory", "no folder"]
)
def test_without_local_state_there_is_nothing_to_remove(settings):
    assert remove_unowned(settings, job_url=JOB, owned={}) == 0


def counting(env):
    words = env.add_source(script_source(str)).uid("words")
    words.key_by(str).count().uid("count").collect("out")


def test_a_job_on_disk_leaves_no_folder_of_the_parallelism_before(tmp_path):
    engine = EngineOptions(state_backend="rocksdb", state_dir=str(tmp_path))
    with Harness(counting, parallelism=4, engine=engine) as harness:
        for parallelism in (4, 2, 3):
            harness.rescale_live(parallelism)
            harness.push([f"w{number}" for number in range(50)])
            harness.run()

            assert len(list(tmp_path.iterdir())) == parallelism
        harness.rescale(1)
        for _ in range(2):
            harness.push(["again"])
            harness.run()
        assert len(list(tmp_path.iterdir())) == 1
