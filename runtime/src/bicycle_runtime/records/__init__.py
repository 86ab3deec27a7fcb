"""Records as bytes: codecs by type, keys and key groups, blobs of an exchange."""
