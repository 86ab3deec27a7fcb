"""Standalone Spark masters, read from the JSON of their status pages."""

from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from bicycle_sdk.clock import Clock

_SUCCESS = 200
_BYTES_MAX = 16 << 20
_SCHEME = "spark://"
_PAGE_PORT = 8_080  # The default port of a master's page.
_KEPT_MS = 15_000
_TIMEOUT_S = 2.0


def master_status(host: str, port: int, *, timeout_s: float) -> dict[str, Any]:
    """Return a master's ``url``, ``status``, ``cores`` of live workers, ``workers``.

    Proxies are not used, and redirections are not followed.

    Args:
        host: Host of the page of the master.
        port: Port of this page.
        timeout_s: Time limit of one step, such as connecting, in seconds.

    Raises:
        OSError: the master does not respond.
        ValueError: the response is not a JSON object.
    """
    with contextlib.closing(http.client.HTTPConnection(host, port, timeout=timeout_s)) as page:
        try:
            page.request("GET", "/json/")
            answer = page.getresponse()
            data = json.loads(answer.read(_BYTES_MAX)) if answer.status == _SUCCESS else {}
        except http.client.HTTPException as error:
            raise OSError(f"{type(error).__name__}: {error}") from error
    if not isinstance(data, dict):
        raise ValueError("it is not an object")
    return data


class Masters:
    """The cores of masters, each read at most every 15 s, for one thread. For one thread.

    Args:
        clock: The time of day.
        pages: Address of the page, ``http://HOST:PORT``, by master URL; of others it is
            looked for on port 8080 of the host.
    """

    def __init__(self, clock: Clock, pages: Mapping[str, str]) -> None:
        self._clock = clock
        self._pages = pages
        self._told: dict[str, tuple[int, int | None]] = {}

    def cores(self, master: str) -> int | None:
        """Return the cores of the live workers, or None without a master's response."""
        if not master.startswith(_SCHEME):
            return None
        now_ms = self._clock.now_ms()
        asked_ms, found = self._told.get(master, (0, None))
        if now_ms - asked_ms >= _KEPT_MS:
            found = self._ask(master)
            self._told[master] = (now_ms, found)
        return found

    def _ask(self, master: str) -> int | None:
        """Request the status of each master: one leads, the others are standbys."""
        urls = [f"{_SCHEME}{address}" for address in master.removeprefix(_SCHEME).split(",")]
        given = self._pages.get(master)
        pages = (
            [given] if given else [f"http://{urlsplit(url).hostname}:{_PAGE_PORT}" for url in urls]
        )
        for page in pages:
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                address = urlsplit(page)
                said = master_status(
                    str(address.hostname), address.port or 80, timeout_s=_TIMEOUT_S
                )
                # Another program, or the master of another cluster, may listen on port 8080.
                is_it = given is not None or said["url"] in urls
                if is_it and said["status"] == "ALIVE":
                    return int(said["cores"])
        return None
