"""What a job promises, told before it starts: guarantee, state, what becomes of old state."""
