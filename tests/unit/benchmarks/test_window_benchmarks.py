import json
import subprocess
import sys
from itertools import pairwise
from math import fsum, nextafter

import pytest

from tests.unit.jobs.inspection.test_reports import report

BENCHES = (
    "bench_w1_json", "bench_w2_wordcount", "bench_w3_windows", "bench_w3_kinds",
    "bench_joins",
    "bench_keyed_state", "bench_idle_windows", "bench_idle_kafka", "bench_hot_key",
)  # fmt: skip


@pytest.fixture
def workloads(load, tmp_path, monkeypatch):
    """Makes inputs below a folder of the test."""
    found = load("workloads")
    monkeypatch.setattr(found, "BUILD", tmp_path / "build")
    return found


@pytest.mark.parametrize("name", BENCHES)
def test_a_benchmark_tells_its_options_and_starts_nothing(load, name, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [name, "--help"])

    with pytest.raises(SystemExit) as end:
        load(name).main()

    assert end.value.code == 0
    assert {"--quick", "--repeats", "--write-docs"} <= set(
        capsys.readouterr().out.replace(",", " ").split()
    )


class GivenReadings:
    """Three readings of ada in two windows and one of bob, in place of drawn ones."""

    window_ms = 10_000

    def truth(self):
        return {("ada", 0): (2, 7), ("ada", 10_000): (1, 1), ("bob", 10_000): (1, 4)}


def window(key, start, *value, end=None):
    return [key, start, end or start + 10_000, list(value)]


GOOD = [window("ada", 0, 2, 7, 3.5), window("ada", 10_000, 1, 1, 1), window("bob", 10_000, 1, 4, 4)]
WRONG = {
    "missing": GOOD[:-1],
    "twice": [*GOOD, GOOD[0]],
    "unknown": [*GOOD, window("bob", 0, 1, 4, 4)],
    "count": [window("ada", 0, 1, 7, 7), *GOOD[1:]],
    "sum": [window("ada", 0, 2, 8, 4), *GOOD[1:]],
    "average": [window("ada", 0, 2, 7, 3), *GOOD[1:]],
    "end": [window("ada", 0, 2, 7, 3.5, end=9_999), *GOOD[1:]],
}


def as_lists(windows):
    return windows


def as_objects(windows):
    names = ("key", "start", "end", "count", "total", "average")
    return [dict(zip(names, [*places, *value], strict=True)) for *places, value in windows]


@pytest.fixture(params=[(as_lists, "Window"), (as_objects, "NamedWindow")], ids=lambda p: p[1])
def check(request, workloads, tmp_path):
    """Checks windows, written in one of the two forms."""
    form, kind = request.param

    def run(windows):
        output = tmp_path / "output"
        output.mkdir()
        (output / "part.jsonl").write_text("".join(json.dumps(w) + "\n" for w in form(windows)))
        workloads.check_windows(output, GivenReadings(), getattr(workloads, kind))

    return run


@pytest.mark.parametrize("windows", [GOOD, GOOD[::-1]], ids=["in order", "backwards"])
def test_windows_that_are_there_once_are_right_in_any_order(check, windows):
    check(windows)


@pytest.mark.parametrize("windows", WRONG.values(), ids=WRONG.keys())
def test_windows_that_are_wrong_are_found(check, load, windows):
    with pytest.raises(load("measuring").WrongOutputError):
        check(windows)


def lines_of(folder):
    return [file.read_text().splitlines() for file in sorted(folder.iterdir())]


