"""The store of the service: jobs, history, operations, audit, samples; SQLite behind one writer."""
