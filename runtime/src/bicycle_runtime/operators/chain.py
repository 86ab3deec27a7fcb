"""One instance of a chain: operators that hand on batches, and routers at their outputs."""

from __future__ import annotations

from collections.abc import Sequence

from bicycle_runtime.operators.batch import Batch
from bicycle_runtime.operators.operator import Operator
from bicycle_runtime.operators.routing import Router
from bicycle_runtime.operators.spec import ChainSpec

__all__ = ["Chain"]


class Chain:
    """Feeds batches through operators, depth first.

    Args:
        spec: Which chain this is.
        operators: Its operators, in order; a source's own reading is done by the task, not here.
    """

    def __init__(self, spec: ChainSpec, operators: Sequence[Operator]) -> None:
        self.spec = spec
        self.operators = operators
        self._main: list[Router] = []
        self._sides: dict[tuple[int, str], list[Router]] = {}

    def connect(self, operator: int, tag: str | None, router: Router) -> None:
        """Attach a router to the main output of the chain, or to a side output of one operator."""
        if tag is None:
            self._main.append(router)
        else:
            self._sides.setdefault((operator, tag), []).append(router)

    @property
    def routers(self) -> list[Router]:
        """All routers."""
        return self._main + [router for routers in self._sides.values() for router in routers]

    def feed(self, batch: Batch) -> None:
        """Run a batch through all operators and send what comes out."""
        for index, operator in enumerate(self.operators):
            if not batch.values:
                return
            batch = operator.process(batch)
            for side in operator.take_sides():
                for router in self._sides.get((index, side.tag), ()):
                    router.send(side.batch)
        if batch.values:
            for router in self._main:
                router.send(batch)
