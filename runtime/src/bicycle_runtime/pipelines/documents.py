"""The text of a pipeline as plain data, with line and column of keys and values.

Both notations become the same data. YAML is read by its core schema, without the surprises of older
versions: ``no`` and ``on`` are texts, ``12:30`` and dates are texts, a key occurs once.

``tomllib`` does not report the places of keys. The code that finds them is no parser, as the text
is known to be TOML: it only follows headers, keys, and the brackets and quotes of values.
"""

from __future__ import annotations

import datetime
import re
import tomllib
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, ClassVar, Literal

from bicycle_runtime.endpoints.positions import KeyPath, Position
from bicycle_runtime.pipelines.errors import PIPELINE_UNREADABLE
from bicycle_sdk.errors import BicycleError

Notation = Literal["toml", "yaml"]
_NOTATIONS: Mapping[str, Notation] = {".toml": "toml", ".yaml": "yaml", ".yml": "yaml"}
_NODE_COUNT_MAX = 100_000
_SHOWN_MAX = 60
_DEPTH_MAX = 50
# Comments, texts in quotes, words, dots, blanks, and any other characters between them.
_TOML_WORD = re.compile(
    r"""#[^\n]*+|"{3}(?s:(?:[^"\\]|\\.|"(?!""))*+(?:"{3,5}|\\?\Z))|'{3}(?s:.*?)(?:'{3,5}|\Z)"""
    r"""|"(?:[^"\\\n]|\\.)*+"?|'[^'\n]*+'?|[\w-]++|\.|[ \t]++|(?s:.)"""
)
_TOML_AT = re.compile(r"(?P<text>.*) \(at (?:line (?P<line>\d+), column \d+|end of document)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A pipeline as written: ``keys`` and ``values`` map paths to positions."""

    file: str
    notation: Notation
    data: dict[str, Any]
    text: str = ""
    keys: Mapping[KeyPath, Position] = field(default_factory=dict)
    values: Mapping[KeyPath, Position] = field(default_factory=dict)

    def key_position(self, path: KeyPath) -> Position:
        """Return the position of a key, or of the nearest key around it."""
        return self._position(path, self.keys)

    def value_position(self, path: KeyPath) -> Position:
        """Return the position of a value, or of the nearest value around it."""
        return self._position(path, self.values)

    def _position(self, path: KeyPath, first: Mapping[KeyPath, Position]) -> Position:
        while path:
            found = first.get(path) or self.keys.get(path) or self.values.get(path)
            if found is not None:
                return found
            path = path[:-1]
        return Position(1, 1)


def notation_of(file: str) -> Notation | None:
    """Return the notation of a file by its name, or None for other files.

    Example:
        >>> notation_of("jobs/clicks.toml"), notation_of("clicks.yml"), notation_of("clicks.py")
        ('toml', 'yaml', None)
    """
    return _NOTATIONS.get(PurePath(file).suffix)


def job_name(document: Document) -> str:
    """Return the name of the job, by default the name of its file."""
    name = document.data.get("name")
    return name if isinstance(name, str) and name else PurePath(document.file).stem


def read_document(text: str, *, file: str, notation: Notation) -> Document:
    """Read the text of a pipeline.

    Args:
        text: The text.
        file: Its name, for errors.
        notation: How it is written.

    Raises:
        PIPELINE_UNREADABLE: the notation does not allow it.
    """
    text = text.removeprefix("\ufeff")  # The mark that some editors put before a text.
    try:
        return _read_toml(text, file) if notation == "toml" else _read_yaml(text, file)
    except RecursionError as error:
        raise _unreadable(file, 1, "its values are nested too deeply") from error


def _read_toml(text: str, file: str) -> Document:
    if _longest_key(text) > _DEPTH_MAX:  # Each further part costs tomllib as much as all before it.
        raise _unreadable(file, 1, "its values are nested too deeply")
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        match = _TOML_AT.fullmatch(str(error))
        line = int(match["line"] or text.count("\n") + 1) if match else 1
        problem = _in_words(match["text"] if match else str(error))
        raise _unreadable(file, line, f"invalid TOML: {problem}") from error
    except ValueError as error:  # An int of thousands of digits.
        raise _unreadable(file, 1, f"invalid TOML: {error}") from error
    keys, values = toml_positions(text)
    if len(values) > _NODE_COUNT_MAX:
        raise _unreadable(
            file, text.count("\n") + 1, f"it has more than {_NODE_COUNT_MAX:,} values"
        )
    positions = ({path: Position(*at) for path, at in found.items()} for found in (keys, values))
    own_keys, own_values = positions
    return Document(
        file=file, notation="toml", data=_plain(data), text=text, keys=own_keys, values=own_values
    )


def _longest_key(text: str) -> int:
    """Return how many parts the longest key has, as in ``a.b.c``."""
    longest = dots = 0
    for match in _TOML_WORD.finditer(text):
        word = match[0]
        if word == ".":
            dots += 1
            longest = max(longest, dots)
        elif not (word[0] in "\"'-_ \t" or word[0].isalnum()):
            dots = 0
    return longest + 1


# The libraries' messages for frequent mistakes, and ours.
_WORDS: tuple[tuple[str, str], ...] = (
    (r"Cannot overwrite a value", "duplicate key"),
    (r"Invalid value", "a value must be a text in quotes, number, true, false, list or table"),
    (r"Cannot declare \('(.+)',\) twice", "duplicate table [\\1]"),
    (r"found character '\\t' that cannot start any token", "indentation must use spaces, not tabs"),
    (
        r"expected <block end>, but found .*",
        "the indentation of the line differs from the lines above it",
    ),
    (r"but found another document", "a file must contain a single document"),
    (r"mapping values are not allowed here", "a second colon, or a line with too much indentation"),
)


def _in_words(problem: str) -> str:
    for pattern, words in _WORDS:
        if match := re.fullmatch(pattern, problem):
            return match.expand(words)
    return problem


def _plain(value: Any) -> Any:
    """Return data of TOML as JSON has it: times are texts."""
    match value:
        case dict():
            return {key: _plain(item) for key, item in value.items()}
        case list():
            return [_plain(item) for item in value]
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
        case _:
            return value


def _read_yaml(text: str, file: str) -> Document:
    # Slow to import, and needed for this notation alone.
    import yaml

    try:
        loader = _loader_class()(text)
        root = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = _in_words(error.problem or "it cannot be read")
        raise _unreadable(file, mark.line + 1 if mark else 1, f"invalid YAML: {problem}") from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        problem = f"the character U+{ord(text[error.position]):04X} is not allowed"
        raise _unreadable(file, line, f"invalid YAML: {problem}") from error
    reading = _YamlReading(file, loader)
    data = {} if root is None else reading.value(root, ())
    if not isinstance(data, dict):
        raise _unreadable(file, 1, "the document must be a mapping of keys")
    return Document(
        file=file, notation="yaml", data=data, text=text, keys=reading.keys, values=reading.values
    )


def _loader_class() -> Any:
    """Return a loader with the plain scalars of YAML 1.2's core schema."""
    # Slow to import, and needed for this notation alone.
    import yaml

    class PlainLoader(yaml.SafeLoader):  # type: ignore[misc]  # the library has no types
        """Reads nodes with positions; ``yes``, ``12:30`` and dates are texts."""

        yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}
        node_count = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            self.node_count += 1
            if self.node_count > _NODE_COUNT_MAX:
                problem = f"it has more than {_NODE_COUNT_MAX:,} values"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=self.get_mark())
            return super().compose_node(parent, index)

    return _with_plain_scalars(PlainLoader)


