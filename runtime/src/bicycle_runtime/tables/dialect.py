"""The grammar of SQL files: tokens, statements, and queries as trees of sqlglot.

The grammar is that of SQL expressions everywhere, with backticks, and with the window functions of
Flink and RisingWave in FROM. A window function is replaced by a name that no text can contain, so
that the parser sees a table.
Every problem has a position: tokens keep their offsets in the file.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Literal

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from bicycle_runtime.expressions.sql.casts import parse_interval, whole_ms
from bicycle_runtime.expressions.sql.compiling import SqlDialect
from bicycle_runtime.tables.errors import SqlProblem
from bicycle_runtime.tables.texts import SqlText
from bicycle_sdk.errors import StreamDefinitionError
from bicycle_sdk.windows.assigners import duration_ms

WindowKind = Literal["TUMBLE", "HOP", "CUMULATE", "SESSION"]
_WINDOW_KINDS = ("TUMBLE", "HOP", "CUMULATE", "SESSION")
# The intervals of a window function after the time column, in order.
_INTERVALS = {
    "TUMBLE": ("SIZE", "OFFSET"), "HOP": ("SLIDE", "SIZE", "OFFSET"),
    "CUMULATE": ("STEP", "SIZE", "OFFSET"), "SESSION": ("GAP",),
}  # fmt: skip
_NAMES = (TokenType.VAR, TokenType.IDENTIFIER)
_TOKENS_MAX = 200_000
_REJECTED = {  # Two words.
    "TIMESTAMPDIFF (": "TIMESTAMPDIFF is not supported; write date_diff('second', start, end)",
    "TIMESTAMPADD (": "TIMESTAMPADD is not supported; write time + INTERVAL '1' HOUR",
    "MATCH_RECOGNIZE (": "MATCH_RECOGNIZE is not supported",
    "ON CONFLICT": "ON CONFLICT is not supported; declare PRIMARY KEY in CREATE TABLE",
    "WINDOW (": "window(…) is not supported; write FROM TUMBLE(TABLE …, DESCRIPTOR(…), INTERVAL "
    "'…' MINUTE) and GROUP BY window_start, window_end",
}
# The parser warns about statements that it does not know; here they are errors.
logging.getLogger("sqlglot").setLevel(logging.ERROR)


class StatementDialect(SqlDialect):
    """The grammar of expressions, with backticks for names. NULL sorts high."""

    NULL_ORDERING = "nulls_are_large"

    class Tokenizer(DuckDB.Tokenizer):
        """Tokens, with names in double quotes or in backticks."""

        IDENTIFIERS: ClassVar[list[Any]] = ['"', "`"]
        COMMANDS: ClassVar[set[TokenType]] = set()  # The rest of EXPLAIN is not one text.


@dataclass(frozen=True, slots=True)
class Name:
    """A name in a text; ``at`` is its offset."""

    text: str
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowCall:
    """A window function in FROM, such as TUMBLE, with its table and its time column.

    ``intervals_ms`` are its intervals by name; an OFFSET is among them. ``keys`` are the columns
    of PARTITION BY.
    """

    kind: WindowKind
    table: Name
    time: Name
    intervals_ms: dict[str, int]
    keys: tuple[Name, ...] = ()
    at: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A query: its tree, and its window functions by the names that replace them."""

    tree: exp.Query
    windows: dict[str, WindowCall]
    at: int


