"""Entry of ``scripts/kernel-actions``: runs this folder as a program, on a bare Python."""

# Only what any Python 3 understands stands here, so that an old one can look for a newer one.
# First, and from the interpreter itself, as `signal` takes long to import: until the command line has
# its own handler, Ctrl-C ends the process. A traceback of what was being imported is no answer.
import _signal  # type: ignore[import-not-found]

_signal.signal(_signal.SIGINT, _signal.SIG_DFL)

# While modules are imported there is no garbage, and to look for it takes a tenth of a quick command's time.
import gc

gc.disable()

import os
import sys


def _restart_on_newer_python() -> None:
    import subprocess

    if os.environ.get("KA_PYTHON"):
        sys.stderr.write(
            "kernel-actions: KA_PYTHON is Python %d.%d, which is too old (name Python 3.11 or newer)\n"
            % sys.version_info[:2]
        )
        sys.exit(3)
    for name in ("python3.14", "python3.13", "python3.12", "python3.11", "python3.10"):
        check = [name, "-I", "-S", "-c", "import sys; print(sys.executable)"]
        try:
            # A name on the PATH may be a stand-in that refuses to start.
            found = subprocess.check_output(check, stderr=subprocess.DEVNULL).decode().strip()
        except (OSError, subprocess.CalledProcessError):
            continue
        os.execv(found, [found, "-I", "-S"] + sys.argv)
    sys.stderr.write(
        "kernel-actions: Python %d.%d is too old (install Python 3.11 or newer, or name one by "
        "KA_PYTHON)\n" % sys.version_info[:2]
    )
    sys.exit(3)


if __name__ == "__main__":
    if sys.version_info < (3, 10):
        _restart_on_newer_python()
    folder = os.path.dirname(os.path.abspath(__file__))
    # Python may put the folder of this file on the path; the package is one folder up.
    sys.path[:] = [os.path.dirname(folder)] + [path for path in sys.path if path != folder]
    from kernel_actions.cli import entry

    entry()
