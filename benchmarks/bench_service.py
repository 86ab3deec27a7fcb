"""The service with many jobs: how long pages and lists take while the machine is full, and memory.

200 jobs replace their status files twice a second; each has a process. Two jobs that the service
has started keep both cores busy, and it extracts a plugin whose graph loops forever. A process of
its own asks at fixed times and holds ten pages open. Then two hours are played with a clock that is
set, once caches are full.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from measuring import Report, Table, Target, arguments, percentile
from service_fleet import job_name, status_of

from bicycle_runtime.base.processes import start_ticks
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.options import JobOptions, JobRequest
from bicycle_runtime.jobs.status import write_status
from bicycle_runtime.service.address import read_address
from bicycle_runtime.service.service import Service
from bicycle_runtime.service.watching.listing import JobQuery, list_page
from bicycle_runtime.service_process.main import keep_pauses_short
from bicycle_sdk.clock import ManualClock

_HERE = Path(__file__).parent
_PLUGINS = """
from bicycle_sdk.plugin import bicycle_plugin

@bicycle_plugin(name="endless", version="1.0")
def endless(env):
    while True:
        pass

@bicycle_plugin(name="busy", version="1.0")
def busy(env):
    sums = env.read_text({path!r}).map(lambda line: sum(range(400)))
    sums.filter(lambda found: found < 0).print()
