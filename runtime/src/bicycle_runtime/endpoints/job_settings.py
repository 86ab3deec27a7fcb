"""Settings of a job in a text, for pipelines and SQL files."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from bicycle_runtime.endpoints.values import describe
from bicycle_sdk import StreamEnvironment
from bicycle_sdk.graph import RestartStrategy

Parallelism = Annotated[int, Meta(ge=1, le=32_768)]


class Settings(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Settings of the job."""

    parallelism: Annotated[Parallelism, describe("Default number of subtasks of an operator.")] = 1
    max_parallelism: Annotated[
        Parallelism | None,
        describe(
            "Number of key groups, which cannot change after the first "
            "epoch with state. Default: 128."
        ),
    ] = None
    checkpoint_interval_ms: Annotated[
        int, Meta(ge=1, le=86_400_000, description="Time between two bases of the state, in ms.")
    ] = 60_000
    max_restarts: Annotated[
        int,
        Meta(ge=0, description="Maximum number of restarts after failures; 0 disables restarts."),
    ] = 3
    restart_delay_ms: Annotated[int, Meta(ge=0, description="Delay before a restart, in ms.")] = (
        5_000
    )
    mode: Annotated[
        Literal["streaming", "batch"],
        describe(
            "streaming follows the input; batch reads it once, and event "
            "time then moves to its end."
        ),
    ] = "streaming"
    properties: Annotated[
        dict[str, str], describe("Properties of the job, which functions read from their context.")
    ] = field(default_factory=dict)

    def apply_to(self, env: StreamEnvironment) -> None:
        """Set the settings of an environment."""
        env.set_parallelism(self.parallelism)
        if self.max_parallelism is not None:
            env.set_max_parallelism(self.max_parallelism)
        env.set_checkpoint_interval(self.checkpoint_interval_ms)
        env.set_runtime_mode(self.mode)
        attempts, delay_ms = self.max_restarts, self.restart_delay_ms
        env.set_restart_strategy(
            RestartStrategy.fixed_delay(max_attempts=attempts, delay_ms=delay_ms)
            if attempts
            else RestartStrategy.none()
        )
        for key, value in self.properties.items():
            env.set_property(key, value)
