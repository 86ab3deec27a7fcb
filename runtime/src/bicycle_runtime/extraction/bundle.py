"""A job bundle: the data that a driver needs to run a plugin's job.

It holds the graph, the functions as bytes, and where they came from. The digest names the content:
two extractions of one plugin with one set of parameters have the same digest, which is stored with
every checkpoint. No environment variables, paths of the child process or parameters are kept, since
a bundle is written to disk. This module does not load the payloads.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from bicycle_runtime.base.thread_safe_types import prepare_type
from bicycle_runtime.extraction.errors import BUNDLE_UNREADABLE
from bicycle_runtime.layouts.bundle import BUNDLE_MAGIC, BUNDLE_VERSION, StoredBundle
from bicycle_sdk.errors import GraphFormatError
from bicycle_sdk.former_names import FormerName
from bicycle_sdk.graph import JobGraph

_PREFIX_SIZE = len(BUNDLE_MAGIC) + 2 + 4


@dataclass(frozen=True, slots=True, kw_only=True)
class JobBundle:
    """An extracted job. ``payloads`` and ``shipping`` have the same keys, ``"<vertex id>/<role>"``.

    ``shipping`` is ``"by reference"`` for a payload that names code of the wheel, ``"by value"``
    for one that carries code (a lambda, a closure, a class made in a function). ``python_version``
    is the interpreter's, as code by value runs on that minor version only. Where the calls stand
    that made the operators is stored beside the graph and no part of the digest.
    ``function_dists`` are distributions that bring function classes which the job calls by name;
    ``former_names`` are the former names of options that the plugin uses.
    """

    graph: JobGraph
    payloads: dict[str, bytes]
    shipping: dict[str, str]
    digest: str
    plugin: str
    plugin_version: str
    dist: str
    sdk_version: str
    python_version: str
    function_dists: tuple[str, ...] = ()
    former_names: tuple[FormerName, ...] = ()

    def to_bytes(self) -> bytes:
        """Return the stored form: magic, format version, checksum, MessagePack."""
        graph = {"graph": self.graph.to_json(), "places": self.graph.locations()}
        fields = {**_plain_fields(self), **graph}
        body = msgspec.msgpack.encode(fields)
        version = BUNDLE_VERSION.to_bytes(2, "little")
        return BUNDLE_MAGIC + version + zlib.crc32(body).to_bytes(4, "little") + body

    @classmethod
    def from_bytes(cls, data: bytes) -> JobBundle:
        """Read the stored form; the inverse of ``to_bytes``.

        Raises:
            BUNDLE_UNREADABLE: damaged, cut short, of another version, or its content is not what
                the digest names.
        """
        body = _checked_body(data)
        try:
            fields = msgspec.msgpack.decode(body, type=prepare_type(StoredBundle))
            graph = JobGraph.from_json(fields.graph).with_locations(fields.places)
            kept = {name: value for name, value in asdict(fields).items() if name != "places"}
            names = tuple(FormerName(*each) for each in fields.former_names)
            bundle = cls(**{**kept, "graph": graph, "former_names": names})
        except GraphFormatError as error:
            raise BUNDLE_UNREADABLE(detail=error.summary) from error
        except msgspec.MsgspecError as error:
            raise BUNDLE_UNREADABLE(detail=str(error)) from error
        found = bundle_digest(bundle.graph, bundle.payloads)
        if found != bundle.digest:
            raise BUNDLE_UNREADABLE(
                detail=f"its content has the digest {found}, expected {bundle.digest}"
            )
        return bundle


def bundle_digest(graph: JobGraph, payloads: dict[str, bytes]) -> str:
    """Return the SHA-256 in hex over the graph's canonical JSON and the payloads."""
    text = json.dumps(json.loads(graph.to_json()), sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256()
    for part in (
        text.encode(),
        *(part for name in sorted(payloads) for part in (name.encode(), payloads[name])),
    ):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def _plain_fields(bundle: JobBundle) -> dict[str, Any]:
    return {name: getattr(bundle, name) for name in JobBundle.__dataclass_fields__}


def _checked_body(data: bytes) -> bytes:
    if data[: len(BUNDLE_MAGIC)] != BUNDLE_MAGIC or len(data) < _PREFIX_SIZE:
        raise BUNDLE_UNREADABLE(
            detail=f"it starts with {bytes(data[:8])!r}, not with {BUNDLE_MAGIC!r}"
        )
    version = int.from_bytes(data[4:6], "little")
    if version != BUNDLE_VERSION:
        raise BUNDLE_UNREADABLE(detail=f"format version {version}, expected {BUNDLE_VERSION}")
    body = data[_PREFIX_SIZE:]
    if zlib.crc32(body) != int.from_bytes(data[6:10], "little"):
        raise BUNDLE_UNREADABLE(detail="its checksum is wrong: the file is damaged or truncated")
    return body
