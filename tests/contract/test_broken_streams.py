"""The conformance suite of streams finds what is wrong: each broken backend fails its rule."""

import inspect

import pytest

from bicycle_streams import StreamError, connecting
from bicycle_streams.testing import StreamSuite
from tests.contract.broken_streams import BROKEN, BrokenCase, Flawless


def follow(rule, backend, folder, monkeypatch):
    """Run one rule of the suite with a backend, alone where a rule has several ways."""
    monkeypatch.setitem(connecting._BACKENDS, "broken", f"{backend.__module__}:{backend.__name__}")
    case = BrokenCase(folder)
    call = getattr(StreamSuite(), rule)
    words = {"how": {}} if "how" in inspect.signature(call).parameters else {}
    call(case, **words)


@pytest.mark.parametrize(("backend", "rule"), BROKEN.items(), ids=str)
def test_a_broken_backend_fails_its_rule(backend, rule, tmp_path, monkeypatch):
    refusals = (AssertionError, StreamError, TimeoutError, pytest.fail.Exception)
    with pytest.raises(refusals):
        follow(rule, backend, tmp_path, monkeypatch)


@pytest.mark.parametrize("rule", sorted(set(BROKEN.values())))
def test_the_same_backend_without_the_mistake_keeps_every_rule(rule, tmp_path, monkeypatch):
    monkeypatch.setattr(BrokenCase, "patience_s", 60.0)
    follow(rule, Flawless, tmp_path, monkeypatch)
