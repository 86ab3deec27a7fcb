"""The custom resource definitions of the Kubernetes operator, from the runtime's declared options.

``tools/generate.py`` writes them into the operator's package, which does not depend on the runtime.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.jobs.operations.savepoint import SavepointOptions
from bicycle_runtime.jobs.options import JobOptions
from bicycle_runtime.jobs.upgrading.upgrade import UpgradeOptions
from bicycle_sdk.options import OptionInfo, describe

FILE = Path(__file__).parents[1] / "deploy/operator/src/bicycle_operator/crds.yaml"
CHART_FILE = FILE.parents[3] / "chart/crds/bicycle.yaml"
_HEAD = "# Written by tools/generate.py from the declared options of the runtime.\n"
# The resource itself has these: its name, its spec, its version.
_OF_RESOURCE = frozenset({"plugin", "plugin_env", "name", "parallelism", "functions_of_plugins"})
_NAME = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"  # Of a resource; the operator checks it, too.
_TEXT: dict[str, Any] = {"type": "string"}
_TEXTS: dict[str, Any] = {"type": "object", "additionalProperties": _TEXT}
_NUMBER: dict[str, Any] = {"type": "integer", "format": "int64"}
_TYPES = {bool: {"type": "boolean"}, int: _NUMBER, float: {"type": "number"}, str: _TEXT}


class _Dumper(yaml.SafeDumper):
    """A dumper that repeats equal parts instead of referring to them."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - The signature of the base class.
        return True


def files() -> dict[Path, str]:
    """Return the definitions by file; Helm creates the peering of operators with its templates."""
    documents = _documents()
    return {FILE: _yaml(documents), CHART_FILE: _yaml(documents[:-1])}


def _yaml(documents: list[dict[str, Any]]) -> str:
    return _HEAD + yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=100)


def _documents() -> list[dict[str, Any]]:
    return [
        _definition("BicycleJob", "bjob", _job(), columns=_COLUMNS, subresources={"scale": _SCALE}),
        _definition("BicycleSavepoint", "bsp", _savepoint(), columns=_SAVEPOINT_COLUMNS),
        *_peering(),
    ]


def reference(kind: str) -> str:
    """Return a table with each field of the spec of a kind; groups of options are one row."""
    spec = _job() if kind == "BicycleJob" else _savepoint()
    rows = ["| field of `spec` | default | description |", "|---|---|---|"]
    for name, schema in spec["properties"].items():
        below = schema.get("properties", {}) if name in ("pipeline", "autoscaling") else {}
        for path, each in [(name, schema), *((f"{name}.{n}", s) for n, s in below.items())]:
            default = f"`{each['default']}`" if "default" in each else ""
            rows.append(f"| `{path}` | {default} | {each['description']} |")
    return "\n".join([*rows, ""])


def option_schema(info: OptionInfo) -> dict[str, Any]:
    """Return the schema of an option: type, bounds, choices and description."""
    schema: dict[str, Any] = {"description": info.doc}
    if info.choices:
        return schema | {"type": "string", "enum": list(info.choices)}
    schema |= _TYPES.get(info.hint, {"x-kubernetes-preserve-unknown-fields": True})
    bounds = {"minimum": info.low, "maximum": info.high} if info.hint in (int, float) else {}
    schema |= {name: bound for name, bound in bounds.items() if bound is not None}
    return schema


def _options(group: type[Any], doc: str) -> dict[str, Any]:
    infos = [info for info in describe(group) if info.name not in _OF_RESOURCE]
    properties = {info.name: option_schema(info) for info in infos}
    return {"type": "object", "description": doc, "properties": properties}


