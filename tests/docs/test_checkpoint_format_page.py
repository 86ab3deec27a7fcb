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
from bicycle_runtime.testing import Harness
from tests.docs.scripts import DOCS
from tests.unit.cli.state_jobs import every_state

PAGE = (DOCS / "reference/checkpoint-format.md").read_text("utf-8")


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


def test_the_reader_of_the_page_finds_state_with_nothing_of_ours():
    assert "bicycle" not in block("py")
    module = {}
    exec(compile(block("py"), "checkpoint-format.md", "exec"), module)

    def found(operator, section):
        """Return the entries of all groups under a section; each key is in one of them."""
        places = module["state_of"](harness.storage.url, operator).items()
        cells = [cell for (_, name), part in places if name == section for cell in part.items()]
        assert len(cells) == len(dict(cells))
        return dict(cells)

    with Harness(every_state, parallelism=3) as harness:
        for number, name in enumerate(["ada", "bob", "ada", "cy"]):
            harness.push([(name, number)], source="records")
            harness.run_epoch()
        harness.push([("egg", 7)], source="prices")
        harness.rescale_live(2)
        harness.push([("ada", 4)], source="records")
        harness.run_epoch()

        assert found("counts", "$accumulator") == {"ada": 3, "bob": 1, "cy": 1}
        assert found("memory", "counts") == {"ada": 6, "bob": 1, "cy": 3}
        assert found("memory", "$named")["last", "ada"] == 4
        assert found("keeper", "$state.value.last") == {"ada": 4, "bob": 1, "cy": 3}
        history = found("keeper", "$state.list.history")
        assert [history["ada", number] for number in range(3)] == [0, 2, 4]
        assert found("keeper", "$state.map.by_parity")["ada", "even"] == 4
        assert ("cy", 10**12 + 3) in found("keeper", "$timers.processing")
        assert set(found("keeper", "$ttl.last")) == {"ada", "bob", "cy"}
        assert found("tally", "total") == {None: 5}
        assert found("priced", "$broadcast.state.map.prices") == {(None, "egg"): 7}
        assert set(found("sums", "c0")) == {"ada", "bob", "cy"}


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
