"""Code that grpcio-tools has made of ``jobmanager.proto``; a test makes it again and compares."""
