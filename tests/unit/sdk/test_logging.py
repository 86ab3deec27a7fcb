"""Log lines as events, for people and as JSON."""

import io
import json
import logging
import re

from bicycle_sdk.errors import ConfigError
from bicycle_sdk.logging import configure, log_event, tell_end

LOGGER = logging.getLogger("bicycle_runtime.some_room")


def lines_of(stream: io.StringIO) -> list[str]:
    return stream.getvalue().splitlines()


def test_a_human_line_holds_time_level_event_and_fields():
    stream = io.StringIO()
    configure(stream)

    log_event(LOGGER, "epoch_sealed", record_count=3, epoch=17, job="orders", note="two words")

    [line] = lines_of(stream)
    assert re.fullmatch(
        r"\d\d:\d\d:\d\d\.\d{3} INFO  epoch_sealed job=orders epoch=17 record_count=3 "
        r'note="two words"',
        line,
    )


def test_a_json_line_holds_the_same():
    stream = io.StringIO()
    configure(stream, as_json=True)

    log_event(LOGGER, "epoch_sealed", level=logging.WARNING, job="orders", epoch=17)

    data = json.loads(stream.getvalue())
    assert data.pop("time").endswith("+00:00")
    assert data == {
        "level": "WARNING",
        "logger": "bicycle_runtime.some_room",
        "event": "epoch_sealed",
        "job": "orders",
        "epoch": 17,
    }


def test_a_field_cannot_overwrite_the_head_of_a_json_line():
    stream = io.StringIO()
    configure(stream, as_json=True)

    log_event(LOGGER, "weather", time="noon")

    assert json.loads(stream.getvalue())["time"] != "noon"


def test_our_error_is_shown_with_code_and_fix_and_without_traceback():
    human, structured = io.StringIO(), io.StringIO()
    error = ConfigError(problem="no master", hint="give one")

    configure(human)
    log_event(LOGGER, "job_failed", level=logging.ERROR, error=error, job="orders")
    configure(structured, as_json=True)
    log_event(LOGGER, "job_failed", level=logging.ERROR, error=error, job="orders")

    assert lines_of(human)[1:] == [
        "  BIC-1100 configuration rejected: no master",
        "  fix: give one",
    ]
    assert json.loads(structured.getvalue())["error"] == error.to_json()


def test_a_foreign_error_is_shown_with_its_traceback():
    human, structured = io.StringIO(), io.StringIO()
    try:
        raise OSError("disk gone")
    except OSError as error:
        configure(human)
        log_event(LOGGER, "read_failed", level=logging.ERROR, error=error)
        configure(structured, as_json=True)
        log_event(LOGGER, "read_failed", level=logging.ERROR, error=error)

    assert lines_of(human)[-1] == "OSError: disk gone"
    assert "disk gone" in json.loads(structured.getvalue())["traceback"]


def test_configuring_again_replaces_the_stream():
    first, second = io.StringIO(), io.StringIO()
    configure(first)
    configure(second)

    log_event(LOGGER, "once")

    assert (len(lines_of(first)), len(lines_of(second))) == (0, 1)


def test_the_level_is_that_of_the_runtime_and_others_begin_at_warning():
    stream = io.StringIO()
    configure(stream, level="DEBUG")

    log_event(LOGGER, "detail", level=logging.DEBUG)
    logging.getLogger("somebody.else").info("chatter")
    logging.getLogger("somebody.else").warning("trouble")

    assert [line.split()[2] for line in lines_of(stream)] == ["detail", "trouble"]


def test_what_is_below_the_level_is_not_written():
    stream = io.StringIO()
    configure(stream, level="WARNING")

    log_event(LOGGER, "detail")

    assert lines_of(stream) == []


def test_json_lines_that_name_no_job_get_that_of_the_process():
    stream = io.StringIO()
    configure(stream, as_json=True, job="orders")

    log_event(LOGGER, "state_loaded", operator="sum", epoch=3)
    logging.getLogger("some_library").warning("slow %s", "disk")
    log_event(LOGGER, "told", job="other")

    loaded, foreign, told = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (loaded["job"], loaded["operator"], loaded["epoch"]) == ("orders", "sum", 3)
    assert (foreign["job"], foreign["event"]) == ("orders", "slow disk")
    assert told["job"] == "other"


def test_the_end_of_a_process_is_a_json_line_where_all_lines_are():
    error, stream, text = (
        ConfigError(problem="no master", hint="x\ny"),
        io.StringIO(),
        io.StringIO(),
    )
    configure(stream, as_json=True, job="orders")

    tell_end(error, stream, as_json=True)
    tell_end(error, text, as_json=False)

    [line] = stream.getvalue().splitlines()
    assert json.loads(line)["error"]["code"] == error.code
    assert text.getvalue() == f"{error}\n"
