"""What makes an epoch final and what finds it again: manifests, restore, collection of old files.

Rescaling.
"""
