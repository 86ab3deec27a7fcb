"""SQL texts as trees: parsed by sqlglot, checked against fields and functions.

The parser does not interpret functions: a function of a text is the row of the table with its name.
Only functions of one record exist there, so that no expression depends on a clock, on chance, or on
other records. Only planning imports this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import sqlglot
from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import ParseError, TokenError

from bicycle_runtime.expressions.sql.computing import FAILURES, SqlRows
from bicycle_runtime.expressions.sql.functions import DECIMAL_DIGITS_MAX
from bicycle_runtime.expressions.sql.nested import path_steps, path_text
from bicycle_runtime.expressions.sql.steps import CompiledExpressions, ExpressionInvalidError
from bicycle_runtime.expressions.sql.tree import (
    UnknownFunctionError,
    WrongTypesError,
    call,
    case,
    cast,
    column,
    combine,
    literal,
    share_parts,
    type_of,
)
from bicycle_runtime.expressions.sql.types import SqlType, type_named
from bicycle_runtime.frames.schemas import VALUE_TYPES
from bicycle_runtime.frames.vectors import Vector
from bicycle_sdk.expressions import Expression, lit

# What is larger takes long to check and to compute.
_TERMS_MAX = 5_000
_DEPTH_MAX = 150
_INT_MAX = (1 << 63) - 1
AGGREGATES = ("count", "sum", "avg", "min", "max")
# Aggregates that are known, but not supported.
OTHER_AGGREGATES = frozenset(
    {"any_value", "approx_count_distinct", "arg_max", "arg_min", "array_agg", "bool_and", "bool_or",
     "count_if", "first", "first_value", "last", "last_value", "list", "listagg", "median", "mode",
     "quantile", "stddev", "stddev_pop", "stddev_samp", "string_agg", "var_pop", "var_samp",
     "variance"}
)  # fmt: skip
# Nodes of the parser, and the functions that they mean.
_BINARY: Mapping[type[exp.Expr], str] = {
    exp.Add: "add", exp.Sub: "subtract", exp.Mul: "multiply", exp.Div: "divide", exp.Mod: "mod",
    exp.EQ: "equal", exp.NEQ: "not_equal", exp.LT: "lt", exp.LTE: "lte", exp.GT: "gt",
    exp.GTE: "gte", exp.Like: "like", exp.ILike: "ilike", exp.DPipe: "concat_operator",
    exp.NullSafeNEQ: "is_distinct_from", exp.NullSafeEQ: "is_not_distinct_from",
    exp.BitwiseAnd: "bitwise_and", exp.BitwiseOr: "bitwise_or", exp.BitwiseXor: "bitwise_xor",
    exp.BitwiseLeftShift: "shift_left", exp.BitwiseRightShift: "shift_right", exp.Pow: "power",
    exp.RegexpLike: "regexp_matches",
}  # fmt: skip
_SINGLE: Mapping[type[exp.Expr], str] = {
    exp.Neg: "negate", exp.Not: "not", exp.BitwiseNot: "bitwise_not",
}  # fmt: skip
# The parts of nodes that are read; others, such as ESCAPE, would change what a node means.
_READ = frozenset(
    {"this", "expression", "expressions", "negate", "low", "high", "query", "unnest", "ifs",
     "default", "true", "false", "to", "safe", "unit", "position", "start", "length", "substr",
     "table", "quoted", "is_string", "only_json_types", "scalar_only", "decimals"}
)  # fmt: skip
_TRIMS = {"": "trim", "BOTH": "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}


# Types of fields, and of the results of expressions in pipelines.
OF_FIELDS: Mapping[str, SqlType] = {
    found.word: found.sql for found in VALUE_TYPES if found.in_fields and found.sql
}
_WORDS = {**{kind: word for word, kind in OF_FIELDS.items()}, "JSON": "string"}


class SqlDialect(DuckDB):
    """Expressions in SQL, with functions by name and arrays that count from 1."""

    INDEX_OFFSET = 0  # Indexes are left as they are written.

    def to_json_path(self, path: exp.Expr | None) -> exp.Expr | None:
        """Return a path as it is written; the parser's own paths split keys at dots."""
        return path

    class Parser(DuckDB.Parser):  # type: ignore[misc,valid-type]  # a metaclass sets it
        """The parser, which interprets only functions with a syntax of their own."""

        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        LAMBDAS: ClassVar[dict[Any, Any]] = {}  # ``f(a -> 'b')`` has a path as its argument.
        NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            **{name: DuckDB.Parser.FUNCTION_PARSERS[name]
               for name in ("CAST", "TRY_CAST", "EXTRACT", "SUBSTRING", "TRIM", "POSITION")},
            **dict.fromkeys(("CEIL", "CEILING"), lambda self: self._parse_ceil_floor(exp.Ceil)),
            "FLOOR": lambda self: self._parse_ceil_floor(exp.Floor),
        }  # fmt: skip


