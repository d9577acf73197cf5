"""What people see of a release: the plan first, then what is missing or what became of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from kernel_actions import console, coverage, github, markdown, report
from kernel_actions.errors import KernelActionsError, printable
from kernel_actions.release import Release, Released
from kernel_actions.release.gate import Lack
from kernel_actions.release.plan import ReleasePlan
from kernel_actions.report import Report, of_release
from kernel_actions.stopwatch import Stopwatch

_VARIANTS = ("variant", "what", "files", "size", "to send")
_COMMITS = ("commit", "raises", "what it says")
_MISSING = ("variant", "what is missing", "what to do")
# Of more commits than this, only the changelog tells.
_MOST_SHOWN = 10


class Shown:
    """Shows a release in one format, from its plan to its end, however that comes."""

    def __init__(self, form: str, prepared: Release) -> None:
        self._form = form
        self._prepared = prepared
        self._plan = prepared.plan
        self._missing: tuple[Lack, ...] = ()
        self.released: Released | None = None
        self.watch = Stopwatch()

    def __enter__(self) -> Shown:
        if self._form != "json":
            _print_plan(self._plan)
            if self._form == "github":
                github.set_outputs({"version": str(self._plan.version), "tag": self._plan.git_tag})
        return self

    def missing(self, missing: tuple[Lack, ...]) -> None:
        """Show what the gate misses."""
        self._missing = missing
        if missing and self._form != "json":
            rows = [(one.variant, one.what, one.repair) for one in missing]
            with github.untrusted_output():
                print(console.table(_MISSING, rows))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        page = self._report(error)
        if self._form == "json":
            with github.untrusted_output():
                print(json.dumps(self._as_json(page), indent=2))
            return
        if self._form == "github" and page:
            # Also of a dry run, and of one that failed: that is when it is read.
            github.set_outputs({"report": page})
        for line in _outcome(self.released) if self.released is not None else []:
            print(printable(line))
        if self.released is None and kind is None:
            print("Dry run, nothing was changed")
        if page:
            print(f"Report: {printable(page)}", flush=True)
        if self.released is not None and self._form == "github":
            github.set_outputs({"staged": self.released.staged, "commit": self.released.commit})

    def _report(self, error: BaseException | None) -> str:
        """Write the page, and the summary of a job; the page's path, empty where there is none."""
        problem = "" if error is None else str(error) or type(error).__name__
        try:
            made = of_release.made(self._prepared, self.released, self._missing, self.watch.steps, problem)
            if self._form == "github":
                github.add_summary(_summary(self._plan, self.released, self._missing, made))
            return str(report.write(made, self._prepared.build_dir))
        except (KernelActionsError, OSError) as unreported:
            # What was released is released, whoever hears of it.
            console.say(printable(f"kernel-actions: warning: there is no report: {unreported}"))
            return ""

    def _as_json(self, page: str) -> dict[str, Any]:
        released = self.released
        return {
            **self._plan.as_json(),
            "missing": [
                {"variant": one.variant or None, "what": one.what, "repair": one.repair}
                for one in self._missing
            ],
            "staged": released.staged if released else "",
            "released_commit": released.commit if released else "",
            "sent": released.size if released else 0,
            "done": list(released.tagged.done) if released and released.tagged else [],
            "report": page,
        }


def _title(plan: ReleasePlan) -> str:
    if plan.decision.is_again:
        state = "" if plan.promoted else ", and it is not on the Hub yet"
        return f"{plan.kernel} {plan.version}: {plan.decision.reason}{state}"
    before = f"{plan.decision.current} → " if plan.decision.current else ""
    return f"{plan.kernel} {before}{plan.version}: {plan.decision.reason}"


def _facts(plan: ReleasePlan) -> list[str]:
    tree = ", with changes that are not committed" if plan.dirty else ""
    way = f"{plan.staging}, then {plan.branch}, tag {plan.hub_tag}"
    if plan.is_pre:
        way = f"{plan.staging}, then the tag {plan.hub_tag}; {plan.branch} stays as it is"
    facts = [
        f"git {plan.commit or '(none)'}{tree}, tag {plan.git_tag}",
        f"{plan.repo_id} on {plan.address}: {way}",
    ]
    if not plan.is_loaded_by_version and not plan.is_pre:
        # As general.hub.branch of build.toml asks for it.
        facts.append(
            f'get_kernel("{plan.repo_id}", revision="{plan.branch}") loads it; version={plan.version.major} '
            f"loads the branch v{plan.version.major}"
        )
    return facts


def _variant_rows(plan: ReleasePlan) -> list[tuple[str, ...]]:
    return [
        (one.name, one.action, "", "", "")
        if one.action == "missing"
        else (
            one.name,
            one.action,
            f"{one.changed} of {one.files}" if one.action in ("add", "replace") else str(one.files),
            console.size(one.size),
            console.size(one.sent) if one.sent else "",
        )
        for one in plan.variants
    ]


def _commit_rows(plan: ReleasePlan) -> list[tuple[str, str, str]]:
    return [(one.id[:7], one.level, one.first_line[:100]) for one in plan.decision.deciding[:_MOST_SHOWN]]


def _print_plan(plan: ReleasePlan) -> None:
    # Commits say what their authors liked: the runner must not obey it.
    with github.untrusted_output():
        print("\n".join(printable(line) for line in (_title(plan), *_facts(plan))))
        if plan.decision.deciding:
            print(f"\n{console.table(_COMMITS, _commit_rows(plan))}")
        if plan.variants:
            print(f"\n{console.table(_VARIANTS, _variant_rows(plan))}")
        if plan.commits:
            print(f"\n{plan.changelog}")
        print(flush=True)


def _summary(plan: ReleasePlan, released: Released | None, missing: Sequence[Lack], made: Report) -> str:
    rows = [(one.variant, one.what, one.repair) for one in missing]
    problems = [one.message for one in made.findings if one.severity == "error"] if not missing else []
    what = _outcome(released) if released is not None else []
    return markdown.join(
        markdown.heading(made.verdict, _title(plan)),
        markdown.table(_MISSING, rows) if rows else "",
        markdown.bullets(problems),
        markdown.lines([*what, *_facts(plan)]),
        coverage.as_markdown(coverage.grid(made.entries)),
        markdown.timeline(made.steps, "Timeline: each job from its own start"),
        markdown.details("Variants", markdown.table(_VARIANTS, _variant_rows(plan))) if plan.variants else "",
        markdown.details("Commits that decide the version", markdown.table(_COMMITS, _commit_rows(plan)))
        if plan.decision.deciding
        else "",
        markdown.details("Changelog", plan.changelog) if plan.commits else "",
    )


def _outcome(released: Released) -> list[str]:
    plan = released.plan
    if not released.commit:
        return [f"Staged {plan.version} as {released.staged} ({console.size(released.size)} sent)"]
    if released.is_unchanged:
        return [f"{plan.version} is released already, as {released.commit}: nothing to do"]
    lines = [f"Released {plan.version} as {released.commit} ({console.size(released.size)} sent)"]
    if released.verified is not None:
        # None where no variant is for this machine, and where another job has loaded it.
        loaded = released.verified.loaded or "none here"
        count = console.counted(len(released.verified.variants), "variant")
        lines.append(f"Verified {count}; loaded {loaded}")
    if released.tagged is not None and released.tagged.done:
        lines.append(f"Done: {', '.join(released.tagged.done)}")
    return lines
