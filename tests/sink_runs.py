"""Runs of one sink, as the tests of a connector make them."""

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal

from bicycle_runtime.contract import ConnectorSpec
from bicycle_runtime.testing.connectors.running import SinkRun, services_in
from bicycle_sdk.clock import SystemClock


@dataclass(frozen=True)
class Order:
    """A row with a column of each simple type."""

    id: int
    user: str | None
    cents: float | None = None
    paid: bool | None = None
    at: datetime | None = None
    day: date | None = None
    price: Decimal | None = None
    raw: bytes | None = None
    tags: list[str] | None = None


class SinkRuns:
    """Starts runs of a sink with some properties, and stops all of them at the end."""

    def __init__(self, word, folder, **properties):
        self.word = word
        self.folder = folder
        self.properties = properties
        self._runs = []

    def start(self, record_type=None, *, place="one", state=None, epoch=-1, **properties):
        """Start a run; ``place`` is the folder of its job, ``state`` what the job begins with."""
        spec = ConnectorSpec(
            vertex_id="out",
            connector_type=self.word,
            properties=self.properties | properties,
            record_type=record_type,
        )
        services = services_in(self.folder / place, clock=SystemClock())
        run = SinkRun(spec, services, state=state or {}, epoch=epoch, is_sealed=epoch >= 0)
        self._runs.append(run.start())
        return run

    def stop(self):
        for run in self._runs:
            run.stop()
