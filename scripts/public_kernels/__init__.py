"""Takes every kernel of a checkout of public kernels through the suite, and tabulates the outcomes."""