def parse(text: str) -> exp.Expr:
    """Return the parsed text of a single expression.

    Raises:
        ValueError: the text is not one expression, or too long.
    """
    try:
        terms = len(sqlglot.tokenize(text, dialect=SqlDialect))
        if terms > _TERMS_MAX:
            raise ValueError(f"it has {terms:,} terms, but at most {_TERMS_MAX:,} are allowed")
        found = sqlglot.parse(text, dialect=SqlDialect)
    except TokenError as error:
        raise ValueError("invalid SQL: a quote is not closed") from error
    except ParseError as error:
        raise ValueError(f"invalid SQL: {_problem(error)}") from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if len(found) != 1 or found[0] is None:
        raise ValueError("it must be a single expression")
    return found[0]


def _problem(error: ParseError) -> str:
    """Return the parser's problem with a text, and the preceding word."""
    found = error.errors[0]
    problem = str(found["description"])
    preceding = f"{found['start_context']}{found['highlight']}".strip()
    if problem.startswith("Required keyword"):
        return f"an operand is missing after {preceding!r}"
    if problem.startswith("Expecting"):
        return f"expected {problem.removeprefix('Expecting ').strip()} after {preceding!r}"
    return f"unexpected {found['highlight']!r}"


def compile_expressions(
    expressions: Mapping[str, str], fields: Mapping[str, str]
) -> CompiledExpressions:
    """Return the compiled form of expressions over the fields of records.

    Args:
        expressions: SQL texts by the names of their results.
        fields: The types of the fields, as words of pipelines.

    Raises:
        ExpressionInvalidError: one of them is no SQL, names an unknown field or function, or does
            not fit the types.

    Example:
        >>> found = compile_expressions({"f": "celsius * 1.8 + 32"}, {"celsius": "float"})
        >>> found.names, found.types
        (('f',), ('float',))
    """
    columns = _Fields(fields)
    trees, types = [], []
    for name, text in expressions.items():
        try:
            tree = compile_text(text, columns)
            word = _WORDS.get(type_of(tree))
            if word is None:
                raise ValueError(
                    f"it returns {type_of(tree)}, which is not a type of fields; cast it"
                )
        except ValueError as error:
            raise ExpressionInvalidError(name, str(error)) from error
        trees.append(cast(tree, "VARCHAR") if word == "timestamp" else tree)
        types.append(word)
    return CompiledExpressions(
        names=tuple(expressions), trees=share_parts(trees), types=tuple(types)
    )