"""
_LINES = 20_000_000  # More than two jobs read while anybody asks.
_TICK_MS = 5_000
_WARM_TICKS = 180  # The cache of a connection to SQLite, 2 MB, is full by then.
_LEVEL_TICKS = 30  # So many looks tell where memory stands: in each some is used for a moment.
_SCRAPE_TICKS = 12
_SHARED_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None


def main() -> None:
    """Measure and tell."""
    options = arguments(__doc__, repeats=1, add=_add_options)
    if options.play:
        _play_hours(Home(Path(options.play)), options.jobs, ticks=options.ticks)
        return
    seconds = 3 if options.quick else options.seconds
    report = Report(
        name="service",
        claim="With 200 jobs on a busy machine, pages are served within 200 ms and lists "
        "within 100 ms.",
        payload=f"{options.jobs} jobs of 8 operators, all statuses replaced twice a second; 10 "
        f"requests of /api/v1/jobs and 2 of pages a second for {seconds} s, 10 open pages",
        method="first without other load, then with two jobs that each use a core and an "
        "extraction that loops, all started by the service; times start when a "
        "request is due; the load average includes the whole machine; two hours are "
        "simulated in 1,440 steps of 5 s, after a quarter of an hour; memory in use "
        "is the memory that Python and C have allocated",
    )
    rows = []
    # What a job that was cancelled still writes while its folder goes is no failure of this run.
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        _served(Path(folder), options.jobs) as service,
    ):
        url, pid = service
        for name, is_full in (("quiet", False), ("full", True)):
            with _full(url) if is_full else contextlib.nullcontext():
                found = _asked(url, seconds)
            load = f"{os.getloadavg()[0]:.1f}"
            for kind, limit in (("json", 100.0), ("pages", 200.0)):
                figures = [percentile(found[kind], part) for part in (0.5, 0.99, 0.999)]
                rows.append([f"{kind}, {name}", *(f"{each:,.0f}" for each in figures), load])
                if is_full:
                    report.targets.append(
                        Target(name=f"{kind} p99, full", value=figures[1], unit="ms", high=limit)
                    )
        memory = _resident_mb(pid)
    report.targets.append(Target(name="memory of the service", value=memory, unit="MB", high=200))
    columns = ["milliseconds", "p50", "p99", "p99.9", "load"]
    report.tables.append(Table(title="Time to the end of an answer", columns=columns, rows=rows))
    first, second, resident = _grown_mb(options)
    report.targets += [
        Target(name="growth over an hour, in use", value=first, unit="MB", high=1),
        Target(name="growth over the second hour, in use", value=second, unit="MB", high=1),
        Target(name="growth over both, resident", value=resident, unit="MB"),
    ]
    report.tell(options)


@contextlib.contextmanager
def _served(folder: Path, count: int) -> Iterator[tuple[str, int]]:
    """Run the jobs and the service; the answer is its URL and its process id."""
    home = Home(folder / "home")
    _install_plugins(folder / "plugins")
    with contextlib.ExitStack() as running:
        fleet = running.enter_context(_process("service_fleet.py", str(home.path), str(count)))
        assert fleet.stdout is not None
        fleet.stdout.readline()
        words = [sys.executable, "-m", "bicycle_runtime.service_process.main", str(home.path)]
        more = {"PYTHONPATH": str(folder / "plugins")}
        doors = json.dumps({"slots": {"local": 10_000}})  # None of them waits for the 200.
        log = running.enter_context((folder / "service.log").open("wb"))
        service = subprocess.Popen(
            [*words, "127.0.0.1", "0", doors], env={**os.environ, **more}, stdout=log, stderr=log
        )
        running.callback(_end, service)
        while (address := read_address(home)) is None:
            if service.poll() is not None:
                raise RuntimeError((folder / "service.log").read_text())
            time.sleep(0.05)
        yield address["url"], service.pid


@contextlib.contextmanager
def _full(url: str) -> Iterator[None]:
    """Keep both cores busy with two jobs, and extract a plugin that never comes back."""
    names = ("busy-1", "busy-2")
    try:
        for name in names:
            body = {"plugin": "busy", "name": name, "options": {"master": "local[1]"}}
            number = _post(url, "/jobs", body)["id"]
            while (found := _get(url, f"/operations/{number}?wait=60"))["state"] != "done":
                if found["state"] == "failed":
                    raise RuntimeError(found["error"])
        number = _post(url, "/jobs", {"plugin": "endless", "name": "endless"})["id"]
        while _get(url, f"/operations/{number}")["state"] != "running":
            time.sleep(0.05)
        yield
        if (state := _get(url, f"/operations/{number}")["state"]) != "running":
            raise RuntimeError(f"the extraction that never comes back is {state}")
    finally:
        for name in names:
            number = _post(url, f"/jobs/{name}/cancel", {})["id"]
            _get(url, f"/operations/{number}?wait=60")


def _post(url: str, path: str, body: dict[str, Any]) -> Any:
    head = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/api/v1{path}", json.dumps(body).encode(), head)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def _get(url: str, path: str) -> Any:
    with urllib.request.urlopen(f"{url}/api/v1{path}") as answer:
        return json.load(answer)


@contextlib.contextmanager
def _process(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, *words], cwd=_HERE, stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        yield process
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _asked(url: str, seconds: float) -> dict[str, list[float]]:
    words = [sys.executable, str(_HERE / "service_load.py"), url, str(seconds)]
    done = subprocess.run(words, check=True, capture_output=True)
    found: dict[str, list[float]] = json.loads(done.stdout)
    return found


def _resident_mb(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) / 1_000


def _grown_mb(options: argparse.Namespace) -> tuple[float, float, float]:
    """Return what two hours of the service add to its memory, played in a process of its own.

    It plays in memory where there is a folder for that: 300,000 statuses are replaced. The answer
    is what each hour adds to what is in use, and both to what is resident.
    """
    with tempfile.TemporaryDirectory(dir=_SHARED_MEMORY) as folder:
        ticks = 90 if options.quick else options.ticks
        words = [sys.executable, __file__, "--play", folder, "--jobs", str(options.jobs)]
        words += ["--ticks", str(ticks)]
        done = subprocess.run(words, check=True, capture_output=True)
    first, second, resident = map(float, done.stdout.split()[-3:])
    return first, second, resident


def _play_hours(home: Home, count: int, *, ticks: int) -> None:
    """Let the service look so often, five seconds apart, and print by how much it has grown.

    That is told of each half as what is in use, and as what is resident: figures of all jobs are
    ten MB of text that comes and goes, of which the allocators keep some for the next time.
    """
    home.prepare()
    clock, own = ManualClock(start_ms=1_800_000_000_000), (os.getpid(), start_ticks(os.getpid()))
    for number in range(count):
        options = JobOptions(plugin="clicks", name=job_name(number))
        home.folder(job_name(number)).write_request(JobRequest(options=options))
    keep_pauses_short()  # As its process does.
    in_use, resident = [], []
    with Service(home, clock=clock) as service:
        for tick in range(_WARM_TICKS + ticks):
            clock.advance(_TICK_MS)
            now_ms = clock.now_ms()
            for number in range(count):
                status = status_of(number, tick=tick, pid=own[0], pid_started=own[1], now_ms=now_ms)
                write_status(home.folder(job_name(number)).status_path, status)
            service.watcher.wake()
            while service.fleet.view.as_of_ms < now_ms:
                time.sleep(0.001)
            if tick % _SCRAPE_TICKS == 0:
                service.metrics.text(now_ms=now_ms)
            list_page(service.fleet.view, JobQuery(limit=50))
            in_use.append(_in_use_mb(own[0]))
            resident.append(_resident_mb(own[0]))
    begin, middle, end = (_WARM_TICKS, _WARM_TICKS + ticks // 2, len(in_use))
    first = _level(in_use, middle) - _level(in_use, begin)
    second = _level(in_use, end) - _level(in_use, middle)
    grown = _level(resident, end) - _level(resident, begin)
    print(f"{first:.2f} {second:.2f} {grown:.2f}")


def _level(sizes: list[float], end: int) -> float:
    """Return the median of the looks before one."""
    return statistics.median(sizes[end - _LEVEL_TICKS : end])


class _Allocated(ctypes.Structure):
    """What ``mallinfo2`` of the C library tells; ``uordblks`` and ``hblkhd`` are given out."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


