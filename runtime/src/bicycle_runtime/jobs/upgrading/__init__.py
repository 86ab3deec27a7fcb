"""Another version of a running job's plugin: plan, start, observation, return."""
