"""The driver's view of a source or sink: guarantee, specification, services.

The base class of sources and sinks is here as well. It refuses a class that has a method of a mixin
without the mixin: the engine asks only those that say so, and would never call that method.
"""

from __future__ import annotations

import base64
import json
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

from bicycle_sdk.clock import Clock

if TYPE_CHECKING:
    from bicycle_runtime.base.storage import Storage


class Guarantee(Enum):
    """The guarantee of a connector after any crash, from weakest to strongest."""

    AT_MOST_ONCE = "at-most-once"
    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorSpec:
    """The graph's data for a connector: vertex, properties (JSON), payloads by role.

    ``record_type`` is the declared record type of a source, or the input type of a sink, when
    known. ``on_error`` is what the vertex does with a record that fails; the runtime does it, but
    for records that a server refuses when their epoch is published.
    """

    vertex_id: str
    connector_type: str
    properties: Mapping[str, Any]
    payloads: Mapping[str, Any] = field(default_factory=dict)
    record_type: Any = None
    on_error: str = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A record of a sealed epoch that a server refused; ``key`` is the server's key."""

    key: str
    exception: str
    message: str
    record: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterFolder:
    """The location of a job's dead letters, and their data about the job's code."""

    storage: Storage
    plugin: str = ""
    plugin_version: str = ""

    def keep(self, sink: str, epoch: int, name: str, refused: Sequence[Refusal]) -> str:
        """Write letters of a sink; again is harmless. Return where they are.

        Args:
            sink: Uid of the sink, which gets the records where somebody replays the letters.
            epoch: In which they were sealed.
            name: Tells these from all others of the epoch; letters, digits and hyphens.
            refused: At least one.
        """
        path = f"part-{epoch:010d}-{name}.jsonl"
        lines = (
            {
                "operator": sink, "operator_name": sink, "plugin": self.plugin,
                "plugin_version": self.plugin_version, "key": each.key,
                "exception": each.exception, "message": each.message, "location": "",
                "traceback": "", "attempt": 1, "encoding": "pickle",
                "value": base64.b64encode(pickle.dumps(each.record)).decode("ascii"), "input": 0,
            }
            for each in refused
        )  # fmt: skip
        self.storage.write(path, b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        return f"{self.storage.url}/{path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverServices:
    """The services of the driver for a connector.

    ``storage`` is the job's checkpoint storage; ``prefix`` is the connector's own folder in it
    (journals, open parts). ``collected`` gets the records of collect sinks by name. ``console``
    writes one line for people, or several with newlines between them. ``job`` is the job's name,
    for connectors that leave a name in another system; ``epoch_interval_ms`` is the least time
    between two epochs. ``letters`` takes records that a server refuses when they are published.
    ``wake`` ends the pause before the next poll, from any thread; where it is None, a source cannot
    end pauses and has to choose short ones.
    """

    storage: Storage
    prefix: str
    clock: Clock
    collected: dict[str, list[Any]]
    console: Any  # Callable[[str], None]
    job: str = "job"
    epoch_interval_ms: int = 0
    letters: LetterFolder | None = None
    wake: Callable[[], None] | None = None


class Connector:
    """One vertex on the driver: the base of sources and sinks.

    ``state_version`` is the format version of all that the connector stores: its offsets, its state
    in the manifest, its staged files, and its files below ``DriverServices.prefix``. Raise it when
    code of before cannot read that any more. A start whose version is lower than the sealed one is
    refused; the connector itself reads lower versions.
    """

    state_version: ClassVar[int] = 1
    _mixins: ClassVar[tuple[type, ...]] = ()

    def __init__(self, spec: ConnectorSpec) -> None:
        self.spec = spec

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        contract = next(base for base in cls.__mro__ if "_mixins" in vars(base))
        for mixin in cls._mixins:
            names = [name for name in vars(mixin) if not name.startswith("_")]
            lost = [name for name in names if hasattr(cls, name) and not hasattr(contract, name)]
            if lost and not issubclass(cls, mixin):
                raise TypeError(
                    f"{cls.__qualname__} has {lost[0]}(), which is called for a "
                    f"{mixin.__name__} only: add {mixin.__name__} to its bases, or rename it"
                )
