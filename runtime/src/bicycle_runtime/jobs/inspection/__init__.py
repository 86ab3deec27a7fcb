"""The inspection of a job before it starts: guarantee, state, and state changes."""
