"""The contract of connectors itself: how much it asks for, its mixins, and their table in docs."""

import inspect
import re

import pytest

from bicycle_runtime import contract
from bicycle_runtime.contract import (
    ChecksBeforeStart,
    FollowsPublication,
    Sink,
    Source,
    StagedFile,
    StagedPublication,
)
from tests.contract.guide import REFERENCE

MIXINS = {base: base._mixins for base in (Source, Sink)}


def methods(cls):
    return {name for name, _ in inspect.getmembers(cls, inspect.isfunction) if name[0] != "_"}


def test_a_connector_has_at_most_six_required_methods():
    required = {base.__name__: len(base.__abstractmethods__) for base in (Source, Sink)}

    assert required == {"Source": 6, "Sink": 5}
    assert methods(Sink) == Sink.__abstractmethods__


@pytest.mark.parametrize("base", [Source, Sink])
def test_the_reference_lists_each_mixin_with_its_methods(base):
    heading = f"| mixin of a {base.__name__.lower()} |"
    table = REFERENCE.read_text().split(heading)[1].split("\n\n")[0]
    rows = {row[0]: set(re.findall(r"`(\w+)`", row[1])) for row in re.findall(
        r"^\| `(\w+)` \|[^|]*\| (.*) \|$", table, re.MULTILINE
    )}  # fmt: skip

    assert rows == {mixin.__name__: methods(mixin) for mixin in MIXINS[base]}
    assert {mixin.__name__ for mixin in MIXINS[base]} <= {*contract.__all__}


def test_a_method_of_a_mixin_is_refused_without_the_mixin():
    with pytest.raises(TypeError, match=r"Careful has check\(\).*add ChecksBeforeStart"):

        class Careful(Sink):
            def check(self, services, state):
                """Look at nothing."""

    with pytest.raises(TypeError, match=r"Kept has published\(\).*add FollowsPublication"):

        class Kept(Source):
            published = FollowsPublication.published


def test_a_mixin_may_come_with_a_class_in_between():
    class Checked(ChecksBeforeStart, Sink):
        def check(self, services, state):
            """Look at nothing."""

    class Below(Checked):
        def check(self, services, state):
            """Look again."""

    assert issubclass(Below, ChecksBeforeStart)


def test_staged_files_are_named_in_the_order_of_their_subtasks():
    def staged(path, subtask):
        return StagedFile(
            path=path, record_count=1, byte_count=2, crc32=3, subtask=subtask, details={"a": 1}
        )

    files = [staged("b", 1), staged("c", 0), staged("a", 1)]
    publication = StagedPublication()
    state = publication.prepare(7, files, is_last=False)

    assert publication.staged_files(state) == [files[1], files[2], files[0]]
    assert publication.referenced_paths(state) == {"a", "b", "c"}
    assert publication.staged_files({}) == []
