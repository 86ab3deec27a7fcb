"""The process of a home's service: ``bicycle_runtime.service_process.main``.

DOORS is JSON with the fields of ``Doors``.

It writes ``<home>/service/address.json`` once it answers, and removes it when it ends.
"""

from __future__ import annotations

import asyncio
import dataclasses
import faulthandler
import functools
import gc
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from ssl import SSLContext

from bicycle_runtime.api.application import build_application
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.service.address import address_file, write_address
from bicycle_runtime.service.service import Service
from bicycle_runtime.service_process.http_server import serve
from bicycle_runtime.service_process.interfaces import load_routes_and_pages
from bicycle_runtime.webui.rendering import Site
from bicycle_runtime.webui.site import page_routes
from bicycle_sdk.clock import SystemClock
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.logging import configure
from bicycle_streams.access.accepting import ListeningSocket
from bicycle_streams.access.addresses import hosts_of, is_loopback, listen, require_safe
from bicycle_streams.access.authentication import Authenticator
from bicycle_streams.access.doors import Doors, missing_of
from bicycle_streams.access.limits import LimitOptions, Limits

_DOORS = Doors()
_GARBAGE_LIMITS = (10_000, 20, 100)
_TURN_S = 0.001  # An answer's wait for the thread that looks at jobs; Python's default is 5 ms.


def run_service(home: Home, *, host: str, port: int, doors: Doors = _DOORS) -> None:
    """Serve a home until a signal requests the end. No job is ended by it.

    Raises:
        ADDRESS_REFUSED: others could reach an address; nothing was started.
        ADDRESS_TAKEN: the address cannot be listened on.
        TLS_INCOMPLETE: an option for TLS lacks the one that belongs to it.
        TLS_UNUSABLE: a certificate or key cannot be used.
        SERVICE_RUNNING: another process serves the home.
        DATABASE_UNUSABLE: its databases cannot be used.
    """
    context = doors.context()
    if not is_loopback(host, port):
        doors = dataclasses.replace(doors, needs_login=True)
    missing = missing_of(home.path, doors)
    if doors.grpc_port is not None:
        require_safe(host, doors.grpc_port, missing=missing)
    with listen(host, port, missing=missing) as listener:
        asyncio.run(_serve(home, listener, host, doors=doors, context=context))


async def _serve(
    home: Home, listener: ListeningSocket, host: str, *, doors: Doors, context: SSLContext | None
) -> None:
    hosts = hosts_of(listener, host, names=doors.names, is_tls=context is not None)
    url = f"{'http' if context is None else 'https'}://{hosts[0]}"

    def tell(grpc: str | None) -> None:
        is_open = not doors.needs_login and context is None
        write_address(home, url, is_open=is_open, grpc=grpc)
        sys.stdout.write(f"{url}\n")
        sys.stdout.flush()

    with Service(
        home, clock=SystemClock(), slots=doors.slots, database=doors.database_server
    ) as service:  # fmt: skip
        service.fleet.attach(asyncio.get_running_loop())
        authenticator = Authenticator(
            service.tokens, service.sessions, needs_login=doors.needs_login, clients=doors.clients
        )
        limits = Limits(LimitOptions())
        routes, pages = load_routes_and_pages()
        site = Site(service, pages)
        app = build_application(
            service, hosts=hosts, authenticator=authenticator, limits=limits,
            routes=routes, pages=page_routes(site),
            missing=functools.partial(site.refusal, status=404),
        )  # fmt: skip
        try:
            async with _rpc(
                service, host, doors=doors, authenticator=authenticator, limits=limits
            ) as grpc:
                ready = functools.partial(tell, grpc)
                await serve(app, listener, closing=service.closing, on_ready=ready, context=context)
        finally:
            service.closing.set()
            with suppress(FileNotFoundError):
                address_file(home).unlink()


@asynccontextmanager
async def _rpc(
    service: Service, host: str, *, doors: Doors, authenticator: Authenticator, limits: Limits
) -> AsyncIterator[str | None]:
    """Serve gRPC inside the block, if requested; yield its address."""
    if doors.grpc_port is None:
        yield None
        return
    # 16 MB of memory, and needed only with gRPC.
    from bicycle_runtime.service_process.rpc import serve_rpc

    async with serve_rpc(
        service, host, doors=doors, authenticator=authenticator, limits=limits
    ) as address:
        yield address


def keep_pauses_short() -> None:
    """Limit the pauses of this process' threads, which a busy machine prolongs.

    A full collection would look at every module, and at each job twice a minute: some 50 ms.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GARBAGE_LIMITS)
    sys.setswitchinterval(_TURN_S)


def main(arguments: list[str]) -> int:
    """Run the process."""
    keep_pauses_short()
    home, host, port, *more = arguments
    doors = Doors(**json.loads(more[0])) if more else Doors()
    configure(sys.stderr)
    try:
        run_service(Home(Path(home)), host=host, port=int(port), doors=doors)
    except BicycleError as error:
        sys.stderr.write(json.dumps(error.to_json()) + "\n")
        return 1
    return 0


if __name__ == "__main__":
    faulthandler.enable()  # Before a fault of a library ends the process, the log gets its stacks.
    sys.exit(main(sys.argv[1:]))