def _job() -> dict[str, Any]:
    [width] = [info for info in describe(JobOptions) if info.name == "parallelism"]
    properties = {
        "plugin": _TEXT
        | {"description": "Name of a plugin that the service has.", "maxLength": 200},
        "version": _TEXT
        | {"description": "Version of the uploaded wheel with the plugin; the newest upload, if "
           "several contain it. Default: the plugin in the environment of the service. Another "
           "version is an upgrade."},
        "pipeline": {
            "type": "object", "description": "A job in one file instead of a plugin: Python, a "
            "pipeline or SQL.",
            "required": ["file", "text"],
            "properties": {
                "file": _TEXT
                | {"description": "File name, which ends in .py, .toml, .yaml, .yml or .sql, or "
                   "FILE.py:FUNCTION."},
                "text": _TEXT | {"description": "The content of the file."},
            },
        },
        "params": _TEXTS | {"description": "Parameters of the plugin."},
        "parallelism": option_schema(width)
        | {"description": "Parallelism of every operator. A change is a rescale of the running "
           "job. Default: the parallelism of the plugin."},
        "options": _options(JobOptions, "Options of the job, such as its restarts."),
        "engine": _options(EngineOptions, "Options of the engine."),
        "spark": _TEXTS | {"description": "Settings of Spark."},
        "slots": _NUMBER | {"minimum": 1, "description": "Slots of the master that the job takes."},
        "suspend": {"type": "boolean", "description": "Keep the job stopped, with its state."},
        "savepointPolicy": _TEXT
        | {"enum": ["Never", "OnStop"], "default": "Never",
           "description": "OnStop creates a savepoint when the job is suspended, and when a change "
           "stops it."},
        "deletionPolicy": _TEXT
        | {"enum": ["Drain", "Savepoint", "Cancel"], "default": "Savepoint",
           "description": "The end of the job when the resource is deleted."},
        "upgrade": _options(UpgradeOptions, "Options of upgrades to another version."),
        "autoscaling": _autoscaling(),
    }  # fmt: skip
    rules = [
        {"rule": "has(self.plugin) != has(self.pipeline)",
         "message": "set either plugin or pipeline"},
        {"rule": "!has(self.version) || has(self.plugin)", "message": "version requires plugin"},
        {"rule": "!has(self.autoscaling) || has(self.parallelism)",
         "message": "autoscaling requires parallelism, which it changes"},
    ]  # fmt: skip
    return {"type": "object", "properties": properties, "x-kubernetes-validations": rules}


def _autoscaling() -> dict[str, Any]:
    """Return the schema of the limits between which the lag leaves the parallelism unchanged."""
    numbers = {
        "minParallelism": (1, 1, "Lowest parallelism."),
        "maxParallelism": (1, None, "Highest parallelism."),
        "scaleUpLag": (1, None, "Unread records above which the parallelism is doubled."),
        "scaleUpSeconds": (1, 60, "Time for which the lag must be above scaleUpLag."),
        "scaleDownLag": (0, None, "Unread records below which the parallelism is reduced by a "
                         "quarter."),
        "scaleDownSeconds": (1, 600, "Time for which the lag must be below scaleDownLag."),
    }  # fmt: skip
    properties = {
        name: _NUMBER
        | {"minimum": low, "description": doc}
        | ({} if default is None else {"default": default})
        for name, (low, default, doc) in numbers.items()
    }
    rules = [
        {"rule": "self.scaleDownLag < self.scaleUpLag",
         "message": "scaleDownLag must be below scaleUpLag"},
        {"rule": "self.minParallelism <= self.maxParallelism",
         "message": "minParallelism must not be above maxParallelism"},
    ]  # fmt: skip
    return {
        "type": "object", "properties": properties, "x-kubernetes-validations": rules,
        "required": [name for name, (_, default, _doc) in numbers.items() if default is None],
        "description": "Change the parallelism by the number of unread records.",
    }  # fmt: skip


def _savepoint() -> dict[str, Any]:
    schema = _options(SavepointOptions, "A savepoint of a job; it is created once.")
    job = _TEXT | {"description": "Name of a BicycleJob in the same namespace.", "pattern": _NAME}
    rule = {"rule": "self == oldSelf", "message": "a savepoint is created once: use another name"}
    return schema | {
        "required": ["job"], "properties": {"job": job, **schema["properties"]},
        "x-kubernetes-validations": [rule],
    }  # fmt: skip


