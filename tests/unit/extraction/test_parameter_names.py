import sys
from textwrap import dedent

import pytest

from bicycle_runtime.extraction.parameter_names import names_in_file, names_in_module

PLAIN = """
    raise RuntimeError("nothing is run")

    class Base:
        brokers: str

    @dataclass
    class Params(Base):
        kinds: ClassVar[set[str]] = set()
        input: str
        limit: int = 3
        note = ""

    @bicycle_plugin
    def job(env, params: Params) -> None: ...
    def quoted(env, params: "Params") -> None: ...
    def none(env) -> None: ...
    def bare(env, params) -> None: ...
    def foreign(env, params: nowhere.Params) -> None: ...
    def ring(env, params: Ring) -> None: ...

    class Ring(Ring):
        itself: str
"""


@pytest.mark.parametrize(
    ("function", "names"),
    [
        ("job", ["brokers", "input", "limit"]),
        ("quoted", ["brokers", "input", "limit"]),
        ("", ["brokers", "input", "limit"]),
        ("none", []),
        ("bare", []),
        ("foreign", ["brokers", "input", "limit"]),
        ("ring", ["itself"]),
        ("gone", []),
    ],
)
def test_the_fields_of_the_parameters_are_read_off_the_text(tmp_path, function, names):
    file = tmp_path / "job.py"
    file.write_text(dedent(PLAIN))

    assert names_in_file(file, function) == names


@pytest.mark.parametrize("text", ["def job(", None, "\0"])
def test_what_cannot_be_read_has_no_names(tmp_path, text):
    file = tmp_path / "job.py"
    if text is not None:
        file.write_text(text)

    assert names_in_file(file, "job") == []
    assert names_in_module("not_there.at_all", "job") == []


def test_a_class_of_another_module_is_found_and_no_module_is_imported(tmp_path, monkeypatch):
    package = tmp_path / "tallies"
    (package / "parts").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError")
    (package / "parts/__init__.py").write_text("class Shared:\n    host: str\n")
    (package / "params.py").write_text(
        "from tallies.parts import Shared as Common\nclass Params(Common):\n    port: int\n"
    )
    (package / "jobs.py").write_text(
        "from .params import Params\ndef job(env, params: Params) -> None: ...\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))

    assert names_in_module("tallies.jobs", "job") == ["host", "port"]
    assert "tallies" not in sys.modules
