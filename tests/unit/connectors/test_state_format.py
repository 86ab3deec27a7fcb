"""The connector state of sinks as it stands in manifests: a change here is a change of format."""

import pytest

from bicycle_runtime.connectors.files.parts import OpenPart, PartPlan
from bicycle_runtime.contract import StagedFile

FILE = StagedFile(
    path="staged/out/7/0-a/records.csv",
    record_count=3,
    byte_count=40,
    crc32=5,
    subtask=1,
    details={"header": "a\n"},
)
FILE_JSON = {
    "path": "staged/out/7/0-a/records.csv",
    "records": 3,
    "bytes": 40,
    "crc32": 5,
    "subtask": 1,
    "details": {"header": "a\n"},
}
OPEN = OpenPart(
    path="connectors/out/open/4.csv",
    byte_count=40,
    since_ms=9,
    header="a\n",
    held=(FILE,),
    record_count=3,
)
OPEN_JSON = {
    "path": "connectors/out/open/4.csv",
    "bytes": 40,
    "records": 3,
    "since_ms": 9,
    "header": "a\n",
    "held": [FILE_JSON],
}
PLAN = PartPlan(path=None, start=0, end=40, header="a\n", files=(FILE,), name="part-7")
PLAN_JSON = {
    "path": None,
    "start": 0,
    "end": 40,
    "header": "a\n",
    "files": [FILE_JSON],
    "name": "part-7",
}


@pytest.mark.parametrize(
    ("value", "stored"), [(FILE, FILE_JSON), (OPEN, OPEN_JSON), (PLAN, PLAN_JSON)]
)
def test_what_sinks_seal_has_the_form_that_older_manifests_have(value, stored):
    assert value.to_json() == stored
    assert type(value).from_json(stored) == value


def test_an_open_part_that_an_older_version_sealed_has_no_count_of_records():
    older = {name: found for name, found in OPEN_JSON.items() if name != "records"}

    assert OpenPart.from_json(older).record_count == 0
