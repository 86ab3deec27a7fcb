"""The life of a job: submit, run, stop, cancel, look at. One writer per job, everything else reads.

What is known of a job lies in two places: its checkpoint storage (what it did) and a folder below
the home (how it is doing now). Commands act on another process through files and signals alone.
"""
