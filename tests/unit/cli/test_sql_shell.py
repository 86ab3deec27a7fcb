"""The SQL shell: statements from files, options, standard input, and a real terminal."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bicycle_runtime.base.work_folders import WorkFolder
from bicycle_runtime.cli.sql_answers import Shell, _run_job, is_entered, job_file
from tests.unit.cli.screens import COMMAND, Terminal
from tests.waiting import PATIENCE_S, until

TABLE = "CREATE TABLE words (n BIGINT, who VARCHAR) WITH (kind = 'file', path = 'words.jsonl');\n"
# Ctrl-C reaches the processes of the terminal only if it controls them.
CONTROL = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)"
ROWS = [{"n": 1, "who": "ada"}, {"n": 22, "who": None}]


@pytest.fixture
def words(shell, tmp_path, monkeypatch):
    """Return the file of the table, in the working directory."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "words.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    return path


def test_a_file_shows_aligned_rows_with_types_count_and_time(shell, words):
    words.with_name("a.sql").write_text(f"{TABLE}SELECT n, who FROM words;\nSHOW VIEWS;")

    done = shell.run("sql", "a.sql")

    assert done.exit_code == 0, done.output
    *lines, count, view, kind, none = done.stdout.splitlines()
    assert lines == [
        "words created",
        "     n  who",
        "BIGINT  VARCHAR",
        "     1  ada",
        "    22  NULL",
    ]
    assert re.fullmatch(r"\(2 rows, [\d.]+ m?s\)", count)
    assert [view, kind, none] == ["view", "VARCHAR", "(0 rows)"]


def test_statements_come_from_an_option_and_rows_are_json_lines(shell, words):
    done = shell.run("sql", "-c", f"{TABLE}SELECT * FROM words; SELECT n FROM words", "--json")

    assert [json.loads(line) for line in done.stdout.splitlines()] == [*ROWS, {"n": 1}, {"n": 22}]


def test_standard_input_that_is_no_terminal_is_read_to_its_end(shell, words):
    text = f"{TABLE}SELECT who FROM words WHERE n = 1"
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, "sql", "--json"],
        input=text, text=True, capture_output=True, env=shell.environment, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {"who": "ada"}


def test_the_first_error_ends_the_command_and_shows_its_line(shell, words):
    words.with_name("a.sql").write_text(
        f"{TABLE}SHOW VIEWS;\n  SELECT whoo FROM words;\nSHOW TABLES"
    )

    done = shell.run("sql", "a.sql")

    assert done.exit_code == 4
    assert "words  file" not in done.stdout
    assert done.stderr.splitlines()[:4] == [
        "error: BIC-3206 the statement has 1 problem",
        "  a.sql:3:10: there is no column 'whoo'; did you mean 'who'? known: n, who",
        "    SELECT whoo FROM words",
        "           ^",
    ]


def test_functions_are_in_modules_beside_a_file_or_in_the_working_directory(
    shell, words, tmp_path, monkeypatch
):
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside" / "doubling.py").write_text("def twice(n: int) -> int: return n * 2\n")
    created = "CREATE FUNCTION twice AS 'doubling:twice';"
    query = f"{TABLE}{created}SELECT twice(n) AS x FROM words"
    (tmp_path / "beside" / "a.sql").write_text(query)
    path = list(sys.path)

    of_file = shell.run("sql", "beside/a.sql", "--json")
    words.rename(tmp_path / "beside" / words.name)
    monkeypatch.chdir(tmp_path / "beside")
    of_folder = shell.run("sql", "--json", "-c", query)

    for done in (of_file, of_folder):
        assert [json.loads(line) for line in done.stdout.splitlines()] == [{"x": 2}, {"x": 44}]
    assert sys.path == path


def test_a_job_of_the_shell_has_the_modules_of_its_functions(tmp_path):
    (tmp_path / "doubling.py").write_text("import parts.more\n")
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "more.py").write_text("")
    text = "CREATE FUNCTION twice AS 'doubling:twice';"

    (tmp_path / "job").mkdir()
    path = job_file(text, tmp_path / "job", tmp_path)

    assert path.read_text() == text
    files = {each.relative_to(path.parent).as_posix() for each in path.parent.rglob("*.*")}
    assert files == {path.name, "doubling.py", "parts/more.py"}


