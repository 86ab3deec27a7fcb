"""Commands of operations with summaries, written by ``tools/generate.py``."""

from __future__ import annotations

OPERATION_COMMANDS: dict[str, str] = {
    "rescale": "Change the parallelism of a running job",
    "pause": "Pause a job: keep its position and state, and read nothing",
    "stop": "Stop a job gracefully after the current epoch",
    "drain": "Drain a job: read no more, and fire all windows and timers",
    "cancel": "Cancel a job immediately, without finishing the epoch",
    "resume": "Resume a paused job, or start an ended job again",
    "upgrade": "Upgrade a running job to another version of its plugin",
}
