"""A plugin that is an SQL file with a function in Python, built as a wheel by setuptools."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.cluster.wheels import run

PROJECT = """\
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "shop-views"
version = "{version}"
dependencies = ["bicycle-sdk>=0.1"]
entry-points."bicycle.plugins" = {{ loud_words = "shop_views:loud.sql" }}

[tool.setuptools]
packages = ["shop_views"]
package-data = {{ shop_views = ["*.sql", "loud/*.sql"] }}
"""
FUNCTIONS = "def shout(text: str) -> str:\n    return text.upper() + '{sign}'\n"
SQL = """\
CREATE TABLE words (n BIGINT, who VARCHAR) WITH (kind = 'file', path = '{folder}/words.jsonl'{more});
CREATE TABLE loud (n BIGINT, who VARCHAR) WITH (kind = 'file', path = '{folder}/loud', roll_ms = 1);
CREATE FUNCTION shout AS 'shop_views.functions:shout';
INSERT INTO loud SELECT 10 / n, {column} FROM words;
"""


def sql_wheel(
    folder: Path, version: str = "1.0", *, column: str = "shout(who)", more: str = "",
    is_split: bool = False,
) -> Path:  # fmt: skip
    """Build a version of the wheel; its job reads and writes files of a folder.

    If the SQL ``is_split``, each statement is a file of a folder.
    """
    project = folder / f"project-{version}"
    package = project / "shop_views"
    package.mkdir(parents=True)
    (project / "pyproject.toml").write_text(PROJECT.format(version=version))
    (package / "__init__.py").touch()
    (package / "functions.py").write_text(FUNCTIONS.format(sign="!" * int(version[0])))
    text = SQL.format(folder=folder, column=column, more=more)
    if is_split:
        (package / "loud").mkdir()
        for number, line in enumerate(reversed(text.splitlines())):
            (package / "loud" / f"part-{number}.sql").write_text(f"\n{line}")
    else:
        (package / "loud.sql").write_text(text)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
    store = folder / "wheels"
    run([*pip, "--no-deps", "--no-build-isolation", "--wheel-dir", str(store), str(project)])
    return store / f"shop_views-{version}-py3-none-any.whl"
