"""The run of a job, in the process of its driver: from submission to summary."""
