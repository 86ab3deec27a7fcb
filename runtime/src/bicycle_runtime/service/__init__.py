"""The service: all jobs at once, their history, and requested operations.

The processes of a job write its status files (``jobs``). This room reads these files, stores the
history in SQLite, and performs operations by the same calls as the commands. It never imports a
plugin. A job does not need the service, and is not affected when the service ends.
"""
