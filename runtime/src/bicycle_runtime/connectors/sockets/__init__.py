"""Lines over TCP: a server that journals what clients send, one that sends what is published."""
