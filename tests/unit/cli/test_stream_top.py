"""`bicycle stream top`: figures of a real file of streams, once and on the page."""

import asyncio
import json
import os
import signal
import sys

import pytest
from click.testing import CliRunner

from bicycle_runtime.cli import main
from bicycle_sdk.clock import ManualClock
from bicycle_streams import StreamUrl, connect
from bicycle_streams.cli.stream_page import StreamPage
from bicycle_streams.tools.rates import Marks, Rates
from bicycle_streams.tools.watching import Watch
from tests.waiting import PATIENCE_S

NOW_MS = 1_790_000_000_000


def call(*words):
    return CliRunner().invoke(main, ["stream", "top", *words], prog_name="bicycle")


def url(path, keys=""):
    return StreamUrl.parse(f"file://{path}/{keys}")


async def send(path, key, ages_s, size=10):
    """Send messages that are so old, at NOW_MS."""
    async with connect(url(path), {"create": "if-missing"}) as streamer:
        producer = await streamer.create_producer(key)
        for age_s in ages_s:
            producer.send(b"x" * size, timestamp_ms=NOW_MS - round(1_000 * age_s))
        await producer.flush()


@pytest.fixture
def events(tmp_path):
    """Return a file: `busy` bursts, `calm` goes on, `old` is over."""
    path = tmp_path / "events.ss"

    async def fill():
        await send(path, "old", [7_000, 3_599, 90])
        await send(path, "calm", range(59, 0, -2), size=100)
        await send(path, "busy", [50, 40] + [0.9] * 20)

    asyncio.run(fill())
    return path


def watch(path, keys="", **options):
    return Watch(
        url(path, keys), {}, **{"history_ms": 3_600_000, "clock": ManualClock(NOW_MS), **options}
    )


def figures(one):
    return {each.key: each for each in one.figures(Marks())}


def test_messages_and_bytes_are_counted_by_their_times(events):
    one = watch(events)
    asyncio.run(one.once())
    found = figures(one)

    assert list(found) == ["busy", "calm", "old"]
    assert [(f.messages.second, f.messages.minute, f.messages.hour) for f in found.values()] == [
        (20, 22, 22),
        (1, 30, 30),
        (0, 0, 2),
    ]
    assert found["calm"].sizes.minute == 3_000
    assert [f.marks for f in found.values()] == [("bursting",), (), ("stale",)]
    assert [f.age_ms for f in found.values()] == [900, 1_000, 90_000]
    assert found["old"].latest.sequence == 3


def test_the_latest_message_is_known_when_it_is_older_than_what_is_counted(events):
    one = watch(events, "old", history_ms=0)
    asyncio.run(one.once())
    [old] = one.figures(Marks())
    assert (old.messages.hour, old.latest.sequence, old.age_ms) == (0, 3, 90_000)


def test_counting_takes_no_more_room_with_time():
    rates = Rates()
    for second in range(100_000):
        rates.add(second * 1_000, 1)
    assert rates.messages(now_ms=99_999_000).hour == 3_600
    assert len(rates._seconds) == 3_600


def test_groups_with_their_lag_and_a_producer_are_told(events):
    async def scenario():
        async with connect(url(events)) as streamer:
            consumer = await streamer.create_consumer(
                "calm", mode="resumable", group="billing", start="earliest"
            )
            for _ in range(10):
                consumer.ack(await consumer.next())
            await consumer.commit()
            producer = await streamer.create_producer("calm")
            await producer.send("one more", timestamp_ms=NOW_MS)
            one = watch(events, "calm")
            await one.once()
            return one.figures(Marks())[0]

    calm = asyncio.run(scenario())
    assert (calm.lag, calm.info.groups[0].name) == (21, "billing")
    assert calm.producer_count == (1 if sys.platform == "linux" else None)


def test_the_figures_are_one_document(events):
    done = call(str(url(events)), "--once", "--json", "--sort", "stream")
    assert done.exit_code == 0, done.output
    shown = json.loads(done.stdout)
    names = [each["stream"] for each in shown["streams"]]
    assert names == [str(url(events, key)) for key in ("busy", "calm", "old")]
    assert shown["streams"][1]["latest"]["header"]["sequence"] == 30
    assert shown["streams"][1]["shards"][0]["last_sequence"] == 30

    text = call(str(url(events)), "--once", "--filter", "old").stdout
    assert "old" in text
    assert "busy" not in text


