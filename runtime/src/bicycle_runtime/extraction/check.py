"""Try all plugins, each in a child process of its own, a few at a time.

Loading means: import, find the marked object, read its parameters. No graph is built, since a
plugin may need parameters for that. One plugin's failure is a result, never the end of the check.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from bicycle_runtime.extraction.discovery import PluginRef
from bicycle_runtime.extraction.extract import check_plugin
from bicycle_runtime.extraction.limits import ExtractionLimits
from bicycle_sdk.errors import BicycleError

__all__ = ["CheckResult", "check_all"]

_CHILDREN_MAX = 2  # at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """Whether a plugin can be loaded; ``error`` says why not and is None when it can.

    ``parameters`` are as ``check_plugin`` gives them.
    """

    ref: PluginRef
    ok: bool
    error: BicycleError | None = None
    parameters: Sequence[Mapping[str, Any]] = ()


def check_all(
    refs: Iterable[PluginRef], limits: ExtractionLimits | None = None
) -> list[CheckResult]:
    """Load each plugin in a child process.

    Args:
        refs: Plugins, from ``discover``.
        limits: Bounds of each child; the defaults when None.

    Returns:
        One result per plugin, in the order given.
    """

    def check(ref: PluginRef) -> CheckResult:
        try:
            parameters = check_plugin(ref, limits)
        except BicycleError as error:
            return CheckResult(ref=ref, ok=False, error=error)
        return CheckResult(ref=ref, ok=True, parameters=parameters)

    with ThreadPoolExecutor(_CHILDREN_MAX, thread_name_prefix="plugin-check") as pool:
        return list(pool.map(check, refs))
