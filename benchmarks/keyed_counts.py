"""A job with value state that counts the events of each key: what two benchmarks measure."""

from __future__ import annotations

from collections.abc import Callable

from bicycle_runtime.testing import script_source
from bicycle_sdk import (
    KeyedProcessContext,
    KeyedProcessFunction,
    StreamEnvironment,
    ValueStateDescriptor,
)
from bicycle_sdk.graph import ErrorPolicy

__all__ = ["counting"]


class _Count(KeyedProcessFunction[str, str, int]):
    """Counts the events of a key."""

    count = ValueStateDescriptor("count", int, default=0)

    def open(self, ctx: KeyedProcessContext[str]) -> None:
        """Get the state once."""
        self.counted = ctx.get_value_state(self.count)

    def process_element(self, value: str, ctx: KeyedProcessContext[str]) -> list[int]:  # noqa: ARG002  # a contract
        """Give the count so far."""
        count = self.counted.value() + 1
        self.counted.update(count)
        return [count]


def counting(policy: ErrorPolicy) -> Callable[[StreamEnvironment], None]:
    """Return a job that reads keys from the script ``users`` and collects their counts in ``out``.

    Args:
        policy: What becomes of failed records.
    """

    def job(env: StreamEnvironment) -> None:
        users = env.add_source(script_source(str)).uid("users")
        counts = users.key_by(str).process_fn(_Count()).uid("count")
        counts.on_error(policy).collect("out")

    return job
