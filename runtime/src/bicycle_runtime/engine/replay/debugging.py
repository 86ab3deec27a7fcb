"""A debugger in the user's code while an epoch is replayed.

It stops twice: where a function of the chosen operator is called for its first record, and, after
the fact, where a record failed. The debugger is Python's own, on this terminal. Leaving it ends the
replay. Time limits of calls are off meanwhile: a person takes longer.
"""

from __future__ import annotations

import inspect
import pdb
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from types import CodeType, FrameType
from typing import Any

from bicycle_runtime.base.user_code import ProcessEnding
from bicycle_runtime.operators.functions.operator import Operator
from bicycle_runtime.operators.functions.process import ProcessOperator
from bicycle_runtime.operators.tasks.program import Program
from bicycle_runtime.operators.user_calls.stack_frames import is_ours

_HOOKS = frozenset({"open", "close", "snapshot_state", "restore_state", "merge_state"})


class DebuggerLeft(ProcessEnding):
    """The user has left the debugger. Only the code that started the replay catches it."""


class EpochDebugger(pdb.Pdb):
    """Stops in user code.

    Args:
        operator: Whose functions are stopped at; None for the first operator with a function of the
            user's that gets a record.
        stops_at_call: Whether to stop at the first call; at a failure it stops always.
        tell: Writes a line for people.
    """

    def __init__(
        self, operator: str | None, *, stops_at_call: bool, tell: Callable[[str], None]
    ) -> None:
        super().__init__(readrc=False)
        self._operator = operator
        self._stops_at_call = stops_at_call
        self._tell = tell
        self._is_tracing = self._has_begun = False
        self._operators: dict[tuple[str, int], str] = {}

    def adapt(self, program: Program) -> None:
        """Get ready to stop in the functions of a program."""
        for operator in program.operators():
            operator.policy.on_failure = partial(self._look_back, operator.uid)
            if isinstance(operator, ProcessOperator):
                operator.settings = replace(operator.settings, timeout_ms=None)
            if self._stops_at_call and self._operator in (None, operator.uid):
                self._arm(operator)
        if self._operators and not self._is_tracing:
            self._is_tracing = True
            self.reset()
            sys.settrace(self.trace_dispatch)

    def watch(self, call: Callable[[], Any]) -> Any:
        """Call something that builds programs and runs them.

        Raises:
            DebuggerLeft: the debugger was left.
        """
        try:
            return call()
        finally:
            sys.settrace(None)

    def user_line(self, frame: FrameType) -> None:
        """Pass over the line at which tracing begins, and stop at the first function."""
        if not self._has_begun:
            self._has_begun = True
            self.set_continue()
            return
        code_position = (frame.f_code.co_filename, frame.f_code.co_firstlineno)
        if code_position in self._operators:
            self._tell(f"operator {self._operators[code_position]!r} gets its first record")
            self.clear_all_breaks()
            self._operators.clear()
        super().user_line(frame)

    def set_quit(self) -> None:
        """Leave the replay as well as the debugger.

        Raises:
            DebuggerLeft: always.
        """
        raise DebuggerLeft

    def _arm(self, operator: Operator) -> None:
        for code in set(_codes_of(operator)):
            code_position = (code.co_filename, code.co_firstlineno)
            if code_position not in self._operators and not self.set_break(
                *code_position, funcname=code.co_name
            ):
                self._operators[code_position] = operator.uid

    def _look_back(self, uid: str, error: Exception) -> None:
        self._tell(f"operator {uid!r} failed: {type(error).__name__}: {error}")
        looking = _LookingBack(readrc=False)
        looking.reset()
        looking.interaction(None, error.__traceback__)


class _LookingBack(pdb.Pdb):
    """The post-mortem debugger; continuing continues the replay, leaving ends it."""

    def set_quit(self) -> None:
        """End the replay.

        Raises:
            DebuggerLeft: always.
        """
        raise DebuggerLeft


def _codes_of(operator: Operator) -> Iterator[CodeType]:
    """Yield the code of the user's functions that an operator calls for records."""
    firing = getattr(operator, "firing", None)
    plan = getattr(operator, "plan", None)
    found = [getattr(operator, "function", None), getattr(firing, "function", None)]
    found += [getattr(plan, "function", None), getattr(operator, "call", None)]
    for function in found:
        for code in _codes_in(function):
            if not is_ours(traceback.FrameSummary(code.co_filename, 0, code.co_name)):
                yield code


def _codes_in(function: Any) -> Iterator[CodeType]:
    if isinstance(function, partial):
        function = function.func
    code = getattr(inspect.unwrap(function) if callable(function) else function, "__code__", None)
    if isinstance(code, CodeType):
        yield code
        return
    for name, member in inspect.getmembers(type(function), inspect.isfunction):
        if not name.startswith("_") and name not in _HOOKS:
            yield member.__code__
