"""What a run takes over from the epoch sealed last: ids of operators, forms of states, state."""