def test_what_has_no_figures_is_told(events, tmp_path):
    def refused(*words):
        done = call(*words, "--json")
        return done.exit_code, json.loads(done.stdout)["code"]

    assert refused("stdio:///a", "--once") == (2, "BIC-2668")
    assert refused(str(url(tmp_path / "none.ss")), "--once") == (1, "BIC-2630")
    assert refused(str(url(events)))[0] == 2
    assert refused(str(url(events)), "--once", "--history", "2h")[0] == 2


def test_a_stream_without_messages_is_stale(tmp_path):
    asyncio.run(send(tmp_path / "a.ss", "there", [5]))
    one = watch(tmp_path / "a.ss", "there,missing")
    asyncio.run(one.once())
    found = figures(one)
    assert (found["missing"].marks, found["missing"].info) == (("stale",), None)


async def settled(pilot, condition, what):
    """Wait until the page shows something."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_S
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, f"waited for {what}"
        await pilot.pause(0.02)
        pilot.app.show_figures()


def names(app):
    table = app._table
    return [table.get_row_at(row)[0].plain for row in range(table.row_count)]


@pytest.fixture
def page(events):
    return StreamPage([watch(events)], Marks(), sort="stream", containing="")


def on_page(page, scenario):
    async def run():
        async with page.run_test(size=(150, 30)) as pilot:
            await settled(pilot, lambda: "30" in row_text(page, "calm"), "the figures")
            await scenario(pilot)

    asyncio.run(run())


def row_text(page, key):
    table = page._table
    rows = [table.get_row_at(row) for row in range(table.row_count)]
    return next((" | ".join(cell.plain for cell in row) for row in rows if row[0].plain == key), "")


def test_the_page_shows_streams_with_marks_and_goes_on(events, page):
    async def scenario(pilot):
        assert names(page) == ["busy", "calm", "old"]
        assert "bursting" in row_text(page, "busy")
        assert "stale" in row_text(page, "old")
        await send(events, "calm", [0.5] * 5)
        await settled(pilot, lambda: "| 35 |" in row_text(page, "calm"), "what came")
        await send(events, "brand-new", [1])
        await settled(pilot, lambda: "brand-new" in names(page), "a stream that came to be")

    on_page(page, scenario)


def test_the_page_is_sorted_and_filtered(page):
    async def scenario(pilot):
        await pilot.press("s", "s")  # msg/s, msg/min
        assert names(page) == ["calm", "busy", "old"]
        await pilot.press("r")
        assert names(page) == ["old", "busy", "calm"]
        await pilot.press("slash", *"ca")
        assert names(page) == ["calm"]
        await pilot.press("backspace", "backspace", "enter")
        assert len(names(page)) == 3
        assert page.focused is page._table

    on_page(page, scenario)


def test_one_stream_is_shown_from_near(page):
    async def scenario(pilot):
        await pilot.press("down", "enter")
        await settled(pilot, lambda: len(page.screen_stack) == 2, "the stream")
        shown = page.export_screenshot()
        for text in ("calm", "shards", "latest", "| 30 | 0]".replace(" ", "&#160;")):
            assert text in shown
        await pilot.press("escape")
        assert len(page.screen_stack) == 1
        await pilot.press("q")

    on_page(page, scenario)


@pytest.mark.parametrize("way", ["q", "ctrl+c", "SIGTERM"])
def test_the_page_is_left(page, way):
    async def scenario(pilot):
        if way == "SIGTERM":
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            await pilot.press("slash", *"ca", "enter", way)
        while page.is_running:
            await asyncio.sleep(0.01)

    on_page(page, scenario)
    assert page.return_code == 0


def test_a_page_that_is_left_draws_no_more(page):
    async def scenario(pilot):
        await page.query("#streams").remove()  # As leaving it does, before its clock has stopped.
        page.show_figures()

    on_page(page, scenario)
    page.show_figures()


def test_a_place_that_is_away_is_told_and_comes_back(events, tmp_path):
    page = StreamPage(
        [watch(events), watch(tmp_path / "later.ss")], Marks(), sort="stream", containing=""
    )

    async def scenario(pilot):
        problem = page.query_one("#problem")
        await settled(pilot, lambda: "BIC-2630" in str(problem.render()), "the error")
        await send(tmp_path / "later.ss", "first", [1])
        await settled(pilot, lambda: "first" in names(page), "the place")
        await settled(pilot, lambda: "BIC" not in str(problem.render()), "no error")

    on_page(page, scenario)
