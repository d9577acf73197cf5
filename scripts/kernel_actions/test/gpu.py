"""The GPUs of this machine: what there is before the tests, and whether it is as it was after them."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from kernel_actions import console, process
from kernel_actions.built import BuiltVariant
from kernel_actions.errors import WrongSurroundings, printable
from kernel_actions.test import fatbin
from kernel_actions.test.model import Gpu, Holder, Reason

_PROBE = Path(__file__).with_name("gpu_probe.py")
_LIBRARY = "libcuda.so.1"
# Where the driver's libraries are besides where the dynamic linker looks: distributions, the Windows
# Subsystem for Linux, containers, and what Nix programs look into.
_PLACES = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib/wsl/lib",
    "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib",
    "/run/opengl-driver/lib",
)
# What Nix programs look into for the libraries of a driver.
OPENGL_DRIVER = Path("/run/opengl-driver/lib")
_DRIVER_LIBRARIES = re.compile(r"lib(?:cuda|nvidia-[a-z0-9-]+|nvcuvid|nvoptix)\.so(?:\.[0-9.]+)?")
_LINK_LOCK = ".kernel-actions.lock"
# In seconds: what the driver may take to answer, and how long memory may take to be free again.
_PATIENCE = 60.0
_SETTLING = 10.0
# What the driver itself may hold more after than before, in bytes.
_SLACK = 512 << 20
# Of a GPU, so much has to be free before tests are started on it, in bytes.
_LEAST_FREE = 1 << 30
# What Torch says of the GPUs of other makers.
_TORCH_PROBE = """
import json, torch
kind = "xpu" if torch.xpu.is_available() else "cuda" if torch.cuda.is_available() else None
device = getattr(torch, kind) if kind else None
count = device.device_count() if device else 0
print("gpus:" + json.dumps([device.get_device_name(at) for at in range(count)]))
"""
_CUDA_OF_NAME = re.compile(r"-cu(\d{2,})(\d)(?:-|$)")


@dataclass(frozen=True)
class Before:
    """The GPUs before the tests: ``reason`` is why the variant cannot be tested on them, and ``notes``
    what else people should know."""

    gpus: tuple[Gpu, ...]
    reason: Reason | None = None
    notes: tuple[str, ...] = ()


def look(variant: BuiltVariant, python: Path, environment: Mapping[str, str]) -> Before:
    """Look at the GPUs that ``variant`` is for. ``python`` is that of the tests, with Torch."""
    if variant.backend != "cuda":
        return _look_by_torch(variant, python, environment)
    said = _ask_driver(environment)
    if said.get("library") is None:
        return _none(variant, "this machine has no driver of NVIDIA (no libcuda.so.1)")
    listed = said.get("gpus")
    found = [_gpu(one, said) for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    if not found:
        hidden = environment.get("CUDA_VISIBLE_DEVICES")
        why = (
            f"CUDA_VISIBLE_DEVICES={hidden!r} hides them"
            if hidden is not None
            else f"the driver gives error {said.get('error', 0)}"
        )
        return _none(variant, f"the driver offers none ({why})")
    gpus = _with_memory(tuple(found), said.get("in_use"))
    return _checked(variant, gpus)


def _checked(variant: BuiltVariant, gpus: tuple[Gpu, ...]) -> Before:
    """Whether a variant for CUDA can be tested on ``gpus``."""
    notes: list[str] = []
    first = gpus[0]
    wanted = _cuda_of(variant.name)
    offered = _version(first.cuda or "")
    if wanted and offered and wanted[0] > offered[0]:
        text = f"{variant.name} needs a driver for CUDA {wanted[0]}, and this one ({first.driver}) is for "
        return Before(gpus, Reason("old-driver", text + str(first.cuda), "install a newer driver"))
    if wanted and offered and wanted > offered:
        notes.append(
            f"the driver is for CUDA {first.cuda} and the variant for {wanted[0]}.{wanted[1]}: machine code "
            f"runs, and what the driver would have to compile (PTX) does not"
        )
    codes = fatbin.codes(variant.path)
    for gpu in gpus:
        capability = int((gpu.capability or "0").replace(".", ""))
        if codes and capability and not any(code.runs_on(capability) for code in codes):
            listed = ", ".join(map(str, codes))
            return Before(
                gpus,
                Reason(
                    "no-code-for-gpu",
                    f"{variant.name} holds no code for {gpu.name}, which has compute capability "
                    f"{gpu.capability}: it holds {listed}",
                    "add the capability to cuda-capabilities of build.toml, or test on another GPU",
                ),
            )
        if gpu.holders:
            names = ", ".join(_described(one) for one in gpu.holders)
            notes.append(f"{gpu.name} is used by {names}")
        if gpu.free_before is not None and gpu.free_before < _LEAST_FREE:
            names = ", ".join(_described(one) for one in gpu.holders) or "no process that can be seen"
            text = f"{gpu.name} has {console.size(gpu.free_before)} of free memory; it is held by {names}"
            return Before(gpus, Reason("gpu-held", text, "end what holds it, or test on another GPU"))
    return Before(gpus, None, tuple(notes))


def after(gpus: tuple[Gpu, ...], environment: Mapping[str, str]) -> tuple[tuple[Gpu, ...], tuple[str, ...]]:
    """The GPUs as they are after the tests, and what is not as it was before."""
    if not any(gpu.free_before is not None for gpu in gpus):
        return gpus, ()
    deadline = time.monotonic() + _SETTLING
    while True:
        in_use = _ask_driver(environment, "--in-use").get("in_use")
        now = {one.uuid: one for one in _with_memory(gpus, in_use)}
        seen = tuple(replace(gpu, free_after=now[gpu.uuid].free_before) for gpu in gpus)
        held = [gpu for gpu in seen if _is_held(gpu)]
        if not held or time.monotonic() > deadline:
            break
        time.sleep(0.5)
    notes = []
    for gpu in held:
        before = {holder.pid for holder in gpu.holders}
        new = [holder for holder in now[gpu.uuid].holders if holder.pid not in before]
        names = ", ".join(_described(one) for one in new) or "no process that can be seen"
        lost = (gpu.free_before or 0) - (gpu.free_after or 0)
        notes.append(f"{gpu.name} has {console.size(lost)} less of free memory than before; new: {names}")
    return seen, tuple(notes)


def _is_held(gpu: Gpu) -> bool:
    if gpu.free_before is None or gpu.free_after is None:
        return False
    return gpu.free_after + _SLACK < gpu.free_before


def _none(variant: BuiltVariant, why: str) -> Before:
    return Before(
        (),
        Reason(
            "no-gpu",
            f"{variant.name} needs a GPU and there is no GPU: {why}",
            "run on a machine with one, or allow it with --require-gpu never",
        ),
    )


def _look_by_torch(variant: BuiltVariant, python: Path, environment: Mapping[str, str]) -> Before:
    finished = process.run([python, "-I", "-c", _TORCH_PROBE], environment=environment, time_limit=_PATIENCE)
    found = re.search(r"^gpus:(\[.*\])$", finished.output, re.MULTILINE)
    names = json.loads(found.group(1)) if found else []
    if not names:
        return _none(variant, f"Torch sees none for {variant.backend}")
    return Before(tuple(Gpu(str(name)) for name in names))


def driver_library() -> Path | None:
    """The driver's library, where the dynamic linker or a known folder has it."""
    ldconfig = shutil.which("ldconfig") or "/sbin/ldconfig"
    if os.path.exists(ldconfig):
        listed = process.run([ldconfig, "-p"], time_limit=_PATIENCE).output
        for line in listed.splitlines():
            name, _, target = line.strip().partition(" => ")
            # One for programs of 64 bits: `(libc6)` alone is for others.
            if name.startswith(f"{_LIBRARY} ") and "64" in name and os.path.exists(target):
                return Path(target)
    for place in _PLACES:
        if (path := Path(place) / _LIBRARY).exists():
            return path
    return None


