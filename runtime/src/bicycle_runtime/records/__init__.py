"""Records as bytes: codecs chosen by type, keys and key groups, the blobs of an exchange."""
