"""Prometheus' own tool has no remark on our names, and the alert rules fire when they should.

It is Debian's (`apt-get install prometheus`); where it is not installed there is nothing to check
with. In the pipeline these tests fail then.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from bicycle_runtime.cli.builtin import bicycle_commands
from bicycle_runtime.service.metrics.figures import ServiceFigures
from bicycle_runtime.service.metrics.metrics import MetricsText
from bicycle_runtime.service.metrics.names import METRICS
from bicycle_runtime.service.watching.fleet import Fleet
from tests.docs.test_grafana import FOLDER, rules
from tests.unit.service.test_metrics import full_job

_FOUND = shutil.which("promtool")
PROMTOOL = [_FOUND] if _FOUND or "CI" not in os.environ else ["promtool"]

needs_promtool = pytest.mark.parametrize("promtool", [path for path in PROMTOOL if path])

# A day of samples, one a minute. The first disk fills up in a day, and the second has ten minutes
# of data, in which something was installed.
TIMELINE = """
rule_files: ["{rules}"]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - series: 'bicycle_service_disk_free_bytes{{instance="a"}}'
        values: '5000+0x60 5000-4x600'
      - series: 'bicycle_service_disk_bytes{{instance="a"}}'
        values: '10000+0x700'
      - series: 'bicycle_service_tick_seconds{{instance="a"}}'
        values: '0.1+0x700'
    alert_rule_test:
      - {{eval_time: 30m, alertname: BicycleDiskFull, exp_alerts: []}}
      - eval_time: 11h
        alertname: BicycleDiskFull
        exp_alerts: [{{exp_labels: {{instance: a, severity: page}}, exp_annotations: {disk}}}]
  - interval: 1m
    input_series:
      - series: 'bicycle_service_disk_free_bytes{{instance="b"}}'
        values: '9000-50x120'
      - series: 'bicycle_service_disk_bytes{{instance="b"}}'
        values: '10000+0x120'
    alert_rule_test:
      - {{eval_time: 60m, alertname: BicycleDiskFull, exp_alerts: []}}
  - interval: 1m
    input_series:
      - series: 'bicycle_partition_event_seconds{{job="j", operator="in", partition="0"}}'
        values: '7200+60x30'
      - series: 'bicycle_partition_event_seconds{{job="ok", operator="in", partition="0"}}'
        values: '60+60x30'
    alert_rule_test:
      - eval_time: 20m
        alertname: BicycleEventsInFuture
        exp_alerts:
          - exp_labels: {{job: j, operator: in, severity: warn}}
            exp_annotations: {future}
"""


def run(*words: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, input=text, capture_output=True, text=True, check=False)


def exposition(*, older_names: bool) -> str:
    fleet, figures = Fleet(), ServiceFigures()
    fleet.publish((full_job(),), ["job"], [], as_of_ms=0)
    figures.note_disk(free_bytes=1, total_bytes=2)
    own = figures.text(look_ms=1.0, subscriber_count=1, operation_count=1)
    return MetricsText(fleet).text(now_ms=1_500, older_names=older_names) + own


@needs_promtool
def test_names_are_in_base_units_but_for_the_older_ones_which_are_all_marked(promtool):
    clean = run(promtool, "check", "metrics", text=exposition(older_names=False))
    whole = run(promtool, "check", "metrics", text=exposition(older_names=True))

    assert (clean.returncode, clean.stderr) == (0, "")
    flagged = {line.split()[0] for line in whole.stderr.splitlines()}
    assert flagged == {metric.name for metric in METRICS if metric.newer}


@needs_promtool
def test_rules_fire_when_they_should(promtool, tmp_path):
    words = {rule["alert"]: rule for rule in rules() if "alert" in rule}

    def annotations(name: str, labels: dict[str, str], value: str) -> str:
        texts = {}
        for key in ("summary", "what"):
            text = words[name][key]
            for label, word in labels.items():
                text = text.replace(f"{{{{ $labels.{label} }}}}", word)
            texts[key] = text.replace("{{ $value | humanizeDuration }}", value)
        return "{" + ", ".join(f"{key}: '{text}'" for key, text in texts.items()) + "}"

    timeline = TIMELINE.format(
        rules=FOLDER / "alerts.yml", disk=annotations("BicycleDiskFull", {}, ""),
        future=annotations("BicycleEventsInFuture", {"job": "j", "operator": "in"}, "2h 0m 0s"),
    )  # fmt: skip
    (tmp_path / "timeline.yml").write_text(timeline)
    done = run(promtool, "test", "rules", str(tmp_path / "timeline.yml"))

    assert done.returncode == 0, done.stdout + done.stderr


def test_commands_in_the_words_of_rules_exist():
    known = set(bicycle_commands())
    texts = [f"{rule.get('summary', '')} {rule.get('what', '')}" for rule in rules()]
    named = [name for text in texts for name in re.findall(r"`bicycle ([a-z-]+)", text)]

    assert named
    assert set(named) <= known
    assert not any("bicycle prune" in text for text in texts)


def test_the_documented_scrape_keeps_the_label_job():
    page = (Path(FOLDER).parent / "how-to/service.md").read_text("utf-8")

    assert "honor_labels: true" in page.partition("scrape_configs:")[2].partition("```")[0]
