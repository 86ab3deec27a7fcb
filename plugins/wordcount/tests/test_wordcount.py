from collections import Counter

import pytest

from bicycle_sdk.errors import ParameterError
from bicycle_sdk.graph import OperatorKind
from bicycle_sdk.plugin import build, parameter_schema, plugin_info
from bicycle_sdk.testing import FunctionHarness
from wordcount import WordCount, WordCounter, WordSplitter, as_text, wordcount

FILES = {"input": "in.txt", "output": "out"}


def test_lines_are_split_at_white_space_into_lower_case_words():
    with FunctionHarness(WordSplitter()) as harness:
        assert harness.process("To be,\tor  NOT", "", "be") == ["to", "be,", "or", "not", "be"]


def test_counts_of_a_word_are_one_two_three():
    with FunctionHarness(WordCounter()) as harness:
        out = harness.process(*"abacab")

    assert [(c["word"], c["count"]) for c in out] == [
        ("a", 1),
        ("b", 1),
        ("a", 2),
        ("c", 1),
        ("a", 3),
        ("b", 2),
    ]
    assert Counter(c["word"] for c in out) == {"a": 3, "b": 2, "c": 1}


def test_counts_go_on_after_a_restart():
    with FunctionHarness(WordCounter()) as before:
        before.process("a", "a")
        saved = before.snapshot()
    with FunctionHarness(WordCounter()) as after:
        after.restore(saved)

        assert after.process("a", "b") == [
            WordCount(word="a", count=3),
            WordCount(word="b", count=1),
        ]


def test_the_socket_form_sends_word_and_count_as_text():
    assert as_text(WordCount(word="ada", count=2)) == "ada:2"


def test_the_job_reads_files_and_writes_json_lines():
    graph = build(wordcount, FILES).graph
    source, sink = (
        next(v for v in graph.vertices if v.kind is kind).details["connector"]
        for kind in (OperatorKind.SOURCE, OperatorKind.SINK)
    )

    assert source == {"connector_type": "text", "properties": {"path": "in.txt", "follow": False}}
    assert sink == {"connector_type": "jsonl_file", "properties": {"path": "out"}}
    assert graph.vertex("counter-v1").output_type == "wordcount.WordCount"


def test_the_interactive_form_has_sockets_at_both_ends():
    graph = build(wordcount, {"source": "socket", "port": "7", "sink_port": "8"}).graph

    assert graph.vertex("lines-v1").details["connector"]["properties"]["port"] == 7
    assert graph.vertex("out-v1").details["connector"] == {
        "connector_type": "socket",
        "properties": {"host": "127.0.0.1", "port": 8},
    }


def test_state_and_positions_have_stable_names_in_both_forms():
    for params in (FILES, {"source": "socket"}):
        uids = [v.uid for v in build(wordcount, params).graph.vertices if v.uid]

        assert uids == ["lines-v1", "splitter-v1", "counter-v1", "out-v1"]


@pytest.mark.parametrize("missing", ["input", "output"])
def test_files_need_both_input_and_output(missing):
    params = {name: value for name, value in FILES.items() if name != missing}

    with pytest.raises(ParameterError) as caught:
        build(wordcount, params)

    assert caught.value.facts["name"] == missing


def test_every_parameter_is_documented():
    assert all(info.doc for info in parameter_schema(wordcount))
    assert plugin_info(wordcount).name == "wordcount"
