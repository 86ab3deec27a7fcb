"""One spelling of each location, by which two of them are compared."""

import os

import pytest

from bicycle_runtime.base.storage_urls import is_within, resolve_location
from bicycle_sdk.errors import ConfigError


def test_all_spellings_of_a_path_are_one(tmp_path, monkeypatch):
    folder = tmp_path / "a"
    folder.mkdir()
    (tmp_path / "link").symlink_to(folder)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))

    spellings = [
        "a", "./a/", "~/a", "link", "link/../a", f"file://{folder}", f"FILE://localhost{folder}/",
        f"local://{folder}", f"file://{tmp_path}/link", f"/{folder}",
    ]  # fmt: skip

    assert {resolve_location(each) for each in spellings} == {os.path.realpath(folder)}


def test_urls_keep_their_paths_but_for_what_means_nothing():
    assert resolve_location("S3a://bucket/a/") == resolve_location("s3://bucket/a")
    assert resolve_location("s3://bucket/a/../b") != resolve_location("s3://bucket/b")
    assert is_within(resolve_location("s3://bucket/a/b"), resolve_location("s3a://bucket/a/"))


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "http://[", "dir::file:///a"])
def test_what_is_no_location_is_refused(text):
    with pytest.raises(ConfigError):
        resolve_location(text)


def test_the_home_of_nobody_is_a_path_like_any_other():
    assert resolve_location("~nobody-here/x").endswith("/~nobody-here/x")
