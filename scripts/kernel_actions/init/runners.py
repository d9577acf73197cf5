"""Which runners test on a GPU: what was given, what kernel-actions.toml says already, and what was asked."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kernel_actions import settings
from kernel_actions.errors import KernelActionsError, WrongInput
from kernel_actions.init.detection import Repository
from kernel_actions.schema import suggestion
from kernel_actions.settings import Runner, Settings

# The system on which GPU machines are the rule. Of others nobody is taken to have one unless they say so.
COMMON_SYSTEM = "x86_64-linux"
UNTESTED = "none of our runners has such a GPU"
_GROUP = "group:"
# What needs no escape in a string of TOML.
PLAIN = re.compile(r"[A-Za-z0-9_.:@+ /-]+")
# How compute versions begin in the names of variants.
_COMPUTE = {"cuda": "cu", "rocm": "rocm", "xpu": "xpu", "tpu": "tpu"}
# Asks which runner tests a backend on a system; the answer is a line.
Ask = Callable[[str, str], str]


@dataclass(frozen=True)
class Choice:
    """Where a backend is tested on a system: on ``runner``, or nowhere, for a ``reason``. ``is_named`` is not
    so of one that nobody has named."""

    system: str
    backend: str
    names: tuple[str, ...]
    runner: Runner | None
    reason: str = ""
    is_named: bool = True

    @property
    def key(self) -> str:
        """As `[runners.test]` names it."""
        return f"{self.system}.{self.backend}"

    @property
    def globs(self) -> tuple[str, ...]:
        """Globs of the names of all its variants, for `[test.allow-untested]`."""
        glob = f"*-{_COMPUTE[self.backend]}*-{self.system}"
        middle, end = f"-{_COMPUTE[self.backend]}", f"-{self.system}"
        others = (name for name in self.names if not (middle in name and name.endswith(end)))
        return (glob, *others)


def choose(
    repository: Repository, gpu_runner: Sequence[str], test_runners: Sequence[str], ask: Ask | None
) -> tuple[Choice, ...]:
    """The choice for each backend and system whose variants need a GPU.

    ``gpu_runner`` is for all of the common system, ``test_runners`` have the form ``SYSTEM.BACKEND=RUNNER``;
    what kernel-actions.toml says stays. For what is left, ``ask`` is asked, if there is somebody.
    Raises ``WrongInput`` for a runner that cannot be one, and for one of variants that there are none of.
    """
    targets = _targets(repository)
    keys = {f"{system}.{backend}": (system, backend) for system, backend in targets}
    given: dict[str, str] = {}
    for text in test_runners:
        key, _, value = text.partition("=")
        if key not in keys or not value:
            raise WrongInput(
                f"--test-runner is {text[:80]!r}, which is not SYSTEM.BACKEND=RUNNER of a GPU backend",
                repair=suggestion(key, tuple(keys)) if keys else "no variant needs one",
            )
        given[key] = value
    common = parse(" ".join(gpu_runner), "--gpu-runner") if gpu_runner else None
    there = _there(repository)
    choices = []
    for (system, backend), names in targets.items():
        key = f"{system}.{backend}"
        made = Choice(system, backend, names, None)
        if key in given:
            choices.append(_answered(made, given[key], f"--test-runner {key}"))
        elif common is not None and system == COMMON_SYSTEM:
            choices.append(_replaced(made, common))
        elif (kept := _kept(made, there)) is not None:
            choices.append(kept)
        elif system == COMMON_SYSTEM:
            choices.append(_replaced(made, Settings().test_runner(system, backend)))
        else:
            answer = ask(system, backend) if ask is not None else ""
            choices.append(_answered(made, answer, "the answer"))
    return tuple(choices)


def parse(text: str, what: str) -> Runner:
    """A runner as people write it: labels, and ``group:NAME``, with spaces or commas between. Raises
    ``WrongInput``."""
    words = text.replace(",", " ").split()
    groups = [word.removeprefix(_GROUP) for word in words if word.startswith(_GROUP)]
    labels = tuple(word for word in words if not word.startswith(_GROUP))
    for word in words:
        if not PLAIN.fullmatch(word):
            raise WrongInput(
                f"{what}: {word[:80]!r} is not a label of a runner",
                repair="as in 'self-hosted linux gpu', or 'group:gpus'",
            )
    if len(groups) > 1 or (groups and not re.fullmatch(settings.GROUP.pattern, groups[0])):
        raise WrongInput(
            f"{what}: {text[:80]!r} has no name of a single runner group", repair="as in group:gpus"
        )
    return Runner(labels, groups[0] if groups else "")


def toml(choices: Sequence[Choice]) -> str:
    """The tables of kernel-actions.toml that say so."""
    lines = ["[runners.test]"]
    for one in choices:
        runner = one.runner or Settings().build_runner(one.system, one.backend)
        lines.append(f"{json.dumps(one.key)} = {_toml(runner)}")
    untested = [one for one in choices if one.runner is None]
    if untested:
        lines += [
            "",
            "# Name a runner of these above, and take them out here, to have them tested.",
            "[test.allow-untested]",
        ]
        for one in untested:
            reason = json.dumps(one.reason, ensure_ascii=False)
            lines += [f"{json.dumps(glob)} = {reason}" for glob in one.globs]
    return "\n".join(lines) + "\n"


def _toml(runner: Runner) -> str:
    labels = json.dumps(list(runner.labels))
    if not runner.group:
        return labels
    rest = f", labels = {labels}" if runner.labels else ""
    return f"{{ group = {json.dumps(runner.group)}{rest} }}"


def _targets(repository: Repository) -> dict[tuple[str, str], tuple[str, ...]]:
    """The names of the variants that need a GPU, by system and backend."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    for kernel in repository.kernels:
        for target, names in kernel.gpu.items():
            found.setdefault(target, {}).update(dict.fromkeys(names))
    order = list(settings.GPU_BACKENDS)
    ordered = sorted(found, key=lambda one: (one[0] != COMMON_SYSTEM, one[0], order.index(one[1])))
    return {target: tuple(found[target]) for target in ordered}


def _there(repository: Repository) -> Settings:
    """What kernel-actions.toml says now; what is wrong in it is said by every command that needs it."""
    with contextlib.suppress(KernelActionsError):
        return settings.load(repository.root / repository.kernels[0].folder)
    return Settings()


def _kept(choice: Choice, own: Settings) -> Choice | None:
    """What kernel-actions.toml says, if it says something."""
    untested: Mapping[str, str] = own.allow_untested
    if choice.globs[0] in untested:
        return Choice(choice.system, choice.backend, choice.names, None, untested[choice.globs[0]])
    runner = own.test_runners.get(choice.key) or own.test_runners.get(choice.system)
    return _replaced(choice, runner) if runner is not None else None


def _answered(choice: Choice, answer: str, what: str) -> Choice:
    """``none``, with a reason behind a colon or without; else a runner. Nothing at all names none."""
    word, _, reason = answer.strip().partition(":")
    if word.strip().lower() in ("", "none"):
        if not all(one.isprintable() for one in reason):
            raise WrongInput(f"{what}: the reason has a character that cannot be printed")
        is_named = bool(word.strip())
        why = reason.strip()[:400] or UNTESTED
        return Choice(choice.system, choice.backend, choice.names, None, why, is_named)
    return _replaced(choice, parse(answer, what))


def _replaced(choice: Choice, runner: Runner) -> Choice:
    return Choice(choice.system, choice.backend, choice.names, runner)
