"""Each contract about imports fires when a module breaks it.

The contracts are run over a skeleton: the modules of the tree by name, empty but for one planted
import.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "bicycle_sdk": ROOT / "plugin_sdk/src",
    "bicycle_runtime": ROOT / "runtime/src",
    "wordcount": ROOT / "plugins/wordcount/src",
    "wordcount_kafka": ROOT / "plugins/wordcount_kafka/src",
}
ROOMS = "Runtime rooms point downwards"
JOBS = "Rooms of jobs point downwards"
ENGINE = "Rooms of the engine point downwards"
STATE = "Rooms of state point downwards"
OPERATORS = "Rooms of operators point downwards"
SDK = "SDK modules point downwards"
CONNECTORS = "Connectors are strangers to each other"
PYSPARK = "Only the engine knows PySpark"
PLUGINS = "SDK and plugins do not know the runtime"


@pytest.fixture(scope="module")
def skeleton(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("skeleton")
    shutil.copy(ROOT / "pyproject.toml", root)
    for package, source in PACKAGES.items():
        for file in (source / package).rglob("*.py"):
            copy = root / file.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.touch()
    (root / "wordcount").mkdir(exist_ok=True)
    (root / "wordcount/__init__.py").touch()
    return root


@pytest.fixture
def tree(skeleton, tmp_path) -> Path:
    return shutil.copytree(skeleton, tmp_path / "tree")


def contracts_broken(tree: Path) -> set[str]:
    """Run import-linter in a tree; return the names of the contracts that it calls broken."""
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    names = (ROOMS, JOBS, ENGINE, OPERATORS, STATE, SDK, CONNECTORS, PYSPARK, PLUGINS)
    verdicts = {name: done.stdout.partition(name)[2].split(maxsplit=1)[0] for name in names}
    assert set(verdicts.values()) <= {"KEPT", "BROKEN"}, done.stdout
    found = {name for name, verdict in verdicts.items() if verdict == "BROKEN"}
    assert done.returncode == bool(found), done.stdout
    return found


def test_an_empty_tree_keeps_all_contracts(tree):
    assert contracts_broken(tree) == set()


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("bicycle_runtime/records/__init__.py", "import bicycle_runtime.state", ROOMS),
        ("bicycle_runtime/base/clock.py", "import bicycle_runtime.connectors.contract", ROOMS),
        ("bicycle_runtime/extraction/__init__.py", "import bicycle_runtime.connectors", ROOMS),
        ("bicycle_runtime/new_room/__init__.py", "", ROOMS),
        (
            "bicycle_runtime/jobs/control/looking.py",
            "import bicycle_runtime.jobs.running.driver",
            JOBS,
        ),
        ("bicycle_runtime/jobs/new_room/__init__.py", "", JOBS),
        (
            "bicycle_runtime/engine/loop/epoch_loop.py",
            "import bicycle_runtime.engine.spark.executor",
            ENGINE,
        ),
        ("bicycle_runtime/engine/new_module.py", "", ENGINE),
        (
            "bicycle_runtime/state/sealed/files.py",
            "import bicycle_runtime.state.rocksdb.bases",
            STATE,
        ),
        ("bicycle_runtime/state/new_room/__init__.py", "", STATE),
        (
            "bicycle_runtime/operators/functions/operator.py",
            "import bicycle_runtime.operators.tasks.program",
            OPERATORS,
        ),
        ("bicycle_runtime/operators/new_room/__init__.py", "", OPERATORS),
        ("bicycle_sdk/graph/__init__.py", "import bicycle_sdk.functions", SDK),
        ("bicycle_sdk/new_module.py", "", SDK),
        ("bicycle_runtime/connectors/collect.py", "from . import console", CONNECTORS),
        ("bicycle_runtime/connectors/contract.py", "from . import registry", CONNECTORS),
        ("bicycle_runtime/connectors/new_connector.py", "", CONNECTORS),
        ("bicycle_runtime/operators/__init__.py", "import pyspark", PYSPARK),
        ("bicycle_runtime/connectors/console.py", "def f():\n    from pyspark import sql", PYSPARK),
        ("bicycle_sdk/functions.py", "import pyspark", PYSPARK),
        ("wordcount/__init__.py", "import pyspark", PYSPARK),
        ("bicycle_sdk/errors.py", "import bicycle_runtime.base.errors", PLUGINS),
        ("wordcount/__init__.py", "import bicycle_runtime", PLUGINS),
        ("wordcount_kafka/__init__.py", "import bicycle_runtime", PLUGINS),
    ],
)
def test_a_contract_fires_on_a_planted_import(tree, module, line, contract):
    file = tree / module
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"{line}\n")

    assert contracts_broken(tree) == {contract}


def test_the_engine_may_import_pyspark(tree):
    for name in ("__init__", "spark/deeper"):
        file = tree / f"bicycle_runtime/engine/{name}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text("import pyspark\n")

    assert contracts_broken(tree) == set()
