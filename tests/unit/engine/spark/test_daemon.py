"""The process that starts Python workers: it notes how they ended. Driven as Java does it."""

import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from bicycle_runtime.base.processes import is_alive
from bicycle_runtime.engine.spark.daemon import without_archives
from bicycle_runtime.engine.spark.early_daemon import (
    DAEMON_MODULE,
    EARLY_MODULE,
    FOLDER_VARIABLE,
    SOCKET,
    WAIT,
)
from bicycle_runtime.engine.spark.worker import LevelTask
from bicycle_runtime.operators.heartbeats import ended_workers
from tests.waiting import PATIENCE_S, until


@pytest.fixture
def sockets():
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # The path of a socket is short.
        yield folder


@pytest.fixture
def places(sockets):
    folder = Path(sockets) / "bicycle-places"
    folder.mkdir(exist_ok=True)  # The daemon may have been quicker.
    return folder


@pytest.fixture
def environment(sockets):
    return {
        **os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "SPARK_LOCAL_DIRS": f"{sockets},/nowhere", "SPARK_REUSE_WORKER": "1",
        "PYTHON_UNIX_DOMAIN_ENABLED": "true", "PYTHON_WORKER_FACTORY_SOCK_DIR": sockets,
    }  # fmt: skip


def start(module, *arguments, environment):
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment,
    )  # fmt: skip


def start_waiting(sockets, environment):
    """Start a daemon as beside Java, without what only Java gives to its daemon."""
    own = {name: value for name, value in environment.items() if "SPARK" not in name}
    path = Path(sockets) / SOCKET
    waiting = start(DAEMON_MODULE, WAIT, str(path), str(os.getpid()), environment=own)
    until(path.exists, "the socket of the waiting daemon")
    return waiting


@pytest.fixture(params=["alone", "early"])
def daemon(request, environment, places, sockets):
    """The process that Java starts: the daemon, or the one that finds a daemon waiting."""
    waiting = start_waiting(sockets, environment) if request.param == "early" else None
    module = EARLY_MODULE if waiting else DAEMON_MODULE
    given = {**environment, FOLDER_VARIABLE: str(places)}
    process = start(module, "pyspark.worker", environment=given)
    yield process
    process.communicate(timeout=PATIENCE_S)
    if waiting:
        assert waiting.communicate(timeout=PATIENCE_S) == (b"", b"")


@pytest.fixture
def door(daemon):
    (length,) = struct.unpack(">i", daemon.stdout.read(4))
    return daemon.stdout.read(length).decode()


