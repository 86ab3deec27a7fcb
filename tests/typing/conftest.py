"""The examples are read by type checkers, not run."""

collect_ignore = ["good_chains.py", "wrong_chains.py"]
