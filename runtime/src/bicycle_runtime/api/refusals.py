"""Refused changes in the audit log, whichever door refused them."""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING

from bicycle_sdk.logging import log_event
from bicycle_streams.access.roles import NOBODY, Identity

if TYPE_CHECKING:
    from bicycle_runtime.service.service import Service

_LOG = logging.getLogger(__name__)
_TARGET_LENGTH_MAX = 200


def note_refused(
    service: Service, identity: Identity, address: str, *, action: str, target: str, code: str
) -> None:
    """Write a line to the audit log before the refusal is sent.

    Args:
        service: The service with the log.
        identity: The caller.
        address: Address of the caller.
        action: The rejected action.
        target: Its target; a long text is truncated.
        code: Code of the error.
    """
    entry = {
        "actor": identity.name,
        "address": address,
        "action": action,
        "target": target[:_TARGET_LENGTH_MAX],
        "outcome": "refused",
        "owner": "" if identity == NOBODY else identity.owner,
    }
    now_ms = service.clock.now_ms()
    written = service.history.note_audit(entry, {"code": code}, at_ms=now_ms)
    written.add_done_callback(functools.partial(_log_lost, entry))


def _log_lost(entry: Mapping[str, str], written: Future[None]) -> None:
    """Log a line of the audit log that could not be written."""
    error = written.exception()
    if error is not None:
        log_event(_LOG, "audit_line_lost", level=logging.ERROR, error=error, **entry)
