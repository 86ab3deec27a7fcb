"""The way back from JSON to an error."""

import json
import pickle

from bicycle_runtime.base.errors import STORAGE_FULL, StorageError, UnknownError, error_from_json
from bicycle_sdk.errors import BicycleError, ConfigError, GraphError, OptionError


def test_json_gives_back_class_and_facts():
    error = OptionError(group="G", name="x", found=5, expected="a number from 6 to 7")

    back = error_from_json(json.loads(json.dumps(error.to_json())))

    assert type(back) is OptionError
    assert back.facts == error.facts
    assert str(back) == str(error)


def test_errors_of_the_sdk_come_back_too():
    error = GraphError(job="j", problems=["a", "b"], problem_text="a; b")

    assert type(error_from_json(error.to_json())) is GraphError


def test_an_error_gets_further_facts_and_stays_what_it_is():
    error = STORAGE_FULL(url="u", action="write", path="p", reason="full")

    more = error.with_facts(path="q", job="j")

    assert (type(more), more.code) == (StorageError, STORAGE_FULL.code)
    assert more.facts == {**error.facts, "path": "q", "job": "j"}
    assert "'q'" in str(more)
    assert type(GraphError(job="j", problem_text="t").with_facts(job="k")) is GraphError


def test_an_unknown_code_keeps_its_words():
    data = {"code": "XYZ-1", "message": "tap broke", "fix": "correct it", "facts": {"tap": 3}}

    back = error_from_json(data)

    assert type(back) is UnknownError
    assert back.facts["original_code"] == "XYZ-1"
    assert back.facts["original_facts"] == {"tap": 3}
    assert str(back) == "XYZ-1 tap broke\n  fix: correct it"
    again = error_from_json(pickle.loads(pickle.dumps(back)).to_json())
    assert (again.code, str(again)) == ("XYZ-1", str(back))
    assert UnknownError.code == "BIC-1110"


def test_an_error_of_another_version_that_lacks_facts_keeps_its_words():
    data = ConfigError(problem="p", hint="h").to_json() | {"facts": {"problem": "p"}}

    back = error_from_json(data)

    assert type(back) is UnknownError
    assert back.facts["original_code"] == ConfigError.code


def test_an_almost_empty_record_is_still_an_error():
    assert isinstance(error_from_json({}), BicycleError)
