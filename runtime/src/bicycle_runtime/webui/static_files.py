"""Files that pages link to, below an address that changes when any of them does.

Browsers may keep them for ever: ``/static/<digest>/…`` holds the digest of all files together.
They are read once, when the routes are made; nothing else of the disk can be asked for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

__all__ = ["StaticFiles"]

_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
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
            KeyError: there is none: a template has a wrong name.
        """
        if path not in self._files:
            raise KeyError(path)
        return f"{self.base}/{path}"

    async def answer(self, request: Request) -> Response:
        """Answer with a file, or say that there is none."""
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
