"""Wheels of strangers: what is taken is what it seems, and everything else is refused unread."""

import stat
import struct
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest

from bicycle_runtime.service.plugins.errors import LOCK_REFUSED, WHEEL_REFUSED
from bicycle_runtime.service.plugins.lock_files import LOCK_BYTES_MAX, read_lock
from bicycle_runtime.service.plugins.wheels import WheelLimits, check_wheel
from bicycle_sdk.errors import BicycleError
from tests.cluster.wheels import write_wheel
from tests.raising import raises

NAME = "demo-1.0-py3-none-any.whl"


def plain(folder, files=None, **more):
    given = {"demo.py": "def job(env): ...\n"} if files is None else files
    plugins = more.pop("plugins", {"demo": "demo:job"})
    return write_wheel(folder, "demo", "1.0", given, plugins=plugins, **more)


def changed(wheel, change):
    """Write a wheel again; ``change`` may alter, add or leave out entries by name."""
    with zipfile.ZipFile(wheel) as archive:
        content = [(entry.filename, archive.read(entry)) for entry in archive.infolist()]
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in change(content):
            archive.writestr(name, data)
    return wheel


def refused(wheel, words, **limits):
    with raises(WHEEL_REFUSED) as caught:
        check_wheel(wheel, WheelLimits(**limits))
    assert words in caught.value.facts["problem"]


def test_what_a_build_tool_writes_is_taken_with_its_entry_points_and_needs(tmp_path):
    wheel = plain(tmp_path, requires=["bicycle-sdk", "colors>=2", "odd; python_version < '3'"])

    facts = check_wheel(wheel)

    assert (facts.name, facts.version, facts.file) == ("demo", "1.0", NAME)
    assert facts.plugins == {"demo": "demo:job"}
    assert facts.missing == ("colors",)
    assert facts.byte_count == wheel.stat().st_size


def test_needs_that_nobody_can_mean_are_no_needs(tmp_path):
    endless = [f"demo-lib{'==1,' * 200_000}==1", f"demo-lib; {'(' * 1_900}x"]

    assert check_wheel(plain(tmp_path, requires=["colors", *endless])).missing == ("colors",)


def test_the_code_of_a_wheel_is_not_run_to_read_it(tmp_path):
    wheel = plain(tmp_path, {"demo.py": "raise SystemExit('run')\n"})

    assert check_wheel(wheel).plugins == {"demo": "demo:job"}


def test_a_wheel_that_was_checked_is_open_no_more(tmp_path):
    wheel = plain(tmp_path)
    check_wheel(wheel)

    opened = []
    for descriptor in list(Path("/proc/self/fd").iterdir()):
        with suppress(FileNotFoundError):  # The one that listed them.
            opened.append(descriptor.readlink())
    assert wheel not in opened


