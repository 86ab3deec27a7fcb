"""The service: all jobs at once, their history, and requested operations.

A job's life is written by its own processes (``jobs``). This room reads their files, keeps the
history in SQLite, and meets what is asked through the same calls as the commands use. It never
imports a plugin, and a job neither needs it nor notices when it ends.
"""
