"""The hosts of a job: do they fit, what is shipped to them, which task is where. No PySpark."""
