"""Windows on workers: ``build_window`` makes the operator that carries a window plan out.

*Aligned* windows keep strips of time that windows share, *sessions* grow per key, *triggered* ones
ask a trigger at each record. The first two fold the records of an epoch first and touch state once
per key and window; ``combine`` does the folding before the shuffle.
"""
