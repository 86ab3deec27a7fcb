"""Another run of a sealed or failed epoch, in a child process, to examine it."""
