"""Commands of streams: what goes in comes out, over files and pipes."""

import asyncio
import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
from functools import partial

import pytest

from bicycle_streams import StreamUrl, connect
from bicycle_streams.texts import message_line
from bicycle_streams.tools.errors import LINE_TOO_LONG, PATH_TAKEN
from bicycle_streams.tools.pipes import flux, tap
from tests.unit.cli.stream_calls import COMMAND, call, payloads, refused, told, url
from tests.unit.streams.ss_decoder import decode
from tests.waiting import PATIENCE_S, until


def test_lines_that_are_produced_are_shown(tmp_path):
    path = tmp_path / "new.ss"

    sent = told("produce", url(path, "clicks"), data="ada,/home\r\n\nbob")
    shown = told("cat", url(path, "clicks"))["messages"]

    assert sent == {"sent": 3, "to": url(path, "clicks")}
    assert [message["payload"] for message in shown] == ["ada,/home", "", "bob"]
    assert [message["header"]["sequence"] for message in shown] == [1, 2, 3]


def test_what_is_shown_as_ndjson_can_be_produced_again(tmp_path):
    first, second = tmp_path / "a.ss", tmp_path / "b.ss"
    head = {"stream_key": "b", "shard_id": 3, "timestamp": "2026-03-01T12:00:00"}
    records = [
        {"key": "a", "payload": {"id": 7, "name": "Zoë"}},
        {"key": "b", "payload": "plain"},
        {"payload": '"quoted"'},
        {"payload_base64": "/wA="},
        {"header": head, "payload": 5},
    ]
    lines = "".join(json.dumps(record) + "\n" for record in records)

    told("produce", url(first, "c"), "--format", "ndjson", data=lines)
    shown = call("cat", url(first, "a,b,c"), "--format", "ndjson").stdout
    told("produce", url(second), "--format", "ndjson", data=shown)

    def messages(path):
        return decode(path.read_bytes()).messages

    assert messages(second) == messages(first)
    assert [payload for *_, payload in messages(first)] == [
        b'{"id": 7, "name": "Zo\xc3\xab"}', b"plain", b'"quoted"', b"\xff\x00", b"5",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [
        "7", "no json", '{"key": "a"}', '{"key": 5, "payload": 1}', '{"payload_base64": "é"}',
        '{"payload": 1, "message_key": 5}', '{"payload": 1, "headers": {"trace": "7"}}',
        '{"payload": 1, "headers": [{"value": "7"}]}', '{"payload": "\\ud800"}', "[" * 100_000,
        '{"payload": 1, "headers": [{"name": "\\ud800", "value": "7"}]}',
        '{"payload": 1, "header": {"timestamp": "noon"}}', '{"payload": 1, "key": "a b"}',
    ],
)  # fmt: skip
def test_a_record_that_is_none_is_told_with_its_line(tmp_path, line):
    path = tmp_path / "a.ss"

    code, error, facts = refused(
        "produce", url(path, "a"), "--format", "ndjson", data=f'{{"payload": 1}}\n{line}\n'
    )

    assert (code, error, facts["line"], facts["sent"]) == (1, "BIC-2661", 2, 1)
    assert payloads("cat", url(path, "a")) == ["1"]


def test_a_record_with_a_key_is_refused_by_a_backend_without_keys(tmp_path):
    path = tmp_path / "a.ss"
    lines = '{"payload": 1}\n{"payload": 2, "message_key": "k"}\n'

    assert refused("produce", url(path, "a"), "--format", "ndjson", data=lines)[1] == "BIC-2618"
    assert payloads("cat", url(path, "a")) == ["1"]


def test_the_last_messages_are_shown_or_those_from_a_place_on(numbers):
    stream = url(numbers, "numbers")
    last = told("cat", stream)["messages"][-1]["header"]

    assert payloads("tail", stream) == [str(n) for n in range(11, 21)]
    assert payloads("tail", stream, "-n", "2") == ["19", "20"]
    assert payloads("tail", stream, "--from", "18") == ["18", "19", "20"]
    assert "20" in payloads("tail", stream, "--from", last["timestamp"])
    assert refused("tail", stream, "--from", "21")[:2] == (1, "BIC-2621")
    assert refused("tail", stream, "--from", "yesterday")[:2] == (1, "BIC-2669")
    assert call("tail", stream, "-f", "--json").exit_code == 2


def test_an_address_without_streams_shows_nothing(numbers):
    assert refused("cat", url(numbers))[1] == "BIC-2614"
    assert refused("cat", "numbers")[:2] == (2, "BIC-2602")


def test_options_of_the_backend_are_given_by_name(tmp_path):
    stream = url(tmp_path / "a.ss", "a")

    told("produce", stream, "--set", "beacon_interval_bytes=1024", data="x\n")

    lines = told("decode", "--file", str(tmp_path / "a.ss"))["lines"]
    assert json.loads(lines[0].removeprefix("# "))["beacon_interval"] == 1024
    assert refused("produce", stream, "--set", "create=only", data="x\n")[1] == "BIC-2631"
    assert call("produce", stream, "--set", "colour=red", data="x\n").exit_code == 4