_CONDITION = {
    "type": "object",
    "required": ["type", "status", "reason", "message", "lastTransitionTime"],
    "properties": {
        **{name: _TEXT for name in ("type", "reason", "message")},
        "status": _TEXT | {"enum": ["True", "False", "Unknown"]},
        "lastTransitionTime": _TEXT | {"format": "date-time"},
        "observedGeneration": _NUMBER,
    },
}
_STATUS_OF: dict[str, dict[str, Any]] = {
    "BicycleJob": {
        "phase": _TEXT | {"description": "State of the job; NONE without a job."},
        "job": _TEXT | {"description": "Name of the job in the service."},
        "observedGeneration": _NUMBER,
        "parallelism": _NUMBER,
        "selector": _TEXT,
        "version": _TEXT,
        "lastSavepoint": {"type": "object", "properties": {"url": _TEXT, "epoch": _NUMBER}},
        "conditions": {"type": "array", "items": _CONDITION},
        "autoscaling": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
    "BicycleSavepoint": {
        "phase": _TEXT | {"enum": ["InProgress", "Completed", "Failed"]},
        "message": _TEXT | {"description": "Reason of a failure."},
        "url": _TEXT,
        "epoch": _NUMBER,
    },
}


def _status_of(kind: str) -> dict[str, Any]:
    properties = _STATUS_OF[kind]
    return {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
        "properties": properties,
    }


_COLUMNS = [
    {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
    {"name": "Parallelism", "type": "integer", "jsonPath": ".status.parallelism"},
    {"name": "Version", "type": "string", "jsonPath": ".status.version"},
    {
        "name": "Synced",
        "type": "string",
        "jsonPath": '.status.conditions[?(@.type=="Synced")].reason',
    },
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
]


_SAVEPOINT_COLUMNS = [
    {"name": "Job", "type": "string", "jsonPath": ".spec.job"},
    {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
    {"name": "URL", "type": "string", "jsonPath": ".status.url"},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
]
_SCALE = {
    "specReplicasPath": ".spec.parallelism",
    "statusReplicasPath": ".status.parallelism",
    "labelSelectorPath": ".status.selector",
}


def _definition(
    kind: str, short: str, spec: dict[str, Any], *, columns: Any, subresources: Any = None
) -> dict[str, Any]:
    schema = {
        "type": "object",
        "required": ["spec"],
        "properties": {"spec": spec, "status": _status_of(kind)},
    }
    version = {
        "name": "v1alpha1", "served": True, "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}, **(subresources or {})},
        "additionalPrinterColumns": columns,
    }  # fmt: skip
    plural = f"{kind.lower()}s"
    names = {"kind": kind, "plural": plural, "singular": kind.lower(), "shortNames": [short]}
    return _crd(group="bicycle.dev", plural=plural, scope="Namespaced", names=names,
                version=version)  # fmt: skip


def _crd(*, group: str, plural: str, scope: str, names: Any, version: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": scope, "names": names, "versions": [version]},
    }  # fmt: skip


def _peering() -> list[dict[str, Any]]:
    """Return the resource in which operators see each other, as kopf requires it."""
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    made = []
    for kind, plural, scope in (
        ("ClusterKopfPeering", "clusterkopfpeerings", "Cluster"),
        ("KopfPeering", "kopfpeerings", "Namespaced"),
    ):
        names = {"kind": kind, "plural": plural, "singular": kind.lower()}
        version = {"name": "v1", "served": True, "storage": True,
                   "schema": {"openAPIV3Schema": free}}  # fmt: skip
        made.append(_crd(group="kopf.dev", plural=plural, scope=scope, names=names,
                         version=version))  # fmt: skip
    one = {"apiVersion": "kopf.dev/v1", "kind": "ClusterKopfPeering",
           "metadata": {"name": "bicycle-operator"}}  # fmt: skip
    return [*made, one]
