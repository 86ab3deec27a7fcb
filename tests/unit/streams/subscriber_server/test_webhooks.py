"""Webhooks of the subscriber server: signed, in order, tried again, and given up into a stream."""

import asyncio
import base64
import hashlib
import hmac
import json
import queue
import threading
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from bicycle_sdk.clock import SystemClock
from bicycle_sdk.errors import BicycleError, SecretError
from bicycle_streams import connect
from bicycle_streams.subscriber_server.errors import FILTER_UNREADABLE, WEBHOOKS_UNREADABLE
from bicycle_streams.subscriber_server.figures import SubscriberFigures
from bicycle_streams.subscriber_server.webhooks import (
    Webhook,
    key_of,
    read_webhooks,
    signature_of,
)
from tests.unit.streams.subscriber_server.subscribed import SubscriberServer, ask, run
from tests.waiting import PATIENCE_S

KEY = b"k" * 24
SECRET = f"whsec_{base64.b64encode(KEY).decode()}"


class Receiver:
    """A server that answers as it is told, 200 at last, and checks what it is sent."""

    def __init__(self):
        self.answers = queue.SimpleQueue()  # (code, headers), taken one by one
        self.taken = queue.SimpleQueue()  # (code it answered, id, payload)
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.check(self.headers, body)
                try:
                    code, headers = receiver.answers.get_nowait()
                except queue.Empty:
                    code, headers = 204, {}
                self.send_response(code)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                payload = json.loads(body)["payload"]
                receiver.taken.put((code, self.headers["webhook-id"], payload))

            def log_message(self, format, *args):
                """Requests are checked, and not shown."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"
        self.problems = []

    def check(self, headers, body):
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        digest = hmac.new(KEY, signed, hashlib.sha256).digest()
        if headers["webhook-signature"] != f"v1,{base64.b64encode(digest).decode()}":
            self.problems.append(headers["webhook-signature"])

    def next(self):
        return self.taken.get(timeout=PATIENCE_S)


@contextmanager
def receiving():
    receiver = Receiver()
    thread = threading.Thread(target=receiver.server.serve_forever)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.server.shutdown()
        receiver.server.server_close()
        thread.join()
    assert not receiver.problems


def file_of(folder, url, **more):
    """Write a file of one webhook, and return its path."""
    words = {
        "name": "billing",
        "stream": f"file://{folder}/events.ss/refunds",
        "url": url,
        "secret": "env:HOOK_SECRET",
        "dead_letters": f"file://{folder}/dead.ss/refunds",
        "retry_delay_ms": 10,
        **more,
    }
    lines = [f"{name} = {value if name == 'filter' else json.dumps(value)}"
             for name, value in words.items()]  # fmt: skip
    path = folder / "webhooks.toml"
    path.write_text("\n".join(["[[webhook]]", *lines]))
    return path


def posting(folder, url, **more):
    path = file_of(folder, url, **more)
    return SubscriberServer(folder, "--webhooks", str(path), HOOK_SECRET=SECRET)


@asynccontextmanager
async def producing(folder):
    async with connect(f"file://{folder}/events.ss", {"create": "if-missing"}) as streamer:
        yield await streamer.create_producer("refunds")


async def letters_of(folder):
    async with connect(f"file://{folder}/dead.ss") as streamer:
        consumer = await streamer.create_consumer("refunds", start="earliest", is_live=False)
        return [message.json() async for message in consumer]


def test_messages_are_posted_in_order_and_tried_again_under_the_same_id(tmp_path):
    async def scenario():
        async with producing(tmp_path) as producer:
            with receiving() as receiver, posting(tmp_path, receiver.url):
                for code in (503, 429, 302, 404):
                    receiver.answers.put((code, {"Location": "/other"}))
                producer.send('{"n": 1}')
                await producer.send('{"n": 2}')
                found = [await asyncio.to_thread(receiver.next) for _ in range(6)]
        assert [code for code, _, _ in found] == [503, 429, 302, 404, 204, 204]
        assert [payload["n"] for _, _, payload in found] == [1, 1, 1, 1, 1, 2]
        assert len({name for _, name, _ in found[:5]}) == 1
        assert found[4][1] != found[5][1]

    run(scenario())


def test_what_is_refused_for_good_or_for_too_long_becomes_a_dead_letter(tmp_path):
    async def scenario():
        async with producing(tmp_path) as producer:
            words = {"retry_timeout_ms": 100, "retry_delay_ms": 40}
            with receiving() as receiver, posting(tmp_path, receiver.url, **words):
                receiver.answers.put((422, {}))
                for _ in range(20):
                    receiver.answers.put((500, {}))
                await producer.send('{"n": 1}')
                assert (await asyncio.to_thread(receiver.next))[0] == 422
                await producer.send('{"n": 2}')
                while len(await letters_of(tmp_path)) < 2:
                    await asyncio.sleep(0.02)
                while not receiver.answers.empty():
                    receiver.answers.get()
                await producer.send('{"n": 3}')
                taken = (0, "", {})
                while taken[2] != {"n": 3}:
                    taken = await asyncio.to_thread(receiver.next)
                assert taken[0] == 204
        letters = await letters_of(tmp_path)
        assert [letter["payload"]["n"] for letter in letters] == [1, 2]
        assert [letter["problem"].partition(":")[0] for letter in letters] == ["422", "500"]
        assert letters[0]["attempts"] == 1
        assert letters[1]["attempts"] > 1
        assert letters[1]["header"]["stream_key"] == "refunds"

    run(scenario())


def test_a_server_that_is_killed_goes_on_where_it_was(tmp_path):
    async def scenario():
        async with producing(tmp_path) as producer:
            with receiving() as receiver:
                with posting(tmp_path, receiver.url):
                    await producer.send('{"n": 1}')
                    first = await asyncio.to_thread(receiver.next)
                # While nobody is there; and a receiver that was away.
                await producer.send('{"n": 2}')
            with receiving() as other, posting(tmp_path, other.url) as server:
                second = await asyncio.to_thread(other.next)
                # The position of the first may not have been kept: then it comes again.
                if second[1] == first[1]:
                    second = await asyncio.to_thread(other.next)
                assert second[2] == {"n": 2}
                assert server.end() == 0
            with receiving() as third, posting(tmp_path, third.url):
                await producer.send('{"n": 3}')
                found = await asyncio.to_thread(third.next)
                while found[2] != {"n": 3}:
                    assert found[1] == second[1], "only what was not acknowledged comes again"
                    found = await asyncio.to_thread(third.next)

    run(scenario())


def test_a_receiver_that_is_away_or_silent_is_waited_for(tmp_path):
    async def scenario():
        async with producing(tmp_path) as producer:
            with receiving() as receiver:
                url = receiver.url
            # Nobody listens there now.
            with posting(tmp_path, url, request_timeout_ms=100) as server:
                await producer.send('{"n": 1}')
                while not await unreachable(server):
                    await asyncio.sleep(0.02)
                assert await asyncio.to_thread(server.end) == 0
            with receiving() as receiver, posting(tmp_path, receiver.url):
                assert (await asyncio.to_thread(receiver.next))[2] == {"n": 1}

    run(scenario())


async def unreachable(server):
    _, text = await asyncio.to_thread(ask, server, "/metrics")
    return [line for line in text.splitlines() if 'outcome="unreachable"' in line]


def test_a_filter_chooses_what_is_posted(tmp_path):
    async def scenario():
        async with producing(tmp_path) as producer:
            more = {"filter": '{ country = ["de"] }'}
            with receiving() as receiver, posting(tmp_path, receiver.url, **more):
                for country in ("fr", "de"):
                    await producer.send(json.dumps({"country": country}))
                assert (await asyncio.to_thread(receiver.next))[2] == {"country": "de"}

    run(scenario())


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"url": "ftp://example.org"}, WEBHOOKS_UNREADABLE.code),
        ({"url": "https://ada:secret@example.org/"}, WEBHOOKS_UNREADABLE.code),
        ({"secret": "env:SHORT"}, WEBHOOKS_UNREADABLE.code),
        ({"secret": "env:PLAIN"}, WEBHOOKS_UNREADABLE.code),
        ({"secret": "env:MISSING"}, SecretError.code),
        ({"filter": "{}"}, FILTER_UNREADABLE.code),
        ({"filter": "7"}, WEBHOOKS_UNREADABLE.code),
        ({"options": 7}, WEBHOOKS_UNREADABLE.code),
        ({"name": "a b"}, "BIC-2607"),
        ({"stream": "file://events.ss/"}, "BIC-2605"),
        ({"dead_letters": "nothing://x/y"}, "BIC-2608"),
        ({"pauze_ms": 7}, "BIC-1102"),
        ({"retry_delay_ms": 0}, "BIC-1101"),
    ],
)
def test_a_webhook_that_cannot_be_is_refused_before_the_start(tmp_path, monkeypatch, more, code):
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    monkeypatch.setenv("SHORT", "whsec_c2hvcnQ=")
    monkeypatch.setenv("PLAIN", "x" * 40)

    with pytest.raises(BicycleError) as refusing:
        read_webhooks(file_of(tmp_path, more.pop("url", "https://example.org/"), **more))

    assert refusing.value.code == code
    assert "x" * 40 not in str(refusing.value)


@pytest.mark.parametrize("text", ["= nothing", "", "webhook = 7", "[webhook]\nname = 'a'", "a = 1"])
def test_a_file_without_webhooks_is_refused(tmp_path, text):
    path = tmp_path / "webhooks.toml"
    path.write_text(text)

    with pytest.raises(BicycleError) as refusing:
        read_webhooks(path)

    assert refusing.value.code == WEBHOOKS_UNREADABLE.code


def test_two_webhooks_have_two_names(tmp_path, monkeypatch):
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    path = file_of(tmp_path, "https://example.org/")
    assert [webhook.name for webhook in read_webhooks(path)] == ["billing"]
    path.write_text(path.read_text() + "\n" + path.read_text())

    with pytest.raises(BicycleError) as refusing:
        read_webhooks(path)

    assert refusing.value.code == WEBHOOKS_UNREADABLE.code


def test_a_webhook_whose_stream_has_ended_does_not_end_the_server(tmp_path, monkeypatch):
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    [options] = read_webhooks(file_of(tmp_path, "https://example.org/"))

    async def scenario():
        has_ended = asyncio.Event()

        async def post_to_the_end(_webhook, opened, _pauses):
            opened.set()
            has_ended.set()

        monkeypatch.setattr(Webhook, "_post_all", post_to_the_end)
        webhook = Webhook(options, SubscriberFigures(), SystemClock())
        running = asyncio.create_task(webhook.run(asyncio.Event()))
        await has_ended.wait()
        assert not running.done()
        running.cancel()

    run(scenario())


def test_signatures_are_those_of_the_standard():
    """The example of its specification."""
    key = key_of("whsec_plJ3nmyCDGBKInavdOK15jsl")
    body = b'{"event_type":"ping","data":{"success":true}}'

    assert signature_of(key, "msg_loFOjxBNrRLzqYUf", 1_731_705_121, body) == (
        "v1,rAvfW3dJ/X/qxhsaXPOyyCGmRKsaKWcsNccKXlIktD0="
    )
