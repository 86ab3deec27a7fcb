"""The services of the epoch loop, and the result of a step, as plain values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bicycle_runtime.engine.epoch.stats import EpochStats, Unread
from bicycle_runtime.recovery.lease import Fence, Unfenced
from bicycle_runtime.state.sealed.loading import untold
from bicycle_sdk.clock import Clock


@dataclass(slots=True, kw_only=True)
class LoopServices:
    """The services for the loop: clock, console, listeners, collect sinks, lease.

    ``on_loaded`` gets bytes done and in all while state is verified or loaded, from any thread.
    ``on_publishing`` gets the epoch and the sink that begins to publish it, None for the sink when
    all are published, from any thread. ``followed`` returns the last epoch of a shadow of the job,
    None without one. ``wake`` ends the pause after an idle step, from any thread; None: no caller
    can.
    """

    clock: Clock
    console: Callable[[str], None]
    on_epoch: Callable[[EpochStats], None]
    collected: dict[str, list[Any]] = field(default_factory=dict)
    fence: Fence = field(default_factory=Unfenced)
    on_loaded: Callable[[int, int], None] = untold
    on_publishing: Callable[[int, str | None], None] = lambda *_: None
    followed: Callable[[], int | None] = lambda: None
    wake: Callable[[], None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The result of a ``step``: whether an epoch ran, input ended, and the next call.

    ``unread`` is the remaining input of the sources; None after an epoch, whose statistics have it.
    ``is_caught_up``: the epoch took all input of a source which never ends, so the next may rest.
    """

    has_run: bool
    is_finished: bool
    wait_ms: int
    unread: Unread | None = None
    is_caught_up: bool = False
