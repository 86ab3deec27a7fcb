"""The Helm chart: valid manifests, and values that have an effect or are rejected."""

import json
import runpy
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from tests.deploy.rendering import (
    CHART,
    ROOT,
    VALUES_FILES,
    call,
    manifests,
    needs_helm,
    read_values,
    render,
    with_value,
)

CHART_VALUES = runpy.run_path(str(ROOT / "tools/chart_values.py"))
DEFAULTS = read_values("values.yaml")
ALL = read_values("ci/all-values.yaml")
TOKENS = read_values("ci/tokens-values.yaml")
# The oldest version that the chart accepts, and the newest with a schema.
VERSIONS = ["1.25", "1.37"]
# Another value has precedence over these in `all-values.yaml`, or their values exclude each other.
OTHER_VALUES = {
    "image.tag": (with_value(ALL, ("image", "digest"), ""), "other"),
    "persistence.existingClaim": (ALL, "other"),
    "persistence.enabled": (ALL, False),
    "grpc.enabled": (ALL, False),
    "networkPolicy.enabled": (ALL, False),
    "serviceAccount.create": (ALL, False),
}
DESCRIBED = {".".join(path): schema for path, schema in CHART_VALUES["described_values"]()}
PATHS = list(DESCRIBED)
GRANT = DESCRIBED["tokens.grants"]["items"]
names_of_values = pytest.mark.parametrize("file", VALUES_FILES, ids=lambda file: file.stem)


def leaves(values, described, path=()):
    """Return the paths of values; a value with a description is one, whatever it contains."""
    if ".".join(path) in described or not isinstance(values, dict):
        return {".".join(path)}
    return set().union(*(leaves(below, described, (*path, n)) for n, below in values.items()))


def fault_of(schema):
    """Return a value of another type than a schema permits."""
    return 5.5 if schema.get("type") != "object" else "word"


def inner_faults(location, schema):
    """Return a fault for each item and entry inside of a value, by its location."""
    if "items" in schema:
        location, schema = f"{location}/0", schema["items"]
    elif isinstance(schema.get("additionalProperties"), dict):
        location, schema = f"{location}/word", schema["additionalProperties"]
    else:
        return {}
    below = schema.get("properties", {})
    return {f"{location}/{n}": fault_of(each) for n, each in below.items()} or {
        location: fault_of(schema)
    }


def put(values, path, fault):
    """Return values with a fault at a path, in which a number is an index."""
    if not path:
        return fault
    [name, *rest] = path
    if name == "0":
        return [put(values[0] if values else {}, rest, fault)]
    values = values or {}
    return {**values, name: put(values.get(name), rest, fault)}


def test_there_are_five_files_with_values():
    assert len(VALUES_FILES) == 5


def test_each_value_has_one_default_and_one_description():
    assert leaves(DEFAULTS, PATHS) == set(PATHS)
    assert len(set(PATHS)) == len(PATHS)
    assert all(
        schema["description"].endswith(".") for _, schema in CHART_VALUES["described_values"]()
    )


@needs_helm
@names_of_values
def test_helm_has_no_complaint_about_the_chart(helm, file):
    found = call(helm, "lint", "--strict", CHART, "--values", file)

    assert found.returncode == 0, found.stdout


@needs_helm
@names_of_values
@pytest.mark.parametrize("version", VERSIONS)
def test_rendered_manifests_are_valid(helm, file, version, tmp_path):
    found = manifests(helm, yaml.safe_load(file.read_text("utf-8")), tmp_path)

    assert {"StatefulSet", "Service", "ServiceAccount", "NetworkPolicy"} <= found.keys()
    for manifest in found.values():
        if manifest["kind"] != "ClusterKopfPeering":  # It is of no version of Kubernetes.
            kubernetes_validate.validate(manifest, version, strict=True)


@needs_helm
def test_an_unknown_key_in_a_manifest_is_found(helm, tmp_path):
    manifest = manifests(helm, TOKENS, tmp_path)["StatefulSet"]
    manifest["spec"]["template"]["spec"]["replica"] = 2

    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(manifest, "1.37", strict=True)


@needs_helm
@pytest.mark.parametrize("name", PATHS)
def test_each_value_changes_a_manifest(helm, name, tmp_path):
    path = tuple(name.split("."))
    default = CHART_VALUES["value_at"](DEFAULTS, path)
    base, other = OTHER_VALUES.get(name, (ALL, default))
    before, after = (render(helm, v, tmp_path) for v in (base, with_value(base, path, other)))

    assert before.returncode == 0, before.stderr
    assert after.stdout != before.stdout