def test_the_files_of_a_job_are_removed_when_it_ends(shell, tmp_path):
    with pytest.raises(SystemExit) as ended:
        _run_job("SELECT nothing", tmp_path)

    assert ended.value.code == 4
    assert list((shell.home.path / "sql").iterdir()) == []


KILLED = """
import os, subprocess, sys
from pathlib import Path
from bicycle_runtime.cli import sql_answers

def killed(command, **_options):
    print(command[-1], flush=True)
    os._exit(9)

subprocess.run = killed
sql_answers.Shell(as_json=False).run(sys.argv[1])
"""


def test_the_next_shell_removes_the_files_of_a_killed_one(shell, words):
    folders = shell.home.path / "sql"
    (folders / "sql-without-lock").mkdir(parents=True)
    running = WorkFolder(folders, "sql-")
    sink = "CREATE TABLE o (n BIGINT) WITH (kind = 'console');"
    text = f"{TABLE}{sink} INSERT INTO o SELECT n FROM words"
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, text], env=shell.environment, check=False,
        capture_output=True, text=True,
    )  # fmt: skip
    assert killed.returncode == 9, killed.stderr
    left = Path(killed.stdout.splitlines()[-1])
    assert left.is_file()

    Shell(as_json=False)

    assert not left.parent.exists()
    assert set(folders.iterdir()) == {folders / "sql-without-lock", running.path}
    running.remove()


def test_a_query_without_a_table_returns_a_row(shell):
    done = shell.run("sql", "--json", "-c", "SELECT 1 + 1 AS n, upper('a') AS big")

    assert json.loads(done.stdout) == {"n": 2, "big": "A"}


def test_a_query_that_fails_has_the_exit_code_of_its_error(shell, words):
    words.write_text('{"n": 9223372036854775807}\n')

    done = shell.run("sql", "-c", f"{TABLE}SELECT n + 1 AS m FROM words")

    assert done.exit_code == 1
    assert "the result has more than 64 bits" in done.stderr


def test_a_wrong_command_line_is_a_usage_error(shell, words):
    assert shell.run("sql", "a.sql", "-c", "SHOW TABLES").exit_code == 2
    assert "'tset' is not a FILE.sql" in shell.run("sql", "tset").stderr
    assert "b.sql" in shell.run("sql", "b.sql").stderr


def test_a_plan_has_operators_state_with_its_bound_and_exchanges(shell, words):
    text = """
        CREATE TABLE bids (auction BIGINT, at TIMESTAMP(3), WATERMARK FOR at AS at)
          WITH (kind = 'file', path = 'bids.jsonl');
        CREATE TABLE counts (auction BIGINT, n BIGINT) WITH (kind = 'file', path = 'out');
    """
    query = """SELECT auction, count(*) AS n FROM TUMBLE(bids, at, INTERVAL '10' SECOND)
        GROUP BY auction, window_end"""
    words.with_name("a.sql").write_text(f"{text} EXPLAIN {query};")
    words.with_name("b.sql").write_text(f"{text} INSERT INTO counts {query};")
    for lines in (
        shell.run("sql", "a.sql").stdout.splitlines()[2:],
        shell.run("plan", "b.sql").stdout.splitlines(),
    ):
        assert lines[0] == "operators:"
        assert "  bids-source: FROM bids, on columns" in lines
        assert "  bids-time: WATERMARK FOR at, on columns" in lines
        [state] = [line for line in lines if ": 128 key groups" in line]
        assert state.endswith(", bounded: a window is removed when the watermark passes its end")
        exchange = lines[lines.index("exchanges:") + 1]
        assert re.fullmatch(r"  (\S+-window-\w+)-combine -> \1: hash, .*", exchange)
        assert "guarantee: exactly-once end to end" in lines


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", True), ("\\q", True), (" EXIT", True), ("\\d words", True), ("SELECT 1", False),
     ("SELECT ';", False), ("SELECT 1;", True), ("quit;", True)],
)  # fmt: skip
def test_enter_ends_a_statement_at_its_semicolon(text, expected):
    assert is_entered(text) is expected


