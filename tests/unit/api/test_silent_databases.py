"""A database of tokens that does not respond: requests without a token are answered meanwhile."""

import asyncio
import socket

from bicycle_runtime.jobs.home import Home
from bicycle_runtime.service.service import Service
from bicycle_sdk.clock import SystemClock
from bicycle_streams.access.control import CONTROL
from bicycle_streams.access.database import DatabaseServer
from bicycle_streams.access.postgres import PostgresDatabase
from bicycle_streams.access.tokens import Tokens
from tests.unit.api.asking import Asked

TOKEN = f"bic_{'0' * 12}_{'x' * 43}"


def test_health_is_answered_while_the_database_of_tokens_does_not_respond(tmp_path):
    with (
        asyncio.Runner() as runner,
        Service(Home(tmp_path / "home"), clock=SystemClock()) as service,
        socket.create_server(("127.0.0.1", 0)) as silent,
    ):
        silent.setblocking(False)
        url = f"postgresql://127.0.0.1:{silent.getsockname()[1]}/bicycle?sslmode=disable"
        database = PostgresDatabase(
            DatabaseServer(url=url), CONTROL, name="control", is_owned=False
        )
        service.fleet.attach(runner.get_loop())
        service.tokens = Tokens(database, service.clock)
        asked = Asked(service, runner, needs_login=True)

        async def ask_both():
            with_token = asyncio.ensure_future(
                asked.ask("GET", "/api/v1/jobs", authorization=f"Bearer {TOKEN}")
            )
            connection, _ = await asyncio.get_running_loop().sock_accept(silent)
            with connection:
                without = await asked.ask("GET", "/health")
                is_waiting = not with_token.done()
            return without.code, is_waiting, (await with_token).code

        assert runner.run(ask_both()) == (200, True, 503)
