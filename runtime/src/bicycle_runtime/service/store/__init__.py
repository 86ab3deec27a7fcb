"""What is kept: jobs, their history, operations, audit, samples; SQLite behind one writer."""