def worker_of(door):
    """Ask for a worker; return its connection, which it ends with, and its process id."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(60)
    connection.connect(door)
    (pid,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
    return connection, pid


def test_a_program_without_a_waiting_daemon_becomes_one(environment, places, sockets):
    waiting = start_waiting(sockets, environment)
    given = {**environment, FOLDER_VARIABLE: str(places)}
    first = start(EARLY_MODULE, "pyspark.worker", environment=given)
    (length,) = struct.unpack(">i", first.stdout.read(4))
    taken = first.stdout.read(length).decode()
    second = start(EARLY_MODULE, "pyspark.worker", environment=given)
    (length,) = struct.unpack(">i", second.stdout.read(4))
    own = second.stdout.read(length).decode()

    for door, daemon in ((taken, waiting.pid), (own, second.pid)):
        connection, worker = worker_of(door)
        with connection:
            assert parent(worker) == daemon
    first.communicate(timeout=PATIENCE_S)
    second.communicate(timeout=PATIENCE_S)
    waiting.communicate(timeout=PATIENCE_S)


def parent(pid):
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return int(fields[1])


def test_a_waiting_daemon_ends_with_its_parent(environment, sockets):
    path = Path(sockets) / SOCKET
    shell = f'"{sys.executable}" -m {DAEMON_MODULE} {WAIT} "{path}" $$ & echo $!; exec cat'
    java = subprocess.Popen(
        ["/bin/sh", "-c", shell], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    )
    waiting = int(java.stdout.readline())
    until(path.exists, "the socket of the waiting daemon")
    assert is_alive(waiting, 0)
    java.communicate(timeout=PATIENCE_S)  # The end of its input ends it.

    until(lambda: not is_alive(waiting, 0), "the end of the waiting daemon")
    assert not path.exists()


@pytest.mark.parametrize("has_folder", [True, False])
def test_a_waiting_daemon_whose_java_has_ended_before_it_ends(environment, sockets, has_folder):
    java = subprocess.Popen(["/bin/true"])
    java.wait()
    path = Path(sockets) / ("" if has_folder else "gone") / SOCKET

    words = [sys.executable, "-m", DAEMON_MODULE, WAIT, str(path), str(java.pid)]
    waiting = subprocess.run(
        words, env=environment, capture_output=True, timeout=PATIENCE_S, check=True
    )

    assert waiting.stderr == b""
    assert not path.exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_signal_that_ended_a_worker_is_noted_beside_its_place(door, places, number):
    connection, pid = worker_of(door)
    (places / str(pid)).touch()
    with connection:
        until(lambda: signal_is_free(pid), "the worker to be itself")
        os.kill(pid, number)
        [note] = until(lambda: list(places.glob(f"{pid}.*")), "a note of the end")

    assert list(places.iterdir()) == [note]
    [position] = ended_workers(places)
    assert (position.pid, position.code) == (pid, -int(number))
    assert 1_000_000 < position.peak_bytes < 10_000_000_000


def signal_is_free(pid):
    """Tell whether a process takes SIGTERM as any program does: the daemon has a handler of it."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    [caught] = [line.split()[1] for line in status if line.startswith("SigCgt:")]
    return not int(caught, 16) & 1 << (signal.SIGTERM - 1)


def test_a_worker_that_ends_in_order_leaves_nothing(door, places):
    connection, pid = worker_of(door)
    other, other_pid = worker_of(door)
    (places / str(pid)).touch()
    (places / str(other_pid)).touch()
    with other:
        connection.close()
        until(lambda: not (places / str(pid)).exists(), "the end of the worker")

        assert [path.name for path in places.iterdir()] == [str(other_pid)]


def test_pairs_of_workers_that_end_together_are_all_noted(door, places):
    """An end may interrupt the daemon while it notes another one."""
    expected = set()
    for _ in range(100):
        pair = [worker_of(door), worker_of(door)]
        for connection, pid in pair:
            (places / str(pid)).touch()
            expected.add((pid, -int(signal.SIGKILL)))
            os.kill(pid, signal.SIGKILL)
            connection.close()

    until(
        lambda: {(end.pid, end.code) for end in ended_workers(places)} == expected,
        "notes of all ends",
    )


def test_a_worker_that_ends_before_its_first_task_is_noted_too(door, places):
    connection, pid = worker_of(door)
    with connection:
        os.kill(pid, signal.SIGKILL)
        until(lambda: list(places.iterdir()), "a note of the end")

    [position] = ended_workers(places)
    assert (position.pid, position.code, position.run_id) == (pid, -signal.SIGKILL, "")


def test_a_worker_that_java_has_the_daemon_kill_leaves_no_note(daemon, door, places):
    connection, pid = worker_of(door)
    (places / str(pid)).touch()
    with connection:
        daemon.stdin.write(struct.pack(">i", pid))
        daemon.stdin.flush()
        until(lambda: not list(places.iterdir()), "the end of the worker")
    again, other = worker_of(door)
    with again:
        os.kill(other, signal.SIGKILL)
        until(lambda: ended_workers(places), "a note of the end")

    assert [end.pid for end in ended_workers(places)] == [other]