class Cursor:
    """A position in the tokens of one statement."""

    def __init__(self, tokens: Sequence[Token], text: SqlText) -> None:
        self.tokens, self.text, self.index = tokens, text, 0

    @property
    def at(self) -> int:
        """The offset of the next token, or of the end of the last one."""
        if self.index < len(self.tokens):
            return int(self.tokens[self.index].start)
        return int(self.tokens[-1].end) if self.tokens else 0

    @property
    def is_at_end(self) -> bool:
        """True after the last token."""
        return self.index >= len(self.tokens)

    def peek(self, ahead: int = 0) -> Token | None:
        """Return a following token, or None."""
        index = self.index + ahead
        return self.tokens[index] if index < len(self.tokens) else None

    def sees(self, *words: str) -> bool:
        """Return whether the next tokens are some words or signs."""
        return all(_is_word(self.peek(at), word) for at, word in enumerate(words))

    def sees_query(self, ahead: int = 0) -> bool:
        """Return whether a query begins with the next token, or some tokens ahead."""
        return any(_is_word(self.peek(ahead), word) for word in ("SELECT", "WITH", "("))

    def take(self, *words: str) -> bool:
        """Skip some words if they are next; return whether they were."""
        found = self.sees(*words)
        self.index += len(words) if found else 0
        return found

    def expect(self, *words: str) -> None:
        """Skip some words.

        Raises:
            SqlProblem: others are next.
        """
        for word in words:
            if not self.take(word):
                raise self.unexpected(word if word.isalpha() else repr(word))

    def unexpected(self, expected: str) -> SqlProblem:
        """Return the problem of the next token."""
        token = self.peek()
        found = "the end of the statement" if token is None else repr(_show(token))
        return SqlProblem(self.at, f"expected {expected}, found {found}")

    def name(self, of: str) -> Name:
        """Read a name; ``of`` is the kind of object, for errors."""
        token = self.peek()
        is_name = token is not None and (
            token.token_type in _NAMES or (token.text[:1].isalpha() and token.text.isidentifier())
        )
        if token is None or not is_name or token.token_type == TokenType.STRING:
            raise self.unexpected(f"the name of {of}")
        self.index += 1
        return Name(token.text, int(token.start))

    def names(self, of: str) -> tuple[Name, ...]:
        """Read names in parentheses."""
        self.expect("(")
        found = [self.name(of)]
        while self.take(","):
            found.append(self.name(of))
        self.expect(")")
        return tuple(found)

    def part(self) -> list[Token]:
        """Skip the tokens up to a comma or a closing parenthesis of the same depth."""
        begin, depth = self.index, 0
        while (token := self.peek()) is not None:
            if token.token_type == TokenType.L_PAREN:
                depth += 1
            elif token.token_type == TokenType.R_PAREN:
                depth -= 1
            if depth < 0 or (depth == 0 and token.token_type == TokenType.COMMA):
                break
            self.index += 1
        return list(self.tokens[begin : self.index])

    def interval_ms(self) -> int:
        """Read ``INTERVAL '10' SECOND``, as milliseconds."""
        at = self.at
        self.expect("INTERVAL")
        token = self.peek()
        if token is None or token.token_type not in (TokenType.STRING, TokenType.NUMBER):
            raise self.unexpected("a text such as '10'")
        self.index += 1
        unit = self.peek()
        words = token.text
        if unit is not None and not words.strip()[-1:].isalpha() and unit.text.isalpha():
            self.index += 1
            words = f"{words} {unit.text}"
        try:
            parts = parse_interval(words)
        except ValueError as error:
            raise SqlProblem(at, str(error)) from error
        if parts[0]:
            raise SqlProblem(at, f"INTERVAL '{words}': months have different lengths; use days")
        found = whole_ms(*parts)
        if found is None:
            raise SqlProblem(at, f"INTERVAL '{words}': times have whole milliseconds")
        return require_length(found, f"INTERVAL '{words}'", at)


def _is_word(token: Token | None, word: str) -> bool:
    is_quoted = token is not None and token.token_type in (TokenType.STRING, TokenType.IDENTIFIER)
    return token is not None and not is_quoted and token.text.upper() == word


def _show(token: Token) -> str:
    return f"'{token.text}'" if token.token_type == TokenType.STRING else token.text


def split_statements(text: SqlText) -> list[Cursor]:
    """Return the tokens of each statement.

    Raises:
        SqlProblem: a quote or a comment is not closed, or there are too many tokens.
    """
    try:
        tokens = StatementDialect().tokenize(text.text)
    except TokenError as error:
        raise SqlProblem(_open_quote(text.text), "a quote or a comment is not closed") from error
    if len(tokens) > _TOKENS_MAX:
        raise SqlProblem(
            0, f"it has {len(tokens):,} words, but at most {_TOKENS_MAX:,} are allowed"
        )
    found: list[Cursor] = []
    current: list[Token] = []
    for token in [*tokens, Token(TokenType.SEMICOLON, ";")]:
        if token.token_type != TokenType.SEMICOLON:
            current.append(token)
        elif current:
            found.append(Cursor(current, text))
            current = []
    return found


