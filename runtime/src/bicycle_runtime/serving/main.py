"""``python -m bicycle_runtime.serving.main HOME HOST PORT``: the process that serves a home.

It writes ``<home>/service/address.json`` once it answers, and removes it when it ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path

from bicycle_runtime.api.application import build_application
from bicycle_runtime.base.clock import SystemClock
from bicycle_runtime.base.files import replace_file
from bicycle_runtime.base.logging import configure
from bicycle_runtime.base.processes import start_ticks
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.service.address import service_folder
from bicycle_runtime.service.service import Service
from bicycle_runtime.serving.addresses import hosts_of, listen
from bicycle_runtime.serving.server import serve
from bicycle_runtime.webui.site import page_routes
from bicycle_sdk.errors import BicycleError

__all__ = ["main", "run_service"]


def run_service(home: Home, *, host: str, port: int) -> None:
    """Serve a home until a signal says to end. No job is ended by it.

    Raises:
        ADDRESS_REFUSED: others could reach the address; nothing was started.
        ADDRESS_TAKEN: the address cannot be listened on.
        SERVICE_RUNNING: another process serves the home.
        DATABASE_UNUSABLE: its databases cannot be used.
    """
    with listen(host, port) as listener:
        asyncio.run(_serve(home, listener, host))


async def _serve(home: Home, listener: socket.socket, host: str) -> None:
    hosts = hosts_of(listener, host)
    address = service_folder(home) / "address.json"
    own = os.getpid()
    url = f"http://{hosts[0]}"

    def tell() -> None:
        facts = {"url": url, "pid": own, "started": start_ticks(own)}
        replace_file(address, json.dumps(facts).encode())
        sys.stdout.write(f"{url}\n")
        sys.stdout.flush()

    with Service(home, clock=SystemClock()) as service:
        service.fleet.attach(asyncio.get_running_loop())
        app = build_application(service, hosts=hosts, pages=page_routes(service))
        try:
            await serve(app, listener, closing=service.closing, on_ready=tell)
        finally:
            service.closing.set()
            with suppress(FileNotFoundError):
                address.unlink()


def main(arguments: list[str]) -> int:
    """Be the process."""
    home, host, port = arguments
    configure(sys.stderr)
    try:
        run_service(Home(Path(home)), host=host, port=int(port))
    except BicycleError as error:
        sys.stderr.write(json.dumps(error.to_json()) + "\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
