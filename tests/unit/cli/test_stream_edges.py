"""Commands of streams at their edges: closed inputs, full outputs, odd times, itself as output."""

import json
import os
import signal
import subprocess

import pytest

from bicycle_streams import connect
from tests.unit.cli.stream_calls import COMMAND, call, payloads, refused, told, url
from tests.unit.streams.ss_decoder import decode
from tests.waiting import PATIENCE_S, until


@pytest.mark.parametrize(
    "header", [{"shard_id": -1}, {"shard_id": 1 << 64}, {"timestamp": "1969-12-31T23:59:59.999"}]
)
def test_a_shard_or_time_that_is_none_is_told_and_what_came_before_is_sent(tmp_path, header):
    path = tmp_path / "a.ss"
    lines = f'{{"payload": 1}}\n{json.dumps({"payload": 2, "header": header})}\n'

    assert refused("produce", url(path, "a"), "--format", "ndjson", data=lines)[1] == "BIC-2657"
    assert payloads("cat", url(path, "a")) == ["1"]


def ended(shell, *words):
    """Run a command with what a shell says behind it; give its exit code and its error."""
    whole = ["sh", "-c", f'exec "$@" {shell}', "-", *COMMAND, *words]
    done = subprocess.run(whole, capture_output=True, check=False, timeout=PATIENCE_S, text=True)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr.partition("BIC-")[2][:4]


def test_a_standard_input_or_output_that_is_closed_is_told(numbers):
    stream = url(numbers, "numbers")

    assert ended("<&-", "produce", stream) == (1, "2656")
    assert ended("<&-", "relay", "--input", "stdio:///a", "--output", stream) == (1, "2656")
    assert ended(">&-", "cat", stream) == (1, "2658")
    assert ended(">&-", "dump", stream, "stdio:///a") == (1, "2658")


def test_an_output_that_takes_nothing_is_told(numbers):
    stream = url(numbers, "numbers")

    assert ended("> /dev/full", "cat", stream) == (6, "2015")
    assert ended("> /dev/full", "decode", "--file", str(numbers)) == (6, "2015")
    assert ended("> /dev/full", "topics", "list", url(numbers)) == (6, "2015")


def test_a_page_without_a_terminal_is_refused(numbers):
    assert ended("", "top", url(numbers)) == (2, "2016")


@pytest.mark.parametrize("command", ["cat", "tail", "dump"])
def test_a_stream_that_is_not_there_is_told_with_those_that_are(numbers, tmp_path, command):
    words = (url(tmp_path / "b.ss"),) if command == "dump" else ()

    code, error, facts = refused(command, url(numbers, "numbers,nummers"), *words)

    assert (code, error) == (4, "BIC-2664")
    assert (facts["key"], facts["known_text"]) == ("nummers", "numbers")


def test_a_folder_that_is_missing_is_told(tmp_path):
    code, error, facts = refused("produce", url(tmp_path / "none" / "a.ss", "a"), data="1\n")

    assert (code, error, facts["reason"]) == (
        1,
        "BIC-2632",
        f"folder {tmp_path}/none does not exist",
    )


def test_a_line_of_many_megabytes_is_sent_whole(tmp_path):
    line = "x" * (32 << 20)

    assert told("produce", url(tmp_path / "a.ss", "a"), data=f"{line}\nend")["sent"] == 2
    assert payloads("cat", url(tmp_path / "a.ss", "a")) == [line, "end"]


def test_a_place_to_begin_is_refused_where_nothing_is_kept():
    assert refused("tail", "stdio:///a", "--from", "5")[:2] == (4, "BIC-2618")


def test_positions_before_the_first_message_and_behind_any_are_understood(numbers):
    stream = url(numbers, "numbers")

    for begin in ("0", "0001-01-01"):
        assert len(payloads("tail", stream, "--from", begin)) == 20
    for begin in (str(1 << 200), "9999-12-31", "+500000000-01-01"):
        assert refused("tail", stream, "--from", begin)[:2] == (1, "BIC-2621")


@pytest.mark.parametrize("keys", ["numbers", ""])
@pytest.mark.parametrize("way", ["{0}/{1}", "{0}/./{1}", "{0}/../{0.name}/{1}", "{0}/link.ss"])
def test_a_stream_is_not_copied_to_itself_however_its_place_is_written(numbers, keys, way):
    (numbers.parent / "link.ss").symlink_to(numbers)
    target = url(way.format(numbers.parent, numbers.name), keys)

    for words in (
        ("relay", "--input", url(numbers, "numbers"), "--output"),
        ("dump", url(numbers, "numbers")),
    ):
        assert refused(*words, target)[:2] == (2, "BIC-2660")
    assert len(decode(numbers.read_bytes()).messages) == 20


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("redis://localhost", "redis://127.0.0.1:6379", True),
        ("redis://a", "redis://a?db", False),
        ("kafka://a:1,b:1", "kafka://b:1,a:1", True),
        ("kafka://localhost", "kafka://127.0.0.1:9092", True),
        ("kafka://localhosts:9092", "kafka://127.0.0.1:9092", False),
        ("ws://[::1]:1/a", "ws://localhost:1/a", True),
        ("ws://h:1/a", "ws://h:1/b", False),
        ("redis://h", "rediss://h", False),
    ],
)
def test_places_are_compared_however_they_are_written(one, other, is_same):
    first, second = (
        connect(uri.removesuffix("?db"), {"db": "1"} if uri.endswith("?db") else {})
        for uri in (one, other)
    )
    assert (first.identity == second.identity) is is_same


def test_half_of_a_copy_is_no_success(tmp_path):
    """What is interrupted has sent what it told, and its exit code says that there is more."""
    path = tmp_path / "a.ss"
    words = [*COMMAND, "produce", url(path, "a"), "--json"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdin.write(b"1\n2\n")
        process.stdin.flush()
        until(lambda: path.exists() and len(decode(path.read_bytes()).messages) == 2, "both")
        process.send_signal(signal.SIGTERM)
        answer = json.loads(process.stdout.read())

    assert (process.returncode, answer["sent"]) == (130, 2)


def test_a_time_that_damage_made_is_shown(numbers):
    """Nothing of the format covers the head of a message, so that its time may be any."""
    data = bytearray(numbers.read_bytes())
    data[-17] ^= 0x80  # The highest byte of the last time, before size, payload and checksum.
    numbers.write_bytes(data)

    for words in (("cat", url(numbers, "numbers")), ("decode", "--file", str(numbers))):
        done = call(*words)
        assert (done.exit_code, "T" in done.stdout.splitlines()[-1]) == (0, True)
        assert "[+29" in done.stdout
    assert told("top", url(numbers, ""), "--once")["streams"][0]["latest_time"].startswith("+29")
    code, error, facts = refused("dump", url(numbers, "numbers"), url(numbers.with_name("b.ss")))
    assert (code, error, facts["timestamp_ms"] >> 63) == (1, "BIC-2657", 1)


def test_a_pipe_is_no_file_of_streams_and_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.ss")

    assert refused("cat", url(tmp_path / "pipe.ss", "a"))[:2] == (1, "BIC-2632")
    assert refused("verify", str(tmp_path / "pipe.ss"))[:2] == (1, "BIC-2632")