def _ask_driver(environment: Mapping[str, str], *words: str) -> dict[str, object]:
    finished = process.run(
        [sys.executable, "-I", "-S", _PROBE, *words, *_PLACES], environment=environment, time_limit=_PATIENCE
    )
    try:
        said = json.loads(finished.output.splitlines()[-1])
    except (ValueError, IndexError):
        said = None
    if not isinstance(said, dict):
        raise WrongSurroundings(
            f"the driver of NVIDIA cannot be asked: {printable(finished.output)[-200:]}",
            repair="see what nvidia-smi says",
        )
    return said


def _gpu(one: Mapping[str, object], said: Mapping[str, object]) -> Gpu:
    memory = one.get("memory")
    return Gpu(
        name=str(one.get("name")),
        uuid=str(one["uuid"]) if one.get("uuid") else None,
        cuda=str(said["cuda"]) if said.get("cuda") else None,
        capability=str(one.get("capability")),
        memory=memory if isinstance(memory, int) else None,
    )


def _with_memory(gpus: tuple[Gpu, ...], in_use: object) -> tuple[Gpu, ...]:
    """``gpus`` with what is in use of them, as far as the driver tells it: by their UUIDs."""
    known = in_use if isinstance(in_use, dict) else {}
    found = []
    for gpu in gpus:
        facts = known.get(gpu.uuid)
        if facts is None and len(gpus) == len(known) == 1:
            facts = next(iter(known.values()))
        if isinstance(facts, dict):
            holders = [
                Holder(one["pid"], _process_name(one["pid"], one["name"]), one["memory"])
                for one in facts["processes"]
            ]
            gpu = replace(gpu, driver=facts["driver"], free_before=facts["free"], holders=tuple(holders))
        found.append(gpu)
    return tuple(found)