def test_a_worker_that_ended_before_java_dismisses_it_is_noted(daemon, door, places):
    connection, pid = worker_of(door)
    with connection:
        os.kill(pid, signal.SIGKILL)
        until(lambda: not is_alive(pid, 0), "the end of the worker")
        daemon.stdin.write(struct.pack(">i", pid))
        daemon.stdin.flush()
        until(lambda: ended_workers(places), "a note of the end")


INTERRUPTED = """
import os, select, signal, sys, tempfile
from pathlib import Path
from bicycle_runtime.engine.spark.daemon import Ends, EndsPoll

folder = Path(sys.argv[1])
poll = EndsPoll(Ends(folder, read_int=None, stacks=Path(sys.argv[1], "stacks")))
child = os.fork()
if child == 0:
    signal.pause()
    os._exit(0)
(folder / str(child)).touch()
with tempfile._once_lock:  # As code does that the signal interrupts.
    os.kill(child, signal.SIGKILL)
    while not Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].startswith(" Z"):
        pass
    print("interrupted", flush=True)
print(poll.poll(60_000), [path.name.startswith(f"{child}.-9.") for path in folder.iterdir()])
"""


def test_an_end_that_interrupts_code_with_a_lock_is_noted_by_the_loop(places):
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, places], capture_output=True, text=True,
        timeout=PATIENCE_S,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}, check=False,
    )  # fmt: skip

    assert done.stdout == "interrupted\n[] [True]\n", done.stderr


FULL = """
import os, select, signal, sys
from pathlib import Path
from bicycle_runtime.engine.spark.daemon import Ends, EndsPoll

poll = EndsPoll(Ends(Path(sys.argv[1], "gone"), read_int=None, stacks=Path(sys.argv[1], "stacks")))
reading, writing = os.pipe()
poll.register(reading, select.POLLIN)
if os.fork() == 0:
    print(signal.set_wakeup_fd(-1), flush=True)  # A worker has no part in the pipe.
    os._exit(3)
assert poll.poll(60_000) == []
os.write(writing, b"1")
print(poll.poll(60_000) == [(reading, select.POLLIN)])
poll.unregister(reading)
"""


def test_a_daemon_without_its_folder_lives_on(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", FULL, tmp_path], capture_output=True, text=True, timeout=PATIENCE_S,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}, check=False,
    )  # fmt: skip

    assert done.stdout == "-1\nTrue\n", done.stderr


def test_importing_what_workers_run_starts_no_thread():
    program = f"import {LevelTask.__module__}, os; print(len(os.listdir('/proc/self/task')))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True,
        timeout=PATIENCE_S,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip

    assert done.stdout == "1\n"


@pytest.fixture
def installed(tmp_path):
    """An installation of PySpark as its wheel makes it, and the path that Java gives a daemon."""
    site = tmp_path / "site-packages"
    library = site / "pyspark" / "python" / "lib"
    library.mkdir(parents=True)
    (site / "pyspark" / "__init__.py").touch()
    (site / "py4j").mkdir()
    (site / "py4j" / "__init__.py").touch()
    return [str(library / "pyspark.zip"), str(library / "py4j-0.10.9-src.zip"), str(site)]


def test_archives_of_an_installed_pyspark_are_left_for_its_compiled_package(installed):
    assert without_archives(["mine.zip", *installed]) == ["mine.zip", installed[-1]]


def test_archives_of_another_spark_than_the_installed_one_stay(installed, tmp_path):
    other = [str(tmp_path / "spark" / "python" / "lib" / "pyspark.zip"), installed[-1]]

    assert without_archives(other) == other


@pytest.mark.parametrize("missing", ["pyspark", "py4j"])
def test_archives_stay_where_nothing_else_has_the_packages(installed, missing):
    Path(installed[-1], missing, "__init__.py").unlink()
    Path(installed[-1], missing).rename(Path(installed[-1], "gone"))

    assert without_archives(installed) == installed


def test_a_path_without_archives_stays_as_it_is(installed):
    assert without_archives(installed[-1:]) == installed[-1:]
    assert without_archives([]) == []
