"""Each contract about imports fires when a module breaks it.

The contracts are run over a skeleton: the modules of the tree by name, empty but for one planted
import. One process runs them for all plants, as most of the time of a run is its start.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "bicycle_sdk": ROOT / "plugin_sdk/src",
    "bicycle_streams": ROOT / "streams/src",
    "bicycle_runtime": ROOT / "runtime/src",
    "wordcount": ROOT / "plugins/wordcount/src",
    "wordcount_kafka": ROOT / "plugins/wordcount_kafka/src",
}
ROOMS = "Runtime rooms point downwards"
JOBS = "Rooms of jobs point downwards"
SERVICE = "Rooms of the service point downwards"
ENGINE = "Rooms of the engine point downwards"
STATE = "Rooms of state point downwards"
OPERATORS = "Rooms of operators point downwards"
SDK = "SDK modules point downwards"
CONNECTORS = "Connectors are strangers to each other"
NO_OPERATORS = "Connectors and pipelines do not know the operators"
PYSPARK = "Only the engine knows PySpark"
PLUGINS = "SDK, toolkit and plugins do not know the runtime"
TOOLKIT = "Rooms of the toolkit point downwards"
SDK_BELOW = "The SDK does not know the toolkit"


# Module, what is planted in it, and the contract that it breaks.
PLANTS = [
    ("bicycle_runtime/records/__init__.py", "import bicycle_runtime.state", ROOMS),
    ("bicycle_runtime/base/ids.py", "import bicycle_runtime.connectors.staging", ROOMS),
    ("bicycle_runtime/connectors/__init__.py", "import bicycle_runtime.extraction", ROOMS),
    ("bicycle_runtime/new_room/__init__.py", "", ROOMS),
    ("bicycle_runtime/api/routes.py", "import bicycle_runtime.cli", ROOMS),
    ("bicycle_runtime/jobs/status.py", "import bicycle_runtime.service", ROOMS),
    (
        "bicycle_runtime/service/store/history.py",
        "import bicycle_runtime.service.operations",
        SERVICE,
    ),
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
        "bicycle_runtime/state/sealed/sealed_files.py",
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
    ("bicycle_runtime/connectors/staging.py", "from . import registry", CONNECTORS),
    ("bicycle_runtime/connectors/new_connector.py", "", CONNECTORS),
    (
        "bicycle_runtime/connectors/lines.py",
        "from bicycle_runtime.operators.batch import Batch",
        NO_OPERATORS,
    ),
    (
        "bicycle_runtime/pipelines/computed.py",
        "import bicycle_runtime.operators.spec",
        NO_OPERATORS,
    ),
    ("bicycle_runtime/operators/__init__.py", "import pyspark", PYSPARK),
    ("bicycle_runtime/connectors/console.py", "def f():\n    from pyspark import sql", PYSPARK),
    ("bicycle_sdk/functions.py", "import pyspark", PYSPARK),
    ("wordcount/__init__.py", "import pyspark", PYSPARK),
    ("bicycle_sdk/errors.py", "import bicycle_runtime.base.errors", PLUGINS),
    ("bicycle_streams/admin.py", "import bicycle_streams.connecting", TOOLKIT),
    ("bicycle_streams/new_backend.py", "", TOOLKIT),
    ("bicycle_streams/errors.py", "import bicycle_runtime.base.errors", PLUGINS),
    ("bicycle_sdk/errors.py", "import bicycle_streams.errors", SDK_BELOW),
    ("bicycle_streams/kafka/__init__.py", "import pyspark", PYSPARK),
    ("wordcount/__init__.py", "import bicycle_runtime", PLUGINS),
    ("wordcount_kafka/__init__.py", "import bicycle_runtime", PLUGINS),
]
ENGINE_PLANTS = ["bicycle_runtime/engine/__init__.py", "bicycle_runtime/engine/spark/deeper.py"]
# Puts files into the tree that it runs in, runs all contracts, tells its output, and takes them out
# again; for each set of files that it is given.
LINTER = """
import contextlib, io, json, sys
from pathlib import Path
from importlinter.cli import lint_imports

def planted(files):
    with contextlib.ExitStack() as cleanup:
        for name, text in files.items():
            file = Path(name)
            if not file.parent.exists():
                file.parent.mkdir()
                cleanup.callback(file.parent.rmdir)
            cleanup.callback(file.write_text if file.exists() else lambda _, f=file: f.unlink(), "")
            file.write_text(text + "\\n")
        told = io.StringIO()
        with contextlib.redirect_stdout(told):
            exit_code = lint_imports(no_cache=True)
        return [exit_code, told.getvalue()]

json.dump([planted(files) for files in json.load(sys.stdin)], sys.stdout)
"""


@pytest.fixture(scope="module")
def skeleton(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("skeleton")
    shutil.copy(ROOT / "pyproject.toml", root)
    for package, source in PACKAGES.items():
        for file in (source / package).rglob("*.py"):
            copy = root / file.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.touch()
    return root


@pytest.fixture(scope="module")
def broken(skeleton) -> dict[tuple[str, ...], set[str]]:
    """The contracts that are broken by what is planted: nothing, a line, or two in the engine."""
    plants = {
        (): {},
        **{(module, line): {module: line} for module, line, _ in PLANTS},
        tuple(ENGINE_PLANTS): dict.fromkeys(ENGINE_PLANTS, "import pyspark"),
    }
    done = subprocess.run(
        [sys.executable, "-c", LINTER],
        cwd=skeleton,
        env={**os.environ, "PYTHONPATH": str(skeleton), "COLUMNS": "200"},
        input=json.dumps(list(plants.values())),
        capture_output=True,
        text=True,
        check=True,
    )
    answers = [verdicts(*answer) for answer in json.loads(done.stdout)]
    return dict(zip(plants, answers, strict=True))


def verdicts(exit_code: int, told: str) -> set[str]:
    """Return the names of the contracts that import-linter calls broken."""
    names = (
        *(ROOMS, JOBS, SERVICE, ENGINE, OPERATORS, STATE, SDK, CONNECTORS, PYSPARK, PLUGINS),
        *(TOOLKIT, SDK_BELOW, NO_OPERATORS),
    )
    words = {name: told.partition(name)[2].split(maxsplit=1)[0] for name in names}
    assert set(words.values()) <= {"KEPT", "BROKEN"}, told
    found = {name for name, word in words.items() if word == "BROKEN"}
    assert exit_code == bool(found), told
    return found


def test_an_empty_tree_keeps_all_contracts(broken):
    assert broken[()] == set()


@pytest.mark.parametrize(("module", "line", "contract"), PLANTS)
def test_a_contract_fires_on_a_planted_import(broken, module, line, contract):
    assert broken[module, line] == {contract}


def test_the_engine_may_import_pyspark(broken):
    assert broken[tuple(ENGINE_PLANTS)] == set()
