"""The life of a job: submit, run, stop, cancel, look at. One writer per job, everything else reads.

The data of a job is in two places: its checkpoint storage (its progress) and a folder below the
home (its current status). Commands act on another process through files and signals alone.
"""
