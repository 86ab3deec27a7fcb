"""Where a worker was when it ended: kept in a file that outlives it."""

import os
import signal
import subprocess
import sys

from bicycle_runtime.operators.batch import Origin
from bicycle_runtime.operators.heartbeats import (
    LastPosition,
    PositionKeeper,
    ended_workers,
)
from tests.waiting import PATIENCE_S

WORKER = """
import os, signal, sys
from pathlib import Path
from bicycle_runtime.operators.batch import Origin
from bicycle_runtime.operators.heartbeats import PositionKeeper

keeper = PositionKeeper()
keeper.open(Path(sys.argv[1]))
keeper.begin("run", 7, (1, 3))
keeper.enter("a name that is longer")
keeper.read(Origin(source="lines", shard="a.txt", offset=10, end_offset=90))
keeper.enter("parse")
if sys.argv[2] == "rests":
    keeper.end()
if sys.argv[2] == "fires":
    keeper.read(None)
if sys.argv[2] == "waits":
    print("ready", flush=True)
    signal.pause()
os.kill(os.getpid(), signal.SIGKILL)
"""
PLACE = LastPosition(run_id="run", epoch=7, level=1, subtask=3, operator="parse")


def start(folder, how):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen(
        [sys.executable, "-c", WORKER, str(folder), how], stdout=subprocess.PIPE, env=environment
    )


def test_a_killed_worker_leaves_its_operator_and_its_batch(tmp_path):
    worker = start(tmp_path, "reads")
    worker.communicate(timeout=PATIENCE_S)

    [position] = ended_workers(tmp_path)
    assert (position.run_id, position.epoch, position.level, position.subtask) == ("run", 7, 1, 3)
    assert (position.operator, position.source, position.shard) == ("parse", "lines", "a.txt")
    assert (position.offset, position.end_offset, position.code) == (10, 90, None)


def test_the_exit_code_is_that_of_who_saw_the_end(tmp_path):
    worker = start(tmp_path, "fires")
    worker.communicate(timeout=PATIENCE_S)
    (tmp_path / str(worker.pid)).rename(tmp_path / f"{worker.pid}.-9.4096")

    seen = {"code": -signal.SIGKILL, "pid": worker.pid, "peak_bytes": 4_096}
    assert ended_workers(tmp_path) == [LastPosition(**fields(PLACE) | seen)]


def fields(position):
    return {name: getattr(position, name) for name in position.__struct_fields__}


def test_workers_that_live_are_left_out_and_those_without_a_task_have_no_run(tmp_path):
    start(tmp_path, "rests").communicate(timeout=PATIENCE_S)
    (tmp_path / "1.3").touch()
    living = start(tmp_path, "waits")
    try:
        assert living.stdout.readline() == b"ready\n"
        assert len(list(tmp_path.iterdir())) == 3
        assert [position.run_id for position in ended_workers(tmp_path)] == ["", ""]
    finally:
        living.kill()
        living.communicate(timeout=PATIENCE_S)
    assert [position.run_id for position in ended_workers(tmp_path)] == ["", "", "run"]


def test_the_last_end_comes_last_and_no_folder_is_no_end(tmp_path):
    assert ended_workers(tmp_path / "none") == []
    first, second = start(tmp_path, "fires"), start(tmp_path, "reads")
    for number, worker in enumerate([second, first]):
        worker.communicate(timeout=PATIENCE_S)
        os.utime(tmp_path / str(worker.pid), (number, number))

    assert [position.source for position in ended_workers(tmp_path)] == ["lines", None]


def test_what_is_too_long_for_the_file_leaves_what_fits(tmp_path):
    keeper = PositionKeeper()
    keeper.open(tmp_path)
    keeper.begin("run", 7, (1, 3))
    keeper.enter("ä" * 400)
    keeper.read(Origin(source="lines", shard="s" * 5_000, offset=1))
    [path] = tmp_path.iterdir()
    path.rename(tmp_path / "1.-11")

    [position] = ended_workers(tmp_path)
    assert (position.operator, position.source, position.code) == ("ä" * 255, None, -signal.SIGSEGV)


def test_without_a_file_nothing_is_kept(tmp_path):
    keeper = PositionKeeper()
    keeper.begin("run", 7, (1, 3))
    keeper.enter("parse")
    keeper.read(None)

    assert ended_workers(tmp_path) == []
