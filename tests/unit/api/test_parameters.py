"""Parameters of a plugin, checked before a start is accepted."""

import msgspec
import pytest

from tests.unit.api.asking import asked_of


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    with asked_of(tmp_path_factory.mktemp("parameters") / "home") as found:
        yield found


def start(ask, **facts):
    return ask("POST", "/api/v1/jobs", msgspec.json.encode({"plugin": "wordcount", **facts}))


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"inptu": "/in"}, "did you mean 'input'?"),
        ({"port": "many"}, "port"),
        ({"source": "radio"}, "source"),
    ],
)
def test_a_wrong_parameter_is_answered_at_once_and_starts_nothing(ask, params, words):
    found = start(ask, params=params, name="wrong")

    assert (found.code, found.json["code"]) == (422, "BIC-1003")
    assert words in found.json["message"] + found.json["fix"]
    assert ask("GET", "/api/v1/operations").json["items"] == []
    assert not ask.service.home.folder("wrong").path.exists()


def test_whatever_else_is_wrong_is_reported_by_the_start(ask):
    found = start(ask, plugin="nothing", params={"a": "b"}, name="unknown")

    assert found.code == 202
