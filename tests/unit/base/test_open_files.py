"""The limit of open files: which errors come from it, and how much room there is."""

import errno
import resource
from pathlib import Path

import pytest

from bicycle_runtime.base.errors import STORAGE_MISSING
from bicycle_runtime.base.open_files import comes_from_open_files, has_room, is_kept_for_work
from tests.own_process import run_alone


@pytest.fixture
def limit():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)

    def set_to(soft):
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, before[1]))

    yield set_to
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def raised(cause):
    try:
        try:
            raise cause
        except OSError as error:
            raise STORAGE_MISSING(url="x", action="read", path="y") from error
    except Exception as error:  # noqa: BLE001 - it is what is asked for
        return error


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_an_error_and_all_that_is_raised_from_it_comes_from_a_lack_of_files(number):
    assert comes_from_open_files(OSError(number, "too many"))
    assert comes_from_open_files(raised(OSError(number, "too many")))


def test_other_errors_do_not():
    assert not comes_from_open_files(raised(OSError(errno.ENOSPC, "full")))
    assert not comes_from_open_files(None)
    circle = ValueError()
    circle.__context__ = KeyError()
    circle.__context__.__context__ = circle
    assert not comes_from_open_files(circle)


@pytest.mark.parametrize(("soft", "first_kept"), [(1_024, 960), (200, 150)])
def test_the_last_descriptors_are_kept_for_work(limit, soft, first_kept):
    limit(soft)
    assert not is_kept_for_work(first_kept - 1)
    assert is_kept_for_work(first_kept)


def test_there_is_room_until_the_limit_and_looking_leaves_nothing_open():
    run_alone(check_room)


def check_room():
    before = sorted(path.name for path in Path("/dev/fd").iterdir())
    highest = max(map(int, before))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, highest + 1))
    room = highest + 1 - len(before) + 1  # The listing itself had a descriptor.
    assert has_room(max(room, 0))
    assert not has_room(room + 1)
    assert sorted(path.name for path in Path("/dev/fd").iterdir()) == before
