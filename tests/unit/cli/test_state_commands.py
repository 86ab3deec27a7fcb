"""``bicycle checkpoints`` and ``bicycle state`` on real checkpoint directories, made in process."""

import json
import sys
from pathlib import Path

import pytest
from pyarrow import parquet

from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.jobs.checkpoints.sealed_queries import keys_meant
from bicycle_runtime.records.keys import encode_key, key_group
from bicycle_runtime.testing import Harness
from tests.plugin_zoo.zoo import in_builder, install
from tests.unit.cli.state_jobs import every_state

NAMES = ["ada", "adele", "bob"]
GROUPS = 128
OPERATORS = [
    "counts", "keeper", "memory", "priced", "sums", "tally", "triggered", "visits", "whole",
]  # fmt: skip


@pytest.fixture
def harness():
    with Harness(every_state, parallelism=2, engine=EngineOptions(retained_epochs=3)) as harness:
        yield harness


@pytest.fixture
def sealed(harness):
    """Two epochs: numbers 1 and 2 for each name, then 3 for ada and a new name."""
    harness.push([("tea", 3), ("jam", 5)], source="prices")
    harness.push([(name, number) for name in NAMES for number in (1, 2)], source="records")
    harness.run_epoch()
    harness.push([("ada", 3), ("cy", 3)], source="records")
    harness.run_epoch()
    assert harness.epoch == 2
    return harness


class Looking:
    """Runs the commands on the checkpoint of a harness and checks that nothing is written."""

    def __init__(self, shell, harness):
        self.shell = shell
        self.storage = harness.storage
        self.place = ("--checkpoint-dir", harness.storage.url)

    def files(self):
        return {path: self.storage.read(path) for path in self.storage.list("")}

    def answer(self, *words):
        before = self.files()
        answer = self.shell.answer(*words, *self.place)
        assert self.files() == before
        return answer

    def text(self, *words):
        done = self.shell.run(*words, *self.place)
        assert done.exit_code == 0, done.output
        return done.stdout

    def error(self, *words):
        return self.shell.error(*words, *self.place)

    def get(self, operator, *words):
        return self.answer("state", "get", "--operator", operator, *words)["entries"]

    def values(self, operator, *words):
        """Return values by state, key and part."""
        return {
            (row["state"], row["key"], row["part"]): row["value"]
            for row in self.get(operator, *words)
        }


@pytest.fixture
def looking(shell, sealed):
    return Looking(shell, sealed)


def test_checkpoints_are_listed_newest_first_with_all_that_is_known(looking):
    answer = looking.answer("checkpoints")

    newest, oldest = answer["epochs"]
    assert (newest["epoch"], oldest["epoch"]) == (2, 1)
    assert newest["record_count"] == 10
    assert newest["is_published"]
    assert newest["damage"] is None
    assert newest["offsets"] == {"prices": {"script": 2}, "records": {"script": 8}}
    assert newest["parallelism"]["counts"] == 2
    assert newest["delta_bytes"] == sum(newest["state_bytes"].values()) > 0
    assert newest["sealed_ms"] == 1_000_000
    assert newest["age_ms"] > 0
    assert set(newest["state_bytes"]) == set(OPERATORS)


def test_checkpoints_for_people_are_a_table_and_the_details_of_one_epoch(looking):
    lines = looking.text("checkpoints").splitlines()
    details = looking.text("checkpoints", "--epoch", "2")

    assert lines[0] == f"checkpoint {looking.storage.url}"
    assert lines[1].split()[:4] == ["EPOCH", "SEALED", "AGE", "STATUS"]
    assert [line.split()[0] for line in lines[2:]] == ["2", "1"]
    assert "epoch 2: published" in details
    assert "counts: parallelism 2, state" in details
    assert "records: " in details


def test_damaged_epochs_are_listed_with_the_reason(looking):
    looking.storage.write("epochs/000000000002.manifest", b"cut")

    text = looking.text("checkpoints")
    newest = looking.answer("checkpoints")["epochs"][0]
    assert "epoch 2 is damaged: only 3 bytes" in text
    assert (newest["epoch"], newest["damage"], newest["sealed_ms"]) == (2, "only 3 bytes", None)
    exit_code, error = looking.error("state", "ls")
    assert (exit_code, error["code"]) == (5, "BIC-1502")
    assert looking.answer("state", "ls", "--epoch", "1")["epoch"] == 1


