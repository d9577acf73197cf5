"""What jobs hand over to later jobs: the digests that bind it, and the one place that unpacks it."""
