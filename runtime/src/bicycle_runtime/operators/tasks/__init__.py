"""Running one task of a stage plan for an epoch: operators made, chained, run, and reported of."""
