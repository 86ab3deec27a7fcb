"""Control of a job from another process: status, end, drain, rescale, requests."""
