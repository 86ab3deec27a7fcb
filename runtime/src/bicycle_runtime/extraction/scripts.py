"""A job in one file, Python, a pipeline or SQL, packed by its content.

The file becomes an environment with one module, as a plugin of its own environment does: driver,
child and workers load it from there, so that nothing changes when the file is edited meanwhile. The
module runs the text of the file under the file's own name, so that errors name its lines. Modules
of the file's folder that it imports are packed beside it. For a pipeline or an SQL file the module
holds the text, and builds the graph from it.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from bicycle_runtime.extraction.errors import SCRIPT_UNUSABLE
from bicycle_runtime.extraction.neighbors import find_neighbors
from bicycle_runtime.pipelines.documents import Document, job_name, notation_of, read_document
from bicycle_sdk.errors import BicycleError

if TYPE_CHECKING:
    from bicycle_runtime.extraction.discovery import PluginRef
    from bicycle_runtime.extraction.packing import PackedEnvironment

_SCRIPT = re.compile(
    r"(?P<path>.*\.py)(?::(?P<function>\w+))?|(?P<pipeline>.*\.(?:toml|ya?ml))|(?P<sql>.*\.sql)",
    re.DOTALL,
)
_PIPELINE = """\
from bicycle_runtime.pipelines.job import pipeline_job

pipeline = pipeline_job({text!r}, file={file!r}, notation={notation!r}{more})
"""
_SQL = """\
from bicycle_runtime.tables.job import sql_job

statements = sql_job({text!r}, file={file!r}{more})
"""
_ALL = "*.sql"  # All SQL files of a folder, which are one job.
_TEXT_BYTES_MAX = 4 << 20
_MARK = "bicycle_plugin"
_VERSION_LENGTH = 12


def is_script(text: str) -> bool:
    """Return whether a text names a file: ``clicks.py``, ``clicks.py:by_user``.

    Example:
        >>> [is_script(text) for text in ("clicks.py:by_user", "clicks.sql", "clicks")]
        [True, True, False]
    """
    return _SCRIPT.fullmatch(text) is not None


def script_name(text: str) -> str:
    """Return the name of a job that is a file, or the text itself for others.

    A pipeline may say its name itself.

    Example:
        >>> script_name("jobs/clicks.py"), script_name("jobs/clicks.py:by_user")
        ('clicks', 'by_user')
    """
    match = _SCRIPT.fullmatch(text)
    if match is None:
        return text
    if match["pipeline"]:
        try:
            return job_name(read_pipeline(text))
        except BicycleError:  # It is reported when the job is built from the file.
            return Path(text).stem
    return match["function"] or Path(match["path"] or file_name(text)).stem


def file_name(text: str) -> str:
    """Return the name of a file with a job; the SQL files of a folder have its name.

    Example:
        >>> file_name("jobs/clicks.toml"), file_name("jobs/views/*.sql")
        ('clicks.toml', 'views.sql')
    """
    path = Path(text)
    return path.name if path.name != _ALL else f"{path.absolute().parent.name}.sql"


def read_pipeline(text: str) -> Document:
    """Read the file of a pipeline.

    Raises:
        SCRIPT_UNUSABLE: there is no such file, it is no text, or too large.
        PIPELINE_UNREADABLE: it is no TOML, or no YAML.
    """
    content, notation = text_of(text), notation_of(text)
    assert content is not None and notation is not None  # a pipeline
    return read_document(content, file=text, notation=notation)


def text_of(text: str) -> str | None:
    """Return the content of a pipeline or an SQL file; None for other jobs.

    Raises:
        SCRIPT_UNUSABLE: there is no such file, it is no text, or too large.
    """
    if (match := _SCRIPT.fullmatch(text)) is None or match["path"]:
        return None
    path = Path(text).expanduser().absolute()
    if path.name == _ALL:
        content = _read_folder(path.parent)
    else:
        content = read_text(path, hint="pass a TOML, YAML or SQL file")
    if len(content) > _TEXT_BYTES_MAX:
        raise SCRIPT_UNUSABLE(
            file=text, problem="it is larger than 4 MiB", hint="read the records with a source"
        )
    return content


def _read_folder(folder: Path) -> str:
    """Return the SQL files of a folder as one text, in which a line names each file."""
    files = sorted(folder.glob(_ALL))
    if not files:
        problem = "it has no SQL files" if folder.is_dir() else "No such folder"
        raise SCRIPT_UNUSABLE(file=str(folder), problem=problem, hint="pass a folder of .sql files")
    texts = [read_text(file, hint="remove the file from the folder") for file in files]
    parts = zip(files, texts, strict=True)
    return "".join(f"-- bicycle file {file.name}\n{text}\n;\n" for file, text in parts)


def text_to_send(text: str) -> str | None:
    """Return the content of a file that needs no other; None if it is no file."""
    if (match := _SCRIPT.fullmatch(text)) is None or not match["path"]:
        return text_of(text)
    path = Path(match["path"]).expanduser().absolute()
    content = read_text(path)
    if beside := find_neighbors(path, content):
        problem = f"it imports {min(beside)}, but a service receives only one file"
        raise SCRIPT_UNUSABLE(file=text, problem=problem, hint="build a wheel, and use --wheel")
    return content


def pack_script(
    text: str, *, cache_dir: Path, of_plugins: bool = False
) -> tuple[PluginRef, PackedEnvironment]:
    """Return a file as a plugin without a settled location, and its archive.

    Args:
        text: Path of the file, and after a colon its function where it has several jobs.
        cache_dir: Archives are kept there, by digest; one that is there is not written again.
        of_plugins: Whether a text may name functions of installed plugins only.

    Raises:
        SCRIPT_UNUSABLE: there is no such file, or it is not clear which function is the job.
    """
    match = _SCRIPT.fullmatch(text)
    assert match is not None
    if (content := text_of(text)) is not None:
        return _pack_text(text, content, cache_dir, of_plugins=of_plugins)
    path = Path(match["path"]).expanduser().absolute()
    content = read_text(path)
    job = job_in(path, content, match["function"])
    # The text is in a line of its own: a traceback shows the first line of the call.
    source = f"exec(compile(\n{content!r},\n{str(path)!r}, 'exec', dont_inherit=True))\n"
    neighbors = find_neighbors(path, content)
    return _pack(path, content, source, cache_dir, job=job, neighbors=neighbors)


def _pack_text(
    text: str, content: str, cache_dir: Path, *, of_plugins: bool
) -> tuple[PluginRef, PackedEnvironment]:
    path = Path(text).expanduser().absolute().with_name(file_name(text))
    notation = notation_of(text)
    job, template = (path.stem, "statements"), _SQL
    if notation is not None:
        document = read_document(content, file=text, notation=notation)
        job, template = (job_name(document), "pipeline"), _PIPELINE
    more = ", of_plugins=True" if of_plugins else ""
    source = template.format(text=content, file=text, notation=notation, more=more)
    beside = {} if of_plugins or notation else find_neighbors(path, content)
    return _pack(path, content, source, cache_dir, job=job, neighbors=beside)


def _pack(
    path: Path, content: str, source: str, cache_dir: Path, *, job: tuple[str, str],
    neighbors: Mapping[str, bytes] = MappingProxyType({}),
) -> tuple[PluginRef, PackedEnvironment]:  # fmt: skip
    """Write a file's module, and return it as a plugin with its own environment.

    ``job`` is the name of the plugin, and its name in the module. The version is a digest.
    """
    # Slow to import; that a text names a file is asked without packing one.
    from bicycle_runtime.extraction.discovery import PluginRef
    from bicycle_runtime.extraction.packing import PackedEnvironment, write_archive

    module = f"{re.sub(r'[^0-9A-Za-z_]', '_', path.stem)}_job"
    while any(re.split(r"[./]", name)[0] == module for name in neighbors):
        module += "_job"
    beside = b"".join(
        b"\0%b\0%b" % (name.encode(), hashlib.sha256(neighbors[name]).digest())
        for name in sorted(neighbors)
    )
    version = hashlib.sha256(content.encode() + beside).hexdigest()[:_VERSION_LENGTH]
    digest = hashlib.sha256(f"{module}\0{source}".encode() + beside).hexdigest()
    archive = cache_dir / "environments" / f"{digest}.zip"
    if not archive.is_file():
        write_archive(archive, {**neighbors, f"{module}.py": source.encode()})
    ref = PluginRef(
        name=job[0], module=module, attribute=job[1], dist_name=path.name, dist_version=version,
        location=str(path.parent), version=version,
    )  # fmt: skip
    packed = PackedEnvironment(digest=digest, path=archive, libraries=(), is_native=False)
    return ref, packed


def read_text(path: Path, *, hint: str = "pass a Python file") -> str:
    """Return the text of a file without the mark that some editors put before it.

    Raises:
        SCRIPT_UNUSABLE: the file cannot be read, or is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        reason = error.strerror or str(error)
        raise SCRIPT_UNUSABLE(file=str(path), problem=reason, hint=hint) from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        problem = f"line {line}: byte 0x{error.object[error.start]:02x} is not UTF-8"
        raise SCRIPT_UNUSABLE(file=str(path), problem=problem, hint="save it as UTF-8") from error


