"""A plugin's environment: what belongs to it, how it is packed, and how it is unpacked."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from bicycle_runtime.extraction import unpacking
from bicycle_runtime.extraction.discovery import discover
from bicycle_runtime.extraction.errors import (
    ENVIRONMENT_CONFLICT,
    ENVIRONMENT_FILES_UNKNOWN,
    ENVIRONMENT_FOLDER_UNUSABLE,
    ENVIRONMENT_MISSING,
)
from bicycle_runtime.extraction.packing import pack_environment
from bicycle_runtime.extraction.plugin_env import own_environment, read_environment
from bicycle_runtime.extraction.unpacking import KEPT_COUNT, enter_environment, unpack
from tests.raising import raises
from tests.waiting import PATIENCE_S


def put(folder, name, version="1.0", *, requires=(), files=None, record=True):
    """Install a distribution into a folder as pip would."""
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    files = {f"{name}.py": f"VERSION = {version!r}\n"} if files is None else files
    for place, text in files.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(text)
    needs = "".join(f"Requires-Dist: {text}\n" for text in requires)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}"
    )
    (info / "direct_url.json").write_text("{}")
    listed = [*files, f"{info.name}/METADATA", f"{info.name}/direct_url.json"]
    if record:
        (info / "RECORD").write_text("".join(f"{place},,\n" for place in listed))
    return info


def put_plugin(folder, **more):
    info = put(folder, "demo", **more)
    (info / "entry_points.txt").write_text("[bicycle.plugins]\ndemo = demo:job\n")
    return discover([str(folder)]).find("demo")


def put_runtime(folder, requires=()):
    put(folder, "bicycle-runtime", "0.1", requires=["msgspec>=0.20", *requires], files={})
    put(folder, "msgspec", "0.20", files={})
    return [str(folder)]


@pytest.fixture
def pack(tmp_path):
    site, runtime = tmp_path / "site", put_runtime(tmp_path / "runtime", ["numpy>=2"])

    def packed(ref):
        return pack_environment(
            ref, [str(site)], runtime_path=runtime, cache_dir=tmp_path / "cache"
        )

    return packed


def names(packed):
    with zipfile.ZipFile(packed.path) as archive:
        return set(archive.namelist())


def test_a_plugin_is_packed_with_all_it_needs_and_nothing_else(tmp_path, pack):
    site = tmp_path / "site"
    put(site, "colors", "2.0", requires=["deep", "gone", "odd; python_version < '3'"])
    put(site, "deep", files={"deep/__init__.py": "", "deep/data.txt": "x"})
    put(site, "stranger")
    put(site, "odd")
    put(site, "cloudpickle", "9.9")
    ref = put_plugin(site, requires=["Colors>=2", "cloudpickle", "not a requirement !!"])

    packed = pack(ref)

    assert packed.libraries == ("colors 2.0", "deep 1.0", "demo 1.0")
    modules = {name for name in names(packed) if ".dist-info" not in name}
    assert modules == {"colors.py", "deep/__init__.py", "deep/data.txt", "demo.py"}
    assert "demo-1.0.dist-info/METADATA" in names(packed)
    assert "demo-1.0.dist-info/direct_url.json" not in names(packed)
    assert not packed.is_native


def test_what_is_used_without_being_required_is_packed_on_demand(tmp_path):
    site, runtime = tmp_path / "site", put_runtime(tmp_path / "runtime")
    ref = put_plugin(site)
    put(site, "tallies", requires=["digits"])
    put(site, "digits")
    put(site, "others")

    def names(*others):
        packed = pack_environment(
            ref, [str(site)], runtime_path=runtime, cache_dir=tmp_path / "cache", others=others
        )
        return [library.partition(" ")[0] for library in packed.libraries]

    assert names() == ["demo"]
    assert names("Tallies") == ["demo", "digits", "tallies"]


def test_a_broken_distribution_beside_it_is_no_matter(tmp_path, pack):
    ref = put_plugin(tmp_path / "site")
    broken = put(tmp_path / "site", "broken")
    (broken / "METADATA").write_bytes(b"Name: \xff\xfe\n")

    assert pack(ref).libraries == ("demo 1.0",)


def test_extras_that_are_asked_for_belong_to_it(tmp_path, pack):
    site = tmp_path / "site"
    put(site, "colors", requires=["shiny; extra == 'shine'", "matt; extra == 'dull'"])
    put(site, "shiny")
    put(site, "matt")

    packed = pack(put_plugin(site, requires=["colors[shine]"]))

    assert packed.libraries == ("colors 1.0", "demo 1.0", "shiny 1.0")


def test_equal_content_is_one_archive_and_other_content_another(tmp_path, pack):
    site = tmp_path / "site"
    ref = put_plugin(site)
    first = pack(ref)
    os.utime(site / "demo.py", (1, 1))
    again = pack(ref)
    (site / "demo.py").write_text("VERSION = 'other'\n")
    other = pack(ref)

    assert first == again
    assert first.digest != other.digest
    assert other.path.name == f"{other.digest}.zip"


def test_machine_code_is_noticed(tmp_path, pack):
    packed = pack(put_plugin(tmp_path / "site", files={"demo.py": "", "demo_c.so": "\x7fELF"}))

    assert packed.is_native


def test_an_editable_plugin_is_packed_from_its_sources(tmp_path, pack):
    site, sources = tmp_path / "site", tmp_path / "project" / "src"
    (sources / "demo" / "__pycache__").mkdir(parents=True)
    (sources / "demo" / "__init__.py").write_text("job = 1\n")
    (sources / "demo" / "__pycache__" / "x.pyc").write_text("")
    (sources / "elsewhere.py").write_text("")
    ref = put_plugin(site, files={"__editable__.demo.pth": f"{sources}\n"})

    modules = {name for name in names(pack(ref)) if ".dist-info" not in name}

    assert modules == {"demo/__init__.py"}


def test_a_distribution_whose_files_nobody_knows_is_refused(tmp_path, pack):
    with raises(ENVIRONMENT_FILES_UNKNOWN) as error:
        pack(put_plugin(tmp_path / "site", record=False))

    assert error.value.facts["library"] == "demo 1.0"


def test_what_the_runtime_holds_must_be_of_a_version_that_the_plugin_takes(tmp_path, pack):
    with raises(ENVIRONMENT_CONFLICT) as error:
        pack(put_plugin(tmp_path / "site", requires=["msgspec<0.19"]))

    facts = error.value.facts
    assert (facts["asker"], facts["requirement"], facts["found"]) == (
        "demo", "msgspec<0.19", "0.20",
    )  # fmt: skip


def test_what_the_plugin_brings_must_be_of_a_version_that_the_runtime_takes(tmp_path, pack):
    put(tmp_path / "runtime", "numpy", "2.4")
    put(tmp_path / "site", "numpy", "1.26")

    with raises(ENVIRONMENT_CONFLICT) as error:
        pack(put_plugin(tmp_path / "site", requires=["numpy"]))

    assert (error.value.facts["asker"], error.value.facts["found"]) == ("bicycle-runtime", "1.26")


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(unpacking.tempfile, "tempdir", str(folder))
    monkeypatch.setattr(unpacking, "_held", {})
    return folder


def archive(folder, number):
    path = folder / f"{number}.zip"
    with zipfile.ZipFile(path, "w") as stream:
        stream.writestr("module_of_archive.py", f"NUMBER = {number}\n")
    return path


def test_an_environment_is_unpacked_once_and_first_on_the_path(tmp_path, temporary, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    path = archive(tmp_path, 1)

    folder = enter_environment(path, "d1")
    path.unlink()

    assert enter_environment(path, "d1") == folder
    assert sys.path[0] == str(folder)
    assert sys.path.count(str(folder)) == 1
    assert (folder / "module_of_archive.py").read_text() == "NUMBER = 1\n"
    assert folder.stat().st_uid == os.getuid()


def test_of_what_nobody_uses_only_the_newest_stay(tmp_path, temporary):
    folders = [unpack(archive(tmp_path, n), f"d{n}") for n in range(KEPT_COUNT + 2)]
    assert all(folder.is_dir() for folder in folders)  # This process uses them all.
    for descriptor in unpacking._held.values():
        os.close(descriptor)
    unpacking._held.clear()
    for age, folder in enumerate(folders):
        os.utime(folder, (age, age))

    newest = unpack(archive(tmp_path, 99), "d99")

    left = {path.name for path in newest.parent.iterdir() if path.is_dir()}
    assert left == {"d99", *(f"d{n}" for n in range(3, KEPT_COUNT + 2))}


def test_a_cache_that_others_can_write_is_refused(tmp_path, temporary):
    unpacking.cache_folder().mkdir(mode=0o700)
    unpacking.cache_folder().chmod(0o777)

    with raises(ENVIRONMENT_FOLDER_UNUSABLE):
        unpack(archive(tmp_path, 1), "d1")


def test_a_damaged_archive_is_an_error_and_leaves_nothing(tmp_path, temporary):
    broken = tmp_path / "broken.zip"
    broken.write_bytes(b"no zip")

    with raises(ENVIRONMENT_FOLDER_UNUSABLE):
        unpack(broken, "d1")

    assert [path for path in unpacking.cache_folder().iterdir() if path.is_dir()] == []


def test_processes_that_unpack_at_once_all_find_it_whole(tmp_path):
    path = archive(tmp_path, 7)
    program = (
        "import sys, pathlib; from bicycle_runtime.extraction.unpacking import enter_environment;"
        "enter_environment(pathlib.Path(sys.argv[1]), 'd7');"
        "import module_of_archive; print(module_of_archive.NUMBER)"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, env=environment
        )
        for _ in range(3)
    ]

    assert [process.communicate(timeout=PATIENCE_S)[0] for process in running] == [b"7\n"] * 3


def test_the_own_environment_answers_for_itself():
    own = read_environment_of_this_interpreter()

    assert own.python == own_environment().python
    assert own.platform == own_environment().platform


def read_environment_of_this_interpreter():
    return read_environment(Path(sys.prefix))


def test_a_folder_without_an_interpreter_is_no_environment(tmp_path):
    with raises(ENVIRONMENT_MISSING):
        read_environment(tmp_path)


def test_an_interpreter_that_fails_is_told_with_its_words(tmp_path):
    program = tmp_path / "bin" / "python"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho broken home >&2; exit 3\n")
    program.chmod(0o755)

    with raises(ENVIRONMENT_MISSING) as error:
        read_environment(tmp_path)

    assert error.value.facts["reason"] == "broken home"
