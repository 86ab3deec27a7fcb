"""The plugin of a job: where its code comes from, and its graph, as asked for and as drawn."""
