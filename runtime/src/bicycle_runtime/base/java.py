"""Java: its location, its version, and log settings of a Java program."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

JAVA_MAJOR_MIN = 17
_VERSION = re.compile(r'version "([^"]+)"')
_LOG4J = """\
status = error
rootLogger.level = {level}
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {path}
appender.file.filePattern = {path}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd'T'HH:mm:ss.SSS}} %p %c{{1}}: %m%n%ex
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 2
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaInfo:
    """A Java that was found; ``path`` is its ``java`` program."""

    path: Path


def find_java() -> JavaInfo | None:
    """Return the Java of ``JAVA_HOME``, else the first on ``PATH``, or None."""
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").is_file():
        return JavaInfo(path=Path(home) / "bin" / "java")
    found = shutil.which("java")
    return JavaInfo(path=Path(found)) if found else None


def java_version(java: JavaInfo) -> str | None:
    """Return the version that Java reports, such as ``17.0.15``, or None."""
    try:
        result = subprocess.run(
            [str(java.path), "-version"], capture_output=True, text=True, check=False, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(result.stderr)
    return found[1] if found else None


def java_major(version: str) -> int:
    """Return the major version.

    Example:
        >>> [java_major(version) for version in ("17.0.15", "1.8.0_392", "21", "25-ea")]
        [17, 8, 21, 25]
    """
    numbers = [int(number) for number in re.findall(r"\d+", version)]
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]


def log4j_settings(log: Path, *, level: Literal["info", "warn"]) -> str:
    """Return a ``log4j2.properties``: all from ``level`` up goes to a file.

    The file is rolled at 10 MB, and two old ones are kept.
    """
    return _LOG4J.format(path=escaped_property(str(log)), level=level)


def escaped_property(value: str) -> str:
    r"""Return a value in the syntax of a Java properties file, which is Latin-1.

    Example:
        >>> print(escaped_property("C:\\jobs añ日"))
        C:\\jobs a\u00f1\u65e5
    """
    rest = value.lstrip(" ")  # Java skips blanks before a value.
    return r"\u0020" * (len(value) - len(rest)) + "".join(map(_escape, rest))


def _escape(character: str) -> str:
    if character == "\\":
        return r"\\"
    if character.isascii() and character.isprintable():
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(rf"\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))