def _in_use_mb(pid: int) -> float:
    """Return what the allocators have given out, those of Python and of C; else what is resident.

    What they keep for later is not in it, and neither are the files of programs.
    """
    told = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if told is None:
        return _resident_mb(pid)
    told.restype = _Allocated
    large = told()
    return (_given_out_by_python() + large.uordblks + large.hblkhd) / 1e6


def _given_out_by_python() -> int:
    """Return the bytes of small objects; Python writes them to the standard error only."""
    with tempfile.TemporaryFile() as text:
        kept = os.dup(2)
        os.dup2(text.fileno(), 2)
        try:
            sys._debugmallocstats()
        finally:
            os.dup2(kept, 2)
            os.close(kept)
        text.seek(0)
        lines = [line for line in text if line.startswith(b"# bytes in allocated blocks")]
    return sum(int(line.rpartition(b"=")[2].replace(b",", b"")) for line in lines)


def _install_plugins(folder: Path) -> None:
    info = folder / "endless-1.0.dist-info"
    info.mkdir(parents=True)
    path = folder / "lines.txt"
    path.write_text("a line\n" * _LINES)
    (folder / "endless.py").write_text(_PLUGINS.format(path=str(path)))
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: endless\nVersion: 1.0\nRequires-Dist: bicycle-sdk>=0.1\n"
    )
    (info / "entry_points.txt").write_text(
        "[bicycle.plugins]\nendless = endless:endless\nbusy = endless:busy\n"
    )
    (info / "RECORD").write_text("endless.py,,\n")


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, default=200, help="jobs (default %(default)s)")
    parser.add_argument("--seconds", type=int, default=60, help="time under load")
    parser.add_argument("--ticks", type=int, default=1_440, help="looks, 5 s apart, of two hours")
    parser.add_argument("--play", help=argparse.SUPPRESS)


if __name__ == "__main__":
    main()
