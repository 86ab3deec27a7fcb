"""What makes an epoch final and finds it again: manifests, restore, collection, rescaling."""
