"""What a kernel is, apart from what is done with it."""
