"""The supervision of a job: supervisor, restarts, watchdog, signals, reports."""
