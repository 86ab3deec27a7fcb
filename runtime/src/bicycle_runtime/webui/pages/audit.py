"""The audit log for admins: changes, their authors, addresses and results."""

from __future__ import annotations

import json

from starlette.requests import Request
from starlette.responses import Response

from bicycle_runtime.webui.formats import whole_number
from bicycle_runtime.webui.rendering import Site
from bicycle_streams.access.roles import Role, require_role

_LINES = 100


async def audit_page(site: Site, request: Request) -> Response:
    """Return one page of the log, the newest line first."""
    require_role(request.state.identity, Role.ADMIN)
    before = whole_number(request.query_params.get("before", ""))
    found = await site.scope(request).latest_audit(before, _LINES)
    lines = [(entry, json.dumps(entry.facts) if entry.facts else "") for entry in found]
    older = found[-1].id if len(found) == _LINES else None
    return site.page(request, "audit.html", {"lines": lines, "older": older, "before": before})
