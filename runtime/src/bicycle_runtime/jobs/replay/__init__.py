"""Running a sealed or failed epoch once more, in a child process, to see what it did."""