class Typist:
    """A person at the prompt, in a terminal that is the controlling one of the shell."""

    def __init__(self, shell, columns=80):
        self.terminal = Terminal(columns, 60)
        self.process = subprocess.Popen(
            [sys.executable, "-c", f"{CONTROL}; {COMMAND}", "sql"],
            stdin=self.terminal, stdout=self.terminal, stderr=self.terminal,
            start_new_session=True,
            env={
                **{key: value for key, value in shell.environment.items()
                   if key not in ("COLUMNS", "LINES", "NO_COLOR")},
                "PYTHONPATH": os.pathsep.join(sys.path), "TERM": "xterm-256color",
                "PROMPT_TOOLKIT_NO_CPR": "1",  # The screen of the test answers no questions.
            },
        )  # fmt: skip
        self.see("sql>")

    def see(self, text, count=1):
        """Wait until the screen shows a text so many times."""
        until(
            lambda: "\n".join(self.terminal.shown()).count(text) >= count,
            lambda: f"{text!r} on\n" + "\n".join(self.terminal.shown()),
        )

    def type(self, keys, *, then, count=1):
        """Press keys, and wait for a text."""
        self.terminal.type(keys)
        self.see(then, count)

    def leave(self, keys):
        """Press keys that end the shell; return its exit code and the last screen."""
        self.terminal.type(keys)
        code = self.process.wait(PATIENCE_S)
        return code, self.terminal.end()


@pytest.fixture
def typist(shell, words):
    """Return a person at the prompt."""
    person = Typist(shell)
    yield person
    person.process.kill()
    person.process.wait()
    person.terminal.end()


def test_rows_of_an_endless_query_appear_until_ctrl_c_which_returns_to_the_prompt(typist, words):
    table = TABLE.replace("');", "', follow = 'true');")
    typist.type(table.replace("WITH", "\rWITH").strip() + "\r", then="words created")
    typist.type("SELECT n,\r", then="...>", count=2)
    typist.type("who FROM words;\r", then="NULL")
    with words.open("a") as file:
        file.write('{"n": 333, "who": "eve"}\n')
    typist.see("eve")
    typist.type("\x03", then="stopped)")
    typist.type("\\d words\r", then="(2 rows)")

    code, lines = typist.leave("\\q\r")

    assert code == 0
    begin = lines.index("...> who FROM words;") + 1
    assert lines[begin : begin + 6] == [
        "     n  who",
        "BIGINT  VARCHAR",
        "───────────────",
        "     1  ada",
        "    22  NULL",
        "   333  eve",
    ]


def test_an_error_has_a_caret_and_the_prompt_goes_on(typist):
    typist.type(TABLE.strip() + "\r", then="words created")
    typist.type("SELECT whoo FROM words;\r", then="^")
    typist.type("SELECT who FROM words WHERE n = 1;\r", then="(1 row,")

    code, lines = typist.leave("exit\r")

    assert code == 0
    at = next(at for at, line in enumerate(lines) if "1:8: there is no column 'whoo'" in line)
    assert lines[at + 1].index("whoo") == lines[at + 2].index("^")


def test_names_are_completed_and_the_history_is_kept(typist, shell):
    typist.type(TABLE.strip() + "\r", then="words created")
    typist.type("SELECT who FROM wor\t", then="SELECT who FROM words")
    typist.type(" WHERE n = 1;\r", then="(1 row,")
    assert typist.leave("\x04")[0] == 0

    again = Typist(shell)
    again.type("\x1b[A", then="WHERE n = 1;")
    again.type("\x03", then="sql>", count=2)
    assert again.leave("\\q\r")[0] == 0
    assert (shell.home.path / "sql_history").stat().st_mode & 0o077 == 0
