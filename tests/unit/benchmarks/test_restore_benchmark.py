import asyncio
import sys

import pytest

HOST = "127.0.0.1"
ANSWER = bytes(range(256)) * 2_000  # Some reads long.


@pytest.fixture(scope="module")
def far(load):
    return load("far_storage")


def test_the_benchmark_tells_its_options_and_starts_nothing(load, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["bench_restore", "--help"])

    with pytest.raises(SystemExit) as end:
        load("bench_restore").main()

    told = capsys.readouterr().out
    assert end.value.code == 0
    assert {"--quick", "--keys", "--load-keys"} <= set(told.replace(",", " ").split())


async def spent_on(proxy_of, limits, *, connections, asked):
    """Ask a server behind a proxy over and over; return the seconds that it took."""
    at_work = []

    def tracked(meet):
        def begin(reader, writer):
            at_work.append(asyncio.ensure_future(meet(reader, writer)))

        return begin

    async def answer(reader, writer):
        while await reader.readline():
            writer.write(ANSWER)
            await writer.drain()
        writer.close()
        await writer.wait_closed()

    async def ask(port):
        reader, writer = await asyncio.open_connection(HOST, port)
        for _ in range(asked):
            writer.write(b"please\n")
            assert await reader.readexactly(len(ANSWER)) == ANSWER
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(tracked(answer), HOST, 0) as there:
        proxy = proxy_of(there.sockets[0].getsockname()[1])
        proxy.limits = limits
        async with await asyncio.start_server(tracked(proxy.meet), HOST, 0) as near:
            clock = asyncio.get_running_loop().time
            began = clock()
            port = near.sockets[0].getsockname()[1]
            await asyncio.gather(*(ask(port) for _ in range(connections)))
            spent = clock() - began
            await asyncio.gather(*at_work)
            return spent


def test_each_answer_comes_late_and_whole(far):
    limits = far.Limits(latency_ms=40)
    spent = asyncio.run(spent_on(far.Proxy, limits, connections=2, asked=3))
    assert spent >= 0.12


def test_a_connection_brings_no_more_than_it_may(far):
    limits = far.Limits(mb_per_s=5)  # An answer is a tenth of it.
    spent = asyncio.run(spent_on(far.Proxy, limits, connections=3, asked=2))
    assert spent >= 0.16


def test_without_limits_everything_passes(far):
    asyncio.run(spent_on(far.Proxy, far.Limits(), connections=2, asked=20))
