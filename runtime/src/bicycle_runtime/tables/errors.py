"""Errors of SQL files (BIC-32xx)."""

from __future__ import annotations

from bicycle_sdk.errors import BicycleError

SQL_INVALID = BicycleError.row(
    "BIC-3200",
    "{file} has {count_text}; nothing was started\n{listing}",
    cause=(
        "Statements of an SQL file cannot be parsed, name unknown tables, columns or options, have "
        "wrong types, or need a feature that is not supported. ``problems`` lists all of them with "
        "``line``, ``column`` and ``text``."
    ),
    fix="correct the lines above; `bicycle plan` repeats the check",
)
SQL_LIBRARY_MISSING = BicycleError.row(
    "BIC-3201",
    "{file} has SQL statements, but {missing} is not installed",
    cause="SQL needs a library that is an extra of the runtime.",
    fix="pip install 'bicycle-runtime[sql]'",
)
SQL_TEST_INVALID = BicycleError.row(
    "BIC-3202",
    "{file}:{line}: {problem}",
    cause="A file of `bicycle sql test` cannot be read, or has a record that is not valid.",
    fix="{hint}",
)
SQL_TESTS_FAILED = BicycleError.row(
    "BIC-3203",
    "{failed_text} of {count_text} failed\n{listing}",
    cause=(
        "Results of SQL tests differ from the expected rows. ``failures`` lists ``file``, ``line`` "
        "and ``text`` of each."
    ),
    fix="compare the rows above (- expected, + actual) with the statements",
)
SQL_TEXT_INVALID = BicycleError.row(
    "BIC-3204",
    "{call}(…) has {count_text}\n{listing}",
    cause=(
        "An SQL text of a program, or a call of a table, names unknown tables, columns or options, "
        "has wrong types, or needs a feature that is not supported. ``location`` is the call, and "
        "``problems`` lists the problems with ``line``, ``column`` and ``text``."
    ),
    fix="correct the call; `bicycle plan` repeats the check",
)
SQL_STATEMENT_INVALID = BicycleError.row(
    "BIC-3206",
    "the statement has {count_text}\n{listing}",
    cause=(
        "A statement of `bicycle sql` cannot be parsed, names unknown tables, columns or options, "
        "has wrong types, or needs a feature that is not supported. ``problems`` lists all of "
        "them with ``file``, ``line``, ``column`` and ``text``."
    ),
    fix="correct the statement and run it again; DESCRIBE and SHOW list names and types",
)


class SqlProblem(Exception):  # it ends the check of one statement
    """A problem of a statement, with its position in the text.

    ``follows``: another problem, which is noted, is its cause.
    """

    def __init__(self, at: int, problem: str, *, follows: bool = False) -> None:
        super().__init__(problem)
        self.at, self.follows = at, follows
