"""The binding of joins: conditions become keys, bounds of time, and filters.

A join of streams is bounded: by the event times of both sides, by equal windows, or because the
right side is a table of which each row reads one version. Other joins would keep all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from sqlglot import exp

from bicycle_runtime.expressions.sql import tree
from bicycle_runtime.tables.dialect import WindowCall, require_length
from bicycle_runtime.tables.errors import SqlProblem
from bicycle_runtime.tables.grouping import is_aggregate, require_comparable
from bicycle_runtime.tables.lateness import require_final
from bicycle_runtime.tables.lookups import check_lookup
from bicycle_runtime.tables.moments import Span, fields_of, narrow, shift, span_of
from bicycle_runtime.tables.plans import (
    WINDOW_COLUMNS,
    JoinKind,
    JoinRows,
    Plan,
    PlanColumn,
    Scan,
    require_stream,
    substitute,
    unique_field,
)
from bicycle_runtime.tables.rejections import check_expression_parts, check_join
from bicycle_runtime.tables.scope import (
    NameScope,
    Relation,
    compile_in,
    connects,
    filter_all,
    is_known,
    split_and,
    sql_of,
    with_fields,
)
from bicycle_sdk.expressions import Expression

How = Literal["inner", "left", "right", "full"]
_Condition = tuple[Expression, exp.Expr]  # Over the result, and as written.
_Pair = tuple[Expression, Expression, _Condition]  # Equal values, over the inputs.
_CLOCKS = ("proctime", "now", "current_timestamp")
_NO_KEYS = (
    "a join needs equal columns of both sides, such as ON a.id = b.id; a join of all rows with all "
    "rows is not supported"
)
_EXAMPLE = "b.at BETWEEN a.at - INTERVAL '…' MINUTE AND a.at + INTERVAL '…' MINUTE"


@dataclass(slots=True)
class _Side:
    """One input of a join: its plan, and its columns by their fields in the result.

    ``pending`` are bounds of a window that no record has before the join, by field.
    """

    plan: Plan
    relations: list[Relation]
    values: dict[str, Expression] = field(default_factory=dict)
    inner: dict[str, str] = field(default_factory=dict)  # Fields of the plan, by field.
    pending: dict[str, str] = field(default_factory=dict)

    def add(self, relation: Relation, taken: list[PlanColumn]) -> None:
        """Add a table; its fields become unique."""
        columns = []
        for column in relation.columns:
            name = unique_field(column.field, taken)
            if relation.window is not None and column.field in WINDOW_COLUMNS:
                self.pending[name] = column.field
            else:
                self.values[name], self.inner[name] = column.read(), column.field
            columns.append(replace(column, field=name))
            taken.append(columns[-1])
        merged = frozenset(
            new.field
            for new, old in zip(columns, relation.columns, strict=True)
            if old.field in relation.merged
        )
        self.relations.append(replace(relation, columns=tuple(columns), merged=merged))

    def has(self, fields: set[str]) -> bool:
        """Return whether an input has all of some fields."""
        return fields <= {*self.values}

    def span(self, name: str) -> tuple[int, int] | None:
        """Return how much a field of the result differs from the event time of this side."""
        return self.plan.span(self.inner[name]) if name in self.inner else None

    def over_input(self, value: Expression) -> Expression:
        """Return an expression over the input."""
        return substitute(value, self.values)


@dataclass(slots=True)
class _Conditions:
    """The conditions of a join, by their role."""

    keys: list[_Pair] = field(default_factory=list)
    times: list[_Pair] = field(default_factory=list)  # Equal ones, which the span contains.
    span: Span = (None, None)
    has_windows: bool = False
    left: list[_Condition] = field(default_factory=list)
    right: list[_Condition] = field(default_factory=list)
    rest: list[_Condition] = field(default_factory=list)
    bounds: list[_Condition] = field(default_factory=list)  # Other ones, which the span contains.


class JoinBinder:
    """Binds the joins of a SELECT, in their order.

    Args:
        relation: Returns the table of a part of FROM.
        at: Returns the offset of a part of the query.

    ``inputs`` are the identities of the plans that are joined.
    """

    def __init__(
        self, relation: Callable[[exp.Expr], Relation], at: Callable[[exp.Expr], int]
    ) -> None:
        self._relation, self._at = relation, at
        self._where: list[exp.Expr] = []
        self.inputs: set[int] = set()

    def bind(
        self, node: exp.Select, scope: NameScope
    ) -> tuple[Relation, NameScope, exp.Expr | None]:
        """Return the joined rows, the names of all tables, and the rest of WHERE.

        The tables of ``scope`` precede the joins; the first one has their rows.
        """
        joins, where = node.args["joins"], node.args.get("where")
        outer = {str(each.args.get("side") or "").upper() for each in joins}
        # Without RIGHT and FULL, a condition of WHERE is one of an inner join of its columns.
        is_moved = where is not None and not outer & {"RIGHT", "FULL"}
        self._where = split_and(where.this) if is_moved and where is not None else []
        every, plan = list(self._where), scope.relations[0].plan
        self.inputs.add(id(plan))
        names, pending = [each.alias for each in scope.relations], list(joins)
        is_list = not any(each.args.get("on") or each.args.get("using") for each in joins)
        while pending:
            # A table of a list is next if WHERE has an equality of it and the tables before it.
            linked = (j for j in pending if connects(self._relation(j.this), scope, self._where))
            each = next(linked, pending[0]) if is_list else pending[0]
            pending.remove(each)
            plan, scope = self._join(plan, scope, each)
        names += [each.this.alias_or_name for each in joins]
        scope.relations.sort(key=lambda each: names.index(each.alias) if is_list else 0)
        for condition in every:  # A name must not become ambiguous by a later table.
            with_fields(condition, scope, self._at(condition))
        rest = None if where is None else where.this
        if is_moved:
            rest = exp.and_(*self._where, copy=False) if self._where else None
        return Relation("", plan, plan.columns), scope, rest

    def _join(self, plan: Plan, scope: NameScope, node: exp.Expr) -> tuple[Plan, NameScope]:
        how: Any = check_join(node, self._at(node.this))
        table, version = node.this, node.this.args.get("version")
        if version is not None:
            table = table.copy()
            table.set("version", None)
        added = self._relation(table)
        if version is None:
            require_stream(added.plan, self._at(table))
        self.inputs.add(id(added.plan))
        if added.alias.lower() in {each.alias.lower() for each in scope.relations}:
            raise SqlProblem(
                self._at(table), f"two tables are named {added.alias!r}; write an alias: "
                f"{added.alias} AS …",
            )  # fmt: skip
        taken: list[PlanColumn] = []
        left, right = _Side(plan, []), _Side(added.plan, [])
        for each in scope.relations:
            left.add(each, taken)
        right.add(added, taken)
        both = NameScope([*left.relations, *right.relations])
        conditions = self._conditions(node, how, both, (left, right))
        binder = _OneJoin(self._at, node, how, sides=(left, right), conditions=conditions)
        windows = scope.relations[0].window, added.window
        found: Plan
        if version is not None:
            found = binder.version(both, version.expression, added)
        elif any(windows):
            found = binder.windows(*windows)
        else:
            found = binder.interval()
        if conditions.rest and how != "inner":
            raise SqlProblem(
                self._at(conditions.rest[0][1]), f"{how.upper()} JOIN supports equal keys, bounds "
                "of event times, and conditions of one side in ON (with FOR SYSTEM_TIME AS OF, of "
                "the left side); use an inner join, or compute the other conditions in SELECT",
            )  # fmt: skip
        found = filter_all(found, conditions.rest)
        relations = [replace(each, plan=found, window=None) for each in both.relations]
        return found, NameScope(relations, scope.outer)

    def _conditions(
        self, node: exp.Expr, how: How, scope: NameScope, sides: tuple[_Side, _Side]
    ) -> _Conditions:
        parts = split_and(node.args["on"]) if node.args.get("on") else []
        for part in parts:
            check_expression_parts(part, self._at)
            if any(map(is_aggregate, part.walk())):
                raise SqlProblem(self._at(part), "an aggregate is not possible in ON")
        if how == "inner":
            moved = [part for part in self._where if is_known(part, scope)]
            self._where = [part for part in self._where if part not in moved]
            parts += moved
        found = _Conditions()
        for name in node.args.get("using") or []:
            self._sort(self._using(name, how, sides), sides, found)
        for part in parts:
            value = compile_in(scope, part, self._at(part))
            if tree.type_of(value) not in ("BOOLEAN", "NULL"):
                raise SqlProblem(self._at(part), f"ON is {tree.type_of(value)}; expected BOOLEAN")
            self._sort((tree.cast(value, "BOOLEAN"), part), sides, found)
        return found

    def _using(self, name: exp.Expr, how: How, sides: tuple[_Side, _Side]) -> _Condition:
        """Return the condition of a column of USING, and merge its columns."""
        if how == "full":
            raise SqlProblem(
                self._at(name), "USING is not supported in FULL JOIN; write ON, and coalesce(…)"
            )
        written = exp.column(name.name)
        written.this.meta.update(name.meta)
        found = [NameScope(side.relations).resolve(written, self._at(name)).field for side in sides]
        hidden, side = (found[0], sides[0]) if how == "right" else (found[1], sides[1])
        for each in side.relations:
            if any(column.field == hidden for column in each.columns):
                each.merged |= {hidden}
        left, right = (_read(*pair) for pair in zip(sides, found, strict=True))
        try:
            return tree.call("equal", left, right), name
        except ValueError as error:
            raise SqlProblem(self._at(name), str(error)) from error

    def _sort(self, condition: _Condition, sides: tuple[_Side, _Side], found: _Conditions) -> None:
        """Add a condition to the list of its role."""
        (left, right), (value, node) = sides, condition
        fields = fields_of(value)
        if left.has(fields) or right.has(fields):
            (found.left if left.has(fields) else found.right).append(condition)
            return
        pair = self._pair(condition, sides)
        timed = span_of(value)
        if timed is not None and timed[0] not in (*left.values, *left.pending):
            low, high = (None if bound is None else -bound for bound in timed[2])
            timed = timed[1], timed[0], (high, low)
        if timed is not None and timed[2] == (0, 0):
            words = left.pending.get(timed[0]), right.pending.get(timed[1])
            if words[0] == words[1] is not None:
                found.has_windows = True
                return
            own = (left, timed[0]) if words[1] else (right, timed[1])
            after = {"window_end": (1, 1), "window_time": (0, 0)}.get(words[0] or words[1] or "")
            found.has_windows |= after is not None and own[0].span(own[1]) == after
        spans = (None, None) if timed is None else (left.span(timed[0]), right.span(timed[1]))
        if timed is not None and spans[0] is not None and spans[1] is not None:
            found.span = narrow(found.span, shift(timed[2], spans[0], spans[1]))
            is_exact = spans[0][0] == spans[0][1] and spans[1][0] == spans[1][1]
            if pair and is_exact:
                found.times.append(pair)
            else:
                (found.bounds if is_exact else found.rest).append(condition)
        elif pair is None:
            found.rest.append(condition)
        else:
            require_comparable(tree.type_of(pair[0]), self._at(node), "JOIN")
            found.keys.append(pair)

    @staticmethod
    def _pair(condition: _Condition, sides: tuple[_Side, _Side]) -> _Pair | None:
        """Return the left and the right value of an equality, over the inputs."""
        if condition[0].operation != "sql.equal":
            return None
        (left, right), (first, second) = sides, condition[0].arguments[1:]
        if not left.has(fields_of(first)):
            first, second = second, first
        if left.has(fields_of(first)) and right.has(fields_of(second)):
            return left.over_input(first), right.over_input(second), condition
        return None


class _OneJoin:
    """Makes the plan of one join from its conditions."""

    def __init__(
        self, at: Callable[[exp.Expr], int], node: exp.Expr, how: How, *,
        sides: tuple[_Side, _Side], conditions: _Conditions,
    ) -> None:  # fmt: skip
        self._node, self._how, self._sides, self._found = node, how, sides, conditions
        self._at = at(node.args.get("on") or node.this)
        self._table_at = at(node.this)

    def interval(self) -> JoinRows:
        """Return the plan of a join with bounds of the event times."""
        (left, right), (low, high) = self._sides, self._found.span
        if not (self._found.keys or self._found.times):
            return self._join_unbounded(_NO_KEYS)
        for side in self._sides:
            if side.plan.time is None and not side.plan.spans:
                names = " and ".join(each.alias for each in side.relations)
                return self._join_unbounded(
                    f"a join of streams needs event times, which {names} does not have: "
                    "declare WATERMARK FOR in CREATE TABLE and select this column, or read the "
                    f"right side as a table: JOIN {right.relations[0].alias} FOR SYSTEM_TIME AS OF "
                    "…",
                )  # fmt: skip
        if low is None or high is None:
            missing = "bounds" if low is high else "lower bound" if low is None else "upper bound"
            return self._join_unbounded(
                f"the join has no {missing} of event time, so it would keep all rows; "
                f"add {self._example()} to ON, or window both sides",
            )  # fmt: skip
        if low > high:
            raise SqlProblem(
                self._at, "no rows match: the bounds of event times exclude each other"
            )
        for bound in (low, high):
            require_length(bound, "bound of event times", self._at)
        times = (left.plan.time, right.plan.time)
        keeps = self._how in ("left", "full"), self._how in ("right", "full")
        spans = {}
        if not keeps[1]:
            spans.update(_spans(left, (-max(0, high), -max(0, low))))
        if not keeps[0]:
            spans.update(_spans(right, (min(0, low), min(0, high))))
        latest = {
            name
            for side, time in zip(self._sides, times, strict=True)
            for name, inner in side.inner.items()
            if inner in (side.plan.latest or {time})
        }
        is_known = self._how == "inner" and None not in times
        return self._plan(
            "interval", spans, bounds=(low, high), latest=frozenset(latest if is_known else ())
        )

    def _join_unbounded(self, problem: str) -> JoinRows:
        return self._plan("unbounded", {}, problem=SqlProblem(self._at, problem))

    def windows(self, first: WindowCall | None, second: WindowCall | None) -> JoinRows:
        """Return the plan of a join of rows in equal windows."""
        window = first or second
        assert window is not None
        other = second if first else first
        is_same = other is not None and (other.kind, other.intervals_ms) == (
            window.kind, window.intervals_ms,
        )  # fmt: skip
        is_mixed = other is None and window.kind == "TUMBLE" and self._how == "inner"
        if not (is_same or is_mixed) or window.kind not in ("TUMBLE", "HOP"):
            raise SqlProblem(
                window.at, "both sides of a window join have the same TUMBLE or HOP; or group both "
                "sides by their windows, and join the results",
            )  # fmt: skip
        if not self._found.has_windows:
            raise SqlProblem(
                self._at, "a window join needs equal windows: add a.window_start = b.window_start "
                "AND a.window_end = b.window_end to ON",
            )  # fmt: skip
        after = {"window_start": -window.intervals_ms["SIZE"], "window_end": 0, "window_time": -1}
        self._found.keys += self._found.times
        stamps: Any = tuple(
            {name: after[word] for name, word in side.pending.items()} for side in self._sides
        )
        kept = {"inner": (0, 1), "left": (0,), "right": (1,), "full": ()}[self._how]
        spans = {
            name: (distance + 1, distance + 1)
            for index in kept
            for name, distance in stamps[index].items()
        }
        return self._plan("window", spans, window=window, stamps=stamps)

    def version(self, scope: NameScope, of: exp.Expr, table: Relation) -> JoinRows:
        """Return the plan of a join with a version of a table."""
        left, right = self._sides
        kind: JoinKind = "latest"
        word = of.name if isinstance(of, exp.Column | exp.Anonymous) else type(of).__name__
        if word.lower().replace("currenttimestamp", "now") not in _CLOCKS:
            time = None
            if isinstance(of, exp.Column):
                time = scope.resolve(of, self._table_at).field
            if time is None or left.span(time) != (0, 0):
                raise SqlProblem(
                    self._table_at, "FOR SYSTEM_TIME AS OF needs the event time of the left side"
                    f" ({_time_name(left) or 'which has none'}), or PROCTIME()",
                )  # fmt: skip
            kind = "as_of"
        if self._how not in ("inner", "left"):
            raise SqlProblem(
                self._table_at, f"{self._how.upper()} JOIN is not possible with FOR SYSTEM_TIME AS "
                "OF; use JOIN or LEFT JOIN",
            )  # fmt: skip
        if not isinstance(right.plan, Scan) or not right.plan.table.definition.key:
            text = f"a table with a key; declare PRIMARY KEY (…) in CREATE TABLE {table.alias}"
            raise SqlProblem(self._table_at, f"FOR SYSTEM_TIME AS OF needs {text}")
        if right.plan.is_lookup:
            check_lookup(right.plan.table, self._table_at, is_current=kind == "latest")
            kind = "lookup"
        if kind == "as_of" and right.plan.time is None:
            raise SqlProblem(
                self._table_at, f"the versions of {table.alias} have no event time; declare "
                "WATERMARK FOR … in CREATE TABLE, or use PROCTIME()",
            )  # fmt: skip
        pairs = [(each, JoinBinder._pair(each, self._sides)) for each in self._found.right]
        self._found.keys += [*self._found.times, *(pair for _, pair in pairs if pair)]
        self._found.rest += [each for each, pair in pairs if not pair]  # Of the version.
        self._found.right = []
        self._check_key(right.plan, table)
        keeps_time = kind != "latest" or right.plan.time is not None
        return self._plan(kind, _spans(left, (0, 0)) if keeps_time else {})

    def _check_key(self, scan: Scan, table: Relation) -> None:
        """Require the key of the table in the keys of the join; the others become filters."""
        key = {name.text.lower() for name in scan.table.definition.key}
        names = {column.field: column.name.lower() for column in scan.columns}
        found, keys = [], self._found.keys
        self._found.keys = []
        for pair in keys:
            fields = fields_of(pair[1])
            is_plain = pair[1].operation == "sql.column" and len(fields) == 1
            name = names[fields.pop()] if is_plain else ""
            if name in key and name not in found:
                self._found.keys.append(pair)
                found.append(name)
            else:
                self._found.rest.append(pair[2])
        if set(found) != key:
            missing = ", ".join(f"{table.alias}.{name} = …" for name in sorted(key - set(found)))
            raise SqlProblem(self._at, f"add the key of {table.alias} to ON: {missing}")

    def _plan(self, kind: JoinKind, spans: Mapping[str, Any], **details: Any) -> JoinRows:
        left, right = self._sides
        keys, problem = self._found.keys or self._found.times, details.get("problem")
        self._found.rest += self._found.bounds if kind != "interval" else []
        if not keys and (problem is None or self._how != "inner"):
            raise problem or SqlProblem(self._at, _NO_KEYS)
        for side in self._sides:
            require_final(side.plan, self._table_at, "and a join needs final rows")
        plans = [side.plan for side in self._sides]
        left_keys, right_keys = [each[0] for each in keys], [each[1] for each in keys]
        given = (self._found.left, left_keys, "left"), (self._found.right, right_keys, "right")
        for index, (conditions, own, word) in enumerate(given):
            values = [self._sides[index].over_input(value) for value, _ in conditions]
            if values and self._how in (word, "full"):
                # A row for which they are not true matches no other row: its keys become NULL.
                value = tree.all_of(values)
                own[:] = [tree.case([(value, key)], tree.literal(None)) for key in own]
                continue
            nodes = [node for _, node in conditions]
            plans[index] = filter_all(plans[index], [*zip(values, nodes, strict=True)])
        columns = [c for side in self._sides for each in side.relations for c in each.columns]
        text = " AND ".join(sql_of(each[2][1]) for each in keys)
        return JoinRows(
            columns=tuple(columns), kind=kind, how=self._how, left=plans[0], right=plans[1],
            left_values=left.values, right_values=right.values, left_keys=tuple(left_keys),
            right_keys=tuple(right_keys), text=text, spans=spans,
            time=next((name for name, span in spans.items() if span == (0, 0)), None), **details,
        )  # fmt: skip

    def _example(self) -> str:
        left, right = (_time_name(side) for side in self._sides)
        if left is None or right is None:
            return _EXAMPLE
        return f"{right} BETWEEN {left} - INTERVAL '…' MINUTE AND {left} + INTERVAL '…' MINUTE"


def _read(side: _Side, name: str) -> Expression:
    columns = [column for each in side.relations for column in each.columns]
    return next(column.read() for column in columns if column.field == name)


def _spans(side: _Side, by: tuple[int, int]) -> dict[str, tuple[int, int]]:
    """Return how much the fields of a side differ from a later event time."""
    found = {name: side.plan.span(inner) for name, inner in side.inner.items()}
    return {
        name: (span[0] + by[0], span[1] + by[1]) for name, span in found.items() if span is not None
    }


def _time_name(side: _Side) -> str | None:
    """Return the qualified name of the event time of a side."""
    every = [(each.alias, own) for each in side.relations for own in each.columns]
    found = (f"{a}.{own.name}" for a, own in every if side.inner.get(own.field) == side.plan.time)
    return None if side.plan.time is None else next(found, None)
