"""The present of all jobs: status files, ends of processes, shown states, the snapshot."""