@pytest.mark.parametrize("count", [20, 21, 23], ids="count={}".format)
def test_slices_hold_the_same_readings_one_behind_the_other_in_time(workloads, count):
    readings = workloads.Readings(count=count, keys=3)

    *slices, last = lines_of(readings.slices(6))

    files = lines_of(readings.folder())
    expected = [files[index % 4][index // 4] for index in range(count)]
    assert [line for lines in slices for line in lines] == expected
    assert {len(lines) for lines in slices[:-1]} == {6}
    assert last == [workloads.FAR_READING.strip()]


def test_slices_are_older_the_earlier_they_are_to_be_read(workloads):
    folder = workloads.Readings(count=20, keys=3).slices(4)

    times = [file.stat().st_mtime for file in sorted(folder.iterdir())]

    assert len(times) == 6
    assert all(before < after for before, after in pairwise(times))


def test_the_truth_is_told_by_windows_of_the_length_asked_for(workloads):
    short = workloads.Readings(count=200, keys=2)
    long = workloads.Readings(count=200, keys=2, window_ms=3_600_000)

    assert len(long.truth()) == 2
    assert {start % 10_000 for _, start in short.truth()} == {0}
    for readings in (short, long):
        assert sum(count for count, _ in readings.truth().values()) == 200


@pytest.mark.parametrize(
    ("files", "processes", "parser"),
    [(4, 2, "json"), (3, 2, "msgspec"), (1, 2, "json"), (3, 1, "json")],
)
def test_the_plain_loop_joins_what_its_processes_read(
    workloads, load, tmp_path, files, processes, parser
):
    readings = workloads.Readings(count=23_001, keys=50, files=files)

    run = load("peers").run_plain(
        f"windows-whole-{parser}", readings.folder(), tmp_path / "output", process_count=processes
    )

    workloads.check_windows(tmp_path / "output", readings)
    assert run.busy_s > 0


def test_a_plain_loop_whose_other_half_fails_ends(workloads, load, tmp_path):
    folder = workloads.Readings(count=200, keys=2).folder()
    with (folder / "readings-1.jsonl").open("a") as broken:
        broken.write("no reading\n")

    with pytest.raises(RuntimeError, match=r"JSONDecodeError|EOFError|BrokenPipe|ConnectionReset"):
        load("peers").run_plain("windows-whole-json", folder, tmp_path / "output")


def test_the_steady_rate_is_that_of_the_batches_behind_the_first_third(load):
    steady_rate = load("measuring").steady_rate

    assert steady_rate([(10, 5.0), (10, 1.0), (10, 1.0)]) == 10
    assert steady_rate([(0, 9.0), (5, 9.0), (5, 9.0), (20, 2.0), (0, 2.0)]) == 5


def test_there_is_no_steady_rate_of_a_rest_that_is_too_small(load):
    steady_rate = load("measuring").steady_rate

    assert steady_rate([(30, 2.0)]) == 15
    assert steady_rate([(29, 2.0), (1, 1.0), (0, 3.0)]) == 5


def test_paces_tell_whole_runs_and_steady_state_and_judge_the_first(load):
    paces, measuring = load("paces"), load("measuring")
    found = paces.Paces(text="input", unit="words")
    rates = [
        found.turn("ours", lambda: paces.Lap(count=100, seconds=2, steady_rate=80.0))(),
        found.turn("ours", lambda: paces.Lap(count=100, seconds=4, steady_rate=90.0))(),
        found.turn("theirs", lambda: paces.Lap(count=50, seconds=5, startup_s=1.5))(),
    ]
    report = measuring.Report(name="x", claim="x", payload="x", method="x")

    found.judge(report, "ours", {"theirs": 3.0, "absent": 1.0})

    assert rates == [50.0, 25.0, 10.0]
    assert [(each.name, each.value, each.low) for each in report.targets] == [
        ("ours ÷ theirs, input, whole run", 3.75, 3.0),
        ("ours ÷ theirs, input, steady", 8.5, None),
    ]
    first, second = found.table().rows
    assert first[-2:] == ["6 in 2", "see bench_startup"]
    assert second[-2:] == ["5 in 1", "1.50"]


def test_a_contender_runs_as_often_as_it_may_and_says_its_last_rate_again(load):
    paces = load("paces")
    found = paces.Paces(text="input", unit="words")
    laps = iter([paces.Lap(count=10, seconds=1), paces.Lap(count=10, seconds=2)])
    contender = found.turn("theirs", lambda: next(laps), most=2)

    assert [contender() for _ in range(4)] == [10.0, 5.0, 5.0, 5.0]
    assert found.whole("theirs") == [10.0, 5.0]


def test_the_fastest_of_some_settings_is_taken_and_said(load):
    paces = load("paces")
    forms = {
        name: lambda s=s: paces.Lap(count=10, seconds=s) for name, s in {"a": 3, "b": 2}.items()
    }

    table, best = paces.best_settings("title", "words", forms)

    assert best == "b"
    assert [row[0] for row in table.rows] == ["a", "b (taken)"]


def test_the_processor_time_of_a_process_holds_that_of_its_children(load):
    module = load("processor_time")
    # A little more than is waited for: the kernel counts whole ticks of two kinds.
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    wait = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]]); input()"
    with subprocess.Popen([sys.executable, "-c", wait, burn], stdin=subprocess.PIPE) as parent:
        seconds = 0.0
        while seconds < 0.2 and parent.poll() is None:
            seconds = module.processor_seconds(parent.pid)[module.DRIVER]
        parent.communicate(b"\n")

    assert 0.2 <= seconds < 2


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        (b"/usr/lib/jvm/bin/java\0-cp\0x\0", "Java"),
        (b"python\0-m\0pyspark.daemon\0pyspark.worker\0", "Python workers"),
        (b"python\0-m\0bicycle_runtime.engine.spark.daemon\0pyspark.worker\0", "Python workers"),
        (b"python\0bicycle\0run\0", "driver"),
        (b"", "driver"),
    ],
)
def test_a_process_of_a_job_is_known_by_its_command(load, command, kind):
    assert load("processor_time")._kind(command) == kind


