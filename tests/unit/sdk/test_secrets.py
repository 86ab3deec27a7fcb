"""Secrets as parameters: given by reference, revealed where they are needed, shown nowhere."""

import pickle
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicycle_sdk import Secret
from bicycle_sdk.errors import ParameterError, SecretError
from bicycle_sdk.parameters import fill, schema_of

DEFAULT = Secret.env("DEFAULT_PASSWORD")


@dataclass
class Params:
    """What the job needs.

    Args:
        password: Of the shop.
        token: Of the bank.
    """

    password: Secret
    token: Secret | None = None
    default: Secret = DEFAULT


def test_a_parameter_is_a_reference_to_a_variable_or_a_file():
    filled = fill(Params, {"password": "env:SHOP_PASSWORD", "token": "file:/run/t:1"}, plugin="p")

    assert filled == Params(Secret.env("SHOP_PASSWORD"), Secret.file("/run/t:1"))
    password, token, default = schema_of(Params)
    assert password.type.endswith("Secret")
    assert (password.is_required, password.doc) == (True, "Of the shop.")
    assert "prompt:" in password.expected
    assert token.expected.endswith(", or empty")
    assert default.default_text == "env:DEFAULT_PASSWORD"


@given(st.text(min_size=6).filter(lambda text: not text.startswith(("env:", "file:"))))
def test_a_secret_that_is_given_itself_is_refused_and_not_repeated(text):
    with pytest.raises(ParameterError) as caught:
        fill(Params, {"password": f"<{text}>"}, plugin="p")

    assert f"<{text}>" not in str(caught.value)
    assert f"<{text}>" not in repr(caught.value.to_json())
    assert caught.value.facts["name"] == "password"


@pytest.mark.parametrize("value", ["", "env:", "file:", "prompt:", 7, None, ["env:X"]])
def test_what_is_no_reference_is_refused(value):
    with pytest.raises(ParameterError):
        fill(Params, {"password": value}, plugin="p")


def test_a_secret_is_revealed_from_its_place_and_stands_in_no_form_of_the_reference(
    tmp_path, monkeypatch
):
    path = tmp_path / "password"
    path.write_text("hunter2\n")
    monkeypatch.setenv("SHOP_PASSWORD", "hunter2")
    for secret in (Secret.env("SHOP_PASSWORD"), Secret.file(path)):
        assert pickle.loads(pickle.dumps(secret)).reveal() == "hunter2"
        forms = (repr(secret), str(secret), str(secret.to_json()), pickle.dumps(secret))
        assert not any("hunter2" in str(form) for form in forms)


def test_a_secret_that_is_not_there_is_an_error_that_names_its_place(tmp_path, monkeypatch):
    monkeypatch.delenv("SHOP_PASSWORD", raising=False)
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    places = [Secret.env("SHOP_PASSWORD"), Secret.file(tmp_path / "none"), Secret.file(tmp_path)]
    for secret in [*places, Secret.file(tmp_path / "bytes")]:
        with pytest.raises(SecretError) as caught:
            secret.reveal()
        assert caught.value.facts["location"] == secret.location
