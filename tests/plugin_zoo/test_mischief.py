"""Plugins that do odd things and still give a right graph, and leave nothing behind."""

import os
import subprocess
import sys
import threading

import pytest

from bicycle_runtime.extraction.errors import CHILD_NOT_STARTED, PLUGIN_RAISED, PLUGIN_TIMED_OUT
from bicycle_runtime.extraction.extract import extract
from bicycle_runtime.extraction.limits import ExtractionLimits
from tests.plugin_zoo.zoo import at_import, in_builder
from tests.raising import raises
from tests.waiting import PATIENCE_S

# In a process of its own: those that run tests have files and threads of other tests as well.
NO_TRACE = """
import os, sys, threading
from pathlib import Path
from bicycle_runtime.extraction.discovery import discover
from bicycle_runtime.extraction.extract import extract

def open_files():
    files = set()
    for path in Path("/proc/self/fd").iterdir():
        try:
            files.add(os.readlink(path))
        except FileNotFoundError:  # the listing's own
            continue
    return files

plugin = discover([sys.argv[1]]).find("tracer")
modules, files = set(sys.modules), open_files()
others = threading.active_count(), os.getcwd()

assert extract(plugin, {}).plugin == "tracer"

new_modules = set(sys.modules) - modules
assert not [name for name in new_modules if not name.startswith("bicycle_")]
assert "tracer" not in sys.modules
assert "TRACER" not in os.environ
assert open_files() == files, open_files() ^ files
assert (threading.active_count(), os.getcwd()) == others
"""
MISCHIEF = {
    "prints megabytes": """
        import sys
        for _ in range(20_000):
            print("x" * 99)
            print("y" * 99, file=sys.stderr)
        """,
    "prints what looks like a frame": "import os\nos.write(1, b'BXF1' + bytes(12))",
    "forks a child that holds the pipes": """
        import os, time
        if os.fork() == 0:
            while True:
                time.sleep(60)
        """,
    "forks a child that floods the pipes": """
        import os
        if os.fork() == 0:
            while True:
                os.write(1, b"flood" * 1000)
        """,
    "starts a daemon in a session of its own": """
        import os, time
        if os.fork() == 0:
            os.setsid()
            if os.fork():
                os._exit(0)
            while True:
                time.sleep(60)
        """,
    "starts a program that outlives it": """
        import subprocess
        subprocess.Popen(["sleep", "1000"], start_new_session=True)
        """,
    "comes back from a fork twice": "import os\nos.fork()",
    "changes directory, path and streams": """
        import io, os, sys
        os.chdir("/")
        sys.path.clear()
        sys.stdout = io.StringIO()
        sys.stderr = None
        sys.stdin.close()
        """,
    "leaves a thread running": """
        import threading, time
        threading.Thread(target=time.sleep, args=(1000,), daemon=False).start()
        """,
    "registers an exit handler that hangs": """
        import atexit, time
        atexit.register(time.sleep, 1000)
        """,
    "reads standard input": "import sys\nassert sys.stdin.read() == ''",
    "breaks what the standard library offers": """
        import builtins, os, pickle
        os.write = os._exit = builtins.open = pickle.dumps = None
        """,
    "forbids recursion": "import sys\nsys.setrecursionlimit(100)",
    "fills its working directory": """
        from pathlib import Path
        for index in range(100):
            Path(f"file-{index}").write_text("x" * 1000)
        """,
}


@pytest.mark.parametrize("code", MISCHIEF.values(), ids=MISCHIEF.keys())
def test_the_graph_is_right_and_nothing_is_left_when_a_builder(cage, code):
    bundle = cage.extract(in_builder("rascal", code))

    assert [vertex.kind.value for vertex in bundle.graph.vertices] == ["Source", "Sink"]
    assert bundle.plugin == "rascal"


def test_noise_is_kept_to_its_last_lines(cage):
    beast = in_builder(
        "noisy",
        """
        import sys
        for number in range(100_000):
            print("out", number)
            print("err", number, file=sys.stderr)
        raise ValueError
        """,
    )

    facts = cage.fail(beast, PLUGIN_RAISED)

    assert facts["stderr_tail"] == [f"err {number}" for number in range(99_950, 100_000)]
    assert facts["stdout_tail"] == [f"out {number}" for number in range(99_950, 100_000)]


def test_a_line_without_end_is_kept_to_its_last_bytes(cage):
    beast = in_builder("noisy", "import os\nos.write(2, b'x' * 1_000_000)\nraise ValueError")

    facts = cage.fail(beast, PLUGIN_RAISED, ExtractionLimits(output_bytes=2048))

    assert facts["stderr_tail"] == ["x" * 2048]


def test_output_that_is_no_text_is_kept_as_well_as_possible(cage):
    beast = in_builder("noisy", r"import os; os.write(2, b'\xff\xfe ok\n'); raise ValueError")

    facts = cage.fail(beast, PLUGIN_RAISED)

    assert facts["stderr_tail"] == ["\ufffd\ufffd ok"]


def test_a_hang_is_ended_though_a_forked_child_floods_the_pipes(cage):
    beast = in_builder(
        "rascal",
        """
        import os, time
        os.fork()
        while True:
            os.write(2, b"flood" * 1000)
        """,
    )
    cage.fail(beast, PLUGIN_TIMED_OUT, ExtractionLimits(wall_time_ms=2_000))


def test_an_extraction_leaves_no_trace_in_the_process_that_asks_for_it(cage):
    cage.put(at_import("tracer", "import os\nos.environ['TRACER'] = 'was here'"))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    subprocess.run(
        [sys.executable, "-c", NO_TRACE, str(cage.folder)],
        env=environment,
        check=True,
        timeout=PATIENCE_S,
    )


def test_extractions_at_the_same_time_do_not_disturb_each_other(cage):
    refs = [cage.put(in_builder(f"rascal_{index}", "import os\nos.fork()")) for index in range(4)]
    names = []

    def work(ref):
        names.append(extract(ref, {}).plugin)

    threads = [threading.Thread(target=work, args=(ref,)) for ref in refs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(names) == [ref.name for ref in refs]


def test_parallelism_and_name_of_the_job_can_be_given(cage):
    ref = cage.put(in_builder("rascal", "pass"))

    bundle = extract(ref, {}, parallelism=3, job_name="evening run")

    assert (bundle.graph.config.parallelism, bundle.graph.name) == (3, "evening run")


def test_an_interpreter_that_does_not_exist_is_named(cage):
    ref = cage.put(in_builder("rascal", "pass"))

    with raises(CHILD_NOT_STARTED) as caught:
        extract(ref, {}, python="/no/such/python")

    assert caught.value.facts["python"] == "/no/such/python"


def test_an_interpreter_that_is_none_is_named(cage):
    ref = cage.put(in_builder("rascal", "pass"))

    with raises(CHILD_NOT_STARTED) as caught:
        extract(ref, {}, python="/bin/false")

    assert caught.value.facts["python"] == "/bin/false"


def test_another_interpreter_can_be_used(cage):
    ref = cage.put(in_builder("rascal", "pass"))

    assert extract(ref, {}, python=sys.executable).digest == extract(ref, {}).digest


def test_a_caller_in_another_folder_with_a_relative_import_path_gets_the_same(cage, monkeypatch):
    ref = cage.put(in_builder("rascal", "pass"))
    expected = extract(ref, {}).digest
    monkeypatch.chdir(cage.folder)
    monkeypatch.setattr(sys, "path", [".", *sys.path])

    assert extract(ref, {}).digest == expected
