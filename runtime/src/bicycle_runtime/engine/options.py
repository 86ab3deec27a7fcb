"""Settings of the epoch loop, declared once: default, bounds, meaning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bicycle_runtime.base.options import check, option
from bicycle_runtime.connectors.registry import default_registry
from bicycle_runtime.state.settings import OWN_BACKENDS, StateSettings

__all__ = ["EngineOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """The options of the engine: lengths, budgets and retention of epochs."""

    mode: Literal["streaming", "batch"] = option(
        "streaming",
        doc="batch reads input that ends in one pass: epochs as large as the limits allow, event "
        "time comes to its end with the input. Default: what the plugin says, else streaming.",
    )
    epoch_interval_ms: int = option(
        0, low=0, high=3_600_000,
        doc="Least time between the starts of two epochs; 0 runs one whenever there is work.",
    )  # fmt: skip
    epoch_target_ms: int = option(
        2_000, low=10, high=600_000,
        doc="Under backlog, epochs grow or shrink until they take about this long. An epoch that "
        "reads on takes twice the time.",
    )  # fmt: skip
    max_records_per_epoch: int = option(
        5_000_000,
        low=1,
        high=1_000_000_000,
        doc="An epoch takes at most so many records from one source. A million and more are kept "
        "about: lines of files are estimated then, not counted.",
    )
    max_bytes_per_epoch: int = option(
        512 << 20, low=1, high=1 << 40, doc="An epoch takes at most so many bytes from one source."
    )
    checkpoint_interval_ms: int = option(
        60_000, low=1, high=86_400_000,
        doc="How often the changes of state are folded into a base, when there are enough of them.",
    )  # fmt: skip
    retained_epochs: int = option(
        3,
        low=2,
        high=1_000,
        doc="How many sealed epochs stay restorable; at least one before the last.",
    )
    retained_age_ms: int = option(
        0, low=0, high=2_592_000_000,
        doc="Epochs sealed within this time stay restorable as well, up to 1000 in all; 0 goes by "
        "number alone.",
    )  # fmt: skip
    blocking_call_ms: int = option(
        1_000,
        low=10,
        high=3_600_000,
        doc="An async function that keeps the event loop of its worker for longer, instead of "
        "awaiting, is named in a warning.",
    )
    hot_key_percent: int = option(
        30,
        low=1,
        high=100,
        doc="A key that has this share of the records of an operator with several subtasks is "
        "named in a warning.",
    )

    state_backend: str = option(
        "memory",
        doc="memory holds all state in the workers; rocksdb holds the hot part of it and keeps the "
        "rest on local disks, so that state may be larger than memory. Extensions bring others.",
    )
    state_dir: str | None = option(
        None,
        doc="Local folder of the workers for state on disk, kept between runs so that a restart is "
        "warm. Default: a temporary folder that ends with the run.",
    )
    state_cache_entries: int = option(
        200_000,
        low=1_000,
        high=1_000_000_000,
        doc="With rocksdb: entries that each operator holds ready per task, beside what the epoch "
        "has changed.",
    )
    state_block_cache_bytes: int = option(
        64 << 20,
        low=1 << 20,
        high=1 << 40,
        doc="With rocksdb: blocks of files that a worker process holds in memory.",
    )
    state_write_buffer_bytes: int = option(
        32 << 20,
        low=1 << 20,
        high=1 << 34,
        doc="With rocksdb: sealed writes that each operator gathers per task before they go to "
        "disk; it holds two such buffers.",
    )

    no_pickle: bool = option(
        default=False,
        doc="Refuse state, and records in loops, that are stored as pickles: loading one may run "
        "any code. All state then needs declared types.",
    )

    @property
    def state_settings(self) -> StateSettings:
        """The backend settings for workers."""
        return StateSettings(
            backend=self.state_backend,
            factory=self._state_factory(),
            folder=self.state_dir,
            cache_entries=self.state_cache_entries,
            block_cache_bytes=self.state_block_cache_bytes,
            write_buffer_bytes=self.state_write_buffer_bytes,
            no_pickle=self.no_pickle,
        )

    @property
    def is_batch(self) -> bool:
        """Return whether the job reads finite input in one pass."""
        return self.mode == "batch"

    def __post_init__(self) -> None:
        check(self)
        self._state_factory()

    def _state_factory(self) -> str | None:
        """Return where the factory of a state backend is that an extension brings.

        Raises:
            UNKNOWN_STATE_BACKEND: no extension does.
        """
        if self.state_backend in OWN_BACKENDS:
            return None
        return default_registry().state_backend(self.state_backend)
