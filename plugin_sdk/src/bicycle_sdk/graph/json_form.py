"""Vertices, edges and settings to and from the JSON of all Bicycle clients.

Fields beyond that shape are written only when they differ from the default, so a minimal graph of
the shared shape is readable. Unknown fields, kinds and words are errors that name them.
"""

from __future__ import annotations

import json
from typing import Any

from bicycle_sdk.graph.json_fields import (
    Fields,
    compact_json,
    json_type,
    read_word,
    unreadable,
)
from bicycle_sdk.graph.kinds import OperatorKind, Partitioning, descriptor_of
from bicycle_sdk.graph.parts import (
    Edge,
    ErrorAction,
    ErrorPolicy,
    JobConfig,
    RestartKind,
    RestartStrategy,
    RuntimeMode,
    Vertex,
)

__all__ = [
    "config_from_dict",
    "config_to_dict",
    "edge_from_dict",
    "edge_to_dict",
    "vertex_from_dict",
    "vertex_to_dict",
]


def vertex_to_dict(vertex: Vertex) -> dict[str, Any]:
    """Return a vertex as plain data."""
    kind = vertex.kind.value
    is_bare = vertex.descriptor.is_bare and not vertex.details
    data: dict[str, Any] = {
        "id": vertex.id,
        "uid": vertex.uid,
        "name": vertex.name,
        "operator_type": kind if is_bare else {kind: dict(vertex.details)},
        "parallelism": vertex.parallelism,
        "max_parallelism": vertex.max_parallelism,
        "slot_sharing_group": vertex.slot_sharing_group,
        "chaining_enabled": vertex.chaining_enabled,
        "plugin_function": vertex.plugin_function,
        "config": list(compact_json(dict(vertex.config)).encode()) if vertex.config else [],
    }
    if vertex.starts_new_chain:
        data["starts_new_chain"] = True
    if vertex.output_type is not None:
        data["output_type"] = vertex.output_type
    if vertex.on_error != ErrorPolicy():
        policy = vertex.on_error
        data["on_error"] = {
            "action": policy.action.value,
            "retries": policy.retries,
            "backoff_ms": policy.backoff_ms,
            "max_error_rate": policy.max_error_rate,
        }
    if vertex.payloads:
        data["payloads"] = list(vertex.payloads)
    return data


def vertex_from_dict(data: object) -> Vertex:
    """Read a vertex; absent optional fields take their defaults."""
    fields = Fields(data, "vertex")
    vertex_id: str = fields.take("id", str)
    fields.where = f"vertex {vertex_id!r}"
    kind, details = _operator_type_from_json(fields.take("operator_type", object), fields.where)
    vertex = Vertex(
        id=vertex_id,
        kind=kind,
        details=details,
        uid=fields.take("uid", str, default=None),
        name=fields.take("name", str, default=""),
        parallelism=fields.take("parallelism", int, default=1),
        max_parallelism=fields.take("max_parallelism", int, default=None),
        slot_sharing_group=fields.take("slot_sharing_group", str, default="default"),
        chaining_enabled=fields.take("chaining_enabled", bool, default=True),
        starts_new_chain=fields.take("starts_new_chain", bool, default=False),
        plugin_function=fields.take("plugin_function", str, default=None),
        config=_config_bytes_from_json(fields.take("config", list, default=[]), fields.where),
        output_type=fields.take("output_type", str, default=None),
        on_error=_policy_from_dict(fields.take("on_error", dict, default={}), fields.where),
        payloads=tuple(fields.take("payloads", list, default=[])),
    )
    if not all(isinstance(role, str) for role in vertex.payloads):
        raise unreadable(f"{fields.where}: 'payloads' is not a list of strings")
    fields.finish()
    return vertex


def _operator_type_from_json(data: object, where: str) -> tuple[OperatorKind, dict[str, Any]]:
    if isinstance(data, str):
        word, details = data, dict[str, Any]()
    elif isinstance(data, dict) and len(data) == 1:
        word, details = next(iter(data.items()))
    else:
        raise unreadable(f"{where}: 'operator_type' is neither a text nor an object with one key")
    kind: OperatorKind = read_word(OperatorKind, word, f"{where}: operator_type")
    fields = Fields(details, f"{where}: {kind.value}")
    descriptor = descriptor_of(kind)
    known = {name: fields.take(name, expected) for name, expected in descriptor.required.items()}
    known |= {
        name: fields.take(name, expected, default=None)
        for name, expected in descriptor.optional.items()
        if name in fields.data
    }
    fields.finish()
    if "connector" in known:
        connector = Fields(known["connector"], f"{where}: connector")
        known["connector"] = {
            "connector_type": connector.take("connector_type", str),
            "properties": connector.take("properties", dict, default={}),
        }
        connector.finish()
    return kind, known