@needs_helm
@pytest.mark.parametrize("key", GRANT["properties"])
def test_each_key_of_a_grant_changes_a_manifest(helm, key, tmp_path):
    [grant] = ALL["tokens"]["grants"]
    less = {name: value for name, value in grant.items() if name != key}
    other = less if key not in GRANT["required"] else {**grant, key: "viewer"}
    found = [
        render(helm, with_value(ALL, ("tokens", "grants"), [each]), tmp_path)
        for each in (grant, other)
    ]

    assert [each.returncode for each in found] == [0, 0]
    assert found[0].stdout != found[1].stdout


@needs_helm
@pytest.mark.parametrize("is_inside", [False, True])
def test_each_value_of_a_wrong_type_is_rejected_with_its_path(helm, is_inside, tmp_path):
    """Values themselves, or the items and entries that they contain."""
    faults = {}
    for name, schema in DESCRIBED.items():
        location = f"/{name.replace('.', '/')}"
        faults |= inner_faults(location, schema) if is_inside else {location: fault_of(schema)}
    values = {}
    for location, fault in faults.items():
        values = put(values, location.split("/")[1:], fault)

    found = render(helm, values, tmp_path)

    assert found.returncode != 0
    assert len(faults) > (15 if is_inside else 60)
    assert [each for each in faults if f"at '{each}'" not in found.stderr] == []


@needs_helm
def test_an_unknown_key_is_rejected_anywhere_with_its_path(helm, tmp_path):
    closed = {path[:-1] for path in (tuple(name.split(".")) for name in PATHS)}
    values = with_value({}, ("tokens", "grants"), [{"colour": "red"}])
    for path in closed:
        values = with_value(values, (*path, "colour"), "red")

    found = render(helm, values, tmp_path)

    assert found.returncode != 0
    for location in [*(f"/{'/'.join(path)}".removesuffix("/") for path in closed),
                     "/tokens/grants/0"]:  # fmt: skip
        assert f"at '{location}': additional properties 'colour' not allowed" in found.stderr


@needs_helm
@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (("colour",), "red", "colour"),
        (("image", "tags"), "1", "tags"),
        (("port",), 0, "port"),
        (("service", "type"), "Cluster", "type"),
        (("tokens", "grants"), [{"name": "a", "role": "root"}], "role"),
        (("tls", "secretName"), "", "tls.secretName is required"),
        (("tokens", "grants"), [], "no client could log in"),
        (("tokens", "secretName"), "", "tokens.secretName is required"),
        (("tls", "clientRoles"), {"ada": "viewer"}, "tls.clientCaSecretName is required"),
        (("tls", "clientCaSecretName"), "clients", "tls.clientRoles is required"),
        (("database", "secretName"), "database", "database.url is required"),
        (("database", "url"), "mysql://db/bicycle", "/database/url"),
        (("ingress", "enabled"), True, "ingress.host is required"),
        (("serviceAccount", "create"), False, "serviceAccount.name is required"),
        (("operator", "enabled"), True, "operator.tokenKey is required"),
    ],
)
def test_wrong_values_are_rejected_with_the_reason(helm, path, value, problem, tmp_path):
    found = render(helm, with_value(TOKENS, path, value), tmp_path)

    assert found.returncode != 0
    assert problem in found.stderr


@needs_helm
def test_a_cluster_that_is_too_old_is_rejected(helm, tmp_path):
    assert render(helm, TOKENS, tmp_path, "--kube-version", "1.24").returncode != 0


@needs_helm
def test_the_dashboard_and_the_rules_are_those_of_the_docs(helm, tmp_path):
    found = manifests(helm, ALL, tmp_path)
    texts = {
        "jobs-dashboard": ("bicycle.json", "dashboard.json"),
        "jobs-alerts": ("bicycle.yml", "alerts.yml"),
    }

    for name, (key, file) in texts.items():
        assert found[name]["data"][key] == (ROOT / "docs/grafana" / file).read_text("utf-8")
    assert json.loads(found["jobs-dashboard"]["data"]["bicycle.json"])["panels"]


@needs_helm
def test_a_packed_chart_contains_the_dashboard_and_no_link(helm, tmp_path):
    assert call(helm, "package", CHART, "--destination", tmp_path).returncode == 0
    [archive] = Path(tmp_path).glob("*.tgz")

    found = call(helm, "template", "demo", archive, "--values", CHART / "ci/all-values.yaml")

    assert "Records per second" in found.stdout
