"""Windows on workers; ``window_operator`` selects the operator of a window plan.

Windows that fire by the watermark are folded (``build``): a *placement* tells where
records go, before the shuffle (``combine``) and behind it, and what is *kept* of windows tells how
they grow and fire: slices of time that windows share, sessions, sessions that are cut. Windows with
a trigger or an evictor (``triggered``) ask it at each record.
"""
