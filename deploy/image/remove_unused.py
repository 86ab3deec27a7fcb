"""Remove files of libraries that no job uses from the environment of the image.

Spark runs the tasks of jobs as plain tasks, so its SQL, Hive, machine learning, Connect and the
state store of its own streams are not used. ``icu4j`` stays: strings of Spark's core need it.
"""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from collections.abc import Callable, Iterable
from pathlib import Path

# Jars by the beginning of their names.
_JARS = (
    *("spark-catalyst_", "spark-sql_", "spark-streaming_", "spark-pipelines_", "spark-variant_"),
    *("parquet-", "arrow-", "orc-", "janino-", "commons-compiler-", "univocity-", "datasketches-"),
    *("rocksdbjni-", "scala-reflect-", "spark-repl", "scala-compiler-", "jline-"),
    *("hive-", "datanucleus-", "derby", "libthrift-", "bonecp-", "HikariCP-", "spark-hive"),
    *("libfb303-", "javax.jdo-", "jdo-api-", "ST4-", "javolution-", "spark-connect_"),
    *("spark-mllib", "breeze", "spire", "cats-kernel", "algebra_", "JTransforms", "jts-core"),
    *("lapack-", "arpack", "blas-", "ludevid", "JLargeArrays", "spark-graphx", "commons-math3-"),
)
_FOREIGN = ("osx", "windows", "aarch_64" if "x86_64" in sysconfig.get_platform() else "x86_64")
# Services whose descriptions botocore needs for checkpoints in S3, with roles.
_AWS_SERVICES = frozenset({"s3", "sts", "sso", "sso-oidc"})
_FOLDERS = (
    *("pyspark/examples", "pyspark/data", "pyspark/licenses", "pyspark/pandas", "pyspark/ml"),
    *("pyspark/mllib", "pyspark/python", "pyspark/jars/connect-repl"),
    *("pyarrow/include", "pyarrow/tests", "pyarrow/src"),
)
# Arrow's RPC, and copies of one library: the modules link to the name with two numbers.
_ARROW = ("*_flight*.so*", "libarrow_python.so", "libarrow_python.so.*.*")


def main() -> None:
    """Remove them, strip symbols, and print how much each step frees."""
    packages = Path(sysconfig.get_path("purelib"))
    _report("jars", packages, lambda: _remove(_unused_jars(packages / "pyspark/jars")))
    _report("folders", packages, lambda: _remove(_unused_folders(packages)))
    arrow = [path for pattern in _ARROW for path in (packages / "pyarrow").glob(pattern)]
    _report("files of Arrow", packages, lambda: _remove(arrow))
    _report("symbols", packages, lambda: _strip(packages))


def _unused_jars(folder: Path) -> list[Path]:
    jars = sorted(folder.glob("*.jar"))
    foreign = [
        jar for jar in jars if "tcnative" in jar.name and any(f in jar.name for f in _FOREIGN)
    ]
    return [*(jar for jar in jars if jar.name.startswith(_JARS)), *foreign]


def _unused_folders(packages: Path) -> list[Path]:
    tests = [path for path in packages.rglob("tests") if path.is_dir()]
    services = [path for path in packages.glob("botocore/data/*") if path.is_dir()]
    services = [path for path in services if path.name not in _AWS_SERVICES]
    caches = packages.rglob("__pycache__")
    return [*(packages / name for name in _FOLDERS), *tests, *services, *caches]


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _strip(packages: Path) -> None:
    """Remove symbols that only debuggers read.

    Folders ``NAME.libs`` contain libraries whose headers auditwheel moved: ``strip`` breaks them.
    """
    for path in sorted(packages.rglob("*.so*")):
        if not path.parent.name.endswith(".libs"):
            subprocess.run(["strip", "--strip-unneeded", path], check=True)


def _report(name: str, packages: Path, step: Callable[[], None]) -> None:
    before = _size(packages)
    step()
    print(f"{name}: {(before - _size(packages)) / 1e6:.0f} MB")


def _size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())


if __name__ == "__main__":
    main()
