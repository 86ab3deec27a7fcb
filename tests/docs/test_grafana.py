"""Dashboard and alert rules: they ask for names and labels that the service tells."""

import json
import re
import runpy
from pathlib import Path

import pytest

from bicycle_runtime.service.metrics.names import METRICS, SERVICE_METRICS

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs/grafana"
ENDS = {"histogram": ("_bucket", "_sum", "_count"), "summary": ("_sum", "_count")}
LABELS = {
    metric.name + end: {*metric.labels, *(["le"] if end == "_bucket" else [])}
    for metric in (*METRICS, *SERVICE_METRICS)
    for end in ENDS.get(metric.type, ("",))
}
NAME = re.compile(r"\b(?:bicycle|pulse)[_:][a-z_:]+")


LINE = re.compile(r"^ {6,10}(- )?([a-z]+): (.+)$")


def rules():
    """Read the rules. Each value is JSON, which is YAML as well, so no parser of that is needed."""
    found = []
    for line in (FOLDER / "alerts.yml").read_text("utf-8").splitlines():
        if parts := LINE.match(line):
            begins, key, value = parts.groups()
            found += [{}] if begins else []
            found[-1][key] = json.loads(value)
    return found


def panels():
    return json.loads((FOLDER / "dashboard.json").read_text("utf-8"))["panels"]


EXPRESSIONS = [rule["expr"] for rule in rules()] + [
    target["expr"] for panel in panels() for target in panel["targets"]
]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_name_is_one_that_is_told(expression):
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    names = NAME.findall(expression)

    assert names
    assert set(names) <= LABELS.keys() | recorded


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_label_that_is_selected_or_grouped_by_is_one_of_its_metric(expression):
    for name, selected in re.findall(r"(\w+)\{([^}]*)\}", expression):
        assert set(re.findall(r"(\w+)=", selected)) <= LABELS[name]
    known = set().union(*(LABELS.get(name, {"job"}) for name in NAME.findall(expression)))
    for grouped in re.findall(r"by \(([^)]*)\)", expression):
        assert set(re.split(r",\s*", grouped)) <= known


def test_the_rules_are_all_read():
    text = (FOLDER / "alerts.yml").read_text("utf-8")

    assert len(rules()) == text.count("- alert:") + text.count("- record:") == 16
    assert all(("alert" in rule) != ("record" in rule) and rule["expr"] for rule in rules())


def test_a_name_that_nobody_tells_would_be_found():
    assert NAME.findall("rate(bicycle_job_lagg[5m]) > bicycle:job_lag") == [
        "bicycle_job_lagg",
        "bicycle:job_lag",
    ]
    assert "bicycle_job_lagg" not in LABELS


def test_the_dashboard_is_the_one_that_the_panels_make():
    made = runpy.run_path(str(FOLDER / "make_dashboard.py"))["dashboard"]()

    assert json.loads((FOLDER / "dashboard.json").read_text("utf-8")) == made


def test_panels_do_not_overlap_and_say_which_unit_they_have():
    places = {(p["gridPos"]["x"], p["gridPos"]["y"]) for p in panels()}

    assert len(places) == len(panels()) == len({p["id"] for p in panels()})
    assert all(panel["fieldConfig"]["defaults"]["unit"] for panel in panels())


@pytest.mark.parametrize("subject", ["lag", "state_growth", "restarts", "disk", "stalled"])
def test_there_is_a_rule_for_what_must_wake_somebody(subject):
    alerts = [rule for rule in rules() if "alert" in rule and subject in rule["expr"]]

    assert alerts
    assert all({"summary", "what", "labels"} <= rule.keys() for rule in alerts)


def test_labels_in_the_words_of_a_rule_are_left_by_its_expression():
    for rule in rules():
        words = rule.get("summary", "") + rule.get("what", "")
        for label in re.findall(r"\$labels\.(\w+)", words):
            assert any(label in LABELS.get(n, {"job"}) for n in NAME.findall(rule["expr"]))


def test_each_name_that_is_told_stands_in_the_reference():
    page = (ROOT / "docs/reference/rest.md").read_text("utf-8")

    missing = [m.name for m in (*METRICS, *SERVICE_METRICS) if f"`{m.name}`" not in page]
    assert missing == []
