"""The page State of a job: find keys, compare epochs, count entries."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from bicycle_runtime.service.watching.summaries import KnownJob
from bicycle_runtime.webui.formats import whole_number
from bicycle_runtime.webui.rendering import Site
from bicycle_sdk.errors import BicycleError
from bicycle_streams.access.roles import Role

_LIMIT = 100
_WORDS = ("operator", "state", "key", "prefix", "epoch", "since")


async def read_state(site: Site, job: KnownJob, request: Request) -> dict[str, Any]:
    """Return the data of the page: operators, and the result of the query.

    ``ask`` in the address is ``find``, ``diff`` or ``count``; anything else only lists operators.
    """
    words = {name: request.query_params.get(name, "").strip() for name in _WORDS}
    ask = request.query_params.get("ask", "")
    facts: dict[str, Any] = {
        "may_look": request.state.identity.may(Role.OPERATOR), "words": words, "ask": ask,
        "outline": None, "found": None, "refused": None,
    }  # fmt: skip
    if not facts["may_look"]:
        return facts
    name = job.summary.job_id
    facts["names"] = await site.service.slow(site.service.readings.operator_names, name)
    facts["outline"] = await site.service.state(name, "outline")
    try:
        facts["found"] = await _find(site, name, ask, words)
    except BicycleError as error:
        facts["refused"] = {**error.to_json(), "fix": error.remedy}
    return facts


async def _find(site: Site, job: str, ask: str, words: dict[str, str]) -> dict[str, Any] | None:
    # Text that is not a number selects the newest epoch.
    epochs = {name: whole_number(words[name]) for name in ("epoch", "since")}
    given = {name: words[name] or None for name in ("operator", "state", "key", "prefix")}
    match ask:
        case "find":
            question = {**given, "epoch": epochs["epoch"], "limit": _LIMIT}
            return await site.service.state(job, "entries", **question)
        case "diff":
            return await site.service.state(
                job, "changes", operator=given["operator"], limit=_LIMIT, **epochs
            )
        case "count":
            return await site.service.state(job, "operators", epoch=epochs["epoch"])
        case _:
            return None