def yaml_dumper() -> Any:
    """Return a dumper whose texts are read again as texts."""
    # As above.
    import yaml

    class PlainDumper(yaml.SafeDumper):  # type: ignore[misc]  # the library has no types
        """A dumper that quotes ambiguous texts, and never uses references."""

        yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}

        def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the contract
            return True

        def represent_str(self, data: str) -> Any:
            style = "|" if "\n" in data else None
            return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)

    PlainDumper.add_representer(str, PlainDumper.represent_str)
    return _with_plain_scalars(PlainDumper)


def _with_plain_scalars(cls: Any) -> Any:
    for tag, pattern, first in (
        ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
        ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
        ("int", r"[-+]?[0-9]+", "-+0123456789"),
        (
            "float",
            r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)"
            r"|\.(?:nan|NaN|NAN)",
            "-+0123456789.",
        ),
    ):
        cls.add_implicit_resolver(
            f"tag:yaml.org,2002:{tag}", re.compile(f"^(?:{pattern})$"), list(first)
        )
    return cls


class _YamlReading:
    """A converter of document nodes to data, which refuses large or deep documents."""

    def __init__(self, file: str, loader: Any) -> None:
        self._file = file
        self._loader = loader
        self._count = 0
        self.keys: dict[KeyPath, Position] = {}
        self.values: dict[KeyPath, Position] = {}

    def value(self, node: Any, path: KeyPath) -> Any:
        position = Position(node.start_mark.line + 1, node.start_mark.column + 1)
        self.values[path] = position
        self._count += 1
        if self._count > _NODE_COUNT_MAX or len(path) > _DEPTH_MAX:
            raise _unreadable(self._file, position.line, "it is too large, or refers to itself")
        if node.id == "mapping":
            return self._mapping(node, path)
        if node.id == "sequence":
            return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
        return self._scalar(node)

    def _mapping(self, node: Any, path: KeyPath) -> dict[str, Any]:
        own: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key_node, value_node, is_merged in self._pairs(node, len(path)):
            line = key_node.start_mark.line + 1
            if key_node.id != "scalar":
                raise _unreadable(self._file, line, "a key must be a text")
            key = str(key_node.value)
            if key in own and not is_merged:
                raise _unreadable(self._file, line, f"duplicate key {key!r}")
            if key in own or key in merged:
                continue
            self.keys[(*path, key)] = Position(line, key_node.start_mark.column + 1)
            found = merged if is_merged else own
            found[key] = self.value(value_node, (*path, key))
        return merged | own

    def _pairs(self, node: Any, depth: int) -> Iterator[tuple[Any, Any, bool]]:
        """Yield the keys and values of a mapping, then keys and values merged by ``<<``.

        Of equal keys, the first has precedence: the mapping's own key, then the key of the first
        merged mapping.
        """
        merges = [(key, value) for key, value in node.value if _is_merge(key)]
        yield from ((key, value, False) for key, value in node.value if not _is_merge(key))
        if len(merges) > 1:
            line = merges[1][0].start_mark.line + 1
            raise _unreadable(self._file, line, "duplicate key '<<'")
        for key, merge in merges:
            line = key.start_mark.line + 1
            for each in merge.value if merge.id == "sequence" else [merge]:
                if each.id != "mapping":
                    problem = "'<<' must merge a mapping, or a list of mappings, such as *NAME"
                    raise _unreadable(self._file, line, problem)
                self._count += 1 + len(each.value)
                if self._count > _NODE_COUNT_MAX or depth > _DEPTH_MAX:
                    raise _unreadable(self._file, line, "it is too large, or refers to itself")
                yield from ((key, value, True) for key, value, _ in self._pairs(each, depth + 1))

    def _scalar(self, node: Any) -> Any:
        kind = node.tag.removeprefix("tag:yaml.org,2002:")
        text, line = str(node.value), node.start_mark.line + 1
        match kind:
            case "str":
                return text
            case "null":
                return None
            case "bool":
                return text.lower() == "true"
            case "int" | "float":
                try:
                    return int(text) if kind == "int" else float(re.sub(r"\.(?=[inIN])", "", text))
                except ValueError as error:  # The tag is there, or it has thousands of digits.
                    problem = f"{text[:_SHOWN_MAX]!r} is not a valid number"
                    raise _unreadable(self._file, line, problem) from error
            case _:
                raise _unreadable(self._file, line, f"unknown tag {node.tag!r}")


