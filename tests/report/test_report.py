"""The report tells what is in the files, whoever wrote them, and its page needs and loads nothing else."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from kernel_actions import cli, coverage, markdown, report
from kernel_actions.errors import WrongInput
from kernel_actions.report import page, reading, summary
from kernel_actions.report.model import Finding, Report, Tests, VariantReport

ROOT = Path(__file__).parents[2]
Write = Callable[[str, Any], Path]
CPU, CUDA = "torch213-cxx11-cpu-x86_64-linux", "torch213-cxx11-cu130-x86_64-linux"
HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "a | b\n| c | d |",
    "`x` **y** [z](javascript:alert(1)) ![i](http://example.org/i.png)",
    "\x1b[31mred\x1b[0m\x07",
    "::error::x\r\n::set-output name=a::b",
    "##[error]x",
    "</details></style></body>",
    "$\\frac{a}{b}$ @octocat #1",
    "```mermaid\ngantt\n```",
    "click a call b()",
    "\u202etxt.exe",
]


def build_report(name: str, **changes: Any) -> dict[str, Any]:
    return {
        "variant": name, "builder": "nix", "sandbox": True, "planned": True, "backend": "cpu", "id": "x",
        "commit": "a" * 40, "dirty": False, "torch": "2.13.0", "seconds": 61.0, "bytes": 1_000_000,
        "files": 6,
        **changes,
    }  # fmt: skip


def report_of_tests(name: str, **changes: Any) -> dict[str, Any]:
    return {
        "schema": 1, "verdict": "passed", "variant": name, "digest": "d", "passed": 9, "failed": 0,
        "skipped": 1,
        "not_run": 0, "seconds": 12.0, "gpu": None, "failures": [], "reason": None, "allowed": None,
        **changes,
    }  # fmt: skip


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, Any], Path]:
    """Writes a file as JSON (text as it is) into the folder of reports."""

    def make(name: str, value: Any) -> Path:
        path = tmp_path / "reports" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(value if isinstance(value, str) else json.dumps(value))
        return path.parent

    return make


def states(report: Report) -> dict[str, tuple[str, str]]:
    return {one.variant: (one.state, one.detail) for one in report.entries if one.state != "planned"}


def test_what_was_planned_and_not_built_is_missing(write: Write) -> None:
    folder = write(f"{CPU}.build-report.json", build_report(CPU))
    write(f"{CPU}.test-report.json", report_of_tests(CPU))
    write(f"a/{CUDA}.build-report.json", build_report(CUDA))
    write(f"a/{CUDA}.test-report.json", report_of_tests(CUDA, gpu="NVIDIA H200"))
    found = reading.read([folder], ROOT)
    assert states(found)[CPU] == ("tested", "CPU")
    assert states(found)[CUDA] == ("tested", "H200")
    assert [one.state for one in found.entries].count("missing") == 16
    assert found.verdict == "failed"
    assert "16 missing, 2 tested" in found.sentence


def test_a_plan_alone_is_planned(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    found = reading.read([tmp_path / "empty"], ROOT)
    assert found.verdict == "planned"
    assert {one.state for one in found.entries} == {"planned"}


def test_a_failure_comes_first_and_names_its_place(write: Write, tmp_path: Path) -> None:
    failure = {"test": "tests/a.py::b", "kind": "failed", "reason": "no", "path": "csrc/a.cu", "line": 4}
    folder = write(f"{CUDA}.build-report.json", build_report(CUDA))
    failed = report_of_tests(CUDA, verdict="failed", failed=1, gpu="NVIDIA H200", failures=[failure])
    write(f"{CUDA}.test-report.json", failed)
    broken = {
        "rule": "KA1", "slug": "a-b", "severity": "warning", "path": "x.py", "line": 3, "column": None,
        "message": "m", "reason": "r", "repair": "p", "link": "l", "variant": None,
    }  # fmt: skip
    write(
        "compliance.json",
        {
            "verdict": "passed", "errors": 0, "warnings": 1, "variants": [], "severities": {}, "waived": [],
            "findings": [broken],
        },
    )  # fmt: skip
    found = reading.read([folder], tmp_path)
    assert found.findings[0] == Finding(
        "error", "tests/a.py::b failed on H200", "no", "csrc/a.cu:4", "", CUDA
    )
    assert found.findings[1].severity == "warning"
    assert states(found)[CUDA] == ("failed", "H200")
    text = summary.summary(found)
    assert text.startswith("### ❌ ")
    assert text.index("csrc/a.cu:4") < text.index("| system | torch |")


def test_a_variant_that_may_go_untested_is_waived(write: Write, tmp_path: Path) -> None:
    folder = write(f"{CUDA}.build-report.json", build_report(CUDA))
    untested = report_of_tests(
        CUDA, verdict="untested", passed=0, allowed="no such GPU", reason={"text": "none ran"}
    )
    write(f"{CUDA}.test-report.json", untested)
    found = reading.read([folder], tmp_path)
    assert states(found)[CUDA] == ("waived", "untested")
    assert found.verdict == "passed"
    assert "no such GPU" in summary.summary(found)
    assert "no such GPU" in page.page(found)


def record_of_release() -> dict[str, Any]:
    def variant(release: str, gpu: str | None) -> dict[str, Any]:
        tests = {"passed": 9, "failed": 0, "skipped": 0, "gpu": gpu}
        return {"release": release, "commit": "c" * 40, "dirty": False, "builder": "nix", "tests": tests}

    return {
        "schema": 1, "kernel": "relu", "release": "1.2.0", "commit": "c" * 40, "dirty": False, "base": "",
        "builder": {}, "variants": {CPU: variant("1.1.0", None), CUDA: variant("1.2.0", "NVIDIA H200")},
        "unknown": [],
    }  # fmt: skip


def test_the_record_of_a_release_says_what_is_published(write: Write, tmp_path: Path) -> None:
    found = reading.read([write("kernel-actions.json", record_of_release())], tmp_path)
    assert (found.kernel, found.release) == ("relu", "1.2.0")
    assert states(found) == {CPU: ("kept", "1.1.0"), CUDA: ("published", "H200")}


def mutants(value: Any) -> Iterator[Any]:
    """``value`` with each of its parts replaced by what it should not be, one at a time."""
    yield from (None, [], {}, [[]], {"a": None}, "x", "", True, -1, 1.5, 10**400)
    if isinstance(value, dict):
        for key, part in value.items():
            yield {name: one for name, one in value.items() if name != key}
            yield from ({**value, key: mutant} for mutant in mutants(part))
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from ([*value[:index], mutant, *value[index + 1 :]] for mutant in mutants(part))


def test_whatever_a_file_holds_there_is_a_report(tmp_path: Path) -> None:
    failure = {"test": "a", "kind": "failed", "reason": "no", "path": "a.py", "line": 4}
    broken = {
        "rule": "KA1", "slug": "a-b", "severity": "warning", "path": "x.py", "line": 3, "message": "m",
        "repair": "p", "variant": None, "waiver": {"reason": "r", "until": "2027-01-01"},
    }  # fmt: skip
    place = {"physicalLocation": {"artifactLocation": {"uri": "a"}, "region": {"startLine": 7}}}
    result = {
        "ruleId": "K",
        "level": "error",
        "message": {"text": "m"},
        "locations": [place],
        "properties": {},
    }
    for name, value in (
        ("a.build-report.json", build_report(CPU)),
        ("a.test-report.json", report_of_tests(CPU, verdict="failed", failed=1, failures=[failure])),
        ("kernel-actions.json", record_of_release()),
        ("a.sarif", {"version": "2.1.0", "runs": [{"results": [result]}]}),
        ("c.json", {"verdict": "failed", "severities": {}, "findings": [broken], "waived": [broken]}),
    ):
        for mutant in mutants(value):
            (tmp_path / name).write_text(json.dumps(mutant))
            try:
                found = reading.read([tmp_path], tmp_path)
            except WrongInput as error:
                # It is no report at all.
                assert "no reports" in error.what
                continue
            summary.summary(found)
            seen(page.page(found))
        (tmp_path / name).unlink()


def test_sarif_is_read_too(write: Write, tmp_path: Path) -> None:
    place = {"physicalLocation": {"artifactLocation": {"uri": "a.py"}, "region": {"startLine": 7}}}
    result = {"ruleId": "KA309", "level": "error", "message": {"text": "m"}, "locations": [place]}
    waived = {**result, "suppressions": [{"kind": "external"}]}
    sarif = {
        "version": "2.1.0",
        "runs": [{"results": [result, waived, {"ruleId": "X", "message": {"text": "t"}}]}],
    }
    found = reading.read([write("compliance.sarif", sarif)], tmp_path)
    assert [one.severity for one in found.findings] == ["error", "warning", "waived"]
    assert found.findings[0].where == "a.py:7"


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "null",
        '{"variant": 1}', '{"variant": "a"}', "[" * 100_000, '{"variant": "a", "builder": []}',
        json.dumps(build_report(CPU, seconds="long")), json.dumps(build_report(CPU, bytes=-1)),
        json.dumps(build_report(CPU, seconds=float("nan"))),
    ],
)  # fmt: skip
def test_a_damaged_report_is_a_finding(write: Write, tmp_path: Path, text: str) -> None:
    found = reading.read([write(f"{CPU}.build-report.json", text)], tmp_path)
    assert [one.title for one in found.findings] == ["a damaged report"]
    assert found.verdict == "failed"


def test_a_report_that_contradicts_itself_does_not_count(write: Write, tmp_path: Path) -> None:
    found = reading.read([write("a.test-report.json", report_of_tests(CPU, failed=3))], tmp_path)
    assert found.verdict == "failed"
    assert not found.variants


def test_other_files_are_left_alone(write: Write) -> None:
    folder = write("package.json", {"name": "x", "version": "1"})
    write("broken.json", "{")
    assert reading.read([folder], ROOT).read == ()


def test_nothing_to_tell_of_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(WrongInput, match="no reports"):
        reading.read([tmp_path], tmp_path)
    with pytest.raises(WrongInput) as raised:
        reading.read([], tmp_path)
    assert raised.value.what == f"{tmp_path} is no kernel"
    with pytest.raises(WrongInput, match="no such folder"):
        reading.read([tmp_path / "none"], tmp_path)


def test_what_keeps_a_plan_from_being_read_is_told(write: Write, tmp_path: Path) -> None:
    kernel = tmp_path / "kernel"
    kernel.mkdir()
    shutil.copy(ROOT / "build.toml", kernel)
    with pytest.raises(WrongInput) as raised:
        reading.read([], kernel)
    assert "flake.lock" in str(raised.value)
    # What there is to tell of is told all the same.
    found = reading.read([write(f"{CPU}.build-report.json", build_report(CPU))], kernel)
    assert [(one.title, one.message) for one in found.findings] == [("no plan", str(raised.value))]
    assert found.verdict == "failed"


# The page.


class Seen(HTMLParser):
    """The tags of a page with their attributes, the text, and whether every tag is closed in its turn."""

    VOID = frozenset({"meta", "rect", "img", "link", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def seen(text: str) -> Seen:
    parser = Seen()
    parser.feed(text)
    assert parser.open == []
    return parser


def hostile() -> Report:
    variants = tuple(
        VariantReport(
            coverage.of_name(text, "planned"), False, None,
            (Tests(text, "failed", 0, 1, 0, 1.0, text, ((text, text, text),)),), text, text,
        )
        for text in HOSTILE
    )  # fmt: skip
    findings = tuple(Finding("error", text, text, text, text, text) for text in HOSTILE)
    steps = tuple(markdown.Step(text, text, float(number), 2.0) for number, text in enumerate(HOSTILE))
    facts = tuple((text, text) for text in HOSTILE)
    return Report(HOSTILE[0], HOSTILE[1], facts, variants, findings, steps)


def test_no_text_becomes_markup() -> None:
    calm = page.page(Report("k", "1.0.0"))
    made = page.page(hostile())
    known = {tag for tag, _ in seen(calm).tags} | {
        "section", "details", "summary", "dt", "dd", "table", "caption", "thead", "tbody", "tr", "th", "td",
        "div",
        "svg", "rect", "h2", "dl", "ul", "li",
    }  # fmt: skip
    found = seen(made)
    assert {tag for tag, _ in found.tags} <= known
    for tag, attributes in found.tags:
        assert not any(name.startswith("on") for name in attributes), tag
        assert (attributes.get("href") or "#").startswith("#")
        assert "src" not in attributes and "style" not in attributes
    assert "\x1b" not in made and "\u202e" not in made


def test_the_page_loads_nothing_and_says_so() -> None:
    made = page.page(hostile())
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', made)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; style-src 'sha256-")
    style = made[made.index("<style>") : made.index("</style>")]
    assert "url(" not in style and "@import" not in style
    assert "<script" not in made and "<link" not in made


def test_the_page_can_be_read_without_a_mouse_or_eyes() -> None:
    made = page.page(hostile())
    tags = seen(made).tags
    assert tags[0] == ("html", {"lang": "en"})
    # The first thing that can be reached leads past what stands before the report.
    assert next(attributes for tag, attributes in tags if tag == "a")["href"] == "#main"
    assert ("main", {"id": "main", "tabindex": "-1"}) in tags
    for tag, attributes in tags:
        if tag == "th":
            assert attributes["scope"] in ("col", "row", "rowgroup")
        if tag == "svg":
            assert attributes["aria-hidden"] == "true"
    # What scrolls by itself can be reached and has a name.
    regions = [attributes for tag, attributes in tags if attributes.get("class") == "scroll"]
    assert regions and all(one["tabindex"] == "0" and one["aria-label"] for one in regions)
    assert [tag for tag, _ in tags if re.fullmatch("h[1-6]", tag)] == ["h1", "h2", "h2", "h2", "h2"]
    ids = [attributes["id"] for _, attributes in tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert "prefers-color-scheme: dark" in made


def test_the_same_report_makes_the_same_page() -> None:
    assert page.page(hostile()) == page.page(hostile())


# The summary.


def test_no_text_breaks_the_summary() -> None:
    text = summary.summary(hostile())
    # No address is a link, and no dollar begins a formula.
    assert "http://" not in text and "$" not in text and "&#36;" in text
    outside = re.sub(r"```mermaid\n.*?\n```", "", text, flags=re.DOTALL)
    assert "<script" not in text and "<img" not in text
    assert text.count("<details>") == text.count("</details>") == 3
    assert text.count("```") == 2
    for line in outside.splitlines():
        assert not line.startswith("::") and "##[" not in line
    header = None
    for line in outside.splitlines():
        cells = len(re.findall(r"(?<!\\)\|", line))
        if line.startswith("|"):
            header = header or cells
            assert cells == header, line
        else:
            header = None
    assert "\x1b" not in text


def test_a_label_of_the_timeline_is_no_grammar() -> None:
    steps = [markdown.Step(text, text, 0.0, 1.0, is_failed=True) for text in [*HOSTILE, "section", "", "end"]]
    drawn = markdown.timeline(steps)
    body = drawn[drawn.index("axisFormat") : drawn.rindex("```")].splitlines()[1:]
    for line in body:
        assert re.fullmatch(
            r"    (section [\w ._+/()-]+|[\w ._+/()-]+ :crit, 00:00:00\.000, 1000ms)", line
        ), line


def test_a_single_step_has_no_timeline() -> None:
    assert markdown.timeline([markdown.Step("a", "b", 0.0, 1.0)]) == ""


# The command.


def test_the_command_writes_a_page_and_a_summary(
    write: Write,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = write(f"{CPU}.build-report.json", build_report(CPU))
    kernel = tmp_path / "kernel"
    kernel.mkdir()
    for name in ("build.toml", "flake.lock", "flake.nix"):
        shutil.copy(ROOT / name, kernel / name)
    for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT"):
        monkeypatch.setenv(name, str(tmp_path / name))
    code = cli.main(["report", str(kernel), "--reports", str(folder), "--format", "github"])
    assert code == 0, capsys.readouterr().err
    made = kernel / "build" / "report.html"
    assert "17" in made.read_text()
    assert (tmp_path / "GITHUB_STEP_SUMMARY").read_text().startswith("### ❌ grayscale: 17 missing, 1 built")
    assert str(made) in (tmp_path / "GITHUB_OUTPUT").read_text()
    assert (made.parent / ".gitignore").read_text() == "*\n"


def test_git_sees_a_page_in_a_folder_that_was_there_as_before(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    report.write(Report("x"), tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["report.html"]


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("torch213-cxx11-cu130-x86_64-linux", ("x86_64-linux", "2.13", "cu130")),
        ("torch212-cpu-aarch64-darwin", ("aarch64-darwin", "2.12", "cpu")),
        ("torch-stable-abi29-cu130-x86_64-linux", ("x86_64-linux", "stable ABI", "cu130")),
        ("torch-cuda", ("any", "any", "cuda")),
        ("tvm-ffi01-cu130-x86_64-linux", ("x86_64-linux", "tvm-ffi01", "cu130")),
        ("<b>", ("any", "<b>", "any")),
    ],
)
def test_a_name_has_a_place_in_the_grid(name: str, place: tuple[str, str, str]) -> None:
    found = coverage.of_name(name, "built")
    assert (found.system, found.torch, found.compute) == place
