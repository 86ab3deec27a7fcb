"""The promises of a job, told before it starts: guarantee, state, what becomes of old state."""