def _is_merge(key: Any) -> bool:
    """Return whether a key is the merge key of YAML 1.1; in quotes it is a text."""
    return key.id == "scalar" and key.value == "<<" and key.style is None


def _unreadable(file: str, line: int, problem: str) -> BicycleError:
    return PIPELINE_UNREADABLE(
        file=f"{file}:{line}", problem=problem, hint="correct the line; nothing was started"
    )


_Path = tuple[str | int, ...]
_Positions = dict[_Path, tuple[int, int]]

_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_KEY = re.compile(r"""[ \t]*(?:(?P<bare>[\w-]+)|"(?P<basic>(?:\\.|[^"\\])*)"|'(?P<raw>[^']*)')""")
_DOT = re.compile(r"[ \t]*\.[ \t]*")
_STRING = re.compile(
    r"\"\"\"(?:\\.|[^\\])*?\"{3,5}|'''.*?'{3,5}|\"(?:\\.|[^\"\\\n])*\"|'[^'\n]*'", re.DOTALL
)
_WORD = re.compile(r"[^,\]}\n#]+")


def toml_positions(text: str) -> tuple[_Positions, _Positions]:
    r"""Return line and column, from 1, of each key and of each value, by path.

    Args:
        text: TOML that ``tomllib`` has read.

    Example:
        >>> keys, values = toml_positions('[a]\nb = [1,\n  2]')
        >>> keys["a", "b"], values["a", "b", 1]
        ((2, 1), (3, 3))
    """
    scan = _Scan(text)
    scan.document()
    return scan.keys, scan.values