class _Fields(Mapping[str, Expression]):
    """The columns of records whose fields may be missing, which are NULL then."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        self._fields = fields
        self._known: dict[str, Expression] = {}

    def __getitem__(self, name: str) -> Expression:
        word = self._fields[name]
        if word.startswith("decimal"):
            hint = "declare it as int or float, or use a function of a plugin"
            raise ValueError(f"field {name!r} is a decimal, which is not supported; {hint}")
        source = Expression("field_or", name, lit(None))
        return self._known.setdefault(name, column(source, OF_FIELDS[word]))

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)


def compile_text(text: str, columns: Mapping[str, Expression]) -> Expression:
    """Return the tree of an SQL text.

    Args:
        text: A single expression.
        columns: The columns that it may read, by name.

    Raises:
        ValueError: the text is no SQL, names an unknown column or function, or has wrong types.

    Example:
        >>> from bicycle_runtime.expressions.sql.tree import column
        >>> type_of(compile_text("celsius * 1.8 + 32", {"celsius": column("celsius", "DOUBLE")}))
        'DOUBLE'
    """
    try:
        tree = Translation(columns).tree(parse(text))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    check(tree)
    return tree


def check(tree: Expression) -> None:
    """Compute an expression on no rows, which shows whether it can be computed.

    Raises:
        ValueError: a conversion does not exist, or a constant is invalid.
    """
    try:
        SqlRows(lambda _: Vector(0, []), 0).array(tree)
    except FAILURES as error:
        raise ValueError(str(error).partition("\n")[0]) from error


class Translation:
    """The translation of parsed texts to trees over some columns.

    Args:
        columns: The columns by name.
    """

    def __init__(self, columns: Mapping[str, Expression]) -> None:
        self._columns = columns
        self._depth = 0

    def tree(self, node: exp.Expr) -> Expression:
        """Return the tree of a node.

        Raises:
            ValueError: the node, or a part of it, is not supported.
        """
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise ValueError("it is nested too deeply")
        try:
            return self._tree(node)
        finally:
            self._depth -= 1

    def _tree(self, node: exp.Expr) -> Expression:
        kind = type(node)
        unread = [name for name, value in node.args.items() if value and name not in _READ]
        if unread:
            raise ValueError(f"{node.sql(SqlDialect)} is not allowed: it has {unread[0].upper()}")
        if kind in _BINARY:
            found = self._call(node, _BINARY[kind], node.this, node.expression)
            return call("not", found) if node.args.get("negate") else found
        if kind in _SINGLE:
            return self._with_one_operand(node)
        special = _SPECIAL.get(kind)
        if special is None:
            raise ValueError(f"{node.sql(SqlDialect)} is not allowed: {_why(node)}")
        return special(self, node)

    def _call(self, node: exp.Expr, name: str, *arguments: exp.Expr | None) -> Expression:
        return self._apply(node, name, *(self.tree(each) for each in arguments if each is not None))

    def _apply(self, node: exp.Expr, name: str, *arguments: Expression) -> Expression:
        try:
            return call(name, *arguments)
        except WrongTypesError as error:
            raise ValueError(f"{node.sql(SqlDialect)}{_position(node)} {error.problem}") from error
        except UnknownFunctionError as error:
            raise ValueError(
                f"{node.sql(SqlDialect)} is not allowed{_position(node)}: it is not a supported "
                f"function{error.hint or _ONLY_THE_RECORD}"
            ) from error

    def _with_one_operand(self, node: exp.Expr) -> Expression:
        inner = node.this
        if isinstance(node, exp.Neg) and isinstance(inner, exp.Literal) and not inner.is_string:
            return _number(f"-{inner.name}")
        if isinstance(node, exp.Not) and isinstance(inner, exp.Is):
            return self._is(inner, "is_not")
        return self._call(node, _SINGLE[type(node)], inner)

    def _column(self, node: exp.Expr) -> Expression:
        if node.args.get("table"):
            raise ValueError(f"{node.sql(SqlDialect)}: fields have no table; write a path with ->>")
        found = self._columns.get(node.name)
        if found is None:
            known = ", ".join(sorted(self._columns))
            raise ValueError(f"there is no field {node.name!r}; the record has {known}")
        return found

    def _literal(self, node: exp.Expr) -> Expression:
        return literal(node.name) if node.args["is_string"] else _number(node.name)

    def _cast(self, node: exp.Expr) -> Expression:
        if node.args.get("default"):
            raise ValueError(
                f"{node.sql(SqlDialect)}: DEFAULT is not supported; write coalesce(TRY_CAST(…), …)"
            )
        wanted = type_named(node.args["to"].sql("postgres"))
        return cast(self.tree(node.this), wanted, is_try=isinstance(node, exp.TryCast))

    def _between(self, node: exp.Expr) -> Expression:
        return self._call(node, "between", node.this, node.args["low"], node.args["high"])

    def _in(self, node: exp.Expr) -> Expression:
        if node.args.get("query") or node.args.get("unnest"):
            raise ValueError(
                f"{node.sql(SqlDialect)} is not allowed: it is not an expression of a single record"
            )
        if isinstance(node.this, exp.Tuple):
            return self.tree(_row_in(node))
        return self._call(node, "is_in", node.this, *node.expressions)

    def _is(self, node: exp.Expr, verb: str = "is") -> Expression:
        word = str(node.expression.this).lower() if isinstance(node.expression, exp.Boolean) else ""
        if not word and not isinstance(node.expression, exp.Null):
            raise ValueError(f"{node.sql(SqlDialect)}: IS is followed by NULL, TRUE or FALSE")
        return self._call(node, f"{verb}_{word or 'null'}", node.this)

    def _case(self, node: exp.Expr) -> Expression:
        branches = []
        for each in node.args["ifs"]:
            condition = self.tree(each.this)
            if node.this is not None:
                condition = self._apply(node, "equal", self.tree(node.this), condition)
            branches.append((condition, self.tree(each.args["true"])))
        otherwise = node.args.get("default")
        rest = literal(None) if otherwise is None else self.tree(otherwise)
        return case(branches, rest)

    def _if(self, node: exp.Expr) -> Expression:
        return self._call(node, "if", node.this, node.args["true"], node.args.get("false"))

    def _logic(self, node: exp.Expr) -> Expression:
        name = "and" if isinstance(node, exp.And) else "or"
        return combine(partial(self._apply, node, name), [self.tree(each) for each in _flat(node)])

    def _function(self, node: exp.Expr) -> Expression:
        name = str(node.this)
        if name.lower() in (*AGGREGATES, *OTHER_AGGREGATES):
            raise ValueError(f"{node.sql(SqlDialect)} is not allowed: {_ONE_RECORD}")
        return self._call(node, name, *node.expressions)

    def _round_to(self, node: exp.Expr) -> Expression:
        """Return FLOOR or CEIL of a number, or of a time: ``FLOOR(time TO HOUR)``."""
        name, unit = type(node).__name__.lower(), node.args.get("to")
        if unit is None:
            return self._call(node, name, node.this, node.args.get("decimals"))
        value = self.tree(node.this)
        begin = self._apply(node, "date_trunc", literal(unit.name.lower()), value)
        if name == "floor":
            return begin
        end = self._apply(node, "add", begin, cast(literal(f"1 {unit.name}"), "INTERVAL"))
        return case([(self._apply(node, "equal", begin, value), begin)], end)

    def _trim(self, node: exp.Expr) -> Expression:
        name = _TRIMS[str(node.args.get("position") or "")]
        return self._call(node, name, node.this, node.args.get("expression"))

    def _substring(self, node: exp.Expr) -> Expression:
        return self._call(node, "substr", node.this, node.args["start"], node.args.get("length"))

    def _position_of(self, node: exp.Expr) -> Expression:
        return self._call(node, "strpos", node.this, node.args["substr"])

    def _extract(self, node: exp.Expr) -> Expression:
        value = self.tree(node.expression)
        return self._apply(node, "date_part", literal(node.this.name.lower()), value)

    def _bracket(self, node: exp.Expr) -> Expression:
        index, *more = node.expressions
        if more or index.args.get("step"):
            problem = "an array is read by [index] or [begin:end]"
            raise ValueError(f"{node.sql(SqlDialect)}{_position(node)}: {problem}")
        if isinstance(index, exp.Slice):
            return self._call(node, "array_slice", node.this, index.this, index.expression)
        return self._call(node, "array_element", node.this, index)

    def _interval(self, node: exp.Expr) -> Expression:
        unit = node.args.get("unit")
        text = node.this.name if isinstance(node.this, exp.Literal) else None
        if text is None:
            raise ValueError(f"{node.sql(SqlDialect)}: the number of an interval is a constant")
        if isinstance(unit, exp.IntervalSpan):
            raise ValueError(f"{node.sql(SqlDialect)} has two units; write INTERVAL '01:30:00'")
        return cast(literal(f"{text} {'' if unit is None else unit.name}".strip()), "INTERVAL")

    def _path(self, node: exp.Expr) -> Expression:
        name = "json_get_text" if isinstance(node, exp.JSONExtractScalar) else "json_get"
        steps: list[str | int] = []
        inner: Any = node
        while isinstance(inner, (exp.JSONExtract, exp.JSONExtractScalar)):
            steps = [*_steps(inner), *steps]
            inner = inner.this
        value = self.tree(inner)
        if type_of(value) not in ("JSON", "NULL") and value.operation != "sql.literal":
            raise ValueError(
                f"{node.sql(SqlDialect)}: a path must begin with a field of the type json"
            )
        return call(name, value, literal(path_text(steps)))


_ONLY_THE_RECORD = "; functions may depend only on the record"
_ONE_RECORD = "an expression sees a single record; use a window to aggregate records"
_SPECIAL: Mapping[type[exp.Expr], Callable[[Translation, Any], Expression]] = {
    exp.Column: Translation._column, exp.Literal: Translation._literal,
    exp.Null: lambda _, __: literal(None), exp.Boolean: lambda _, node: literal(bool(node.this)),
    exp.Paren: lambda translation, node: translation.tree(node.this),
    exp.Cast: Translation._cast, exp.TryCast: Translation._cast,
    exp.Between: Translation._between, exp.In: Translation._in, exp.Is: Translation._is,
    exp.Case: Translation._case, exp.If: Translation._if,
    exp.And: Translation._logic, exp.Or: Translation._logic,
    exp.Anonymous: Translation._function, exp.Trim: Translation._trim,
    exp.Floor: Translation._round_to, exp.Ceil: Translation._round_to,
    exp.Substring: Translation._substring, exp.StrPosition: Translation._position_of,
    exp.Extract: Translation._extract, exp.Bracket: Translation._bracket,
    exp.Array: lambda translation, node: translation._call(node, "array", *node.expressions),
    exp.Interval: Translation._interval,
    exp.JSONExtract: Translation._path, exp.JSONExtractScalar: Translation._path,
}  # fmt: skip


def _number(text: str) -> Expression:
    """Return a BIGINT; a DECIMAL if a whole number has more than 64 bits; or a DOUBLE."""
    digits = text.lstrip("-").lstrip("0")
    if not text.lstrip("-").isdecimal() or len(digits) > DECIMAL_DIGITS_MAX:
        return literal(float(text))
    if -_INT_MAX - 1 <= int(text) <= _INT_MAX:
        return literal(int(text))
    return literal(str(int(text)), f"DECIMAL({len(digits)},0)")


def _row_in(node: exp.Expr) -> exp.Expr:
    """Return the comparisons of (a, b) IN ((1, 2), …)."""
    names, rows = node.this.expressions, []
    for row in node.expressions:
        if not isinstance(row, exp.Tuple) or len(row.expressions) != len(names):
            text = f"{row.sql(SqlDialect)} is no row of {len(names)} values, as IN needs here"
            raise ValueError(text)
        pairs = zip(names, row.expressions, strict=True)
        rows.append(exp.and_(*(exp.EQ(this=name, expression=value) for name, value in pairs)))
    return exp.or_(*rows)


def _flat(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the parts of a chain of one operator, in order."""
    todo = [node]
    while todo:
        part = todo.pop()
        if type(part) is type(node):
            todo += [part.expression, part.this]
        else:
            yield part


def _steps(node: exp.JSONExtract | exp.JSONExtractScalar) -> Sequence[str | int]:
    """Return the keys and indexes of the path of a node."""
    path = node.expression
    try:
        if path.is_string:
            return path_steps(path.name)
        if path.is_int:
            return [int(path.to_py())]
        raise ValueError(f"the path {path.sql(SqlDialect)} may contain only keys and numbers")
    except ValueError as error:
        raise ValueError(f"{error}{_position(node)}") from error


def _position(node: exp.Expr) -> str:
    """Return the line and column of the first word of a node, where it has any."""
    known = [each.meta for each in node.walk() if "line" in each.meta]
    if not known:
        return ""
    first = min(known, key=lambda meta: int(meta["start"]))
    at = first["col"] - (first["end"] - first["start"])
    return f" (line {first['line']}, column {at})"


def _why(node: exp.Expr) -> str:
    if isinstance(node, exp.AggFunc):
        return _ONE_RECORD
    if isinstance(node, (exp.Query, exp.Command)):
        return "it is not an expression of a single record"
    return f"it is not a supported function{_ONLY_THE_RECORD}"
