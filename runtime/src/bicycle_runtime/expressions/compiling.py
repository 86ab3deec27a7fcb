"""SQL expressions, parsed and checked: only functions of one record are accepted.

sqlglot reads the text. Only nodes of ``_ALLOWED`` pass, so that no expression depends on a clock,
on chance, or on other records. The kernel says what type an expression has. Whole numbers are
computed in decimals and cast back, because the kernel itself lets them overflow in silence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, TokenError

from bicycle_runtime.expressions.kernel import planned_type
from bicycle_runtime.expressions.types import (
    CompiledExpressions,
    ExpressionInvalidError,
    FieldRead,
    FieldWord,
)

_DIALECT = "duckdb"
_ALLOWED: tuple[type[exp.Expr], ...] = (
    exp.Abs, exp.Add, exp.And, exp.Between, exp.Boolean, exp.Case, exp.Cast, exp.Ceil, exp.Coalesce,
    exp.Column, exp.Concat, exp.DPipe, exp.DataType, exp.Div, exp.EQ, exp.Floor, exp.GT, exp.GTE,
    exp.ILike, exp.Identifier, exp.If, exp.In, exp.Is, exp.LT, exp.LTE, exp.Left, exp.Length,
    exp.Like, exp.Literal, exp.Lower, exp.Mod, exp.Mul, exp.NEQ, exp.Neg, exp.Not, exp.Null,
    exp.Nullif, exp.Or, exp.Paren, exp.Replace, exp.Right, exp.Round, exp.StartsWith,
    exp.StrPosition, exp.Sub, exp.Substring, exp.Trim, exp.TryCast, exp.Upper,
)  # fmt: skip
_CHECKED = (exp.Add, exp.Sub, exp.Mul)
_COMPARED = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE)
_CASTS: Mapping[str, str] = {
    "BIGINT": "BIGINT", "INT": "BIGINT", "SMALLINT": "BIGINT", "TINYINT": "BIGINT",
    "DOUBLE": "DOUBLE", "FLOAT": "DOUBLE", "DECIMAL": "DOUBLE",
    "TEXT": "TEXT", "VARCHAR": "TEXT", "CHAR": "TEXT", "BOOLEAN": "BOOLEAN",
}  # fmt: skip
# They stand in the text as they are.
_KEPT = (exp.Boolean, exp.DataType, exp.Identifier, exp.Literal, exp.Null)
_NUMBERS = ("int", "float")
# What is larger takes minutes to check: the kernel plans each part, and parts again as a whole.
_TERMS_MAX = 5_000
_PLANS_MAX = 2_000


def compile_expressions(
    expressions: Mapping[str, str], fields: Mapping[str, FieldWord]
) -> CompiledExpressions:
    """Check expressions over fields of records, and return their compiled form.

    Args:
        expressions: SQL texts by the name of what they give.
        fields: The types of the fields.

    Raises:
        ExpressionInvalidError: one of them is no SQL, names an unknown field or function, or does
            not fit the types.

    Example:
        >>> found = compile_expressions({"f": "celsius * 1.8 + 32"}, {"celsius": "float"})
        >>> found.types, [read.field for read in found.reads]
        (('float',), ['celsius'])
    """
    reads: dict[FieldRead, None] = {}
    texts, types = [], []
    for name, text in expressions.items():
        try:
            tree = _parse(text)
            rewriting = _Rewriting(fields, reads)
            found = rewriting.sql(tree)
            types.append(rewriting.type_of(found))
        except ValueError as error:
            raise ExpressionInvalidError(name, str(error)) from error
        except RecursionError as error:
            raise ExpressionInvalidError(name, "it is nested too deeply") from error
        texts.append(found)
    return CompiledExpressions(
        reads=tuple(reads), names=tuple(expressions), texts=tuple(texts), types=tuple(types)
    )


def _parse(text: str) -> exp.Expr:
    try:
        terms = len(sqlglot.tokenize(text, dialect=_DIALECT))
        if terms > _TERMS_MAX:
            raise ValueError(f"it has {terms:,} terms, but at most {_TERMS_MAX:,} are allowed")
        found = sqlglot.parse(text, dialect=_DIALECT)
    except TokenError as error:
        raise ValueError("invalid SQL: a quote is not closed") from error
    except ParseError as error:
        raise ValueError(f"invalid SQL: {_problem(error)}") from error
    if len(found) != 1 or found[0] is None:
        raise ValueError("it must be a single expression")
    return found[0]


def _problem(error: ParseError) -> str:
    """Return the parser's problem with a text, and the preceding word."""
    found = error.errors[0]
    said = str(found["description"])
    behind = f"{found['start_context']}{found['highlight']}".strip()
    if said.startswith("Required keyword"):
        return f"an operand is missing after {behind!r}"
    if said.startswith("Expecting"):
        return f"expected {said.removeprefix('Expecting ').strip()} after {behind!r}"
    return f"unexpected {found['highlight']!r}"


