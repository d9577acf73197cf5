"""What knows no kernel: files, and later all else that any program could use."""
