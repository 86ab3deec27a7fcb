"""Templates, and what all of them know: filters, addresses of files, words for people.

Every template escapes what it is given: names of jobs, messages of errors and lines of logs are
the text of others.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse

from bicycle_runtime.service.users.roles import Role
from bicycle_runtime.webui.formats import FILTERS
from bicycle_runtime.webui.sentences import why_text
from bicycle_runtime.webui.static_files import StaticFiles
from bicycle_sdk.errors import BicycleError

if TYPE_CHECKING:
    from bicycle_runtime.service.service import Service

__all__ = ["Site", "now_ms"]


class Site:
    """What every page needs: the service, the templates, the files.

    Attributes:
        service: What pages read, and ask for operations.
        files: What pages link to.
    """

    def __init__(self, service: Service) -> None:
        self.service = service
        self.files = StaticFiles()
        self._templates = Environment(
            loader=PackageLoader("bicycle_runtime.webui"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters.update(FILTERS, why=why_text)
        self._templates.globals.update(static=self.files.url)

    def text(self, template: str, facts: Mapping[str, Any]) -> str:
        """Return a template filled in."""
        return self._templates.get_template(template).render(facts)

    def page(
        self, request: Request, template: str, facts: Mapping[str, Any], *, status: int = 200
    ) -> HTMLResponse:
        """Return a whole page. Templates also know who asks, and what that one may do."""
        identity = request.state.identity
        known = {
            "identity": identity,
            "may_operate": identity.may(Role.OPERATOR),
            "may_audit": identity.may(Role.ADMIN),
            "now_ms": now_ms(),
            "path": request.url.path,
            "totals": self.service.fleet.totals(),
            "as_of_ms": self.service.fleet.view.as_of_ms,
        }
        return HTMLResponse(self.text(template, {**known, **facts}), status_code=status)

    def refusal(self, request: Request, error: BicycleError, *, status: int) -> HTMLResponse:
        """Return a page that says what went wrong, and what to do."""
        plain = error.to_json()
        facts = {"error": plain, "fix": error.remedy, "status": status}
        return self.page(request, "error.html", facts, status=status)


def now_ms() -> int:
    """Return the time of day in ms since 1970."""
    return time.time_ns() // 1_000_000
