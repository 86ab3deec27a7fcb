"""Statements of the shell that define nothing: SELECT, EXPLAIN, SHOW and others."""

from __future__ import annotations

from dataclasses import dataclass

from bicycle_runtime.endpoints.checking import likely
from bicycle_runtime.tables.dialect import Cursor, Name, Query, parse_query
from bicycle_runtime.tables.errors import SqlProblem
from bicycle_runtime.tables.statements import Insert, Statement, read_statement, statement_words

KEYWORDS = (
    *("AND", "AS", "BETWEEN", "BY", "CASE", "CAST", "CREATE", "DESCRIBE", "DESCRIPTOR", "DISTINCT"),
    *("DROP", "ELSE", "END", "EXPLAIN", "FILTER", "FOR", "FROM", "FUNCTION", "FUNCTIONS", "GROUP"),
    *("HAVING", "HOP", "IN", "INSERT", "INTERVAL", "INTO", "IS", "JOIN", "LIKE", "NOT", "NULL"),
    *("ON", "OR", "PARTITION", "PRIMARY KEY", "RESET", "SELECT", "SESSION", "SET", "SHOW", "TABLE"),
    *("TABLES", "THEN", "TUMBLE", "UNION ALL", "UNNEST", "VIEW", "VIEWS", "WATERMARK", "WHEN"),
    *("WHERE", "WITH"),
)
_RELATION, _FUNCTION = "a table or view", "a function"
# The words of statements, with the kind of name that follows.
_FORMS = {
    "SHOW TABLES": "", "SHOW VIEWS": "", "SHOW FUNCTIONS": "", "SHOW CREATE TABLE": _RELATION,
    "SHOW CREATE VIEW": _RELATION, "SHOW CREATE FUNCTION": _FUNCTION, "DESCRIBE": _RELATION,
    "DESC": _RELATION, "DROP TABLE": _RELATION, "DROP VIEW": _RELATION, "DROP FUNCTION": _FUNCTION,
    "RESET": "an option", "SET": "",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A statement of the shell.

    Args:
        kind: Its words, such as SELECT or SHOW TABLES.
        name: The table, view or option that it names.
        if_exists: Whether an unknown name is no error.
        statement: The query, or the INSERT that is explained.
    """

    kind: str
    name: Name | None = None
    if_exists: bool = False
    statement: Query | Insert | None = None


def read_request(cursor: Cursor) -> Request | Statement:
    """Return a statement of the shell, or of a file.

    Raises:
        SqlProblem: it is wrong.
    """
    word = cursor.tokens[0].text.upper()
    if cursor.sees_query():
        return Request(kind="SELECT", statement=parse_query(cursor))
    if word == "EXPLAIN":
        return _explain(cursor)
    firsts = [form.partition(" ")[0] for form in _FORMS]
    if word in firsts and (word != "SET" or len(cursor.tokens) == 1):
        return _form(cursor, word)
    known = [*statement_words(), *firsts, "EXPLAIN", "SELECT"]
    near = None if word in known else likely(word, known)
    if near is not None:
        raise SqlProblem(cursor.at, f"there is no statement {word}; did you mean {near}?")
    return read_statement(cursor)


def _explain(cursor: Cursor) -> Request:
    cursor.index += 1
    cursor.take("PLAN")
    cursor.take("FOR")
    rest = Cursor(cursor.tokens[cursor.index :], cursor.text)
    if cursor.sees("INSERT"):
        statement = read_statement(rest)
        assert isinstance(statement, Insert)
        return Request(kind="EXPLAIN", statement=statement)
    if not cursor.sees_query():
        raise cursor.unexpected("a query or INSERT INTO")
    return Request(kind="EXPLAIN", statement=parse_query(rest))


def _form(cursor: Cursor, word: str) -> Request:
    for form, of in _FORMS.items():
        if not cursor.take(*form.split()):
            continue
        if_exists = word == "DROP" and cursor.take("IF", "EXISTS")
        name = None if not of or (cursor.is_at_end and word == "RESET") else cursor.name(of)
        while name is not None and word == "RESET" and cursor.take("."):
            name = Name(f"{name.text}.{cursor.name(of).text}", name.at)
        if not cursor.is_at_end:
            raise cursor.unexpected("a semicolon")
        return Request(kind=form, name=name, if_exists=if_exists)
    cursor.index += 1
    rests = [form.partition(" ")[2] for form in _FORMS if form.startswith(f"{word} ")]
    token = cursor.peek()
    near = likely(token.text.upper(), rests) if token is not None else None
    problem = cursor.unexpected(", ".join(rests[:-1]) + f" or {rests[-1]}")
    raise SqlProblem(problem.at, f"{problem}; did you mean {near}?") if near else problem