@pytest.mark.parametrize("kind", ["floats", "filtered", "keyed", "computed", "looping"])
def test_a_plain_loop_does_the_same_as_a_kind_of_job(load, workloads, kind):
    readings = workloads.Readings(count=5_000, keys=20, has_decimals=True)

    lap = load("bench_w3_kinds").plain(kind, "msgspec", readings)

    assert lap.count == 5_000


def test_a_plain_loop_with_other_sums_is_found(load, workloads, monkeypatch):
    readings = workloads.Readings(count=5_000, keys=20, has_decimals=True)
    bench = load("bench_w3_kinds")
    monkeypatch.setattr(bench, "truth_of", lambda _: lambda sensor, _, value: (sensor, value + 1))

    with pytest.raises(workloads.WrongOutputError):
        bench.plain("floats", "msgspec", readings)


def test_fewer_readings_are_the_first_of_more(workloads):
    few = lines_of(workloads.Readings(count=40, keys=3).folder())
    many = lines_of(workloads.Readings(count=80, keys=3).folder())

    assert few == [lines[: len(lines) // 2] for lines in many]


def test_a_hot_sensor_has_its_share_and_the_others_keep_theirs(workloads):
    readings = workloads.Readings(count=4_000, keys=10, hot_percent=50)
    counts = dict.fromkeys(range(10), 0)
    for (sensor, _), (count, _) in readings.truth().items():
        counts[int(sensor.removeprefix("sensor-"))] += count

    assert sum(counts.values()) == 4_000
    assert 2_000 < counts[0] < 2_400  # Half of them, and a tenth of the rest.
    assert all(150 < counts[other] < 250 for other in range(1, 10))


def test_windows_of_decimals_are_compared_with_their_exact_sums(load, workloads, tmp_path):
    readings = workloads.Readings(count=400, keys=3, has_decimals=True)
    told = load("window_jobs").KINDS["keyed"].truth
    values = {}
    for lines in lines_of(readings.folder()):
        for line in map(json.loads, lines):
            key, value = told(line["sensor"], line["at"], line["value"])
            values.setdefault((key, line["at"] // 10_000 * 10_000), []).append(value)
    good = [
        window(key, start, len(found), fsum(found), fsum(found) / len(found))
        for (key, start), found in values.items()
    ]

    def check(windows):
        output = tmp_path / "output"
        output.mkdir(exist_ok=True)
        (output / "0.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in windows))
        workloads.check_measured_windows(output, readings, told)

    check(good)
    [key, start, end, [count, total, average]] = good[0]
    near = [key, start, end, [count, nextafter(total, 1e9), average]]
    for wrong in (good[1:], [*good, good[0]], [near, *good[1:]]):
        with pytest.raises(workloads.WrongOutputError):
            check(wrong)


@pytest.mark.parametrize("suffix", ["", "_called"])
@pytest.mark.parametrize("name", ["floats", "dicts", "filtered", "keyed", "computed", "looping"])
def test_kinds_of_windows_go_the_way_that_the_benchmark_says(load, name, suffix):
    jobs = load("window_jobs")
    plugin = getattr(jobs, f"windows_{name}{suffix}")
    params = jobs.FolderParams(input="/nowhere", output="/nowhere-else")

    because = {one.operator: one.because for one in report(lambda env: plugin(env, params)).columns}

    assert (because["windows-combine"] is None) is not bool(suffix)
