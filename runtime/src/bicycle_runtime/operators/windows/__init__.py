"""Windows on workers; ``window_operator`` selects the operator of a window plan.

Windows that fire by the watermark are folded (``build``): a *placement* decides the location of
records, before the shuffle (``combine``) and behind it, and the *kept* form of windows decides how
they grow and fire: slices of time that windows share, sessions, sessions that are cut. Windows with
a trigger or an evictor (``triggered``) call it at each record.
"""
