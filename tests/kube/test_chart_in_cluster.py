"""Each manifest of the chart is accepted by a real API server, which rejects unknown fields."""

import pytest
import yaml

from tests.deploy.rendering import HELM, VALUES_FILES, manifests

pytestmark = [pytest.mark.extended, pytest.mark.timeout(400)]


@pytest.mark.parametrize("file", VALUES_FILES, ids=lambda file: file.stem)
def test_the_server_accepts_all_manifests(server, file, tmp_path):
    found = manifests(HELM[0], yaml.safe_load(file.read_text("utf-8")), tmp_path)
    answers = {name: server.apply(document, "&dryRun=All") for name, document in found.items()}

    assert {
        name: answer for name, (code, answer) in answers.items() if code not in (200, 201)
    } == {}


def test_the_server_rejects_an_unknown_field(server, tmp_path):
    found = manifests(HELM[0], yaml.safe_load(VALUES_FILES[0].read_text("utf-8")), tmp_path)
    document = found["StatefulSet"]
    document["spec"]["template"]["spec"]["replica"] = 2
    code, answer = server.apply(document, "&dryRun=All")

    assert code >= 400
    assert "replica" in answer["message"]