def _process_name(pid: int, said: str) -> str:
    """A name that says more than ``python``: the command line, where it can be seen."""
    with suppress(OSError):
        data = Path(f"/proc/{pid}/cmdline").read_bytes()
        if words := [word for word in data.decode(errors="replace").split("\0") if word]:
            return " ".join([Path(words[0]).name, *words[1:4]])[:120]
    return said[:120] or "a process of another container"


def _described(holder: Holder) -> str:
    memory = f", {console.size(holder.memory)}" if holder.memory is not None else ""
    return f"{holder.name} (process {holder.pid}{memory})"


def _cuda_of(name: str) -> tuple[int, int] | None:
    """The CUDA version that a variant is for, by its name: ``cu130`` is 13.0."""
    found = _CUDA_OF_NAME.search(name)
    return (int(found[1]), int(found[2])) if found else None


def _version(text: str) -> tuple[int, int] | None:
    found = re.match(r"(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else None


def _shared_lock(target: Path) -> IO[str]:
    """The lock file in ``target``, which runs that use the links hold together."""
    while True:
        target.mkdir(parents=True, exist_ok=True)
        lock = (target / _LINK_LOCK).open("a+")
        fcntl.flock(lock, fcntl.LOCK_SH)
        # Another run may have removed it, with the links, between the two.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock.fileno()), os.stat(target / _LINK_LOCK)):
                return lock
        lock.close()


@contextmanager
def driver_links(target: Path = OPENGL_DRIVER, library: Path | None = None) -> Iterator[tuple[str, ...]]:
    """Have Nix programs find the driver: link its libraries into ``target``, and unlink them after.

    Gives what people should know about it. Of runs that are at work at once the last one unlinks.
    Does nothing where the system has put them there, or where there is no driver.
    """
    found = library or driver_library()
    if found is None or ((target / _LIBRARY).exists() and not (target / _LINK_LOCK).exists()):
        yield ()
        return
    try:
        lock = _shared_lock(target)
    except OSError as error:
        yield (f"the driver's libraries cannot be linked into {target}: {error.strerror}",)
        return
    with lock:
        for path in sorted(found.parent.iterdir()):
            if _DRIVER_LIBRARIES.fullmatch(path.name):
                with suppress(FileExistsError):
                    (target / path.name).symlink_to(path.resolve())
        try:
            yield ()
        finally:
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                for path in sorted(target.iterdir()):
                    if path.is_symlink() and _DRIVER_LIBRARIES.fullmatch(path.name):
                        path.unlink(missing_ok=True)
                (target / _LINK_LOCK).unlink(missing_ok=True)
                for folder in (target, target.parent):
                    with suppress(OSError):
                        folder.rmdir()
