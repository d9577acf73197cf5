"""Entry of ``scripts/kernel-actions``: runs this folder as a program, on a bare Python."""

import os
import sys

if __name__ == "__main__":
    # Python puts the folder of this file first on the path; the package is one folder up.
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    from kernel_actions.cli import main

    sys.exit(main(sys.argv[1:]))
