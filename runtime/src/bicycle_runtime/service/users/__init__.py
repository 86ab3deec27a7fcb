"""Who asks, what they may do, and what nobody is shown."""