def _open_quote(text: str) -> int:
    """Return the offset of the quote or comment that is not closed."""
    at = 0
    while at < len(text):
        close = {"'": "'", '"': '"', "`": "`"}.get(text[at])
        if text.startswith("--", at):
            end = text.find("\n", at)
        elif text.startswith("/*", at):
            end = text.find("*/", at + 2)
            end = end + 1 if end >= 0 else end
        elif close:
            end = text.find(close, at + 1)
        else:
            at += 1
            continue
        if end < 0:
            return at
        at = end + 1
    return 0


# --- queries -------------------------------------------------------------------------------------


def parse_query(cursor: Cursor) -> Query:
    """Read the rest of a statement as a query.

    Raises:
        SqlProblem: it is not a query.
    """
    at = cursor.at
    for token in cursor.tokens[cursor.index :]:
        has_hint = any(comment.startswith("+") for comment in token.comments)
        if has_hint and token.text.upper() != "SELECT":
            hint = "a hint is possible after SELECT only; set options of a table in WITH (…)"
            raise SqlProblem(int(token.start), hint)
        if token.token_type in (TokenType.PLACEHOLDER, TokenType.PARAMETER):
            problem = "there are no parameters; json_exists(json, '$.key') tests a key"
            raise SqlProblem(int(token.start), f"{token.text} is not supported: {problem}")
    for token, following in pairwise(cursor.tokens[cursor.index :]):
        rejected = _REJECTED.get(f"{token.text} {following.text}".upper())
        is_quoted = token.token_type in (TokenType.STRING, TokenType.IDENTIFIER)
        if rejected is not None and not is_quoted:
            raise SqlProblem(int(token.start), rejected)
    windows: dict[str, WindowCall] = {}
    tokens = _replace_windows(cursor, windows)
    tree = _parse(tokens, cursor.text, at)
    if not isinstance(tree, exp.Query):
        raise SqlProblem(at, "expected a query: SELECT … FROM …")
    return Query(tree=tree, windows=windows, at=at)


def require_length(ms: int, name: str, at: int) -> int:
    """Return a length of time, which may be negative.

    Raises:
        SqlProblem: it is longer than windows can be.
    """
    try:
        duration_ms(name, abs(ms), low=0)
    except StreamDefinitionError as error:
        raise SqlProblem(at, f"{name}: {error.facts['problem']}") from error
    return ms


def parse_value(tokens: Sequence[Token], text: SqlText) -> exp.Expr:
    """Return the tree of an expression.

    Raises:
        SqlProblem: it cannot be parsed.
    """
    found: exp.Expr = _parse(tokens, text, int(tokens[0].start))
    if isinstance(found, exp.Query | exp.Command | exp.DDL):
        raise SqlProblem(int(tokens[0].start), "expected an expression")
    return found


def _parse(tokens: Sequence[Token], text: SqlText, at: int) -> Any:
    try:
        found = StatementDialect().parser().parse(list(tokens), text.text)
    except ParseError as error:
        raise _syntax_problem(error, text, at) from error
    except RecursionError as error:
        raise SqlProblem(at, "it is nested too deeply") from error
    if len(found) != 1 or found[0] is None:
        raise SqlProblem(at, "expected a single expression")
    return found[0]


def _syntax_problem(error: ParseError, text: SqlText, at: int) -> SqlProblem:
    if not error.errors:
        return SqlProblem(at, "it is not valid SQL")
    found = error.errors[0]
    word, problem = str(found["highlight"]), str(found["description"])
    line, end = found["line"], found["col"]
    if line:
        at = text.offset(int(line), int(end) - len(word) + 1)
    shown = word.replace("\n", " ")
    if problem.startswith("Expecting"):
        return SqlProblem(at, f"expected {problem.removeprefix('Expecting ').strip()} at {shown!r}")
    if problem.startswith("Required keyword"):
        return SqlProblem(at, f"an operand is missing at {shown!r}")
    return SqlProblem(at, f"unexpected {shown!r}")


def offset_of(node: exp.Expr, default: int) -> int:
    """Return the offset of a part of a query, as far as the parser notes it."""
    starts = [int(part.meta["start"]) for part in node.walk() if "start" in part.meta]
    return min(starts, default=default)


