"""What is asked of jobs: operations, met by threads, found again after any end."""
