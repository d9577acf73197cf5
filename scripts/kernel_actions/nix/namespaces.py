"""Why a kernel gives no namespaces, of which Nix makes its sandbox, and what to do about it."""

from __future__ import annotations

import os
import re
from pathlib import Path

_CONTAINER = (
    "a container needs --privileged, or --cap-add SYS_ADMIN with --security-opt seccomp=unconfined and "
    "--security-opt apparmor=unconfined"
)
# The settings of Linux that refuse them, what they are then, and what to do. Ubuntu has had the first since
# 23.10, on by default since 24.04; Debian had the second; the others are the kernel's own.
_SWITCHES = (
    (
        "kernel/apparmor_restrict_unprivileged_userns", "1",
        "AppArmor lets root alone have user namespaces here, as Ubuntu does since 24.04: use a Nix with a "
        "daemon, which is root, or run sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
    ),
    (
        "kernel/unprivileged_userns_clone", "0",
        "only root may have user namespaces here: run sudo sysctl -w kernel.unprivileged_userns_clone=1, or "
        "use a Nix with a daemon",
    ),
    (
        "user/max_user_namespaces", "0",
        "user namespaces are switched off here: run sudo sysctl -w user.max_user_namespaces=10000",
    ),
    (
        "user/max_mnt_namespaces", "0",
        "mount namespaces are switched off here: run sudo sysctl -w user.max_mnt_namespaces=10000",
    ),
)  # fmt: skip
# What refuses these also to who may administer the machine.
_TO_ALL = ("user/max_mnt_namespaces",)
# The capability CAP_SYS_ADMIN, by its number: capabilities(7).
_ADMINISTER = 21
# What tells a container to those in it.
_MARKS = (Path("/.dockerenv"), Path("/run/.containerenv"))


def repair(
    settings: Path = Path("/proc/sys"), may_administer: bool | None = None, is_container: bool | None = None
) -> str:
    """What lets builds be in a sandbox: the setting of Linux that refuses it, else what containers need.

    ``settings`` is the folder of Linux's own; the rest is found out.
    """
    may_administer = _may_administer() if may_administer is None else may_administer
    is_container = any(mark.exists() for mark in _MARKS) if is_container is None else is_container
    for name, refusing, what in _SWITCHES:
        if name not in _TO_ALL and (may_administer or is_container):
            continue
        try:
            value = (settings / name).read_text(encoding="utf-8").strip()
        except OSError:
            continue
        if value == refusing:
            return what
    return f"allow namespaces: {_CONTAINER}"


def _may_administer() -> bool:
    """Whether this process may make namespaces as root does; root in a container may not."""
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8")
    except OSError:
        return os.geteuid() == 0
    found = re.search(r"^CapEff:\s*([0-9a-f]+)", status, re.MULTILINE)
    return found is not None and bool(int(found[1], 16) >> _ADMINISTER & 1)
