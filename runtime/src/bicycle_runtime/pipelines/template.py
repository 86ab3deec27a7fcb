"""The template of a new pipeline: common keys, and a passing test."""

from __future__ import annotations

import json

from bicycle_runtime.pipelines.documents import Notation

_TOML = """\
# A pipeline: `bicycle pipeline test {file}` runs its test, `bicycle run --config {file}` the job.
name = {name}

[source]
kind = "file"          # or any other source: kafka, redis, postgres, socket, …
path = "events.jsonl"  # one JSON object per line
timestamp_field = "at"  # RFC 3339, or ms since 1970

[time]
max_out_of_orderness = "10s"

[window]
type = "tumbling"      # tumbling, sliding, session, count
size = "1m"

[ops]
count_by = "page"      # agg = "sum", agg_field = "price" adds up a field instead

[sink]
kind = "file"          # or any other sink: kafka, redis, delta, postgres, http, console, …
path = "counts"

[[test]]
name = "two pages in one minute"
input = [
    {{ at = "2026-01-01T00:00:05Z", page = "/" }},
    {{ at = "2026-01-01T00:00:25Z", page = "/" }},
    {{ at = "2026-01-01T00:00:45Z", page = "/cart" }},
]
output = [
    {{ window_start_ms = 1767225600000, window_end_ms = 1767225660000, page = "/", count = 2 }},
    {{ window_start_ms = 1767225600000, window_end_ms = 1767225660000, page = "/cart", count = 1 }},
]
"""

_YAML = """\
# A pipeline: `bicycle pipeline test {file}` runs its test, `bicycle run --config {file}` the job.
name: {name}

source:
  kind: file          # or any other source: kafka, redis, postgres, socket, …
  path: events.jsonl  # one JSON object per line
  timestamp_field: at  # RFC 3339, or ms since 1970

time:
  max_out_of_orderness: 10s

window:
  type: tumbling      # tumbling, sliding, session, count
  size: 1m

ops:
  count_by: page      # agg: sum, agg_field: price adds up a field instead

sink:
  kind: file          # or any other sink: kafka, redis, delta, postgres, http, console, …
  path: counts

test:
  - name: two pages in one minute
    input:
      - {{at: "2026-01-01T00:00:05Z", page: /}}
      - {{at: "2026-01-01T00:00:25Z", page: /}}
      - {{at: "2026-01-01T00:00:45Z", page: /cart}}
    output:
      - {{window_start_ms: 1767225600000, window_end_ms: 1767225660000, page: /, count: 2}}
      - {{window_start_ms: 1767225600000, window_end_ms: 1767225660000, page: /cart, count: 1}}
"""


def pipeline_template(name: str, notation: Notation) -> str:
    """Return the text of a new pipeline.

    Args:
        name: Name of the job.
        notation: The notation of the file.
    """
    text = _TOML if notation == "toml" else _YAML
    # In either notation, a text in quotes is one of JSON.
    shown = json.dumps(name, ensure_ascii=False)
    return text.format(name=shown, file=f"{name}.{notation}")
