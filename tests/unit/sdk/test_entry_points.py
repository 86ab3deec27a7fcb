"""Entry points as the command line reads them."""

import importlib.metadata
import zipfile

import pytest

from bicycle_sdk.entry_points import EntryPoint, entry_lines, entry_points, load_object


def install(folder, name, text, *, version="1.0"):
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_bytes(text.encode() if isinstance(text, str) else text)


@pytest.mark.parametrize("group", ["bicycle.extensions", "console_scripts", "pytest11", "nothing"])
def test_the_entry_points_of_this_installation_are_those_of_the_standard_library(group):
    expected = {(each.name, each.value) for each in importlib.metadata.entry_points(group=group)}

    assert {(each.name, each.location) for each in entry_points(group)} == expected


def test_points_name_their_distribution_and_the_first_folder_counts(tmp_path, monkeypatch):
    install(tmp_path / "b", "tide_tables", "[g]\ntide = old\n", version="1.0")
    install(tmp_path / "a", "Tide_Tables", "[f]\nx = y\n[g]\n# no\ntide = tides:main [all]\n",
            version="2.0")  # fmt: skip
    install(tmp_path / "a", "broken", b"[g]\n\xff = x\n")
    monkeypatch.syspath_prepend(str(tmp_path / "b"))
    monkeypatch.syspath_prepend(str(tmp_path / "a"))
    monkeypatch.syspath_prepend(str(tmp_path / "gone"))

    assert entry_points("g") == [
        EntryPoint(name="tide", location="tides:main", distribution="tide-tables 2.0")
    ]


def test_points_in_an_archive_are_found(tmp_path, monkeypatch):
    install(tmp_path, "packed", "[g]\nin = packed:it\n")
    with zipfile.ZipFile(tmp_path / "packed.whl", "w") as archive:
        for path in sorted((tmp_path / "packed-1.0.dist-info").iterdir()):
            archive.write(path, f"packed-1.0.dist-info/{path.name}")
    monkeypatch.syspath_prepend(str(tmp_path / "packed.whl"))

    assert [str(each.distribution) for each in entry_points("g")] == ["packed 1.0"]


def test_lines_of_one_group_are_read():
    text = "[a]\nx = 1\n\n; no\n[b]\ny = 2\n[a]\nz = 3\n"
    assert entry_lines(text, "a") == ["x = 1", "z = 3"]
    assert entry_lines(text, "c") == []


def test_a_module_or_an_object_of_it_is_loaded():
    assert load_object("importlib.metadata") is importlib.metadata
    assert load_object("importlib.metadata:EntryPoint.load") is importlib.metadata.EntryPoint.load
    with pytest.raises(AttributeError):
        load_object("importlib.metadata:nothing")
