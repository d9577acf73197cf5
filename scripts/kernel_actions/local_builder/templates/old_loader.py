"""For versions of `kernels` that look for the kernel in a folder of its name."""

import importlib.util
import sys
from pathlib import Path

_path = Path(__file__).resolve().parent.parent / "__init__.py"
# The name has to be another for each copy of the kernel, and the same for the same copy.
_spec = importlib.util.spec_from_file_location(f"_kernel_{hash(str(_path)) & 0xFFFFFFFFFFFFFFFF:x}", _path)
if _spec is None or _spec.loader is None:
    raise ImportError(f"cannot load {_path}")
_module = importlib.util.module_from_spec(_spec)
# The kernel's own imports (`from . import …`) look its package up by this name.
sys.modules[_spec.name] = _module
_spec.loader.exec_module(_module)
globals().update({name: value for name, value in vars(_module).items() if not name.startswith("__")})
__all__ = getattr(_module, "__all__", [name for name in vars(_module) if not name.startswith("_")])
