"""A whole job over files whose surroundings break: it ends with our error, and goes on exactly."""

import contextlib
import json
import os
import resource
import shutil
from collections import Counter
from pathlib import Path

import pytest

from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.testing import Harness
from bicycle_sdk import file_sink
from bicycle_sdk.errors import BicycleError

LOW = 400


@pytest.fixture
def places(tmp_path):
    (tmp_path / "in").mkdir()
    return tmp_path / "in", tmp_path / "out"


@pytest.fixture(params=["memory", "rocksdb"])
def job(request, places):
    """Count words of followed files; each epoch is a part of its own."""
    source, target = places

    def counting(env):
        words = env.read_text(source, follow=True).uid("lines").key_by(lambda line: line)
        words.count().uid("count").sink_to(file_sink(target, roll_ms=1)).uid("out")

    engine = EngineOptions(state_backend=request.param)
    with Harness(counting, real_sinks=["out"], engine=engine) as harness:
        yield harness


def append(path, *lines):
    with path.open("a") as stream:
        stream.writelines(f"{line}\n" for line in lines)


def run(harness):
    """Let time pass, so that directories are listed, and run what is there."""
    for _ in range(3):
        harness.advance_time(1_000)


def counts(target):
    """Return all that was published, each once."""
    found = [
        tuple(json.loads(line))
        for part in sorted(target.glob("part-*"))
        for line in part.read_text().splitlines()
    ]
    return Counter(found)


def expected(lines):
    return Counter((line, number + 1) for line in set(lines) for number in range(lines.count(line)))


@contextlib.contextmanager
def no_descriptors():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (LOW, before[1]))
    taken = []
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        yield taken
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for descriptor in taken:
            os.close(descriptor)


@pytest.mark.parametrize("left", [0, 1, 2, 4])
def test_a_job_without_file_descriptors_ends_with_our_error_and_goes_on_exactly(job, places, left):
    source, target = places
    append(source / "a", "ada", "bob")
    run(job)
    append(source / "a", "ada", "eve")
    with no_descriptors() as taken:
        for _ in range(left):
            os.close(taken.pop())
        try:
            run(job)
            assert left  # With none at all nothing can be read.
        except BicycleError as error:  # Any other error is a failure of this test.
            assert "Too many open files" in str(error)
    job.crash()
    run(job)

    assert counts(target) == expected(["ada", "bob", "ada", "eve"])


@pytest.mark.parametrize("folder", ["epochs", "state", "staged"])
def test_a_checkpoint_directory_that_cannot_be_written_ends_the_job_with_our_error(
    job, places, folder
):
    source, target = places
    append(source / "a", "ada", "bob")
    run(job)
    place = Path(job.storage.root) / folder
    shutil.move(place, f"{place}.away") if place.exists() else None
    place.write_text("A file where a directory must be: nothing can be created below it.")
    append(source / "a", "ada", "eve")
    with pytest.raises(BicycleError) as caught:
        run(job)
    assert caught.value.code.startswith("BIC-11")
    place.unlink()
    if Path(f"{place}.away").exists():
        shutil.move(f"{place}.away", place)
    job.crash()
    run(job)

    assert counts(target) == expected(["ada", "bob", "ada", "eve"])


@pytest.mark.parametrize("crashes", [False, True])
def test_an_output_directory_that_was_removed_is_made_again_and_gets_what_comes(
    job, places, crashes
):
    source, target = places
    append(source / "a", "ada")
    run(job)
    assert counts(target) == expected(["ada"])
    shutil.rmtree(target)
    if crashes:
        job.crash()
    append(source / "a", "ada", "bob")
    run(job)

    assert counts(target) == Counter([("ada", 2), ("bob", 1)])


@pytest.mark.parametrize("crashes", [False, True])
def test_files_that_rotate_by_rename_and_by_copy_are_read_exactly_once(job, places, crashes):
    source, target = places
    written = []
    for turn in range(4):
        for name in ("renamed.log", "copied.log"):
            lines = [f"{name} {turn}"] * 3 + ["the same line"]
            append(source / name, *lines)
            written += lines
        run(job)
        if crashes:
            job.crash()
        (source / "renamed.log").rename(source / f"renamed.log.{turn}")
        append(source / f"renamed.log.{turn}", "the last line")  # Its writer still has it open.
        written.append("the last line")
        shutil.copy(source / "copied.log", source.parent / f"copied.log.{turn}")
        os.truncate(source / "copied.log", 0)
        if turn % 2:
            run(job)

    run(job)
    assert counts(target) == expected(written)