def test_damaged_state_is_found_by_size_or_by_reading_everything(looking):
    path = looking.storage.list("state/counts")[0]
    data = looking.storage.read(path)
    looking.storage.write(path, data[:-1] + bytes([data[-1] ^ 1]))

    assert all(epoch["damage"] is None for epoch in looking.answer("checkpoints")["epochs"])
    verified = looking.answer("checkpoints", "--verify")["epochs"]
    assert any(path in (epoch["damage"] or "") for epoch in verified)
    exit_code, error = looking.error("state", "get", "--operator", "counts")
    assert (exit_code, error["code"]) == (5, "BIC-1302")


def test_operators_and_their_states_are_listed(looking):
    answer = looking.answer("state", "ls")
    operators = {operator["operator"]: operator for operator in answer["operators"]}
    states = {
        (operator["operator"], state["name"]): state
        for operator in operators.values()
        for state in operator["states"]
    }

    assert sorted(operators) == OPERATORS
    assert {name: operators[name]["kind"] for name in ("counts", "sums", "keeper")} == {
        "counts": "Reduce",
        "sums": "Window",
        "keeper": "Process",
    }
    assert operators["counts"]["group_count"] == GROUPS
    assert (operators["tally"]["scope"], operators["tally"]["group_count"]) == ("subtask", 0)
    counts = states["counts", "accumulator"]
    assert (counts["kind"], counts["types"], counts["codec"]) == ("accumulator", ["int"], "msgpack")
    assert (counts["entry_count"], counts["group_count"]) == (
        4,
        len({group_of(name) for name in (*NAMES, "cy")}),
    )
    baskets = states["memory", "baskets"]
    assert (baskets["types"], baskets["codec"]) == (["tests.unit.cli.state_jobs.Basket"], "pickle")
    kinds = {name: state["kind"] for (uid, name), state in states.items() if uid == "keeper"}
    assert kinds == {
        "last": "value", "history": "list", "by_parity": "map", "highest": "value",
        "total": "value", "processing-timers": "timer",
    }  # fmt: skip
    assert states["keeper", "history"]["types"] == ["int"]
    assert states["priced", "prices"]["group_count"] == 0
    assert "counts" in looking.text("state", "ls")


def group_of(key):
    return key_group(encode_key(key), group_count=GROUPS)


def test_a_running_count_is_what_the_job_counted(looking, sealed):
    assert looking.values("counts") == {
        ("accumulator", name, None): count for name, count in sealed.state("counts").items()
    }
    assert looking.values("counts", "--epoch", "1") == {
        ("accumulator", name, None): 2 for name in NAMES
    }


def test_a_key_is_shown_with_its_key_group_and_task(looking):
    [row] = looking.get("counts", "--key", "ada")

    assert (row["value"], row["key_group"]) == (3, group_of("ada"))
    assert row["task"] == group_of("ada") * 2 // GROUPS
    assert looking.get("counts", "--key", '"ada"') == [row]
    assert looking.get("counts", "--key", "nobody") == []
    assert "entry not found" in looking.text(
        "state", "get", "--operator", "counts", "--key", "nobody"
    )
    text = looking.text("state", "get", "--operator", "counts", "--key", "ada")
    assert text.splitlines()[-1].split() == [
        "accumulator", str(row["key_group"]), str(row["task"]), '"ada"', "3",
    ]  # fmt: skip


def test_a_prefix_and_a_limit_narrow_what_is_shown(looking):
    assert {row["key"] for row in looking.get("counts", "--prefix", "ad")} == {"ada", "adele"}
    answer = looking.answer("state", "get", "--operator", "counts", "--limit", "2")
    assert (len(answer["entries"]), answer["is_cut"]) == (2, True)
    text = looking.text("state", "get", "--operator", "counts", "--limit", "2")
    assert text.splitlines()[-1] == "there are more than 2; see --limit"


def test_every_kind_of_keyed_state_is_shown(looking):
    found = looking.values("keeper", "--key", "ada")

    assert found == {
        ("last", "ada", None): 3,
        ("history", "ada", None): [1, 2, 3],
        ("by_parity", "ada", "odd"): 3,
        ("by_parity", "ada", "even"): 2,
        ("highest", "ada", None): 3,
        ("total", "ada", None): 6,
        **{("processing-timers", "ada", 10**12 + number): None for number in (1, 2, 3)},
    }
    [last] = looking.get("keeper", "--name", "last", "--key", "ada")
    assert last["since_ms"] == 1_000_000


def test_attributes_and_named_values_of_a_rich_function_are_shown(looking):
    found = looking.values("memory", "--key", "ada")

    assert found[("counts", "ada", None)] == 6
    assert found[("last", "ada", None)] == 3
    assert {state for state, _, _ in found} == {"counts", "baskets", "last"}
    seen = [row["value"] for row in looking.get("memory", "--name", "seen")]
    assert sum(seen) == 8