def job_in(path: Path, content: str, function: str | None) -> tuple[str, str]:
    """Return the name and the function of the job in a Python file."""
    jobs = _jobs_in(path, content)
    function = function or _only(path, jobs)
    return jobs.get(function, function), function


def _jobs_in(path: Path, content: str) -> dict[str, str]:
    """Return the names of the jobs in a file, by function."""
    if (null := content.find("\0")) >= 0:  # The error of Python has no line.
        line = content.count("\n", 0, null) + 1
        problem = f"line {line}: source code cannot contain null bytes"
        raise SCRIPT_UNUSABLE(file=str(path), problem=problem, hint="correct the line")
    try:
        tree = ast.parse(content, str(path))
    except SyntaxError as error:
        problem = f"line {error.lineno}: {error.msg}"
        raise SCRIPT_UNUSABLE(file=str(path), problem=problem, hint="correct the line") from error
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return {
        node.name: _marked_name(mark) or node.name
        for node in functions
        for mark in node.decorator_list
        if _MARK in ast.unparse(mark).partition("(")[0].split(".")
    }


def _marked_name(mark: ast.expr) -> str | None:
    for given in mark.keywords if isinstance(mark, ast.Call) else ():
        if given.arg == "name" and isinstance(given.value, ast.Constant):
            return str(given.value.value)
    return None


def _only(path: Path, jobs: dict[str, str]) -> str:
    if len(jobs) == 1:
        return next(iter(jobs))
    if not jobs:
        problem = "it has no job"
        hint = "decorate a function with @bicycle_plugin: def job(env: StreamEnvironment)"
    else:
        problem = f"it has {len(jobs)} jobs: {', '.join(jobs)}"
        hint = f"choose one: {path.name}:{next(iter(jobs))}"
    raise SCRIPT_UNUSABLE(file=str(path), problem=problem, hint=hint)