def test_streams_are_copied_with_names_times_and_shards(numbers, tmp_path):
    told("produce", url(numbers, "words"), data="x\ny\n")
    target = tmp_path / "copy.ss"

    sent = told("dump", url(numbers, "numbers,words"), url(target))

    assert sent == {"sent": 22, "to": url(target)}
    original, copy = (decode(path.read_bytes()).messages for path in (numbers, target))
    assert copy == original
    told("dump", url(numbers, "numbers"), url(target, "renamed"))
    assert payloads("cat", url(target, "renamed")) == [str(n) for n in range(1, 21)]


def test_a_relay_between_pipes_renames_streams(tmp_path):
    words = [*COMMAND, "relay"]
    words += ["--input", "stdio:///a,b", "--output", "stdio:///c"]
    lines = "[2026-03-01T12:00:00 | a | 7] x\n[b] y\n[d] z\n"

    done = subprocess.run(words, input=lines, capture_output=True, text=True, check=True)

    shown = [line.split("] ") for line in done.stdout.splitlines()]
    assert [payload for _, payload in shown] == ["x", "y"]
    assert shown[0][0] == "[2026-03-01T12:00:00.000 | c | 0 | 0"
    assert done.stderr == "2 messages to stdio:///c\n"


def test_a_clock_ticks_as_often_as_it_is_told(tmp_path):
    stream = url(tmp_path / "a.ss", "ticks")

    assert told("clock", "--stream", stream, "--interval", "1us", "--count", "3")["sent"] == 3
    assert payloads("cat", stream) == ['{"tick":0}', '{"tick":1}', '{"tick":2}']
    assert call("clock", "--stream", stream, "--interval", "0s").exit_code == 2


def test_a_clock_that_is_stopped_has_sent_what_it_counted(tmp_path):
    path = tmp_path / "a.ss"
    words = [*COMMAND, "clock", "--interval", "1ms"]
    process = subprocess.Popen(
        [*words, "--stream", url(path, "ticks"), "--json"], stdout=subprocess.PIPE
    )

    until(lambda: path.exists() and path.stat().st_size > 200, "ticks in the file")
    process.send_signal(signal.SIGTERM)
    answer = json.loads(process.communicate(timeout=PATIENCE_S)[0])

    assert process.returncode == 0
    assert answer["sent"] == len(decode(path.read_bytes()).messages) > 0


def test_damage_is_found_and_left_out(numbers, tmp_path):
    clean = tmp_path / "clean.ss"
    data = bytearray(numbers.read_bytes())
    data[-4] ^= 1  # In the last payload.
    numbers.write_bytes(data)

    found = call("verify", str(numbers), "--json")
    told_again = told("repair", str(numbers), "--output", str(clean))

    broken = json.loads(found.stdout)["broken"]
    assert (found.exit_code, [each["sequence"] for each in broken]) == (1, [20])
    assert (told_again["message_count"], told_again["broken"]) == (19, broken)
    assert told("verify", str(clean))["is_intact"]
    assert refused("repair", str(numbers), "--output", str(clean))[1] == "BIC-2631"
    assert "damaged places: 1" in call("verify", str(numbers)).stdout


def test_a_number_that_does_not_follow_is_shown(numbers):
    data = bytearray(numbers.read_bytes())
    data[-18] ^= 64  # The lowest byte of the last number, before time, size, payload, checksum.
    numbers.write_bytes(data)

    shown = call("verify", str(numbers))

    assert (shown.exit_code, "gaps in sequences: 1" in shown.stdout) == (0, True)
    assert [each["sequence"] for each in told("verify", str(numbers))["gaps"]] == [84]


def test_a_file_is_decoded_in_order_with_its_beacons(tmp_path):
    path = tmp_path / "a.ss"
    told("produce", url(path, "a"), "--set", "beacon_interval_bytes=1024", data="x" * 1500 + "\n")
    told("produce", url(path, "a"), data="\x1b[2J\n")

    lines = call("decode", "--file", str(path)).stdout.splitlines()
    short = call("decode", "--file", str(path), "--format", "ndjson", "--header-only").stdout

    assert [line[:1] for line in lines] == ["#", "[", "#", "["]
    assert lines[3].endswith("<BINARY BLOB>")
    assert json.loads(short.splitlines()[1]) == {
        "header": told("cat", url(path, "a"))["messages"][0]["header"]
    }


@pytest.mark.parametrize("end", [-1, 100])
def test_a_file_that_was_cut_is_decoded_up_to_there(numbers, end):
    numbers.write_bytes(numbers.read_bytes()[:end])

    done = call("decode", "--file", str(numbers))

    messages = [line for line in done.stdout.splitlines() if line.startswith("[")]
    assert (done.exit_code, len(messages)) == (1, 19 if end == -1 else 0)
    assert "BIC-2639" in done.stderr


def written(path, key):
    return [payload for name, *_, payload in decode(path.read_bytes()).messages if name == key]


