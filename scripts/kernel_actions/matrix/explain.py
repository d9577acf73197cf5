"""``matrix explain VARIANT``: why a variant is planned or not, with the line that says so."""

from __future__ import annotations

import difflib
import json
from typing import TYPE_CHECKING, Any

from kernel_actions import matrix, planning, settings, variants
from kernel_actions.errors import EXIT_DONE, Place, WrongInput, printable
from kernel_actions.named_tuple import NamedTuple
from kernel_actions.planning import KernelPlan
from kernel_actions.variants import Judgement, Variant

if TYPE_CHECKING:
    from kernel_actions.cli import Options


class Fact(NamedTuple):
    """A step of the explanation, and where it is said."""

    about: str
    text: str
    where: str = ""


class Explanation(NamedTuple):
    """Whether a variant is in the plan on a system, in one sentence and step by step."""

    name: str
    system: str
    is_in: bool
    verdict: str
    facts: tuple[Fact, ...]

    def as_json(self) -> dict[str, Any]:
        """The explanation for programs."""
        return {
            "variant": self.name,
            "system": self.system,
            "in": self.is_in,
            "verdict": self.verdict,
            "facts": [{"about": one.about, "text": one.text, "where": one.where} for one in self.facts],
        }


def run(options: Options, name: str) -> int:
    """Explain the variant ``name``, or that of an arch name, on each of its systems."""
    kernel_dir = options.kernel_dir
    own = settings.load(kernel_dir)
    plan = planning.plan(kernel_dir, matrix.source(options))
    explanations = explain(plan, own, matrix.selection(options, own), name)
    if options.format == "json":
        print(json.dumps([one.as_json() for one in explanations], indent=2))
    else:
        print("\n\n".join(_shown(one) for one in explanations))
    return EXIT_DONE


def explain(
    plan: KernelPlan, own: settings.Settings, selection: matrix.Selection, name: str
) -> list[Explanation]:
    """Why the variants called ``name`` (by either name) are in or out, one for each system.

    Raises ``WrongInput``, with the nearest names, when the builder knows no such variant.
    """
    judgements = variants.judge(plan.manifest, plan.builder, plan.override)
    wanted = [one for one in judgements if name in (one.name, one.arch_name)]
    if not wanted:
        known = list(dict.fromkeys(other for one in judgements for other in (one.name, one.arch_name)))
        close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
        raise WrongInput(
            f"{name[:100]!r} is no variant of {plan.manifest.name}: builder revision "
            f"{plan.builder.commit[:12]} has no build set for it",
            repair=f"did you mean {' or '.join(close)}?" if close else "`matrix --scope all` lists them",
        )
    found = []
    for system in dict.fromkeys(one.system for one in wanted):
        sets = [one for one in wanted if one.system == system]
        variant = next(
            (one for one in plan.variants.variants if one.system == system and one.name == sets[0].name), None
        )
        found.append(_explain(plan, own, selection, sets, variant, name))
    return found


def _explain(
    plan: KernelPlan,
    own: settings.Settings,
    selection: matrix.Selection,
    sets: list[Judgement],
    variant: Variant | None,
    name: str,
) -> Explanation:
    applicable = [one for one in sets if one.reason is None]
    facts = [_build_set_fact(plan, one) for one in sets]
    if variant is None or not applicable:
        verdict = "; ".join(dict.fromkeys(_located(one.reason or "", one.where) for one in sets))
        return Explanation(name, sets[0].system, False, verdict, tuple(facts))
    facts += _manifest_facts(plan, applicable[0], variant)
    facts.append(
        Fact("bundle", "the builder publishes it" if variant.bundled else "the builder does not publish it")
    )
    facts.append(_ci_fact(variant))
    reason = selection.reason_against(variant)
    if reason is not None:
        return Explanation(variant.name, variant.system, False, _located(*reason), tuple(facts))
    once = next(
        one
        for one in variants.build_once(one for one in plan.variants.variants if one.name == variant.name)
        if one.name == variant.name
    )
    if once.system != variant.system:
        facts.append(Fact("job", f"its systems share it: it is built on {once.system}"))
    facts.append(Fact("built on", str(own.build_runner(once.system, once.backend))))
    facts.append(Fact("tested on", str(own.test_runner(once.system, once.backend))))
    return Explanation(variant.name, variant.system, True, f"planned, scope {selection.scope}", tuple(facts))


def _build_set_fact(plan: KernelPlan, judgement: Judgement) -> Fact:
    one = judgement.build_set
    compute = f"{one.backend} {one.compute_version}".strip()
    tvm_ffi = f", tvm-ffi {one.tvm_ffi}" if one.tvm_ffi else ""
    left_out = f": {judgement.reason}" if judgement.reason else ""
    source = f"{plan.builder.source} of {plan.builder.repository} {plan.builder.commit[:12]}"
    if plan.override is not None:
        source += f", and {plan.override.where}"
    return Fact("build set", f"Torch {one.torch}, {compute}{tvm_ffi}, {judgement.system}{left_out}", source)


def _manifest_facts(plan: KernelPlan, judgement: Judgement, variant: Variant) -> list[Fact]:
    kernel, rules, backend = plan.manifest, plan.builder.rules, judgement.build_set.backend
    facts = []
    if judgement.is_backend_wanted and rules.requires_backends:
        facts.append(
            Fact("backend", f"{backend} is in general.backends", str(kernel.place("general.backends")))
        )
    component = next((one for one in kernel.components if one.backend == backend), None)
    if kernel.binding.framework == "tvm-ffi" and rules.tvm_ffi:
        facts.append(Fact("name", "by tvm-ffi, backend and system", str(kernel.place("tvm-ffi"))))
    elif component is None:
        facts.append(
            Fact("name", f"nothing is compiled for {backend}: one variant serves every Torch and system")
        )
    elif judgement.name.startswith("torch-stable-abi"):
        facts.append(Fact("name", "by the stable ABI of Torch", str(kernel.place("torch.stable-abi"))))
    else:
        key = f"kernel.{component.name}"
        facts.append(Fact("name", f"[{key}] is compiled for {backend}", str(kernel.place(key))))
    if variant.arch_name != variant.name:
        facts.append(Fact("arch name", f"{variant.arch_name}, as in ciTests and devShells"))
    return facts


def _ci_fact(variant: Variant) -> Fact:
    if variant.chosen_for_ci:
        text = (
            f"the one of {variant.backend} on {variant.system}: bundled, newest Torch, oldest compute version"
        )
    else:
        text = f"not the one of {variant.backend} on {variant.system}"
    return Fact("scope pr", text)


def _located(reason: str, where: Place | None = None) -> str:
    return f"{reason} ({where})" if where else reason


def _shown(explanation: Explanation) -> str:
    answer = "in" if explanation.is_in else "out"
    lines = [printable(f"{explanation.name} on {explanation.system}: {answer}: {explanation.verdict}")]
    width = max((len(one.about) for one in explanation.facts), default=0)
    for one in explanation.facts:
        where = f"  ({one.where})" if one.where else ""
        lines.append(f"  {one.about.ljust(width)}  {printable(one.text + where)}")
    return "\n".join(lines)
