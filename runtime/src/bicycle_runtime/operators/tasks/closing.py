"""Closing many resources that may fail: all are closed, and no failure is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable


def close_all(closers: Iterable[Callable[[], object]]) -> None:
    """Call all, then raise the first failure, with the others in its notes.

    Example:
        >>> try:
        ...     close_all([lambda: 1 / 0, lambda: int("x")])
        ... except ZeroDivisionError as error:
        ...     error.__notes__
        ["then ValueError: invalid literal for int() with base 10: 'x'"]
    """
    first: Exception | None = None
    for close in closers:
        try:
            close()
        except Exception as error:  # noqa: BLE001 - it is raised below, behind the other calls.
            if first is None:
                first = error
                continue
            first.add_note(f"then {type(error).__name__}: {error}")
            for note in getattr(error, "__notes__", ()):
                first.add_note(note)
    if first is not None:
        raise first