async def existing(path):
    while not path.exists():
        await asyncio.sleep(0.001)


async def stopped(task):
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


def test_lines_written_into_a_named_pipe_are_sent(tmp_path):
    path, pipe = tmp_path / "a.ss", tmp_path / "pipe"

    async def scenario():
        task = asyncio.create_task(flux(pipe, StreamUrl.parse(url(path, "a")), {}))
        await existing(pipe)
        await asyncio.to_thread(pipe.write_bytes, b"first\r\nsecond\nun")
        await asyncio.to_thread(pipe.write_bytes, b"broken\nrest")
        while len(written(path, "a")) < 3:
            await asyncio.sleep(0.001)
        await stopped(task)

    asyncio.run(scenario())

    assert written(path, "a") == [b"first", b"second", b"unbroken", b"rest"]
    assert not pipe.exists()


def test_who_reads_a_named_pipe_gets_messages_however_many(tmp_path, numbers):
    pipe = tmp_path / "pipe"
    line = partial(message_line, form="raw")

    async def scenario():
        address = StreamUrl.parse(url(numbers, "numbers,more"))
        task = asyncio.create_task(tap(pipe, address, {}, start="earliest", line=line))
        await existing(pipe)
        async with connect(address) as streamer:  # More than a pipe holds.
            (await streamer.create_producer("more")).send_many([b"x" * 99_999] * 2)
        with await asyncio.to_thread(pipe.open, "rb") as reader:
            lines = [await asyncio.to_thread(reader.readline) for _ in range(22)]
        await stopped(task)
        return lines

    lines = asyncio.run(scenario())

    assert lines == [b"%d\n" % n for n in range(1, 21)] + [b"x" * 99_999 + b"\n"] * 2
    assert not pipe.exists()


def test_a_pipe_of_streams_that_ended_stays_until_it_was_read(tmp_path):
    path, pipe = tmp_path / "a.ss", tmp_path / "pipe"
    told("produce", url(path, "a"), "--set", "end_with_eos=true", data="1\n2\n")
    line = partial(message_line, form="raw")

    async def scenario():
        address = StreamUrl.parse(url(path, "a"))
        task = asyncio.create_task(tap(pipe, address, {}, start="earliest", line=line))
        await existing(pipe)
        while not task.done() and not pipe_bytes(pipe):
            await asyncio.sleep(0.001)
        assert not task.done()
        data = await asyncio.to_thread(pipe.read_bytes)
        await task
        return data

    assert asyncio.run(scenario()) == b"1\n2\n"
    assert not pipe.exists()


def pipe_bytes(pipe):
    """Return how much lies in a named pipe."""
    descriptor = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        return int.from_bytes(fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)), sys.byteorder)
    finally:
        os.close(descriptor)


def test_what_somebody_put_in_place_of_a_pipe_stays(tmp_path):
    pipe = tmp_path / "pipe"

    async def scenario():
        task = asyncio.create_task(flux(pipe, StreamUrl.parse(url(tmp_path / "a.ss", "a")), {}))
        await existing(pipe)
        pipe.unlink()
        pipe.write_text("of somebody else")
        await stopped(task)

    asyncio.run(scenario())
    assert pipe.read_text() == "of somebody else"


def test_a_named_pipe_takes_no_place_that_is_taken(numbers, tmp_path):
    words = ("flux", str(numbers), "--stream", url(tmp_path / "a.ss", "a"))

    assert refused(*words)[:2] == (4, PATH_TAKEN.code)
    assert numbers.stat().st_size > 0


def test_a_line_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("bicycle_streams.tools.pipes._LINE_SIZE_MAX", 10)
    pipe = tmp_path / "pipe"

    async def scenario():
        address = StreamUrl.parse(url(tmp_path / "a.ss", "a"))
        task = asyncio.create_task(flux(pipe, address, {}))
        await existing(pipe)
        descriptor = os.open(pipe, os.O_WRONLY)
        os.write(descriptor, b"more than ten")
        os.close(descriptor)
        await asyncio.wait([task])
        return task.exception()

    assert asyncio.run(scenario()).code == LINE_TOO_LONG.code


def test_following_shows_each_message_once(tmp_path, numbers):
    words = [*COMMAND, "tail", "-f", "-n", "2"]
    process = subprocess.Popen(
        [*words, url(numbers, "numbers"), "--format", "raw"], stdout=subprocess.PIPE
    )
    first = [process.stdout.readline() for _ in range(2)]
    call("produce", url(numbers, "numbers"), data="21\n22\n")
    later = [process.stdout.readline() for _ in range(2)]
    process.send_signal(signal.SIGINT)
    rest = process.communicate(timeout=PATIENCE_S)[0]

    assert (first, later, rest) == ([b"19\n", b"20\n"], [b"21\n", b"22\n"], b"")
    assert process.returncode == 0


def test_a_backend_that_keeps_nothing_has_no_topics():
    code, error, _ = refused("topics", "list", "stdio:///")
    assert (code, error) == (4, "BIC-2618")
