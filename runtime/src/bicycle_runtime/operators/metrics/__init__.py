"""What is counted while operators run: records, the metrics of users, the most frequent keys."""