class _Scan:
    """A walk through one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._line_starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self._at = 0
        self._counts: dict[_Path, int] = {}
        self.keys: _Positions = {}
        self.values: _Positions = {}

    def document(self) -> None:
        table: _Path = ()
        self._skip()
        while self._at < len(self._text):
            if self._text[self._at] == "[":
                table = self._header()
            else:
                self._pair(table)
            self._skip()

    def _header(self) -> _Path:
        begin = self._at
        is_array = self._text.startswith("[[", begin)
        self._at += 2 if is_array else 1
        names = self._read_dotted()
        self._at = self._text.index("]", self._at) + (2 if is_array else 1)
        path = self._resolve(names[:-1] if is_array else names, begin)
        if is_array:
            path = (*path, names[-1])
            self._note(self.keys, path, begin)
            self._counts[path] = self._counts.get(path, -1) + 1
            path = (*path, self._counts[path])
        self._note(self.keys, path, begin)
        return path

    def _resolve(self, names: list[str], begin: int) -> _Path:
        """Return the path of a header: a name of an array means its last table."""
        path: _Path = ()
        for name in names:
            path = (*path, name)
            self._note(self.keys, path, begin)
            if path in self._counts:
                path = (*path, self._counts[path])
        return path

    def _pair(self, table: _Path) -> None:
        begin = self._at
        path: _Path = table
        for name in self._read_dotted():
            path = (*path, name)
            self.keys.setdefault(path, self._position(begin))
        self._at = self._text.index("=", self._at) + 1
        self._skip()
        self._value(path)

    def _read_dotted(self) -> list[str]:
        names = []
        while (match := _KEY.match(self._text, self._at)) is not None:
            names.append(match["bare"] or match["basic"] or match["raw"] or "")
            self._at = match.end()
            dot = _DOT.match(self._text, self._at)
            if dot is None:
                break
            self._at = dot.end()
        return names

    def _value(self, path: _Path) -> None:
        self._note(self.values, path, self._at)
        match self._text[self._at]:
            case "[":
                self._items(path)
            case "{":
                self._inline(path)
            case '"' | "'":
                string = _STRING.match(self._text, self._at)
                assert string is not None
                self._at = string.end()
            case _:
                word = _WORD.match(self._text, self._at)
                assert word is not None
                self._at = word.end()

    def _items(self, path: _Path) -> None:
        self._at += 1
        index = 0
        self._skip()
        while self._text[self._at] != "]":
            self._value((*path, index))
            index += 1
            self._skip_comma()
        self._at += 1

    def _inline(self, path: _Path) -> None:
        self._at += 1
        self._skip()
        while self._text[self._at] != "}":
            self._pair(path)
            self._skip_comma()
        self._at += 1

    def _skip_comma(self) -> None:
        self._skip()
        if self._text[self._at] == ",":
            self._at += 1
            self._skip()

    def _skip(self) -> None:
        match = _SPACE.match(self._text, self._at)
        assert match is not None
        self._at = match.end()

    def _note(self, positions: _Positions, path: _Path, at: int) -> None:
        positions.setdefault(path, self._position(at))

    def _position(self, at: int) -> tuple[int, int]:
        line = bisect_right(self._line_starts, at)
        return line, at - self._line_starts[line - 1] + 1
