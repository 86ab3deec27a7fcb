"""The store of the service: jobs, history, operations, audit log, samples."""
