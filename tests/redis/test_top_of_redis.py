"""`bicycle stream top` on a real Redis server, which is killed while the page is shown."""

import asyncio
import json

from click.testing import CliRunner

from bicycle_runtime.cli import main
from bicycle_streams import StreamUrl
from bicycle_streams.cli.stream_page import StreamPage
from bicycle_streams.tools.rates import Marks
from bicycle_streams.tools.watching import Watch
from tests.waiting import PATIENCE_S


def test_shards_groups_and_rates_are_told_once(server):
    with server.client as client:
        for number in range(5):
            client.xadd("orders", {"msg": number})
        client.xadd("orders:1", {"msg": 9})
        client.xadd("foreign", {"colour": "red"})
        client.xgroup_create("orders", "billing", "0")
        client.xreadgroup("billing", "ada", {"orders": ">"}, count=2)

    words = ["stream", "top", f"{server.uri}/", "--once", "--json"]
    done = CliRunner().invoke(main, words, prog_name="bicycle")

    assert done.exit_code == 0, done.output
    foreign, orders = json.loads(done.stdout)["streams"]
    assert foreign["error"]["code"] == "BIC-2671"
    assert orders["error"] is None
    assert orders["messages"]["hour"] == 6
    assert [shard["shard_id"] for shard in orders["shards"]] == [0, 1]
    assert (orders["lag"], orders["consumers"], orders["producers"]) == (5, 1, None)


def test_the_page_goes_on_when_the_server_comes_back(server):
    url = StreamUrl.parse(f"{server.uri}/")
    page = StreamPage(
        [Watch(url, {"retry_timeout_ms": 100, "connect_timeout_ms": 1_000}, history_ms=3_600_000)],
        Marks(),
        sort="stream",
        containing="",
    )

    def counts():
        table = page._table
        rows = [table.get_row_at(row) for row in range(table.row_count)]
        return {row[0].plain: row[3].plain for row in rows}

    def add(key):
        with server.client as client:
            client.xadd(key, {"msg": "x"})

    async def scenario():
        async with page.run_test(size=(150, 30)) as pilot:

            async def until(condition, what):
                deadline = asyncio.get_running_loop().time() + PATIENCE_S
                while not condition():
                    assert asyncio.get_running_loop().time() < deadline, f"waited for {what}"
                    await pilot.pause(0.02)
                    page.show_figures()

            add("orders")
            await until(lambda: counts() == {"orders": "1"}, "the stream")
            server.kill()
            await until(lambda: page._watches[0].error is not None, "the error")
            server.start()
            add("orders")
            add("refunds")
            await until(lambda: counts() == {"orders": "2", "refunds": "1"}, "both streams")
            await until(lambda: page._watches[0].error is None, "no error")

    asyncio.run(scenario())
