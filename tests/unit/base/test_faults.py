import os
import threading

import pytest

from bicycle_runtime.base.faults import InjectedFault, arm_fault, disarm_faults, fault_point
from tests.waiting import until


@pytest.fixture(autouse=True)
def _disarmed():
    yield
    disarm_faults()


def test_an_armed_point_raises_once_at_the_passage_that_was_asked_for():
    arm_fault("read", 2)

    fault_point("read")
    with pytest.raises(InjectedFault):
        fault_point("read")
    fault_point("read")


def test_an_act_takes_the_place_of_the_error_once():
    acts = []
    arm_fault("read", act=lambda: acts.append("here"))

    fault_point("read")
    fault_point("read")

    assert acts == ["here"]


def test_arming_again_without_an_act_raises():
    arm_fault("read", act=lambda: None)
    arm_fault("read")

    with pytest.raises(InjectedFault):
        fault_point("read")


def test_a_disarmed_point_does_nothing():
    acts = []
    arm_fault("read", act=lambda: acts.append("here"))
    disarm_faults()

    fault_point("read")

    assert acts == []


def test_a_point_that_nobody_knows_is_refused():
    with pytest.raises(ValueError, match="nowhere"):
        arm_fault("nowhere")


def test_a_point_of_any_passage_is_armed_by_removing_its_file(monkeypatch, tmp_path):
    monkeypatch.setenv("BICYCLE_FAULTS", "read@any=raise")
    monkeypatch.setenv("BICYCLE_FAULTS_ONCE", str(tmp_path))
    file = tmp_path / "read@any=raise"

    for _ in range(2):
        with pytest.raises(InjectedFault):
            fault_point("read")
        assert file.read_text() == str(os.getpid())
        fault_point("read")
        file.unlink()


def test_what_holds_takes_its_own_release_away_as_it_goes_on(monkeypatch, tmp_path):
    monkeypatch.setenv("BICYCLE_FAULTS", "read@any=hold")
    monkeypatch.setenv("BICYCLE_FAULTS_ONCE", str(tmp_path))
    held = threading.Thread(target=fault_point, args=("read",))

    held.start()
    until((tmp_path / "read@any=hold").exists, "the strike")
    (tmp_path / "read@any=hold.release").touch()
    held.join()

    assert [path.name for path in tmp_path.iterdir()] == ["read@any=hold"]
