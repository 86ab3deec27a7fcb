"""The operator of the Helm chart: arguments of the command, rights, and definitions."""

import kubernetes_validate
import pytest
import yaml

from bicycle_operator.main import PEERING, parser
from tests.deploy.rendering import CHART, manifests, needs_helm, read_values

ALL = read_values("ci/all-values.yaml")
NAME = "jobs-operator"


@pytest.fixture
def found(tmp_path):
    """The manifests of all values."""
    return lambda helm: manifests(helm, ALL, tmp_path)


@needs_helm
def test_the_pod_starts_the_operator_with_arguments_that_it_has(helm, found):
    documents = found(helm)
    deployment = documents[f"Deployment {NAME}"]
    pod = deployment["spec"]["template"]["spec"]
    [container] = pod["containers"]
    given = parser().parse_args(container["args"])
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    keys = {each["name"]: each["secret"]["items"][0]["path"] for each in pod["volumes"]}
    [service] = documents["StatefulSet"]["spec"]["template"]["spec"]["containers"]

    assert container["command"] == ["bicycle-operator"]
    assert container["image"] == service["image"]
    assert given.command == "run"
    assert given.service == "https://jobs.jobs.svc:9443"
    assert "--name=jobs.jobs.svc" in service["args"]
    assert str(given.token_file) == f"{mounts['tokens']}/{keys['tokens']}"
    assert given.ca_file == f"{mounts['tls']}/{keys['tls']}"
    assert deployment["spec"]["replicas"] == 2


@needs_helm
def test_operators_share_the_peering_that_they_look_for(helm, found):
    assert found(helm)["ClusterKopfPeering bicycle-operator"]["metadata"]["name"] == PEERING


@needs_helm
def test_the_network_policy_admits_the_operator(helm, found):
    documents = found(helm)
    labels = documents[f"Deployment {NAME}"]["spec"]["template"]["metadata"]["labels"]
    rules = documents["NetworkPolicy"]["spec"]["ingress"]
    peers = [peer for rule in rules for peer in rule.get("from", [])]
    wanted = [each["podSelector"]["matchLabels"] for each in peers if "podSelector" in each]

    assert any(each.items() <= labels.items() for each in wanted)


@needs_helm
def test_the_operator_may_read_and_write_each_kind_of_resource(helm, found):
    [role] = [each for name, each in found(helm).items() if name.startswith("ClusterRole ")]
    rules = [rule for rule in role["rules"] if rule["apiGroups"] == ["bicycle.dev"]]
    names = {each["spec"]["names"]["plural"] for each in definitions()
             if each["spec"]["group"] == "bicycle.dev"}  # fmt: skip

    assert names == {"bicyclejobs", "bicyclesavepoints"}
    assert {f"{name}{part}" for name in names for part in ("", "/status")} <= set(
        rules[0]["resources"]
    )


def definitions():
    return list(yaml.safe_load_all((CHART / "crds/bicycle.yaml").read_text("utf-8")))


@pytest.mark.parametrize("version", ["1.25", "1.37"])
def test_the_definitions_are_valid(version):
    assert len(definitions()) == 4
    for each in definitions():
        kubernetes_validate.validate(each, version, strict=True)