def _config_bytes_from_json(data: list[Any], where: str) -> dict[str, Any]:
    if not data:
        return {}
    try:
        config = json.loads(bytes(data))
    except (ValueError, TypeError, RecursionError) as error:
        raise unreadable(f"{where}: 'config' is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise unreadable(f"{where}: 'config' must be an object, got {json_type(config)}")
    return config


def _policy_from_dict(data: dict[str, Any], where: str) -> ErrorPolicy:
    fields = Fields(data, f"{where}: on_error")
    default = ErrorPolicy()
    policy = ErrorPolicy(
        action=read_word(ErrorAction, fields.take("action", str, default="fail"), fields.where),
        retries=fields.take("retries", int, default=default.retries),
        backoff_ms=fields.take("backoff_ms", int, default=default.backoff_ms),
        max_error_rate=fields.take("max_error_rate", float, default=None),
    )
    fields.finish()
    return policy


def edge_to_dict(edge: Edge) -> dict[str, Any]:
    """Return an edge as plain data."""
    data: dict[str, Any] = {
        "source_id": edge.source_id,
        "target_id": edge.target_id,
        "partition_strategy": edge.partitioning.value,
    }
    if edge.input_ordinal:
        data["input_ordinal"] = edge.input_ordinal
    if edge.output_tag is not None:
        data["output_tag"] = edge.output_tag
    if edge.feedback:
        data["feedback"] = True
    return data


def edge_from_dict(data: object) -> Edge:
    """Read an edge; absent optional fields take their defaults."""
    fields = Fields(data, "edge")
    source_id, target_id = fields.take("source_id", str), fields.take("target_id", str)
    fields.where = f"edge {source_id!r} -> {target_id!r}"
    strategy = fields.take("partition_strategy", str, default="Forward")
    edge = Edge(
        source_id=source_id,
        target_id=target_id,
        partitioning=read_word(Partitioning, strategy, f"{fields.where}: partition_strategy"),
        input_ordinal=fields.take("input_ordinal", int, default=0),
        output_tag=fields.take("output_tag", str, default=None),
        feedback=fields.take("feedback", bool, default=False),
    )
    fields.finish()
    return edge


def config_to_dict(config: JobConfig) -> dict[str, Any]:
    """Return the settings of a job as plain data."""
    data: dict[str, Any] = {
        "parallelism": config.parallelism,
        "max_parallelism": config.max_parallelism,
        "checkpoint_interval_ms": config.checkpoint_interval_ms,
        "restart_strategy": {
            "strategy_type": config.restart_strategy.kind.value,
            "max_attempts": config.restart_strategy.max_attempts,
            "delay_ms": config.restart_strategy.delay_ms,
        },
        "properties": dict(config.properties),
    }
    if config.mode is not RuntimeMode.STREAMING:
        data["mode"] = config.mode.value
    return data


def config_from_dict(data: dict[str, Any]) -> JobConfig:
    """Read the settings of a job; absent ones take their defaults."""
    fields = Fields(data, "config")
    strategy = Fields(fields.take("restart_strategy", dict, default={}), "restart_strategy")
    default, restart = JobConfig(), RestartStrategy()
    config = JobConfig(
        parallelism=fields.take("parallelism", int, default=default.parallelism),
        max_parallelism=fields.take("max_parallelism", int, default=default.max_parallelism),
        checkpoint_interval_ms=fields.take(
            "checkpoint_interval_ms", int, default=default.checkpoint_interval_ms
        ),
        restart_strategy=RestartStrategy(
            kind=read_word(
                RestartKind,
                strategy.take("strategy_type", str, default=restart.kind.value),
                "restart_strategy: strategy_type",
            ),
            max_attempts=strategy.take("max_attempts", int, default=restart.max_attempts),
            delay_ms=strategy.take("delay_ms", int, default=restart.delay_ms),
        ),
        properties=fields.take("properties", dict, default={}),
        mode=read_word(
            RuntimeMode, fields.take("mode", str, default=default.mode.value), "config: mode"
        ),
    )
    strategy.finish()
    fields.finish()
    return config