class _Rewriting:
    """An expression in translation for the kernel; ``reads`` are all columns."""

    def __init__(self, fields: Mapping[str, FieldWord], reads: dict[FieldRead, None]) -> None:
        self._fields = fields
        self._reads = reads
        self._plan_count = 0

    def sql(self, node: exp.Expr) -> str:
        """Return a node in the words of the kernel, its children first."""
        if isinstance(node, (exp.JSONExtract, exp.JSONExtractScalar)):
            return self._path(node)
        if not isinstance(node, _ALLOWED):
            raise ValueError(f"{node.sql(_DIALECT)} is not allowed: {_why(node)}")
        if isinstance(node, exp.Column):
            return self._column(node)
        if isinstance(node, (exp.Cast, exp.TryCast)):
            return self._cast(node)
        if isinstance(node, (*_CHECKED, exp.Neg)):
            return self._arithmetic(node)
        if isinstance(node, _COMPARED):
            self._require_comparable(node)
        if isinstance(node, (exp.Div, exp.Mod)):
            sides = (self.sql(side.copy()) for side in (node.this, node.expression))
            self._require_numbers(node, *sides)
        self._rewrite_below(node)
        return str(node.sql(_DIALECT))

    def _rewrite_below(self, node: exp.Expr) -> None:
        for child in list(node.iter_expressions()):
            if isinstance(child, exp.If):
                self._rewrite_below(child)
            elif not isinstance(child, _KEPT):
                child.replace(exp.Var(this=f"({self.sql(child)})"))

    def type_of(self, text: str) -> FieldWord:
        """Return the type of the kernel's result for a text.

        Raises:
            ValueError: the kernel refuses it, or was asked too often.
        """
        self._plan_count += 1
        if self._plan_count > _PLANS_MAX:
            raise ValueError(
                f"the check of its type takes more than {_PLANS_MAX:,} steps; split the "
                "expression, or reduce its nesting"
            )
        return planned_type(text, tuple(self._reads))

    def _column(self, node: exp.Column) -> str:
        if node.table:
            raise ValueError(f"{node.sql(_DIALECT)}: fields have no table; write a path with ->>")
        if node.name not in self._fields:
            known = ", ".join(sorted(self._fields))
            raise ValueError(f"there is no field {node.name!r}; the record has {known}")
        found = self._fields[node.name]
        if found.startswith("decimal"):
            hint = "declare it as int or float, or use a function of a plugin"
            raise ValueError(f"field {node.name!r} is a decimal, which is not supported; {hint}")
        return self._read(FieldRead(field=node.name, type=found))

    def _path(self, node: exp.Expr) -> str:
        """Return the column of the value at a JSON path."""
        keys: list[str | int] = []
        inner: Any = node
        while isinstance(inner, (exp.JSONExtract, exp.JSONExtractScalar)):
            keys = [*_keys_of(inner.expression), *keys]
            inner = inner.this
        if not isinstance(inner, exp.Column) or self._fields.get(inner.name) != "json":
            raise ValueError(
                f"{node.sql(_DIALECT)}: a path must begin with a field of the type json"
            )
        is_text = isinstance(node, exp.JSONExtractScalar)
        read = FieldRead(field=inner.name, type="string", path=tuple(keys), is_text=is_text)
        return self._read(read)

    def _read(self, read: FieldRead) -> str:
        self._reads.setdefault(read)
        return f"c{list(self._reads).index(read)}"

    def _cast(self, node: exp.Expr) -> str:
        word = node.args["to"].this.name
        wanted = _CASTS.get(word)
        if wanted is None:
            raise ValueError(
                f"a cast to {word} is not supported; supported are {', '.join(sorted(_CASTS))}"
            )
        call = "TRY_CAST" if isinstance(node, exp.TryCast) else "CAST"
        return f"{call}({self.sql(node.this)} AS {wanted})"

    def _arithmetic(self, node: exp.Expr) -> str:
        """Return a sum or a product that is an error where it has more than 64 bits."""
        if isinstance(node, exp.Neg):
            left, right, sign = "0", self.sql(node.this), "-"
        else:
            left, right = self.sql(node.this), self.sql(node.expression)
            sign = {"add": "+", "sub": "-", "mul": "*"}[node.key]
        self._require_numbers(node, left, right)
        if self.type_of(left) == self.type_of(right) == "int":
            wide = [f"CAST({side} AS DECIMAL(19, 0))" for side in (left, right)]
            return f"CAST(({wide[0]} {sign} {wide[1]}) AS BIGINT)"
        return f"({left} {sign} {right})"

    def _require_numbers(self, node: exp.Expr, *sides: str) -> None:
        types = [self.type_of(side) for side in sides]
        if any(kind in ("string", "bool") for kind in types):
            raise ValueError(
                f"{node.sql(_DIALECT)} computes with {' and '.join(types)}; cast to a number"
            )

    def _require_comparable(self, node: exp.Expr) -> None:
        sides = [self.type_of(self.sql(side.copy())) for side in (node.this, node.expression)]
        if "string" in sides and any(side in (*_NUMBERS, "bool") for side in sides):
            raise ValueError(
                f"{node.sql(_DIALECT)} compares {sides[0]} with {sides[1]}; cast one of them"
            )


def _keys_of(path: Any) -> Iterable[str | int]:
    parts = path.expressions if isinstance(path, exp.JSONPath) else [path]
    for part in parts:
        if isinstance(part, exp.JSONPathRoot):
            continue
        key = part.this
        if isinstance(part, (exp.JSONPathKey, exp.JSONPathSubscript)) and isinstance(
            key, (str, int)
        ):
            yield key
        elif isinstance(part, exp.Literal):
            yield int(part.name) if part.is_int else part.name
        else:
            raise ValueError(f"the path {path.sql(_DIALECT)} may contain only keys and numbers")


def _why(node: exp.Expr) -> str:
    if isinstance(node, exp.AggFunc):
        return "an expression sees a single record; use a window to aggregate records"
    if isinstance(node, (exp.Query, exp.Command)):
        return "it is not an expression of a single record"
    return "it is not a supported function; functions may depend only on the record"
