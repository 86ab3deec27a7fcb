"""Plugins that fail by themselves: each gives its own error, with the user's line and their output."""

import pytest

from bicycle_runtime.extraction.errors import (
    ENTRY_POINT_BROKEN,
    MISSING_DEPENDENCY,
    PLUGIN_EXITED,
    PLUGIN_KILLED,
    PLUGIN_NOT_MARKED,
    PLUGIN_OUT_OF_MEMORY,
    PLUGIN_RAISED,
    PLUGIN_TIMED_OUT,
    RESULT_TOO_LARGE,
    RESULT_UNREADABLE,
    SDK_MISMATCH,
    ExtractionError,
)
from bicycle_runtime.extraction.limits import ExtractionLimits
from bicycle_sdk.errors import GraphError, ParameterError, PluginDefinitionError
from tests.plugin_zoo.zoo import at_import, in_builder, whole
from tests.raising import raises


def test_an_exception_at_import_tells_type_message_and_line(cage):
    beast = at_import(
        "raises", "import sys\nprint('about to', file=sys.stderr)\nraise ValueError('boom')"
    )

    facts = cage.fail(beast, PLUGIN_RAISED)

    assert (facts["exception_type"], facts["exception_message"]) == ("ValueError", "boom")
    assert facts["location"] == cage.place(beast, "raise ValueError")
    assert facts["phase"] == "while importing"
    assert facts["stderr_tail"] == ["about to"]


def test_an_exception_in_the_builder_shows_the_users_frames_and_none_of_ours(cage):
    beast = in_builder("raises", "def inner():\n    return 1 / 0\ninner()")

    facts = cage.fail(beast, PLUGIN_RAISED)

    frames = [line.strip() for line in facts["traceback"] if line.startswith("  File ")]
    assert frames == [
        f'File "{cage.folder}/raises.py", line {beast.line_of("    inner()")}, in job',
        f'File "{cage.folder}/raises.py", line {beast.line_of("1 / 0")}, in inner',
    ]
    assert facts["location"] == cage.place(beast, "1 / 0")
    assert facts["phase"] == "while building"


def test_the_users_line_stands_first_in_the_message(cage):
    beast = in_builder("raises", "raise KeyError('k')")

    with raises(PLUGIN_RAISED) as caught:
        cage.extract(beast)

    assert str(caught.value).startswith(
        f"BIC-1604 {cage.place(beast, 'raise KeyError')}: KeyError: 'k'"
    )


def test_an_exception_from_the_library_is_located_at_the_users_line(cage):
    beast = in_builder("raises", "import json\njson.loads('{')")

    facts = cage.fail(beast, PLUGIN_RAISED)

    assert facts["location"] == cage.place(beast, "json.loads")
    assert facts["exception_type"] == "JSONDecodeError"


def test_a_syntax_error_is_located_in_the_file(cage):
    beast = whole("crooked", "x = 1\ndef job(:\n    pass\n")

    facts = cage.fail(beast, PLUGIN_RAISED)

    assert facts["location"] == cage.place(beast, "def job(:")
    assert facts["exception_type"] == "SyntaxError"


def test_the_cause_of_an_exception_is_shown(cage):
    beast = in_builder(
        "raises", "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise OSError('x') from e"
    )

    facts = cage.fail(beast, PLUGIN_RAISED)

    assert "ZeroDivisionError: division by zero" in facts["traceback"]
    assert facts["traceback"][-1] == "OSError: x"


def test_an_exception_whose_text_raises_is_still_reported(cage):
    beast = in_builder(
        "raises", "class E(Exception):\n    def __str__(self):\n        return 1 / 0\nraise E()"
    )

    facts = cage.fail(beast, PLUGIN_RAISED)

    assert facts["exception_type"] == "job.<locals>.E"


@pytest.mark.parametrize(
    ("code", "exit_code", "exit_message"),
    [("3", 3, None), ("", 0, None), ("'no luck'", 1, "no luck"), ("-1", 255, None)],
)
def test_sys_exit_gives_the_exit_code_and_the_line(cage, code, exit_code, exit_message):
    beast = at_import("leaver", f"import sys\nsys.exit({code})")

    facts = cage.fail(beast, PLUGIN_EXITED)

    assert (facts["exit_code"], facts["exit_message"]) == (exit_code, exit_message)
    assert facts["how"] == "sys.exit"
    assert facts["location"] == cage.place(beast, "sys.exit")


