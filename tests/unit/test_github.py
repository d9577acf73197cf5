"""GitHub Actions: what reaches the runner can be neither broken nor forged."""

from __future__ import annotations

import html
import io
import re
from pathlib import Path

import pytest
from hypothesis import given, strategies
from kernel_actions import console, github, markdown
from kernel_actions.errors import Place, WrongInput, WrongSurroundings


@pytest.fixture
def actions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "outputs"))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary"))
    return tmp_path


def _parse(text: str) -> dict[str, str]:
    """Outputs as the runner reads them."""
    found: dict[str, str] = {}
    lines = iter(text.split("\n"))
    for line in lines:
        if "<<" in line:
            name, _, delimiter = line.partition("<<")
            value = []
            for part in lines:
                if part == delimiter:
                    break
                value.append(part)
            found[name] = "\n".join(value)
    return found


@pytest.mark.parametrize("value", ["plain", "", "two\nlines", "a<<b\nEOF\nforged=1", "x\nend-0\ny<<z\n"])
def test_outputs_survive_any_value(actions: Path, value: str) -> None:
    github.set_outputs({"one": value, "two": "2"})
    assert _parse((actions / "outputs").read_text()) == {"one": value, "two": "2"}


def test_outputs_outside_of_actions_do_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_OUTPUT", raising=False)
    github.set_outputs({"one": "1"})


def test_annotations_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    place = Place(Path("a,b:c.py"), 3, 5)
    github.annotate("error", "50%\n::set-output name=x::y", where=place, title="t,i:t")
    line = capsys.readouterr().err
    assert line == (
        "::error title=t%2Ci%3At,file=a%2Cb%3Ac.py,line=3,col=5::50%25%0A::set-output name=x::y\n"
    )


def test_untrusted_output_cannot_give_commands(actions: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with github.untrusted_output():
        console.say("::error::forged")
    first, _, last = capsys.readouterr().err.splitlines()
    token = first.removeprefix("::stop-commands::")
    assert len(token) == 32
    assert last == f"::{token}::"


def test_results_are_not_held_back_until_commands_are_obeyed_again(
    actions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BufferedWriter(log)))  # type: ignore[arg-type]
    monkeypatch.setattr(github, "_command", lambda text: log.write(b"command\n"))
    print("before")
    with github.untrusted_output():
        print("::error::forged")
    assert log.getvalue() == b"before\ncommand\n::error::forged\ncommand\n"


def test_every_line_of_a_secret_is_masked(actions: Path, capsys: pytest.CaptureFixture[str]) -> None:
    github.mask("one\ntwo%")
    assert capsys.readouterr().err == "::add-mask::one\n::add-mask::two%25\n"


def test_summary_is_cut_below_the_limit_of_the_runner(actions: Path) -> None:
    github.add_summary("é" * 600_000 + "\n" + "x" * 600_000)
    text = (actions / "summary").read_text()
    assert len(text.encode()) < 1 << 20
    assert text.endswith("may have 1 MiB.)\n\n")


@pytest.mark.parametrize("begun", ["<details><summary>x</summary>\n\n", "<details>\n\n```mermaid\ngantt\n"])
def test_what_is_cut_is_ended(actions: Path, begun: str) -> None:
    github.add_summary(begun + "line\n" * 300_000 + "```\n\n</details>\n")
    text = (actions / "summary").read_text()
    assert text.count("<details>") == text.count("</details>") == 1
    assert text.count("```") % 2 == 0
    assert len(text.encode()) < 1 << 20


@given(strategies.text())
def test_any_text_stays_text(value: str) -> None:
    shown = markdown.text(value)
    assert "\n" not in shown and "<" not in shown and "$" not in shown and "://" not in shown
    bare = re.sub(r"\\.", "", shown)
    assert not set("`*_[]|~#!") & set(re.sub(r"@?&#\d+;", "", bare))
    row = markdown.table(("h",), [(value,)]).splitlines()
    assert len(row) == 3 and re.sub(r"\\.", "", row[2]).count("|") == 2


@pytest.mark.parametrize(
    "cell", ["a|b", "<script>", "`x`", "[l](http://x)", "a\nb", "![i](x)", "@team", "\x1b[2J"]
)
def test_cells_cannot_break_a_markdown_table(cell: str) -> None:
    table = markdown.table(("h",), [(cell,)])
    assert len(table.splitlines()) == 3
    row = table.splitlines()[2]
    assert "<" not in row.replace("&lt;", "")
    assert row.count("|") - row.count("\\|") == 2
    assert "\x1b" not in row
    assert "](" not in row.replace("\\]", "")


@pytest.mark.parametrize(
    "value", ["1. one", "1) one", "- one", "+ one", "---", "===", "= one", "-", "* one", "# one", "> one"]
)
def test_no_text_begins_a_list_a_rule_or_a_heading(value: str) -> None:
    shown = markdown.lines([value])
    assert not re.match(r"(\d+[.)]|[-+*=#>])", shown)
    # The same characters are read.
    assert html.unescape(re.sub(r"\\(.)", r"\1", shown)).strip() == value


def test_no_name_is_mentioned() -> None:
    # An escape would be gone before GitHub looks for names.
    for value in ("@team", "\\@team", "a @team"):
        assert "@team" not in markdown.text(value) and "@&#8288;team" in markdown.text(value)


def test_what_else_writes_the_files_of_a_step_is_undone(
    actions: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    github.set_outputs({"before": "kept"})
    before = (actions / "outputs").read_bytes()
    with github.kept_step_files():
        (actions / "outputs").write_text("forged=1\n")
        (actions / "summary").unlink(missing_ok=True)
        (actions / "summary").symlink_to(tmp_path)
    assert (actions / "outputs").read_bytes() == before
    assert not (actions / "summary").is_symlink() and not (actions / "summary").exists()
    assert "changed GITHUB_OUTPUT and GITHUB_STEP_SUMMARY: " in capsys.readouterr().err
    with github.kept_step_files():
        pass
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("text", "expected"), [("true", True), (" FALSE ", False), ("1", True), ("no", False)]
)
def test_booleans_arrive_as_text(text: str, expected: bool) -> None:
    assert github.boolean("x", text) is expected


def test_what_is_no_boolean_is_an_error() -> None:
    with pytest.raises(WrongInput, match="allow-empty is 'maybe'"):
        github.boolean("allow-empty", "maybe")


@pytest.mark.parametrize(
    ("token", "repository", "api", "said"),
    [
        ("", "me/tiny", "https://api.github.com", "no token for GitHub, or no repository (run it in a job"),
        ("ghs_planted", "../me/tiny", "", "no token for GitHub, or no repository (run it in a job"),
        ("ghs_planted", "me/tiny", "http://api.example.org", "could read the token"),
    ],
)
def test_a_token_is_sent_to_nobody_who_should_not_have_it(
    monkeypatch: pytest.MonkeyPatch, token: str, repository: str, api: str, said: str
) -> None:
    monkeypatch.setenv("GITHUB_REPOSITORY", repository)
    monkeypatch.setenv("GITHUB_API_URL", api)
    assert not github.can_ask(token)
    # The network is closed to unit tests: asking would fail in another way.
    with pytest.raises(WrongSurroundings) as caught:
        github.find_issue(token, "label", "marker")
    assert said in str(caught.value) and "ghs_planted" not in str(caught.value)
    monkeypatch.setenv("GITHUB_REPOSITORY", "me/tiny")
    monkeypatch.setenv("GITHUB_API_URL", "http://127.0.0.1:1")
    assert github.can_ask("ghs_planted")
