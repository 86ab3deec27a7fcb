"""What is so now: status files, ends of processes, shown states, the snapshot of all jobs."""