@pytest.mark.parametrize(
    "path",
    ["../evil.py", "/etc/evil.py", "a/../../evil.py", "a\\evil.py", "C:/evil.py", "a//b.py",
     "./a.py", "a\x00.py", "a\n.py", "x" * 300],
)  # fmt: skip
def test_a_path_that_leads_elsewhere_is_refused(tmp_path, path):
    wheel = plain(tmp_path)
    with zipfile.ZipFile(wheel, "a") as archive:
        entry = zipfile.ZipInfo("placeholder")
        entry.filename = entry.orig_filename = path
        archive.writestr(entry, b"x")

    with raises(WHEEL_REFUSED):
        check_wheel(wheel)


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFIFO, stat.S_IFDIR])
def test_a_link_or_a_device_is_refused(tmp_path, kind):
    wheel = plain(tmp_path)
    entry = zipfile.ZipInfo("link.py")
    entry.external_attr = (kind | 0o644) << 16
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr(entry, "/etc/passwd")

    refused(wheel, "link or a device")


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path):
    wheel = plain(tmp_path)
    with zipfile.ZipFile(wheel, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros.bin", bytes(8 << 20))

    refused(wheel, "times its size")
    refused(wheel, "unpacks to", unpacked_bytes_max=4 << 20)


def test_files_that_share_bytes_are_refused(tmp_path):
    wheel = plain(tmp_path)
    data = bytearray(wheel.read_bytes())
    directory = struct.unpack("<L", data[-6:-2])[0]
    second = data.index(b"PK\x01\x02", directory + 4)
    data[second + 42 : second + 46] = struct.pack("<L", 0)  # Its place: that of the first.
    wheel.write_bytes(data)

    refused(wheel, "overlap")


@pytest.mark.parametrize(
    ("before", "after"), [(b"#!/bin/sh\n", b""), (b"", b"tail"), (b"", b"PK\x05\x06" + bytes(18))]
)
def test_bytes_before_or_behind_the_archive_are_refused(tmp_path, before, after):
    wheel = plain(tmp_path)
    wheel.write_bytes(before + wheel.read_bytes() + after)

    refused(wheel, "exactly one zip archive")


def test_limits_of_size_and_number_hold(tmp_path):
    wheel = plain(tmp_path)

    refused(wheel, "bytes", byte_count_max=100)
    refused(wheel, "files", file_count_max=3)


def test_no_file_is_taken_that_record_does_not_vouch_for(tmp_path):
    def other(content):
        return [(name, b"other\n" if name == "demo.py" else data) for name, data in content]

    def more(content):
        return [*content, ("more.py", b"")]

    def fewer(content):
        return [(name, data) for name, data in content if name != "demo.py"]

    def none(content):
        return [(name, data) for name, data in content if not name.endswith("RECORD")]

    refused(changed(plain(tmp_path / "a"), other), "does not match RECORD")
    refused(changed(plain(tmp_path / "b"), more), "has no hash for 'more.py'")
    refused(changed(plain(tmp_path / "c"), fewer), "which is missing")
    refused(changed(plain(tmp_path / "d"), none), "it has no RECORD")


def test_one_file_twice_is_refused_in_whatever_letters(tmp_path):
    wheel = plain(tmp_path, {"demo.py": "a", "DEMO.py": "b"})

    refused(wheel, "twice")


@pytest.mark.parametrize(
    "path",
    ["demo.pth", "demo-1.0.data/scripts/python", "demo-1.0.data/purelib/demo.pth",
     "demo-1.0.data/platlib/demo.pth", "other-2.data/purelib/Demo.PTH", "sitecustomize.py",
     "demo-1.0.data/purelib/sitecustomize.py", "sitecustomize/__init__.py", "usercustomize.py",
     "usercustomize.cpython-311-x86_64-linux-gnu.so", "demo.start"],
)  # fmt: skip
def test_what_would_run_by_itself_is_refused(tmp_path, path):
    refused(plain(tmp_path, {"demo.py": "", path: "import os\n"}), "it contains ")


@pytest.mark.parametrize("group", ["bicycle.plugins", "console_scripts", "anything"])
@pytest.mark.parametrize("name", ["../../x", "..", "a/b", "/x", "a\\b", ".x", "x y", "x" * 101])
def test_an_entry_point_whose_name_leads_elsewhere_is_refused(tmp_path, group, name):
    plugins = {"demo": f"demo:job\n[{group}]\n{name} = demo:job"}

    refused(plain(tmp_path, plugins=plugins), "is not an entry point with a plain name")


def test_entry_points_with_plain_names_and_comments_are_taken(tmp_path):
    more = "demo:job\n# one\n; two\n\n[console_scripts]\ndemo-1.x+y = demo:job"

    assert check_wheel(plain(tmp_path, plugins={"demo": more})).plugins == {"demo": "demo:job"}


def test_names_must_agree(tmp_path):
    wheel = plain(tmp_path)
    others = ["other-1.0-py3-none-any.whl", "demo-2.0-py3-none-any.whl"]

    for name in others:
        refused(wheel.rename(wheel.with_name(name)), "differ")
        wheel = plain(tmp_path)
    refused(wheel.rename(wheel.with_name("demo.zip")), "not the name of a wheel")
    other = plain(tmp_path)
    refused(other.rename(other.with_name("demo-1.0-cp27-cp27m-win32.whl")), "not for this Python")


def test_a_wheel_without_a_plugin_and_a_file_that_is_none_are_refused(tmp_path):
    refused(plain(tmp_path, plugins={}), "no entry point")
    refused(plain(tmp_path, plugins={"demo": "no target"}), "plugin 'demo'")
    for data in (b"", b"PK\x03\x04" + bytes(100), b"\x00" * 22):
        wheel = tmp_path / NAME
        wheel.write_bytes(data)
        refused(wheel, "")


def content(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return {entry.filename: archive.read(entry) for entry in archive.infolist()}


def test_damage_within_is_refused_or_changes_nothing(tmp_path):
    wheel = plain(tmp_path)
    data, whole, refused_count = wheel.read_bytes(), content(wheel), 0
    places = range(0, len(data), 7)
    for place in places:
        wheel.write_bytes(data[:place] + bytes([data[place] ^ 0x41]) + data[place + 1 :])
        try:
            check_wheel(wheel)
        except BicycleError as error:
            assert error.code == WHEEL_REFUSED.code
            refused_count += 1
        else:  # It lies in a time, a version, or such: nobody reads them.
            assert content(wheel) == whole, place

    assert refused_count > len(places) / 2


HASH = "--hash=sha256:" + "0" * 64


def test_a_lock_file_names_versions_with_hashes():
    text = f"""
# made by a tool
Colors[shine]==2.0 ; python_version >= "3" \\
    {HASH} \\
    --hash=sha256:{"1" * 64}
    # via demo
deep==1.0 {HASH}
"""
    found = read_lock(text.encode())

    assert [each.name for each in found] == ["colors", "deep"]
    assert found[0].line.startswith('Colors[shine]==2.0; python_version >= "3" --hash=sha256:000')
    assert found[1].line == f"deep==1.0 {HASH}"


def test_a_lock_file_of_nothing_but_spaces_is_read_at_once():
    assert read_lock(b" " * LOCK_BYTES_MAX) == []
    assert [each.name for each in read_lock(f"demo==1 {HASH} \t # why\n".encode())] == ["demo"]


@pytest.mark.parametrize(
    "line",
    [
        "-r /etc/passwd", "--index-url=https://other.example", "-e .", "./local.whl",
        f"demo @ file:///tmp/demo.whl {HASH}", f"demo>=1 {HASH}", f"demo==1.* {HASH}", "demo==1.0",
        "demo==1.0 --hash=md5:00", f"demo==1.0 {HASH} --config-settings=x", f"demo {HASH}",
        f"demo==1.0 --find-links=/tmp {HASH}", "\xff", "${HOME}==1",
        f"demo{'==1,' * 200_000}==1 {HASH}", f"demo==1; {'(' * 1_900}x {HASH}",
    ],
    ids=lambda line: line[:40],
)  # fmt: skip
def test_anything_else_in_a_lock_file_is_refused_with_its_line(line):
    with raises(LOCK_REFUSED) as caught:
        read_lock(f"# first\n\ngood==1 {HASH}\n{line}\n".encode("latin-1"))

    assert caught.value.facts["line"] in (1, 4)
