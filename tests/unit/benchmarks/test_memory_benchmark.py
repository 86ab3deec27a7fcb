"""The benchmark of memory per key: its rows, and the page that shows them."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs/how-to/memory.md"


@pytest.fixture(scope="module")
def bench(load):
    return load("bench_memory")


def rows_of(page: str, name: str) -> list[str]:
    section = page.partition(f"<!-- begin {name} -->")[2].partition(f"<!-- end {name} -->")[0]
    rows = re.findall(r"^\| (.+?) +\|", section, re.MULTILINE)
    return rows[1:]


def test_the_page_shows_each_kind_of_state(bench):
    page = PAGE.read_text("utf-8")

    assert rows_of(page, "bytes per key") == list(bench.FORMS)
    assert rows_of(page, "bytes by backend") == list(bench.DISK_FORMS)


@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
def test_each_kind_of_state_is_written_for_each_key(bench, backend, monkeypatch):
    monkeypatch.setattr(bench, "EPOCH_KEYS", 20)
    forms = bench.FORMS if backend == "memory" else bench.DISK_FORMS

    sealed = {form: bench.measure(form, backend, 60)[1] for form in forms}

    assert {form: size for form, size in sealed.items() if size < 12} == {}
