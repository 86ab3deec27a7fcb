"""Acting on a job from another process: look at it, end it, drain it, rescale it, ask it."""
