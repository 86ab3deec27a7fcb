"""The page about the checkpoint format: its program works, its bytes and words are the code's."""

import re

import pytest

from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.recovery import (
    CheckpointId,
    CheckpointState,
    DurableCheckpointStore,
    encode_checkpoint,
)
from bicycle_runtime.recovery.errors import CheckpointFormatError
from tests.docs.scripts import DOCS

PAGE = (DOCS / "checkpoint-format.md").read_text("utf-8")


def block(language):
    (text,) = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return text


def test_the_program_of_the_page_goes_on_from_its_last_checkpoint(tmp_path):
    module = {}
    exec(compile(block("python"), "checkpoint-format.md", "exec"), module)
    folder = str(tmp_path)

    assert module["total_of"]([1] * 250, folder) == 250
    store = DurableCheckpointStore(LocalStorage(folder), 3)
    assert store.latest("numbers").operator_states == {"total": b"200"}
    assert module["total_of"]([0] * 200 + [1] * 51, folder) == 251


def test_the_bytes_of_the_page_are_those_of_its_state():
    state = CheckpointState(
        CheckpointId("any", 7),
        operator_states={"op": b"\x01\x02\x03"},
        source_offsets={"s": 5},
        watermark_ns=8,
        event_count=9,
    )

    assert bytes.fromhex(block("hex")) == state.serialize()


def test_the_problems_of_the_page_are_those_of_the_error():
    table = re.findall(r"^\| `(\w+)` \| ", PAGE, re.MULTILINE)
    (others,) = re.findall(r"three more for the end of the file: (.*?)\.\s", PAGE, re.DOTALL)

    documented = re.findall(r"``(\w+)``", CheckpointFormatError.__doc__)
    named = {*table, *re.findall(r"`(\w+)`", others)} - {"problem", "BICC"}
    assert named == {*documented} - {"problem", "detail", "missing_count", "offset"}


def test_files_end_with_the_word_of_the_page():
    assert encode_checkpoint(CheckpointState(CheckpointId("any", 1))).endswith(b"BICC")
    assert "`BICC`" in PAGE


@pytest.mark.parametrize("size", [0, 23, 27, 31])
def test_the_details_of_the_page_are_those_of_the_error(size):
    data = CheckpointState(CheckpointId("any", 1)).serialize()

    with pytest.raises(CheckpointFormatError) as caught:
        CheckpointState.deserialize("any", data[:size])

    assert re.sub(r"\d+$", "N", caught.value.facts["detail"]) in PAGE
