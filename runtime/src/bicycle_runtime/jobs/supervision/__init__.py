"""How a job ends and is started again: supervisor, restarts, watchdog, signals, last words."""
