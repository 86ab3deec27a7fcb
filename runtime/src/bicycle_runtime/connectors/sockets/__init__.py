"""Lines over TCP: a server that journals clients' lines, one that sends output."""
