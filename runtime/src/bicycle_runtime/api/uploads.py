"""Uploads: which paths take files, how many bytes, and how a form is read.

``python-multipart`` reads the form piece by piece, and keeps files above 1 MiB on the disk.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.requests import Request

from bicycle_runtime.api.errors import BODY_UNREADABLE, MEDIA_TYPE_UNSUPPORTED
from bicycle_runtime.service.plugins.lock_files import LOCK_BYTES_MAX
from bicycle_runtime.service.plugins.wheels import WheelLimits

FORM = "multipart/form-data"
UPLOAD_FILES = {"wheel": "A wheel with plugins.", "lock": "Its lock file, with hashes."}
_BODY_BYTES_MAX = 1 << 20
_UPLOAD_PATHS = frozenset({"/api/v1/plugins", "/plugins"})  # Of the API, and of its page.
_FRAME_BYTES_MAX = 64 << 10  # The size of a form without its files.


def body_bytes_max(path: str) -> int:
    """Return how large the body of a request may be."""
    if path in _UPLOAD_PATHS:
        return WheelLimits().byte_count_max + LOCK_BYTES_MAX + _FRAME_BYTES_MAX
    return _BODY_BYTES_MAX


def takes_form(method: str, path: str) -> bool:
    """Return whether a path of the API takes files."""
    return method == "POST" and path in _UPLOAD_PATHS and path.startswith("/api/")


@asynccontextmanager
async def read_form(request: Request) -> AsyncIterator[FormData]:
    """Yield the form of a request; its files are removed afterward.

    Raises:
        MEDIA_TYPE_UNSUPPORTED: the body is not a form with files.
        BODY_UNREADABLE: the form cannot be read, or has too many parts.
    """
    found = request.headers.get("content-type", "")
    if found.partition(";")[0].strip().lower() != FORM:
        raise MEDIA_TYPE_UNSUPPORTED(found=found)
    try:
        form = await request.form(max_files=len(UPLOAD_FILES), max_fields=len(UPLOAD_FILES))
    except HTTPException as error:
        raise BODY_UNREADABLE(problem=str(error.detail)) from None
    try:
        yield form
    finally:
        await form.close()
