"""Merge keys of YAML."""

import pytest

from bicycle_runtime.endpoints.positions import Position
from bicycle_runtime.pipelines.documents import read_document
from bicycle_runtime.pipelines.errors import PIPELINE_UNREADABLE
from tests.raising import raises


def data(text):
    return read_document(text, file="p.yaml", notation="yaml").data


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}", {"x": 1, "y": 3}),
        ("a: &a {x: 1, y: 2}\nb: {y: 3, <<: *a}", {"x": 1, "y": 3}),
        ("a: &a {x: 1}\nc: &c {x: 2, z: 4}\nb: {<<: [*a, *c], y: 3}", {"x": 1, "z": 4, "y": 3}),
        ("a: &a {x: 1}\nc: &c {<<: *a, z: 4}\nb: {<<: *c}", {"z": 4, "x": 1}),
        ("b: {<<: {x: 1}, y: 2}", {"x": 1, "y": 2}),
        ("b: {'<<': 1}", {"<<": 1}),
    ],
)
def test_a_merge_key_takes_the_keys_that_the_mapping_lacks(text, expected):
    found = data(text)["b"]

    assert found == expected
    assert list(found) == list(expected)


def test_a_merged_key_is_where_it_is_written():
    document = read_document("a: &a\n  x: 1\nb:\n  <<: *a\n", file="p.yaml", notation="yaml")

    assert document.key_position(("b", "x")) == Position(2, 3)


LEVELS = "".join(
    f"l{level}: &l{level} {{<<: [{', '.join([f'*l{level - 1}'] * 9)}]}}\n" for level in range(1, 9)
)


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("a: 1\nb: {<<: 2}", 2, "'<<' must merge a mapping, or a list of mappings, such as *NAME"),
        ("b:\n  <<: [1]", 2, "'<<' must merge a mapping, or a list of mappings, such as *NAME"),
        ("a: &a {}\nb:\n  <<: *a\n  <<: *a", 4, "duplicate key '<<'"),
        ("a: &a\n  <<: *a", 2, "it is too large, or refers to itself"),
        ("l0: &l0 {x: 1}\n" + LEVELS, None, "it is too large, or refers to itself"),
    ],
)
def test_a_merge_that_is_wrong_is_reported_with_its_line(text, line, problem):
    with raises(PIPELINE_UNREADABLE) as caught:
        data(text)

    assert caught.value.facts["problem"].endswith(problem)
    if line is not None:
        assert caught.value.facts["file"] == f"p.yaml:{line}"
