"""kernel-actions: from a kernel's commit to the Hub, in GitHub composite actions and on a laptop."""

__version__ = "0.1.0"
