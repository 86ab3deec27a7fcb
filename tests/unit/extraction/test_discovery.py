"""Plugins are found by metadata alone, and what is wrong with one does not hide another."""

import pytest

from bicycle_runtime.extraction.discovery import PluginRef, discover
from bicycle_runtime.extraction.errors import PLUGIN_NOT_FOUND, PLUGIN_REFUSED
from tests.plugin_zoo.zoo import in_builder, install
from tests.raising import raises


def put(folder, dist, entries, *, metadata=None, group="bicycle.plugins"):
    info = folder / f"{dist}-1.0.dist-info"
    info.mkdir(parents=True)
    if metadata is None:
        metadata = f"Metadata-Version: 2.1\nName: {dist}\nVersion: 1.0\n".encode()
    info.joinpath("METADATA").write_bytes(metadata)
    text = f"[console_scripts]\ntool = x:y\n\n[{group}]\n{entries}\n\n[other]\nz = a:b\n"
    info.joinpath("entry_points.txt").write_bytes(text.encode() if isinstance(text, str) else text)
    return folder


def refusals(folder):
    return [(refusal.name, refusal.sources) for refusal in discover([str(folder)]).refused]


def test_a_plugin_is_described_by_its_metadata(tmp_path):
    install(tmp_path, in_builder("simple", "pass", requires=("rich", "bicycle-sdk>=1,<2")))

    assert discover([str(tmp_path)]).found == (
        PluginRef(
            name="simple",
            module="simple",
            attribute="job",
            dist_name="simple",
            dist_version="1.0",
            location=str(tmp_path),
            sdk_requirement=">=1,<2",
        ),
    )


def test_one_distribution_may_bring_many_plugins_and_they_are_sorted(tmp_path):
    put(tmp_path, "many", "zeta = a.b:c.d\n# a remark\nalpha=x:y\nmid : dle = x : y [extra]")

    assert [(ref.name, ref.target) for ref in discover([str(tmp_path)]).found] == [
        ("alpha", "x:y"),
        ("mid : dle", "x:y"),
        ("zeta", "a.b:c.d"),
    ]


@pytest.mark.parametrize(
    "value", ["module", "module:", ":attribute", "a b:c", "a:b:c", "a..b:c", "1a:b", "a:b.", ""]
)
def test_a_malformed_entry_point_is_refused_and_the_others_stay(tmp_path, value):
    put(tmp_path, "half", f"bad = {value}\ngood = x:y")

    answer = discover([str(tmp_path)])

    assert [ref.name for ref in answer.found] == ["good"]
    assert refusals(tmp_path) == [("bad", (f"half 1.0 ({tmp_path})",))]


def test_an_entry_without_a_value_is_refused(tmp_path):
    put(tmp_path, "half", "nothing at all")

    assert [name for name, _ in refusals(tmp_path)] == ["nothing at all"]


@pytest.mark.parametrize(
    "metadata", [b"", b"Name: half\n", b"\xff\xfe\x00broken", b"Version: 1.0\n\nName: late\n"]
)
def test_a_distribution_with_bad_metadata_is_refused_and_stops_nothing(tmp_path, metadata):
    put(tmp_path, "half", "bad = x:y", metadata=metadata)
    put(tmp_path, "fine", "good = x:y")

    answer = discover([str(tmp_path)])

    assert [ref.name for ref in answer.found] == ["good"]
    assert [refusal.name for refusal in answer.refused] == ["bad"]
    assert str(tmp_path) in answer.refused[0].sources[0]


def test_a_distribution_without_metadata_is_refused(tmp_path):
    put(tmp_path, "half", "bad = x:y")
    (tmp_path / "half-1.0.dist-info" / "METADATA").unlink()

    assert [name for name, _ in refusals(tmp_path)] == ["bad"]


def test_entry_points_that_are_no_text_are_passed_over(tmp_path):
    put(tmp_path, "half", "bad = x:y")
    (tmp_path / "half-1.0.dist-info" / "entry_points.txt").write_bytes(b"\xff\xfe[bicycle.plugins]")
    put(tmp_path, "fine", "good = x:y")

    assert [ref.name for ref in discover([str(tmp_path)]).found] == ["good"]


def test_other_groups_are_not_ours(tmp_path):
    put(tmp_path, "scripts", "run = x:y", group="bicycle.plugins.extra")

    assert discover([str(tmp_path)]).found == ()


def test_a_path_that_does_not_exist_holds_nothing(tmp_path):
    answer = discover([str(tmp_path / "absent")])

    assert (answer.found, answer.refused) == ((), ())


def test_a_distribution_that_lies_twice_on_the_path_counts_where_it_is_first(tmp_path):
    for folder in ("first", "second"):
        put(tmp_path / folder, "same_dist", "plugin = x:y")

    answer = discover([str(tmp_path / "first"), str(tmp_path / "second")])

    assert [ref.location for ref in answer.found] == [str(tmp_path / "first")]
    assert answer.refused == ()


def test_one_name_twice_in_one_distribution_is_refused(tmp_path):
    put(tmp_path, "echo", "twin = x:y\ntwin = x:z")

    assert refusals(tmp_path) == [("twin", (f"echo 1.0 ({tmp_path})",) * 2)]


def test_a_new_plugin_is_seen_at_the_next_call(tmp_path):
    assert discover([str(tmp_path)]).found == ()

    put(tmp_path, "late", "late = x:y")

    assert [ref.name for ref in discover([str(tmp_path)]).found] == ["late"]


def test_a_name_that_is_not_installed_lists_close_names_and_all(tmp_path):
    put(tmp_path, "some", "wordcount = x:y\norders = x:y")

    with raises(PLUGIN_NOT_FOUND) as caught:
        discover([str(tmp_path)]).find("wordcuont")

    assert caught.value.facts["close_matches"] == ["wordcount"]
    assert caught.value.facts["known"] == ["orders", "wordcount"]


def test_a_refused_name_tells_its_reason_when_asked_for(tmp_path):
    put(tmp_path, "half", "bad = x")

    with raises(PLUGIN_REFUSED) as caught:
        discover([str(tmp_path)]).find("bad")

    assert caught.value.facts["name"] == "bad"
    assert caught.value.facts["sources"] == [f"half 1.0 ({tmp_path})"]