def test_state_without_keys_is_shown_by_task(looking):
    rows = looking.get("tally")

    assert sum(row["value"] for row in rows) == 8
    assert {row["key_group"] for row in rows} == {None}
    assert {row["task"] for row in rows} <= {0, 1}


def test_what_every_task_has_a_copy_of_is_shown_once(looking):
    rows = looking.get("priced")

    assert {row["part"]: row["value"] for row in rows} == {"tea": 3, "jam": 5}
    assert {(row["key_group"], row["task"]) for row in rows} == {(None, None)}
    assert len(rows) == 2


def test_windows_of_all_kinds_are_shown_by_their_start(looking):
    sums = looking.values("sums", "--key", "ada")
    whole = looking.values("whole", "--key", "ada")
    visits = looking.values("visits", "--key", "ada")
    panes = looking.values("triggered", "--key", "ada")

    assert list(sums) == [("window", "ada", 0)]
    assert whole["records", "ada", 0] == [
        {"time_ms": number * 1_000, "value": ["ada", number]} for number in (1, 2, 3)
    ]
    [session] = visits["sessions", "ada", None]
    assert (session["start_ms"], session["end_ms"]) == (1_000, 13_000)
    [pane] = panes["panes", "ada", 0]
    assert (pane["start_ms"], pane["end_ms"], pane["count"]) == (0, 10_000, 3)


def test_values_of_the_plugins_classes_stay_shut_until_the_plugin_is_named(
    looking, tmp_path, monkeypatch
):
    words = ("memory", "--name", "baskets", "--key", "ada")
    [shut] = looking.get(*words)
    monkeypatch.delitem(sys.modules, "tests.unit.cli.state_jobs")
    looking.get(*words)

    assert shut["value"]["$opaque"] == "tests.unit.cli.state_jobs.Basket"
    assert "tests.unit.cli.state_jobs" not in sys.modules
    exit_code, error = looking.error("state", "get", "--operator", "memory", "--plugin", "nobody")
    assert (exit_code, error["code"]) == (3, "BIC-1601")
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    install(site, in_builder("shop", "pass"))
    [opened] = looking.get(*words, "--plugin", "shop")
    assert opened["value"] == {"goods": [3]}
    assert "tests.unit.cli.state_jobs" not in sys.modules


def test_a_diff_tells_what_was_added_removed_and_changed(looking):
    answer = looking.answer("state", "diff", "1", "2", "--operator", "counts")

    [counts] = answer["operators"]
    assert answer["record_count"] == 2
    assert (counts["added"], counts["removed"], counts["changed"]) == (1, 0, 1)
    assert {(c["change"], c["key"], c["before"], c["after"]) for c in counts["changes"]} == {
        ("added", "cy", None, 1),
        ("changed", "ada", 2, 3),
    }
    [back] = looking.answer("state", "diff", "2", "1", "--operator", "counts")["operators"]
    assert (back["added"], back["removed"], back["changed"]) == (0, 1, 1)


def test_a_diff_covers_all_operators_and_shows_no_more_than_the_limit(looking):
    answer = looking.answer("state", "diff", "1", "2", "--limit", "1")
    operators = {operator["operator"]: operator for operator in answer["operators"]}

    assert sorted(operators) == OPERATORS
    assert all(len(operator["changes"]) <= 1 for operator in operators.values())
    assert operators["priced"]["added"] == operators["priced"]["changed"] == 0
    assert operators["counts"]["changed"] == 1
    text = looking.text("state", "diff", "1", "2", "--name", "accumulator")
    assert "counts: 1 added, 0 removed, 1 changed" in text


def test_a_diff_across_a_change_of_parallelism_shows_what_really_changed(looking, sealed):
    sealed.rescale(3)
    sealed.push([("bob", 9)], source="records")
    sealed.run_epoch()

    [counts] = looking.answer("state", "diff", "2", "3", "--operator", "counts")["operators"]
    assert [(c["change"], c["key"], c["after"]) for c in counts["changes"]] == [
        ("changed", "bob", 3)
    ]
    assert looking.values("counts") == {
        ("accumulator", name, None): count for name, count in sealed.state("counts").items()
    }
    assert len(looking.get("priced")) == 2


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_all_state_is_exported(looking, tmp_path, suffix):
    target = tmp_path / f"state.{suffix}"
    answer = looking.answer("state", "export", "--to", str(target))
    rows = read_rows(target)

    assert answer["entry_count"] == len(rows)
    assert {row["operator"] for row in rows} == set(OPERATORS)
    assert {
        (row["key"], row["key_group"], row["value"]) for row in rows if row["operator"] == "counts"
    } == {(name, group_of(name), 3 if name == "ada" else 2) for name in NAMES} | {
        ("cy", group_of("cy"), 1)
    }
    [odd] = [row for row in rows if (row["key"], row["part"]) == ("bob", "odd")]
    assert (odd["state"], odd["kind"], odd["value"]) == ("by_parity", "map", 1)
    assert [file.name for file in tmp_path.glob("*state*")] == [target.name]


