"""Templates, and their common parts: filters, addresses of files, texts.

Every template escapes its values, because names of jobs, error messages and log lines are foreign
text. The address of linked files, ``/static/<digest>/…``, contains a digest of all of them. It
changes with any of the files, so browsers may cache them forever.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING, Any

from jinja2 import ChoiceLoader, Environment, FunctionLoader, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from bicycle_runtime.service.scope import Scope
from bicycle_runtime.webui.formats import FILTERS
from bicycle_runtime.webui.sentences import why_text
from bicycle_sdk.errors import BicycleError
from bicycle_streams.access.roles import Role

if TYPE_CHECKING:
    from bicycle_runtime.service.service import Service
    from bicycle_runtime.service.watching.summaries import JobSummary

_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_ROWS_KEPT = 500
_FOR_EVER = "public, max-age=31536000, immutable"


class StaticFiles:
    """The files by their path, and the address at which they are found."""

    def __init__(self) -> None:
        folder = files("bicycle_runtime.webui") / "static"
        self._files: Mapping[str, bytes] = dict(sorted(_read(folder, "").items()))
        whole = hashlib.sha256()
        for path, data in self._files.items():
            whole.update(f"{path}\0{len(data)}\0".encode() + data)
        self.base = f"/static/{whole.hexdigest()[:16]}"

    def url(self, path: str) -> str:
        """Return the address of a file.

        Raises:
            KeyError: the file does not exist; a template has a wrong name.
        """
        if path not in self._files:
            raise KeyError(path)
        return f"{self.base}/{path}"

    async def answer(self, request: Request) -> Response:
        """Return a file, or status 404."""
        path = request.path_params["path"]
        data = self._files.get(path)
        if data is None:
            return PlainTextResponse("not found", status_code=404)
        kind = _TYPES[path[path.rindex(".") :]]
        return Response(data, media_type=kind, headers={"Cache-Control": _FOR_EVER})


def _read(folder: Traversable, prefix: str) -> dict[str, bytes]:
    found = {}
    for entry in folder.iterdir():
        if entry.is_dir():
            found.update(_read(entry, f"{prefix}{entry.name}/"))
        elif entry.name.endswith(tuple(_TYPES)):
            found[prefix + entry.name] = entry.read_bytes()
    return found


PageOf = Callable[["Site", Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SitePage:
    """One address of the site.

    Attributes:
        path: The address; ``{job}`` in it requires access to that job.
        handler: Returns the response.
        method: GET, or POST for a form.
        title: Label of the link at the head of all pages; empty for no link.
        role: The role that the caller needs, and that shows the link.
    """

    path: str
    handler: PageOf
    method: str = "GET"
    title: str = ""
    role: Role = Role.VIEWER


def _template_of_package(name: str) -> str | None:
    """Return a template ``package:file`` from the package's folder ``templates``."""
    package, colon, file = name.partition(":")
    return (files(package) / "templates" / file).read_text("utf-8") if colon else None


class Site:
    """The common parts of all pages: the service, the templates, the files.

    Attributes:
        service: The service, for data of one checked job; all other data is from ``scope``.
        files: The linked files.
        pages: All pages; those with a title have a link at the head.
    """

    def __init__(self, service: Service, pages: Sequence[SitePage]) -> None:
        self.service = service
        self.pages = pages
        self.files = StaticFiles()
        self._templates = Environment(
            loader=ChoiceLoader(
                [PackageLoader("bicycle_runtime.webui"), FunctionLoader(_template_of_package)]
            ),
            autoescape=True,
            undefined=StrictUndefined,
            auto_reload=False,  # Otherwise each part of each row reads the times of its files.
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters.update(FILTERS, why=why_text)
        job_row = lru_cache(_ROWS_KEPT)(self._job_row)
        self._templates.globals.update(static=self.files.url, job_row=job_row)

    def scope(self, request: Request) -> Scope:
        """Return the service in the scope of a page's caller."""
        state = request.state
        return Scope(
            self.service, state.identity, address=str(state.address), connection=state.connection
        )

    def text(self, template: str, facts: Mapping[str, Any]) -> str:
        """Return a template filled in."""
        return self._templates.get_template(template).render(facts)

    def _job_row(self, job: JobSummary, may_operate: bool, is_left: bool) -> Markup:
        """Return one row of the list of jobs, cached for all pages until it changes."""
        facts = {"job": job, "may_operate": may_operate, "is_left": is_left}
        return Markup(self.text("parts/job_row.html", facts))

    def page(
        self, request: Request, template: str, facts: Mapping[str, Any], *, status: int = 200
    ) -> HTMLResponse:
        """Return a whole page.

        Templates also get the caller, and the caller's permissions. ``template`` is a file of ours,
        or ``package:file`` in the folder ``templates`` of a package.
        """
        identity, view = request.state.identity, self.scope(request).view
        known = {
            "identity": identity,
            "may_operate": identity.may(Role.OPERATOR),
            "links": [page for page in self.pages if page.title and identity.may(page.role)],
            "now_ms": now_ms(),
            "path": request.url.path,
            "totals": view.totals(),
            "as_of_ms": view.as_of_ms,
        }
        return HTMLResponse(self.text(template, {**known, **facts}), status_code=status)

    def refusal(self, request: Request, error: BicycleError, *, status: int) -> HTMLResponse:
        """Return a page with the error and its fix."""
        plain = error.to_json()
        facts = {"error": plain, "fix": error.remedy, "status": status}
        return self.page(request, "error.html", facts, status=status)


def now_ms() -> int:
    """Return the time of day in ms since 1970."""
    return time.time_ns() // 1_000_000
