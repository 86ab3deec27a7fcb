"""The OpenAPI 3.1 document of the API, made of the table of routes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

import bicycle_runtime
from bicycle_runtime.api.route import EVENT_STREAM, QUERY_BOUNDS, TEXT, Route
from bicycle_runtime.api.routes import ROUTES, served_paths
from bicycle_runtime.api.shapes import ErrorAnswer

_REF = "#/components/schemas/{name}"
_REASONS = {
    200: "success", 201: "created", 202: "started; the response is the operation",
    304: "not modified",
    400: "the request cannot be parsed", 401: "the request is not authenticated",
    403: "the caller does not have permission", 404: "not found",
    408: "the request took too long", 409: "the current state does not allow the request",
    413: "the body is too large",
    415: "the media type is not supported",
    422: "the request cannot be executed", 429: "too many requests",
    503: "a required system does not respond",
}  # fmt: skip
_COMMON = (400, 401, 403, 408, 429, 503)
_PARAMETER = re.compile(r"\{(\w+)(?::(\w+))?\}")


def paths_of(route: Route) -> list[str]:
    """Return the OpenAPI paths of a route, the preferred one first."""
    return [_PARAMETER.sub(r"{\1}", path) for path in served_paths(route)]


def document(routes: Sequence[Route] = ROUTES) -> dict[str, Any]:
    """Return the whole document of some routes, which are our own by default."""
    types = [ErrorAnswer, *(t for route in routes for t in _types(route))]
    unique = list(dict.fromkeys(types))
    schemas, components = msgspec.json.schema_components(unique, ref_template=_REF)
    schema_of = dict(zip(unique, schemas, strict=True))
    paths: dict[str, Any] = {}
    for route in routes:
        for number, path in enumerate(paths_of(route)):
            operation = _operation(route, schema_of, is_alias=number > 0)
            paths.setdefault(path, {})[route.method.lower()] = operation
    paths["/api/openapi.json"] = {
        "get": {
            "operationId": "get_openapi",
            "summary": "This document.",
            "responses": _responses({200: _json({"type": "object"})}, schema_of, _COMMON),
        }
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Bicycle",
            "version": bicycle_runtime.__version__,
            "description": "Query, start, stop, save and rescale the jobs of one home.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "security": [{"token": []}, {}],
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _types(route: Route) -> list[Any]:
    return [t for t in (route.answer, route.body) if t is not None and t is not str]


def _operation(route: Route, schema_of: dict[Any, Any], *, is_alias: bool) -> dict[str, Any]:
    words = re.findall(r"\w+", _PARAMETER.sub(r"by \1", route.path))
    words += ["text"] if route.media == TEXT else []
    name = "_".join([route.method.lower(), *words, *(["alias"] if is_alias else [])])
    schema = {"type": "string"} if route.answer is str else schema_of[route.answer]
    content = {route.media: {"schema": schema}}
    good = {code: {"content": content} for code in (route.code, *route.codes)}
    if route.has_stream:
        content[EVENT_STREAM] = {"schema": {"type": "string"}}
    found: dict[str, Any] = {
        "operationId": name,
        "summary": route.summary,
        "description": f"Minimum role: {route.role.name.lower()}.",
        "parameters": [*_path_parameters(route), *_query_parameters(route), *_headers(route)],
        "responses": _responses(good, schema_of, (*_COMMON, *route.errors)),
    }
    if is_alias:
        found["deprecated"] = True
    if route.body is not None:
        found["requestBody"] = {
            "required": False,
            **_json(schema_of[route.body]),
        }
        found["requestBody"]["required"] = bool(_is_required(route.body))
    if route.upload:
        found["requestBody"] = _upload(route.upload)
    return found


def _upload(files: Mapping[str, str]) -> dict[str, Any]:
    properties = {
        name: {"type": "string", "contentMediaType": "application/octet-stream", "description": doc}
        for name, doc in files.items()
    }
    schema = {"type": "object", "properties": properties, "required": list(files)[:1]}
    return {"required": True, "content": {"multipart/form-data": {"schema": schema}}}


def _is_required(body: type[msgspec.Struct]) -> bool:
    """Return whether a body must be sent: it has a field without a default."""
    return any(field.required for field in msgspec.structs.fields(body))


def _responses(
    good: dict[int, Any], schema_of: dict[Any, Any], errors: tuple[int, ...]
) -> dict[str, Any]:
    found = {str(code): {"description": _REASONS[code], **more} for code, more in good.items()}
    for code in sorted(set(errors)):
        content = {} if code in (202, 304) else _json(schema_of[ErrorAnswer])
        found[str(code)] = {"description": _REASONS[code], **content}
    return found


def _json(schema: Any) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": schema}}}


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    return [
        {
            "name": name, "in": "path", "required": True,
            "schema": {"type": "integer", "minimum": 0} if kind == "int" else {"type": "string"},
        }
        for name, kind in _PARAMETER.findall(route.path)
    ]  # fmt: skip


def _query_parameters(route: Route) -> list[dict[str, Any]]:
    shape = msgspec.json.schema(route.query)
    properties = shape["$defs"][route.query.__name__]["properties"]
    return [
        {"name": name, "in": "query", "required": False, "schema": _bound(name, schema)}
        for name, schema in properties.items()
    ]


def _bound(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a query parameter with the common bounds of its name."""
    if name not in QUERY_BOUNDS:
        return schema
    low, high = QUERY_BOUNDS[name]
    return {**schema, "minimum": low, "maximum": high}


def _headers(route: Route) -> list[dict[str, Any]]:
    if not route.takes_key:
        return []
    doc = "A repeated request with the same key returns the same operation."
    schema = {"type": "string", "minLength": 1, "maxLength": 200}
    return [
        {"name": "Idempotency-Key", "in": "header", "required": False, "description": doc,
         "schema": schema}
    ]  # fmt: skip
