"""The client of a Bicycle service."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp

Json = dict[str, Any]


class Unavailable(Exception):
    """The service cannot answer now; the same request may succeed later."""


class Refused(Exception):
    """The service rejected a request; the message begins with the error code."""


class Conflict(Refused):
    """The current state does not allow the request, which may succeed later."""


# Errors by the status of the response; with any other status the service cannot answer now.
_REFUSALS = {409: Conflict, **dict.fromkeys((400, 404, 413, 415, 422), Refused)}


@dataclass(kw_only=True)
class Service:
    """A service, and its lists, which all resources share."""

    url: str
    session: aiohttp.ClientSession
    token_file: Path | None = None  # It has the role operator, and is read for each request.
    age_s: float = 1.0  # Maximum age of the lists.
    _lists: dict[str, tuple[float, list[Json]]] = field(default_factory=dict)
    _locks: dict[str, asyncio.Lock] = field(default_factory=dict)

    async def job(self, name: str) -> Json:
        """Return the summary of the newest job with a name, or an empty one."""
        found = [each for each in await self.listed("/jobs?limit=500") if each["name"] == name]
        return max(found, key=lambda each: int(each["start_time"]), default={})

    async def listed(self, path: str) -> list[Json]:
        """Return all entries of a list, with its next pages."""
        clock = asyncio.get_running_loop().time
        async with self._locks.setdefault(path, asyncio.Lock()):
            at_s, items = self._lists.get(path, (-1e9, []))
            if clock() - at_s < self.age_s:
                return items
            page = await self.send("GET", path)
            items = list(page["items"])
            while page.get("next"):
                page = await self.send("GET", f"{path}&after={quote(page['next'])}")
                items += page["items"]
            self._lists[path] = clock(), items
            return items

    async def send(self, method: str, path: str, *, body: Any = None, key: str = "") -> Json:
        """Return the answer to a request, or raise Refused, Conflict or Unavailable."""
        headers = {"Content-Type": "application/json", **({"Idempotency-Key": key} if key else {})}
        if self.token_file is not None:
            headers["Authorization"] = f"Bearer {self.token_file.read_text('utf-8').strip()}"
        url = f"{self.url.rstrip('/')}/api/v1{path}"
        try:
            async with self.session.request(method, url, headers=headers, json=body) as answer:
                data: Json = await answer.json()
                if answer.ok:
                    return data
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise Unavailable(f"{type(error).__name__}: {error}") from error
        text = "; ".join(filter(None, (data.get("message"), data.get("fix"))))
        kind = _REFUSALS.get(answer.status, Unavailable)
        raise kind(f"{data.get('code', answer.status)}: {text}")