@pytest.mark.parametrize("exit_code", [0, 7])
def test_os_exit_gives_the_exit_code_and_what_was_printed(cage, exit_code):
    beast = in_builder("leaver", f"import os\nprint('bye', flush=True)\nos._exit({exit_code})")

    facts = cage.fail(beast, PLUGIN_EXITED)

    assert (facts["exit_code"], facts["how"]) == (exit_code, "process end")
    assert facts["stdout_tail"] == ["bye"]
    assert facts["phase"] == "while building"


def test_a_hang_at_import_is_killed_in_time_and_located(cage):
    beast = at_import("hanger", "import time\nwhile True:\n    time.sleep(60)")

    facts = cage.fail(beast, PLUGIN_TIMED_OUT, ExtractionLimits(wall_time_ms=2_000))

    assert facts["limit_ms"] == 2_000
    assert facts["location"] == cage.place(beast, "time.sleep")
    assert facts["phase"] == "while importing"


def test_a_hang_that_ignores_every_signal_is_killed_too(cage):
    beast = in_builder(
        "deaf",
        """
        import signal
        for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_IGN)
        while True:
            pass
        """,
    )

    facts = cage.fail(beast, PLUGIN_TIMED_OUT, ExtractionLimits(wall_time_ms=2_000))

    assert facts["location"] == "deaf:job"
    assert facts["phase"] == "while building"


def test_a_segfault_gives_the_signal_and_the_line(cage):
    beast = in_builder("crasher", "import ctypes\nctypes.string_at(0)")

    facts = cage.fail(beast, PLUGIN_KILLED)

    assert facts["signal_name"] == "SIGSEGV"
    assert facts["location"] == cage.place(beast, "string_at")


def test_a_kill_from_outside_gives_the_signal(cage):
    beast = in_builder("victim", "import os\nos.kill(os.getpid(), 9)")

    facts = cage.fail(beast, PLUGIN_KILLED)

    assert (facts["signal_name"], facts["phase"]) == ("SIGKILL", "while building")


def test_an_allocation_over_the_limit_is_out_of_memory(cage):
    beast = in_builder("glutton", "kept = []\nwhile True:\n    kept.append(bytearray(100 << 20))")

    facts = cage.fail(beast, PLUGIN_OUT_OF_MEMORY, ExtractionLimits(memory_bytes=128 << 20))

    assert facts["limit_bytes"] == 128 << 20
    assert facts["location"] == cage.place(beast, "bytearray")


def test_four_gigabytes_at_import_are_over_the_default_limit(cage):
    beast = at_import("glutton", "kept = bytearray(4 << 30)")

    facts = cage.fail(beast, PLUGIN_OUT_OF_MEMORY)

    assert (facts["limit_bytes"], facts["phase"]) == (4 << 30, "while importing")


def test_many_small_allocations_over_the_limit_are_out_of_memory(cage):
    beast = in_builder("glutton", "kept = []\nwhile True:\n    kept.append(str(len(kept)) * 50)")

    facts = cage.fail(beast, PLUGIN_OUT_OF_MEMORY, ExtractionLimits(memory_bytes=128 << 20))

    assert facts["location"] == cage.place(beast, "kept.append")


def test_shared_memory_does_not_escape_the_limit(cage):
    beast = in_builder("sharer", "import mmap\nkept = [mmap.mmap(-1, 1 << 30) for _ in range(9)]")

    with raises(PLUGIN_RAISED) as caught:
        cage.extract(beast, ExtractionLimits(memory_bytes=256 << 20))

    assert caught.value.facts["exception_type"] == "OSError"


def test_a_result_over_the_limit_names_its_largest_part(cage):
    beast = whole(
        "hoarder",
        """
        from bicycle_sdk.plugin import bicycle_plugin

        @bicycle_plugin(name="hoarder", version="1.0")
        def job(env):
            data = b"x" * 5_000_000
            env.from_collection([1]).map(lambda value: (value, data)).print()
        """,
    )

    facts = cage.fail(beast, RESULT_TOO_LARGE, ExtractionLimits(result_bytes=1_000_000))

    assert facts["payload"] == "vertex_2/function"
    assert facts["limit_bytes"] == 1_000_000
    assert facts["size_bytes"] > 5_000_000


