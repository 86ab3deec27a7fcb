"""The Helm chart as Helm renders it.

``.ci/run`` builds Helm with Go, if it is not installed. Without Helm, there is nothing to render;
in the pipeline the tests fail then.
"""

import copy
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy/chart"
VALUES_FILES = sorted((CHART / "ci").glob("*-values.yaml"))
_FOUND = shutil.which("helm") or shutil.which("helm", path=str(Path("~/go/bin").expanduser()))
HELM = [_FOUND] if _FOUND or "CI" not in os.environ else ["helm"]

needs_helm = pytest.mark.parametrize("helm", [path for path in HELM if path])


def call(*words):
    return subprocess.run([*map(str, words)], capture_output=True, text=True, check=False)


def read_values(name):
    return yaml.safe_load((CHART / name).read_text("utf-8"))


def with_value(values, path, value):
    """Return values with another value at a path."""
    changed = copy.deepcopy(values)
    found = changed
    for name in path[:-1]:
        found = found.setdefault(name, {})
    found[path[-1]] = value
    return changed


def render(helm, values, tmp_path, *words):
    """Return the result of ``helm template`` with some values."""
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values), "utf-8")
    return call(helm, "template", "demo", CHART, "--namespace", "jobs", "--values", file, *words)


def manifests(helm, values, tmp_path):
    """Return the rendered manifests by kind; config maps, and those of the operator, by name."""
    found = render(helm, values, tmp_path)
    assert found.returncode == 0, found.stderr
    documents = [each for each in yaml.safe_load_all(found.stdout) if each]
    keys = [
        name if each["kind"] == "ConfigMap" else f"{each['kind']} {name}".removesuffix(other)
        for each in documents
        for name in [each["metadata"]["name"]]
        for other in ["" if name.endswith("operator") else f" {name}"]
    ]
    assert len(set(keys)) == len(keys)
    return dict(zip(keys, documents, strict=True))
