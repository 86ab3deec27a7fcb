"""The present of all jobs: status files, process ends, states, the snapshot."""
