"""The whole application with a service behind it, asked without a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, urlencode

from bicycle_runtime.api.application import build_application
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.status import JobState, OperatorStatus
from bicycle_runtime.service.service import Service
from bicycle_runtime.webui.rendering import Site
from bicycle_runtime.webui.site import PAGES, page_routes
from bicycle_sdk.clock import SystemClock
from bicycle_streams.access.authentication import Authenticator
from bicycle_streams.access.limits import LimitOptions, Limits, RequestRate
from bicycle_streams.access.roles import Role
from tests.unit.jobs.job_samples import put_job

HOST = "127.0.0.1:9000"
DAY_MS = 86_400_000
MANY = LimitOptions(
    reads=RequestRate(burst=10**6, per_second=1), writes=RequestRate(burst=10**6, per_second=1),
    failures=RequestRate(burst=10**6, per_second=1),
)  # fmt: skip


class Answer:
    """One answer; header names are in small letters, and a repeated one is a list in ``raw``."""

    def __init__(self, messages: list[dict[str, Any]]) -> None:
        self.code: int = messages[0]["status"]
        self.raw = [(n.decode().lower(), v.decode("latin-1")) for n, v in messages[0]["headers"]]
        self.headers = dict(self.raw)
        self.data = b"".join(each.get("body", b"") for each in messages[1:])

    @property
    def json(self) -> Any:
        return json.loads(self.data)


class Asked:
    """A service whose answers can be had without a socket."""

    def __init__(self, service: Service, runner: asyncio.Runner, **options: Any) -> None:
        self.service = service
        self.runner = runner
        limits = Limits(options.pop("limits", MANY))
        pages = options.pop("pages", None) or page_routes(Site(service, PAGES))
        authenticator = Authenticator(
            service.tokens, service.sessions, **{"needs_login": False, "clients": {}, **options}
        )
        self.app = build_application(
            service, hosts=[HOST], pages=pages, authenticator=authenticator, limits=limits
        )

    def token(self, role: Role = Role.VIEWER, *, name: str = "ada", days: float = 1) -> str:
        lifetime_ms = int(days * DAY_MS)
        return self.service.tokens.create(name, role=role, lifetime_ms=lifetime_ms, by="test")[1]

    def __call__(self, method: str, path: str, body: Any = b"", **headers: str) -> Answer:
        return self.runner.run(asyncio.wait_for(self.ask(method, path, body, **headers), 30))

    async def ask(self, method: str, path: str, body: Any = b"", **more: Any) -> Answer:
        """Send one request; ``a_b`` is the header ``a-b``, and None leaves one out.

        ``answers`` gets each piece of the answer as it comes, and ``on_answer`` is called then.
        """
        pieces = body if isinstance(body, list) else [body]
        place, _, query = path.partition("?")
        answers: list[dict[str, Any]] = more.pop("answers", [])
        on_answer = more.pop("on_answer", lambda: None)
        named = {name.replace("_", "-"): text for name, text in more.items()}
        sent = {"host": HOST, "content-type": "application/json", **named}
        scheme = sent.pop("scheme", "http")
        state = sent.pop("state", None)
        client = (sent.pop("client", "127.0.0.1"), 1)
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method,
            "scheme": scheme, "path": place, "raw_path": quote(place).encode(), "root_path": "",
            "query_string": query.encode(), "client": client, "server": (HOST, 9_000),
            "headers": [
                (n.encode(), t.encode("latin-1"))
                for n, t in sent.items() if t is not None
            ],
            **({"state": state} if state is not None else {}),
        }  # fmt: skip
        messages = [
            {"type": "http.request", "body": piece, "more_body": number < len(pieces) - 1}
            for number, piece in enumerate(pieces)
        ]

        async def receive() -> dict[str, Any]:
            if messages:
                return messages.pop(0)
            await asyncio.Event().wait()
            raise AssertionError

        async def send(message: dict[str, Any]) -> None:
            answers.append(message)
            on_answer()

        await self.app(scope, receive, send)
        return Answer(answers)

    def page(self, path: str, form: dict[str, str] | None = None, **headers: Any) -> Answer:
        """Ask as a browser does: for a page, or with a form of a page of ours."""
        if form is None:
            return self("GET", path, accept="text/html", **headers)
        sent = {
            "origin": f"http://{HOST}", "sec_fetch_site": "same-origin",
            "content_type": "application/x-www-form-urlencoded", "accept": "text/html", **headers,
        }  # fmt: skip
        return self("POST", path, urlencode(form).encode(), **sent)


@contextmanager
def asked_of(folder: Any, **options: Any) -> Iterator[Asked]:
    """A service with one finished job."""
    home = Home(folder)
    home.prepare()
    operators = {"a": OperatorStatus(records_in=1)}
    place = str(home.path / "checkpoints/job")
    put_job(home, "job", state=JobState.FINISHED, ended_ms=1, operators=operators, checkpoint=place)
    with asyncio.Runner() as runner, Service(home, clock=SystemClock()) as service:
        service.fleet.attach(runner.get_loop())
        yield Asked(service, runner, **options)