def test_garbage_in_the_result_pipe_is_refused(cage):
    beast = in_builder(
        "scribbler",
        """
        import os
        for name in os.listdir("/proc/self/fd"):
            try:
                os.write(int(name), b"garbage")
            except OSError:
                pass
        """,
    )

    facts = cage.fail(beast, RESULT_UNREADABLE)

    assert "garbage" in facts["detail"]


def test_a_plugin_that_closes_every_descriptor_gives_no_result(cage):
    beast = in_builder("closer", "import os\nos.closerange(0, 256)")

    facts = cage.fail(beast, RESULT_UNREADABLE)

    assert facts["detail"] == "the plugin closed the pipe"


@pytest.mark.parametrize("requirement", [">=99", "==0.0.1", "<0.1", "this is no version"])
def test_a_plugin_for_another_sdk_is_refused_before_it_is_imported(cage, requirement):
    beast = at_import("elder", "raise ValueError", requires=(f"bicycle-sdk ({requirement})",))

    facts = cage.fail(beast, SDK_MISMATCH)

    assert facts["requirement"] == f"bicycle-sdk{requirement}"


def test_a_missing_dependency_names_module_and_line(cage):
    beast = at_import("needy", "import not_installed_anywhere.inner")

    facts = cage.fail(beast, MISSING_DEPENDENCY)

    assert facts["module"] == "not_installed_anywhere"
    assert facts["location"] == cage.place(beast, "import not_installed")


def test_a_function_without_the_mark_is_refused(cage):
    beast = whole("plain", "def job(env):\n    pass\n")

    facts = cage.fail(beast, PLUGIN_NOT_MARKED)

    assert (facts["target"], facts["found"]) == ("plain:job", "function")
    assert facts["location"] == cage.place(beast, "def job")


def test_an_object_that_answers_to_every_name_is_not_marked(cage):
    beast = whole(
        "yes", "class Yes:\n    def __getattr__(self, name):\n        return self\njob = Yes()\n"
    )

    facts = cage.fail(beast, PLUGIN_NOT_MARKED)

    assert facts["found"] == "Yes"


def test_an_entry_point_without_its_attribute_is_refused(cage):
    facts = cage.fail(whole("hollow", "x = 1\n"), ENTRY_POINT_BROKEN)

    assert facts["target"] == "hollow:job"
    assert "'job'" in facts["reason"]


@pytest.mark.parametrize("target", ["gone:job", "gone.inner:job"])
def test_an_entry_point_without_its_module_is_refused(cage, target):
    beast = whole("here", "x = 1\n", target=target)

    facts = cage.fail(beast, ENTRY_POINT_BROKEN)

    assert (facts["target"], "'gone'" in facts["reason"]) == (target, True)


def test_a_graph_that_breaks_a_rule_passes_as_the_sdks_own_error(cage):
    beast = whole(
        "empty",
        """
        from bicycle_sdk.plugin import bicycle_plugin

        @bicycle_plugin(name="empty", version="1.0")
        def job(env):
            pass
        """,
    )

    with pytest.raises(GraphError) as caught:
        cage.extract(beast)

    assert caught.value.facts["problems"]


def test_an_unknown_parameter_passes_as_the_sdks_own_error(cage):
    with pytest.raises(ParameterError) as caught:
        cage.extract(in_builder("simple", "pass"), colour="red")

    assert caught.value.facts["name"] == "colour"


def test_a_marked_class_is_no_job(cage):
    beast = whole(
        "functional",
        """
        from bicycle_sdk import AsyncFunction
        from bicycle_sdk.plugin import bicycle_plugin

        @bicycle_plugin
        class job(AsyncFunction[int, int]):
            def process(self, value, ctx):
                return [value]
        """,
    )

    with pytest.raises(PluginDefinitionError):
        cage.extract(beast)


def test_an_error_of_extraction_survives_json(cage):
    beast = in_builder("raises", "raise KeyError(object())")

    with pytest.raises(ExtractionError) as caught:
        cage.extract(beast)

    assert caught.value.to_json()["facts"]["exception_type"] == "KeyError"
