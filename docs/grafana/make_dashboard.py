"""``python docs/grafana/make_dashboard.py``: writes the dashboard that lies beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PATH = Path(__file__).with_name("dashboard.json")
_SOURCE = {"type": "prometheus", "uid": "${source}"}
_P99 = 'histogram_quantile({share}, sum by (le{by}) (rate({name}_bucket{{job=~"$job"}}[5m])))'
# Title, unit, and queries with their legends; two panels a row.
PANELS: tuple[tuple[str, str, tuple[tuple[str, str], ...]], ...] = (
    ("Records per second", "ops", (('bicycle_job_records_per_second{job=~"$job"}', "{{job}}"),)),
    ("Lag in records", "short",
     (('sum by (job) (bicycle_source_lag_records{job=~"$job"})', "{{job}}"),)),
    ("Age of the first unread record", "s",
     (('max by (job) (bicycle_source_lag_seconds{job=~"$job"})', "{{job}}"),)),
    ("Time of an epoch", "s",
     ((_P99.format(share=0.5, by="", name="bicycle_epoch_seconds"), "p50"),
      (_P99.format(share=0.99, by="", name="bicycle_epoch_seconds"), "p99"))),
    ("Phases of an epoch, mean", "s",
     (('sum by (phase) (rate(bicycle_epoch_phase_seconds_sum{job=~"$job"}[5m]))'
       ' / sum by (phase) (rate(bicycle_epoch_phase_seconds_count{job=~"$job"}[5m]))',
       "{{phase}}"),)),
    ("Share of the time in epochs", "percentunit",
     (('bicycle_job_load_ratio{job=~"$job"}', "{{job}}"),)),
    ("Busy share of operators", "percentunit",
     (('bicycle_operator_busy_ratio{job=~"$job"}', "{{job}} {{operator}}"),)),
    ("Time per record, 99 %", "s",
     ((_P99.format(share=0.99, by=", operator", name="bicycle_operator_record_seconds"),
       "{{operator}}"),)),
    ("Skew of operators", "short",
     (('bicycle_operator_skew_ratio{job=~"$job"}', "{{job}} {{operator}}"),)),
    ("Watermark behind the clock", "s",
     (('time() - min by (job) (bicycle_operator_watermark_seconds{job=~"$job"})', "{{job}}"),)),
    ("Size of the state", "bytes",
     (('bicycle_operator_state_bytes{job=~"$job"}', "{{job}} {{operator}}"),)),
    ("Growth of the state", "Bps",
     (('bicycle_job_state_growth_bytes_per_second{job=~"$job"}', "{{job}}"),)),
    ("Growth of the state by operator", "Bps",
     (('bicycle_operator_state_growth_bytes_per_second{job=~"$job"}', "{{job}} {{operator}}"),)),
    ("Failed and late records", "ops",
     (('sum by (job) (rate(bicycle_operator_errors_total{job=~"$job"}[5m]))', "{{job}} failed"),
      ('sum by (job) (rate(bicycle_operator_late_total{job=~"$job"}[5m]))', "{{job}} late"))),
    ("Restarts in 15 minutes", "short",
     (('increase(bicycle_job_restarts_total{job=~"$job"}[15m])', "{{job}}"),)),
    ("Your counters per second", "ops",
     (('sum by (operator, name) (rate(bicycle_user_total{job=~"$job"}[5m]))',
       "{{operator}} {{name}}"),)),
    ("Sealed and not yet visible", "bytes",
     (('bicycle_job_waiting_bytes{job=~"$job"}', "{{job}}"),)),
    ("Free disk space", "bytes", (("bicycle_service_disk_free_bytes", "home"),)),
)  # fmt: skip


def dashboard() -> dict[str, Any]:
    """Return the dashboard as Grafana imports it."""
    job = {
        "name": "job", "type": "query", "datasource": _SOURCE, "includeAll": True, "multi": True,
        "query": "label_values(bicycle_job_state, job)", "refresh": 2,
        "current": {"text": "All", "value": "$__all"},
    }  # fmt: skip
    source = {"name": "source", "type": "datasource", "query": "prometheus", "label": "Prometheus"}
    return {
        "uid": "bicycle-jobs",
        "title": "Bicycle: jobs",
        "schemaVersion": 39,
        "version": 1,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [source, job]},
        "panels": [_panel(number, *panel) for number, panel in enumerate(PANELS)],
    }


def _panel(
    number: int, title: str, unit: str, queries: tuple[tuple[str, str], ...]
) -> dict[str, Any]:
    return {
        "id": number + 1,
        "title": title,
        "type": "timeseries",
        "datasource": _SOURCE,
        "gridPos": {"x": number % 2 * 12, "y": number // 2 * 8, "w": 12, "h": 8},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0 if "Growth" not in title else None}},
        "targets": [
            {"refId": chr(65 + place), "expr": expression, "legendFormat": legend,
             "datasource": _SOURCE}
            for place, (expression, legend) in enumerate(queries)
        ],
    }  # fmt: skip


if __name__ == "__main__":
    PATH.write_text(json.dumps(dashboard(), indent=1) + "\n", encoding="utf-8")