def read_rows(path: Path):
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    rows = parquet.read_table(path).to_pylist()
    return [
        {
            name: json.loads(value) if name in ("key", "part", "value") and value else value
            for name, value in row.items()
        }
        for row in rows
    ]


def test_an_export_is_refused_before_anything_is_read(looking, tmp_path):
    for target in ("state.csv", "no/such/state.jsonl"):
        exit_code, error = looking.error("state", "export", "--to", str(tmp_path / target))
        assert (exit_code, error["code"]) == (4, "BIC-1931")
    inside = f"{looking.storage.url}/state.jsonl"
    assert looking.error("state", "export", "--to", inside)[1]["code"] == "BIC-1931"


def test_an_operator_or_an_epoch_that_is_not_there_is_told_with_those_that_are(looking):
    exit_code, error = looking.error("state", "get", "--operator", "count")
    assert (exit_code, error["code"], error["facts"]["known"]) == (2, "BIC-1930", OPERATORS)
    for words in (("state", "ls", "--epoch", "7"), ("checkpoints", "--epoch", "7")):
        exit_code, error = looking.error(*words)
        assert (exit_code, error["code"], error["facts"]["known"]) == (5, "BIC-1521", [1, 2])


def test_an_epoch_that_the_job_collected_is_not_there_any_more(looking, sealed):
    for number in range(3):
        sealed.push([("ada", number)], source="records")
        sealed.run_epoch()

    exit_code, error = looking.error("state", "ls", "--epoch", "1")
    assert (exit_code, error["code"]) == (5, "BIC-1521")
    assert looking.answer("state", "ls")["epoch"] == 5


def test_a_job_is_found_by_name_by_directory_or_by_the_directory_above(shell, looking, tmp_path):
    above = tmp_path / "checkpoints"
    for name in ("one", "two"):
        for path, data in looking.files().items():
            file = above / name / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
    shell.put_job("known", checkpoint=str(above / "one"))
    place = ("--checkpoint-dir", str(above))

    assert shell.answer("checkpoints", "--job", "known")["url"] == str(above / "one")
    assert shell.answer("checkpoints", *place, "--job", "two")["url"] == str(above / "two")
    exit_code, error = shell.error("checkpoints", *place)
    assert (exit_code, error["code"]) == (5, "BIC-1520")
    assert "one, two" in error["message"]
    for words in (("--job", "three"), ("--checkpoint-dir", str(tmp_path / "none")), ()):
        exit_code, error = shell.error("checkpoints", *words)
        assert (exit_code, error["code"]) in ((2, "BIC-1902"), (5, "BIC-1520"))
    for file in (above / "two").rglob("*.manifest"):
        file.unlink()
    exit_code, error = shell.error("state", "ls", *place, "--job", "two")
    assert (exit_code, error["code"]) == (5, "BIC-1520")


def test_the_kinds_that_the_job_noted_are_believed(looking):
    looking.storage.write("job.json", json.dumps({"operators": {"counts": "Noted"}}).encode())

    kinds = {each["operator"]: each["kind"] for each in looking.answer("state", "ls")["operators"]}
    assert (kinds["counts"], kinds["sums"]) == ("Noted", "Window")
    looking.storage.write("job.json", b"no json")
    assert looking.answer("state", "ls")["operators"][0]["kind"] == "Reduce"


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("ada", ["ada"]),
        ("42", [42, "42"]),
        ("null", [None, "null"]),
        ('["ada", [1, 2]]', [("ada", (1, 2)), '["ada", [1, 2]]']),
        ('"42"', ["42", '"42"']),
    ],
)
def test_a_key_on_the_command_line_is_json_or_text(text, keys):
    assert keys_meant(text) == keys


@pytest.mark.parametrize("words", [("checkpoints",), ("state", "ls"), ("state", "diff", "1", "2")])
def test_the_one_who_names_a_job_as_other_commands_want_it_is_told_the_flag(shell, words):
    done = shell.run(*words, "shop")

    assert done.exit_code == 2
    assert "--job shop" in done.output