def _replace_windows(cursor: Cursor, windows: dict[str, WindowCall]) -> list[Token]:
    """Return the remaining tokens with each window function replaced by a name."""
    found: list[Token] = []
    while (token := cursor.peek()) is not None:
        if not _is_window(cursor):
            found.append(token)
            cursor.index += 1
            continue
        begin = token
        call = _window_call(cursor)
        end = cursor.tokens[cursor.index - 1]
        marker = f"window {len(windows)}"
        windows[marker] = call
        found.append(
            Token(
                TokenType.IDENTIFIER, marker, line=begin.line, col=begin.col, start=begin.start,
                end=end.end,
            )
        )  # fmt: skip
        if not _has_alias(cursor.peek()):
            found += [
                Token(TokenType.ALIAS, "AS", start=begin.start, end=begin.start),
                Token(
                    TokenType.IDENTIFIER, call.table.text, start=call.table.at, end=call.table.at
                ),
            ]
    return found


def _is_window(cursor: Cursor) -> bool:
    """Return whether a window function in FROM is next."""
    before = cursor.tokens[cursor.index - 1] if cursor.index else None
    if not (_is_word(before, "FROM") or _is_word(before, "JOIN") or _is_word(before, ",")):
        return False
    ahead = 2 if cursor.sees("TABLE", "(") else 0
    token, behind = cursor.peek(ahead), cursor.peek(ahead + 1)
    # In GROUP BY the first argument is a column, and the second one an interval.
    second = cursor.peek(ahead + (6 if _is_word(cursor.peek(ahead + 3), ".") else 4))
    is_kind = any(_is_word(token, word) for word in _WINDOW_KINDS) and _is_word(behind, "(")
    return is_kind and not _is_word(second, "INTERVAL")


def _has_alias(token: Token | None) -> bool:
    return token is not None and (
        token.token_type in (*_NAMES, TokenType.ALIAS) and token.text.upper() not in _WINDOW_KINDS
    )


def _window_call(cursor: Cursor) -> WindowCall:
    is_wrapped = cursor.take("TABLE", "(")
    at = cursor.at
    kind: Any = cursor.name("a window function").text.upper()
    cursor.expect("(")
    _argument(cursor, "DATA")
    cursor.take("TABLE")
    if cursor.sees("("):
        raise SqlProblem(
            cursor.at, "a window function reads a table or a view; create a view of the query"
        )
    table = cursor.name("a table")
    keys = _partition_keys(cursor)
    cursor.expect(",")
    _argument(cursor, "TIMECOL")
    if cursor.take("DESCRIPTOR", "("):
        time = cursor.name("the time column")
        if time.text.upper() == "PROCTIME" and cursor.take("(", ")"):
            time = Name("PROCTIME()", time.at)
        cursor.expect(")")
    else:
        time = cursor.name("the time column")
    intervals: dict[str, int] = {}
    for word in _INTERVALS[kind]:
        if word == "OFFSET" and not cursor.sees(","):
            break
        cursor.expect(",")
        name = _argument(cursor, *_INTERVALS[kind]) or word
        if name in intervals:
            raise SqlProblem(cursor.at, f"{name} is given twice")
        begin = cursor.at
        intervals[name] = cursor.interval_ms()
        if intervals[name] <= 0 and name != "OFFSET":
            raise SqlProblem(begin, f"{name} of {kind} must be longer than 0")
    if missing := {*_INTERVALS[kind]} - {"OFFSET", *intervals}:
        raise SqlProblem(cursor.at, f"{kind} needs {missing.pop()} => INTERVAL '…' MINUTE")
    if kind == "CUMULATE" and intervals["SIZE"] % intervals["STEP"]:
        raise SqlProblem(begin, "SIZE of CUMULATE must be a multiple of STEP")
    cursor.expect(")")
    if is_wrapped:
        cursor.expect(")")
    return WindowCall(kind=kind, table=table, time=time, intervals_ms=intervals, keys=keys, at=at)


def _partition_keys(cursor: Cursor) -> tuple[Name, ...]:
    """Read PARTITION BY of a session; the comma before the time column ends it."""
    if not cursor.take("PARTITION"):
        # The tokenizer makes one token of both words.
        if not cursor.take("PARTITION BY"):
            return ()
    else:
        cursor.expect("BY")
    if cursor.sees("("):
        return cursor.names("a column")
    found = [cursor.name("a column")]
    while cursor.sees(",") and not _is_word(cursor.peek(1), "DESCRIPTOR"):
        cursor.expect(",")
        found.append(cursor.name("a column"))
    return tuple(found)


def _argument(cursor: Cursor, *names: str) -> str:
    """Skip ``NAME =>`` of an argument; return the name, or an empty text without one."""
    for name in names:
        if cursor.take(name, "=>"):
            return name
    return ""
