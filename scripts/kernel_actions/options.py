"""Every option of every command and action, declared once.

The argument parser, the inputs and outputs of ``actions/*/action.yml`` and the reference in
``docs/`` all come from this table. An option is read from the command line, else from the
environment variable ``KA_<NAME>`` (this is how an action passes its inputs), else its default.
"""

from __future__ import annotations

from typing import Literal

from kernel_actions.named_tuple import NamedTuple

Kind = Literal["text", "boolean", "integer", "choice"]
# What commands run in: nothing, the Hub's client, that and the loader, the embedded Hub, the loader and
# checks of built variants, all of them and Torch, and with all of that what the suite's own tests take.
Environment = Literal["", "hub", "loader", "serve", "check", "kernel", "dev"]

# More builds or threads than any machine has.
_MOST_THREADS = 1024


class Option(NamedTuple):
    """An option of a command: ``--name`` on the command line, ``name`` as an action's input.

    ``kind`` is how its text is read; a ``repeatable`` option is a list (on the command line the
    option can be given again; in an input or a variable, entries are separated by white space).
    A whole number may have to be at least ``least`` and at most ``most``.
    A ``secret`` is taken from the environment only, never from an argument list, which every
    user of the machine can read. One without ``has_variable`` is taken from the command line only.
    """

    name: str
    help: str
    default: str = ""
    kind: Kind = "text"
    choices: tuple[str, ...] = ()
    repeatable: bool = False
    is_input: bool = True
    secret: bool = False
    has_variable: bool = True
    least: int | None = None
    most: int | None = None

    @property
    def variable(self) -> str:
        """The environment variable of this option."""
        return "KA_" + self.name.upper().replace("-", "_")

    @property
    def attribute(self) -> str:
        """The attribute of this option in the parsed options."""
        return self.name.replace("-", "_")


def _switch(
    name: str, help: str, *, default: str = "false", is_input: bool = True, has_variable: bool = True
) -> Option:
    """An option that is on or off, and off unless its ``default`` says otherwise."""
    return Option(name, help, default, "boolean", is_input=is_input, has_variable=has_variable)


class Output(NamedTuple):
    """An output of an action."""

    name: str
    help: str


class Command(NamedTuple):
    """A command of ``scripts/kernel-actions``, and with ``is_action`` the action of that name.

    ``environment`` names the locked requirements (``requirements/<environment>.txt``) that the
    command runs with; a command without one runs on a bare Python. ``lighter`` are others, each with the
    options (by attribute, with their values; a truth value for whether there is one) for which it is enough.
    The environment of a command that ``holds_token`` is made afresh for each job: one that other jobs of a
    runner can write to could have been poisoned by a fork's pull request. The module of one that
    ``can_check`` has a ``check_options``, which raises on a bare Python what is wrong with the input.
    The module of a command is in the ``package``, where it names one.
    """

    name: str
    summary: str
    options: tuple[Option, ...]
    environment: Environment = ""
    is_action: bool = False
    outputs: tuple[Output, ...] = ()
    holds_token: bool = False
    takes_kernel: bool = True
    lighter: tuple[tuple[Environment, tuple[tuple[str, str | bool], ...]], ...] = ()
    can_check: bool = False
    package: str = ""

    def environment_for(self, options: object) -> Environment:
        """The environment that the command needs for these options; empty: none."""
        for environment, conditions in self.lighter:
            values = [(getattr(options, attribute), wanted) for attribute, wanted in conditions]
            if all((bool(one) if isinstance(wanted, bool) else one) == wanted for one, wanted in values):
                return environment
        return self.environment

    @property
    def module(self) -> str:
        """The module of this package whose ``run(options)`` is the command."""
        name = "server" if self.name == "hub" else self.name.replace("-", "_")
        return f"{self.package}.{name}" if self.package else name


KERNEL_DIR = Option("kernel-dir", "Folder of the kernel, which holds build.toml.", default=".")
FORMAT = Option(
    "format",
    "How results are printed: a table for people, JSON for programs, or github "
    "(a table, plus outputs, annotations and the job summary).",
    default="table",
    kind="choice",
    choices=("table", "json", "github"),
    is_input=False,
)
HUB = Option(
    "hub",
    "Address of the Hub. Empty: huggingface.co, or what HF_ENDPOINT says.",
)
REPO_ID = Option(
    "repo-id",
    "Repository on the Hub, as owner/name. Empty: general.hub.repo-id of build.toml.",
)
TOKEN = Option(
    "token",
    "Token for the Hub with the right to write to the repository. "
    "Empty: HF_TOKEN, or the job's own identity where HF_OIDC_RESOURCE is set.",
    secret=True,
)
VARIANT = Option(
    "variant",
    "Name of the build variant. Empty: the one that this machine can build and load.",
)
BUILD_DIR = Option("build-dir", "Folder that holds the built variants.", default="build")
ALLOW_LOCAL_BUILD = _switch(
    "allow-local-build",
    "Publish variants of the local builder to a Hub that others use. They are neither sandboxed "
    "nor reproducible.",
)

SETUP_NIX = Command(
    name="setup-nix",
    summary="Set Nix up for builds, with binary caches, and prove that it works before anything is built.",
    is_action=True,
    holds_token=True,
    options=(
        _switch(
            "install",
            "Install Nix where there is none. The action does; the command only configures.",
            default="true",
        ),
        _switch("find", "Only tell whether Nix is installed: what the action asks first.", is_input=False),
        _switch("check-only", "Write nothing: show what is configured, and check it."),
        Option(
            "variants",
            "Variants that will be built: tells what Nix will fetch and what it will build, verifies the "
            "signatures, compares the free disk space, and stops when torch or a compiler would be compiled.",
            repeatable=True,
        ),
        _switch("builder-cache", "Use the builder's own cache.", default="true"),
        Option(
            "substituters",
            "More binary caches, as in 'https://cache.example.org file:///mnt/cache'.",
            repeatable=True,
        ),
        Option("trusted-public-keys", "The public keys of those caches, as in 'name-1:…'.", repeatable=True),
        Option(
            "cachix",
            "Name of a public cache at Cachix. Its key is asked for there, unless trusted-public-keys has "
            "it.",
        ),
        Option(
            "cachix-token",
            "Token that build will push to that cache with: proves that it may, before hours of building. It "
            "is not kept. Empty, as in pull requests of forks: the cache is only read.",
            secret=True,
        ),
        Option(
            "github-token",
            "Token for the flakes that Nix fetches from GitHub, which has more requests an hour. "
            "The action takes the job's own; none: no token.",
            secret=True,
        ),
        Option(
            "build-jobs",
            "Builds at once. 0: what the memory and cores are enough for.",
            default="0",
            kind="integer",
            least=0,
            most=_MOST_THREADS,
        ),
        Option(
            "build-cores",
            "Threads of a build. 0: what the memory and cores are enough for.",
            default="0",
            kind="integer",
            least=0,
            most=_MOST_THREADS,
        ),
        _switch(
            "require-sandbox",
            "Fail where builds are in no sandbox. What is built without one must not be published.",
            default="true",
        ),
        _switch(
            "free-disk",
            "Remove what GitHub's images carry and no build needs. Removes nothing on other runners.",
        ),
        _switch("allow-compile", "Go on when torch or a compiler would be compiled, which takes hours."),
        FORMAT,
    ),
    outputs=(
        Output("version", "Version of Nix."),
        Output("store", "daemon, or local: this user works on the store itself."),
        Output("sandbox", "on, off or unavailable, as a build has shown."),
        Output("settings", "The effective settings, as a JSON object."),
        Output("download", "Bytes that the variants will fetch; empty without variants."),
        Output("built", "What will be built, as a JSON list of names; empty without variants."),
        Output("pushes", "Whether cachix-token may push to the cache: true, or false without one."),
    ),
)
MATRIX = Command(
    name="matrix",
    summary="Plan the build variants of a kernel from its build.toml and flake.lock.",
    is_action=True,
    options=(
        Option(
            "scope",
            "Which variants: release (the bundle that the builder publishes), pr (one for each "
            "backend and system), or all (everything that the builder can build).",
            default="release",
            kind="choice",
            choices=("release", "pr", "all"),
        ),
        Option("only", "Keep only variants that match this glob, as in '*-cu130-*'.", repeatable=True),
        Option("skip", "Leave out variants that match this glob.", repeatable=True),
        Option("backends", "Keep only these backends, as in 'cpu cuda'.", repeatable=True),
        Option("systems", "Keep only these systems, as in 'x86_64-linux'.", repeatable=True),
        Option("torch", "Keep only these Torch versions, as in '2.13'.", repeatable=True),
        Option(
            "builder-rev",
            "Plan for this commit of the builder, in place of the one that flake.lock pins.",
        ),
        Option(
            "builder-dir",
            "Checkout of the builder, for a revision that this version's data does not have.",
        ),
        Option(
            "discover",
            "Plan all kernels below this folder (each folder with a build.toml) in place of those given.",
        ),
        Option(
            "changed-since",
            "Plan only the kernels whose builds or tests can read what has changed since this commit or "
            "branch, as in origin/main. docs/planning.md says which files those are.",
        ),
        Option(
            "group-by",
            "Build in one job the variants of a kernel and system that share their runners, and their "
            "backend, or their torch. none: a job for each.",
            default="none",
            kind="choice",
            choices=("none", "backend", "torch"),
        ),
        Option(
            "max-jobs",
            "Pack the variants into at most this many jobs, such that the longest takes as little time as "
            "can be.",
            default="256",
            kind="integer",
            least=1,
            # https://docs.github.com/actions/reference/limits
            most=256,
        ),
        Option(
            "durations",
            "JSON file of the seconds that variants took before, by kernel/variant or variant. Packing goes "
            "by it, and the longest jobs come first.",
        ),
        Option(
            "explain",
            "Tell why this variant is planned or not, in place of planning (also: matrix explain VARIANT).",
            is_input=False,
        ),
        _switch("allow-empty", "Succeed when nothing is selected."),
        _switch(
            "untrusted",
            "Plan for code that nobody has looked at, as in pull requests of forks: only what GitHub's "
            "hosted runners build and test. All else is left out, and counted in held-back.",
        ),
        FORMAT,
    ),
    outputs=(
        Output("matrix", 'The jobs, as {"include": [...]}: the value of strategy.matrix.'),
        Output("count", "Number of jobs. Skip the build job when it is 0."),
        Output("tests", "Those of the jobs that can be tested, for a job that tests on matrix.test_runner."),
        Output("test-count", "Number of jobs in tests. Skip the test job when it is 0."),
        Output("held-back", "Number of variants that untrusted keeps from being built or tested."),
        Output("variants", "The planned variants, as kernel/variant: what test's expect takes."),
        Output(
            "kernels",
            "The kernels to check: those planned, and those with any changed file in their folder, as "
            '{"include": [{"kernel": ..., "dir": ...}]}.',
        ),
        Output("archives", "What the build jobs hand over, as kernel/variant by artifact: what seal takes."),
        Output("filtered", "What was left out, as a JSON list, each with its reason."),
        Output("builder", "The builder's repository and commit, as JSON; null where kernels have several."),
    ),
)
BUILD = Command(
    name="build",
    summary="Build variants of a kernel, by Nix or with the compiler of this machine.",
    environment="kernel",
    # It decides by itself: only the local builder needs an environment, and starts again in it.
    lighter=(("", ()),),
    is_action=True,
    options=(
        Option(
            "variant",
            "Names of the build variants; the local builder takes one. Empty: the one that this machine can "
            "build and load, by the local builder.",
            repeatable=True,
        ),
        Option(
            "backend-tool",
            "What builds: nix (what is published), local (the compiler and Torch of this machine), or auto: "
            "nix for variants that are named, where it is installed and the kernel is a locked flake in git; "
            "else local.",
            default="auto",
            kind="choice",
            choices=("auto", "nix", "local"),
        ),
        Option("output", "Folder for the built variants.", default="build"),
        Option(
            "archive",
            "Folder for a tar file of each variant and its report, which keeps the modes that an artifact "
            "loses. Empty: none.",
        ),
        Option(
            "push-to",
            "Nix: copy each variant to this cache as soon as it is built: the address of a store "
            "(file:///folder, s3://bucket, https://host, ssh-ng://host), or the name of a cache at Cachix.",
        ),
        Option(
            "push-token",
            "Nix: token for the cache of push-to. Empty: CACHIX_AUTH_TOKEN; without one, nothing is copied "
            "to Cachix or over HTTP.",
            secret=True,
        ),
        Option(
            "time-limit",
            "Nix: when to stop, as 5h40m: what is finished is kept, and the next run goes on from there.",
            default="5h40m",
        ),
        _switch("check-reproducible", "Nix: build each variant twice, and fail where the files differ."),
        _switch(
            "allow-dirty",
            "Nix: build uncommitted changes too. What is built is marked, and no release takes it.",
        ),
        _switch(
            "allow-unsandboxed",
            "Nix: build where Nix has no sandbox. What is built is marked, and is not published.",
        ),
        Option(
            "export-tests",
            "Nix: write the tests of the variant, with all that they need, into this file, for a runner with "
            "a GPU.",
        ),
        Option(
            "import-tests",
            "Nix: instead of building, put such a file into this machine's store, and print the path of the "
            "tests.",
        ),
        FORMAT,
    ),
    outputs=(
        Output("variant", "Names of the variants that were built, separated by spaces."),
        Output("path", "Folders of the variants, one a line."),
        Output("archive", "Tar files of the variants, one a line, if they were asked for."),
        Output("tests", "Store path of the exported or imported tests."),
    ),
)
ARCHIVES = Option(
    "archives",
    "Folder into which actions/download-artifact put the artifacts.",
    default="archives",
)
SEAL = Command(
    name="seal",
    package="artifacts",
    summary="Take the digest of every build of this run, so that later jobs accept these bytes alone.",
    is_action=True,
    takes_kernel=False,
    options=(
        ARCHIVES,
        Option("planned", "The output `archives` of matrix: the variants of each artifact, as JSON."),
        Option(
            "github-token",
            "Token that may read the jobs and artifacts of this run (`actions: read`), which a run that was "
            "started again needs. The action takes the job's own.",
            secret=True,
        ),
        FORMAT,
    ),
    outputs=(Output("sealed", "The SHA-256 of each archive by kernel/variant, as JSON: what unpack takes."),),
)
UNPACK = Command(
    name="unpack",
    package="artifacts",
    summary="Unpack the builds of earlier jobs into a fresh folder, after comparing them with their digests.",
    is_action=True,
    options=(
        ARCHIVES,
        Option("sealed", "The output `sealed` of seal: the SHA-256 of each archive, as JSON."),
        Option("kernel", "Name of the kernel. Empty: general.name of build.toml."),
        Option(
            "variant",
            "Names of the variants to unpack. Empty: all of the kernel.",
            repeatable=True,
        ),
        _switch("reports", "Also take the test reports that are among the artifacts."),
        Option(
            "into",
            "Folder for the variants; it must not exist, or be empty. Empty: a new one outside of the "
            "checkout.",
        ),
        FORMAT,
    ),
    outputs=(Output("path", "Folder that holds the variants: the build-dir of later steps."),),
)
TEST = Command(
    name="test",
    summary="Run the kernel's own tests against a built variant.",
    environment="kernel",
    can_check=True,
    # The tests' own environment has what they need, and these have none of the suite's.
    lighter=(("", (("merge", True),)), ("", (("environment", "pip"),)), ("", (("environment", "nix"),))),
    is_action=True,
    options=(
        VARIANT,
        BUILD_DIR,
        Option(
            "require-gpu",
            "Fail without a usable GPU: auto (for variants of a GPU backend), always, never.",
            default="auto",
            kind="choice",
            choices=("auto", "always", "never"),
        ),
        Option(
            "environment",
            "Where the tests run: current (this suite's own one), pip (one made for the variant, with its "
            "Torch, and kept in the cache), nix (the builder's ciTests).",
            default="current",
            kind="choice",
            choices=("current", "pip", "nix"),
        ),
        Option("marker", "Marker of the tests to run. Empty: all.", default="kernels_ci"),
        Option(
            "tests", "Files and folders of tests, in the kernel's folder.", default="tests", repeatable=True
        ),
        Option("pytest-args", "Further arguments of pytest, as in --pytest-args='-k \"not large\"'."),
        Option(
            "test-time-limit",
            "Seconds after which a test, and with it the run, is ended.",
            default="600",
            kind="integer",
            least=1,
        ),
        Option(
            "time-limit", "Seconds after which the run is ended.", default="3600", kind="integer", least=1
        ),
        _switch(
            "opcheck",
            "Check every operator of the kernel too, by torch.library.opcheck and torch.compile, with the "
            "inputs that tests/samples.py gives.",
        ),
        Option(
            "sanitize",
            "Run the tests under this tool of compute-sanitizer; what it finds is a failure.",
            default="none",
            kind="choice",
            choices=("none", "memcheck", "racecheck", "initcheck", "synccheck"),
        ),
        Option(
            "nix-tests",
            "With environment nix: path of the tests in the store, or the file that build exported them to. "
            "Empty: build them.",
        ),
        Option(
            "merge",
            "Show the test reports below this folder as one table, variant by GPU, in place of testing, and "
            "fail unless all passed.",
        ),
        Option(
            "expect",
            "With merge: variants that have to be there, as in the plan; those of several kernels as "
            "kernel/variant.",
            repeatable=True,
        ),
        Option("junit", "Write a JUnit report to this file."),
        FORMAT,
    ),
    outputs=(
        Output("passed", "Number of tests that passed."),
        Output("verdict", "passed, failed, or untested where kernel-actions.toml allows it."),
        Output("report", "Path of the JSON test report."),
    ),
)
BENCHMARK = Command(
    name="benchmark",
    summary="Run the kernel's own benchmarks by a fixed protocol, and compare with a baseline.",
    environment="kernel",
    can_check=True,
    is_action=True,
    options=(
        VARIANT,
        BUILD_DIR,
        Option(
            "baseline",
            "What to compare with, in the same run: a revision on the Hub (a branch, a tag or a commit, as "
            "in v1), or the folder of a built variant. Empty: nothing.",
        ),
        REPO_ID,
        HUB,
        Option("threshold", "How many percent slower than the baseline is a failure.", default="5"),
        Option("only", "Run only workloads that match this glob, as in '*float32*'.", repeatable=True),
        Option("rounds", "Rounds of each workload.", default="12", kind="integer", least=8, most=400),
        Option(
            "max-rounds",
            "Rounds of a workload that the baseline's comparison is undecided for, at most.",
            default="60",
            kind="integer",
            least=8,
            most=400,
        ),
        Option(
            "time-limit",
            "Seconds after which the benchmarks are ended.",
            default="3600",
            kind="integer",
            least=1,
        ),
        Option(
            "device",
            "Where to measure: auto (the variant's backend), cpu, cuda.",
            default="auto",
            kind="choice",
            choices=("auto", "cpu", "cuda"),
        ),
        Option("report", "JSON file for the report. Empty: beside the variant."),
        Option("plot", "Folder for the plots, as SVG and PNG. Empty: beside the report."),
        FORMAT._replace(
            help="How results are printed: a table for people, JSON for programs, Markdown for a page, or "
            "github (a table, plus outputs, annotations and the job summary).",
            choices=("table", "json", "markdown", "github"),
        ),
    ),
    outputs=(
        Output("verdict", "passed or failed."),
        Output("report", "Path of the JSON report."),
        Output("plot", "Path of the plot, as SVG."),
        Output("picture", "Path of the plot, as PNG."),
    ),
)
UPLOAD = Command(
    name="upload",
    summary="Upload the built variants to one branch of the Hub, in one commit.",
    environment="hub",
    can_check=True,
    is_action=True,
    holds_token=True,
    options=(
        BUILD_DIR,
        REPO_ID,
        Option("branch", "Branch on the Hub. Empty: v and the major version of build.toml."),
        _switch("create-pr", "Open a pull request on the Hub instead of committing to the branch."),
        _switch("dry-run", "Show what would be added, kept and deleted; change nothing."),
        HUB,
        ALLOW_LOCAL_BUILD,
        TOKEN,
        FORMAT,
    ),
    outputs=(
        Output("commit", "Commit on the Hub that now holds the variants."),
        Output("url", "Address of the branch, or of the pull request."),
    ),
)
COMPLIANCE = Command(
    name="compliance",
    summary="Check a kernel and its built variants against the rules that loaders rely on.",
    environment="check",
    can_check=True,
    lighter=(("", (("source_only", True),)),),
    is_action=True,
    options=(
        BUILD_DIR,
        _switch("source-only", "Check the sources alone, without built variants and workflows."),
        _switch("complete", "Require every variant that a release publishes."),
        Option(
            "discover",
            "Check all kernels below this folder (each folder with a build.toml) in place of those given.",
        ),
        Option(
            "base",
            "Check what differs from this commit, branch or tag too, as a pull request's base. What was "
            "wrong there already is told, and fails nothing. The clone has to reach back to it.",
        ),
        Option(
            "baseline",
            "File of findings that are known, and fail nothing. Empty: the one that kernel-actions.toml "
            "names.",
        ),
        Option(
            "write-baseline",
            "Write all findings to this file, in place of failing for them. What it lists of other kernels "
            "stays.",
            is_input=False,
        ),
        Option(
            "sarif",
            "Write the findings to this file too, as SARIF 2.1.0, which github/codeql-action/upload-sarif "
            "takes.",
        ),
        FORMAT._replace(
            help="How results are printed: a table for people, JSON for programs, SARIF 2.1.0 for code "
            "scanning, or github (a table, plus outputs, annotations and the job summary).",
            choices=("table", "json", "sarif", "github"),
        ),
    ),
    outputs=(
        Output("findings", "The findings, as a JSON list."),
        Output("errors", "Number of findings that are errors."),
    ),
)
TRUST_CONFIG = Option(
    "trust-config",
    "File that describes another Sigstore than the public one, as `sigstore --trust-config` takes it.",
)
RELEASE = Command(
    name="release",
    summary="Stage a version, verify it from the Hub, promote it in one commit, and tag it.",
    environment="kernel",
    # Only what was not verified elsewhere is loaded here.
    lighter=(
        ("check", (("dry_run", True),)),
        ("check", (("stage", True), ("promote", False))),
        ("check", (("promote", True), ("stage", False), ("verified", True))),
    ),
    can_check=True,
    is_action=True,
    holds_token=True,
    options=(
        Option(
            "bump",
            "Next version: auto (from Conventional Commits since the last tag), major, minor, patch, "
            "or a version X.Y.Z or X.Y.Z-rc.1.",
            default="auto",
        ),
        Option(
            "pre",
            "Make a pre-release of the next version, as in rc for X.Y.Z-rc.1. It gets a tag, and the branch "
            "that everybody loads stays as it is.",
        ),
        _switch("stage", "Only stage the release on its side branch."),
        _switch("promote", "Only promote and tag what was staged before."),
        Option(
            "verified",
            "Commit on the Hub that another job verified: if that is staged, its files are compared, and "
            "none of its code is run where the token is.",
        ),
        _switch("dry-run", "Show the version, its commits and what would change; change nothing."),
        _switch("partial", "Release although planned variants are missing. Only an embedded Hub takes this."),
        _switch("git-tag", "Make the git tag, and push it to origin.", default="true"),
        _switch("moving-tags", "Also move the git tags vX and vX.Y to the release."),
        Option(
            "sign",
            "Sign each variant by Sigstore: auto (where the job can prove its identity, and is of a public "
            "repository), always or never.",
            default="auto",
            kind="choice",
            choices=("auto", "always", "never"),
        ),
        TRUST_CONFIG,
        BUILD_DIR,
        REPO_ID,
        HUB,
        ALLOW_LOCAL_BUILD,
        TOKEN,
        FORMAT,
    ),
    outputs=(
        Output("version", "The released version, as X.Y.Z or X.Y.Z-rc.1."),
        Output("tag", "The git tag."),
        Output("staged", "Commit on the Hub that was staged, and is to be verified and promoted."),
        Output("report", "Path of a page that tells all of it, which needs no other file."),
        Output("commit", "Commit on the Hub that was promoted; empty until then."),
    ),
)
VERIFY = Command(
    name="verify",
    summary="Load a revision from the Hub as a user would, and compare every file with its digest.",
    environment="kernel",
    lighter=(("check", (("load", False),)),),
    can_check=True,
    is_action=True,
    options=(
        REPO_ID,
        Option("revision", "Commit, branch or tag on the Hub."),
        _switch(
            "load",
            "Load the variant for this machine; else files, signatures and records alone are compared.",
            default="true",
        ),
        Option(
            "identity",
            "Require that this identity signed every variant: a repository of GitHub, as owner/name, or a "
            "workflow, as https://github.com/owner/name/.github/workflows/release.yml@refs/heads/main.",
        ),
        Option(
            "issuer",
            "Who vouches for that identity.",
            default="https://token.actions.githubusercontent.com",
        ),
        TRUST_CONFIG,
        HUB,
        Option("report", "Write the result as JSON to this file."),
        FORMAT,
    ),
    outputs=(Output("variants", "The variants that were verified, as a JSON list."),),
)
ROLLBACK = Command(
    name="rollback",
    summary="Take a bad release back, by making its branch what an earlier release was, in one commit.",
    environment="check",
    can_check=True,
    is_action=True,
    holds_token=True,
    options=(
        Option(
            "to",
            "The release to go back to: its tag on the Hub or in git, as v1.2.0, or the commit on the Hub "
            "that the branch held.",
        ),
        _switch("dry-run", "Show what would be copied, deleted and marked; change nothing."),
        TRUST_CONFIG,
        REPO_ID,
        HUB,
        TOKEN,
        FORMAT,
    ),
    outputs=(
        Output("release", "The release that the branch holds now, as X.Y.Z."),
        Output("commit", "Commit on the Hub that the branch is at; empty in a dry run."),
        Output("rolled-back", "The releases that were taken back by this, as a JSON list."),
    ),
)
PIPELINE = Command(
    name="pipeline",
    summary="Take a kernel from source to a Hub and back into a Python process, on this machine.",
    environment="kernel",
    can_check=True,
    options=(
        Option(
            "hub",
            "Address of another embedded Hub, in place of one that runs as long as the pipeline does.",
            # Never another Hub because a variable happens to be set.
            has_variable=False,
        ),
        Option("output", "Folder for the built variant.", default="build"),
        FORMAT,
    ),
)
HUB_SERVER = Command(
    name="hub",
    package="hub",
    summary="Serve an embedded Hub on loopback, for rehearsals and tests.",
    environment="serve",
    takes_kernel=False,
    options=(
        Option("data", "Folder that keeps the Hub's repositories.", default="hub-data"),
        Option(
            "port",
            "Port on 127.0.0.1; 0 takes a free one.",
            default="8750",
            kind="integer",
            least=0,
            most=65535,
        ),
    ),
)

PROJECT = Option(
    "project", "Folder of the project that uses kernels, which holds pyproject.toml.", default="."
)
PLATFORMS = Option(
    "platforms",
    "Where the project runs, as in 'torch2.13-cu13.0-x86_64-linux': Torch, compute and system. "
    "Empty: tool.kernel-actions.platforms of pyproject.toml.",
    repeatable=True,
)
READ_TOKEN = Option(
    "token",
    "Token for the Hub, for repositories that not everybody may read. Empty: HF_TOKEN, or none.",
    secret=True,
)
LOCK = Command(
    name="lock",
    summary="Check or update the kernels.lock of a project that uses kernels.",
    environment="loader",
    can_check=True,
    is_action=True,
    holds_token=True,
    takes_kernel=False,
    options=(
        PROJECT,
        Option(
            "mode",
            "check: kernels.lock is what pyproject.toml declares, and all that it locks can be loaded. "
            "update: lock the newest commit of each version.",
            default="check",
            kind="choice",
            choices=("check", "update"),
        ),
        PLATFORMS,
        _switch("newest", "Fail the check, too, where a newer commit is there."),
        HUB,
        READ_TOKEN,
        FORMAT,
    ),
    outputs=(
        Output("changed", "Whether kernels.lock was written: true or false."),
        Output("outdated", "The repositories with a newer commit, as a JSON list."),
        Output("diff", "What an update changed, as a Markdown table."),
    ),
)
DOWNLOAD = Command(
    name="download",
    summary="Download what kernels.lock locks, so that it loads without a network.",
    environment="loader",
    can_check=True,
    is_action=True,
    holds_token=True,
    takes_kernel=False,
    options=(
        PROJECT,
        PLATFORMS,
        Option(
            "cache",
            "Folder of the cache, to be named by HF_HUB_CACHE. Empty: the one that kernels uses here.",
        ),
        _switch("prune", "Remove from that folder the kernels, commits and files that are not locked."),
        HUB,
        READ_TOKEN,
        FORMAT,
    ),
    outputs=(Output("cache", "Path of the cache."),),
)
WHEEL = Command(
    name="wheel",
    summary="Turn built or published variants into wheels, for those who cannot use the Hub.",
    environment="check",
    can_check=True,
    is_action=True,
    holds_token=True,
    options=(
        BUILD_DIR,
        Option("revision", "Commit, branch or tag on the Hub. Empty: the variants of build-dir."),
        REPO_ID,
        Option("only", "Only variants that match this glob, as in '*-cu130-*'.", repeatable=True),
        Option("wheel-version", "Version of the wheels, as in 1.2.0. Empty: the release that is published."),
        Option("output", "Folder for the wheels.", default="dist"),
        _switch("index", "Write a package index over all wheels of the folder, into simple/ of it."),
        Option(
            "index-address",
            "Where the wheels will be served, as in https://example.org/wheels. Empty: beside the index.",
        ),
        _switch(
            "index-only",
            "Make no wheel: write the index of those that are in the folder (also: wheel index).",
        ),
        HUB,
        READ_TOKEN,
        FORMAT,
    ),
    outputs=(
        Output("wheels", "Paths of the wheels that were made, as a JSON list."),
        Output("index", "Path of the package index; empty without one."),
    ),
    lighter=(("", (("index_only", True),)),),
)

FRESHNESS = Command(
    name="freshness",
    summary="Tell what has moved on since a kernel was built, and keep one issue about it.",
    environment="hub",
    can_check=True,
    is_action=True,
    holds_token=True,
    options=(
        Option(
            "discover",
            "Look at all kernels below this folder (each with a build.toml) in place of the given one.",
        ),
        Option(
            "max-age",
            "From how many days on the locked builder is old, where there is a newer one.",
            default="90",
            kind="integer",
            least=1,
        ),
        _switch("issue", "Open an issue in this repository, change the one that is open, or close it."),
        Option(
            "github-token",
            "Token that may write issues of this repository. The action takes the job's own.",
            secret=True,
        ),
        HUB,
        READ_TOKEN,
        FORMAT,
    ),
    outputs=(
        Output("fresh", "Whether nothing is out of date: true or false."),
        Output("findings", "What is out of date, as a JSON list."),
        Output("issue", "Address of the issue; empty without one."),
    ),
)
REPORT = Command(
    name="report",
    summary="Tell what became of a run, on one page: coverage, findings and times, from its reports.",
    is_action=True,
    options=(
        Option(
            "reports",
            "Files, or folders to look through, with the reports that builds, tests, compliance and releases "
            "leave. Empty: build of the kernel's folder.",
            repeatable=True,
        ),
        Option(
            "output",
            "File for the page, which needs no other. Empty: report.html in build of the kernel's folder.",
        ),
        FORMAT,
    ),
    outputs=(
        Output("verdict", "passed, failed, or planned where nothing was done yet."),
        Output("page", "Path of the page."),
    ),
)

INIT = Command(
    name="init",
    summary="Set a kernel's repository up with workflows and kernel-actions.toml; shows what changes first.",
    options=(
        Option(
            "uses",
            "What the workflows use, as OWNER/REPO@REF, where REF is a tag or a commit. Empty: what the "
            "repository's workflows use already, else where this program was installed from.",
            has_variable=False,
        ),
        Option(
            "workflows",
            "Names of the workflows to write, as in 'release rollback'. Empty: those that fit.",
            repeatable=True,
            has_variable=False,
        ),
        Option(
            "gpu-runner",
            "Labels of the runners that test on a GPU on x86_64-linux, or group:NAME. Empty: self-hosted, "
            "linux, x64 and the backend.",
            repeatable=True,
            has_variable=False,
        ),
        Option(
            "test-runner",
            "Runner that tests a backend on a system, as in aarch64-linux.cuda=group:NAME, "
            "aarch64-linux.cuda=self-hosted,arm64,cuda, or aarch64-linux.cuda=none: untested. For other "
            "systems than x86_64-linux, the program asks if it is not given, else leaves it untested.",
            repeatable=True,
            has_variable=False,
        ),
        _switch("yes", "Write without asking.", has_variable=False),
        _switch("overwrite", "Replace files that were edited, too.", has_variable=False),
        _switch("dry-run", "Show what would change; write nothing.", has_variable=False),
        FORMAT._replace(
            help="How results are printed: for people, or JSON for programs, which writes with --yes alone.",
            choices=("table", "json"),
            has_variable=False,
        ),
    ),
)

ENVIRONMENT = Command(
    name="environment",
    summary="Make the locked environment that commands run in, and print its interpreter.",
    takes_kernel=False,
    options=(
        Option(
            "for",
            "What it is for: hub (the Hub's client), loader (that and the loader), serve (the embedded Hub), "
            "check (checks and releases of built variants), kernel (all of them, and Torch), dev (working on "
            "the suite).",
            default="kernel",
            kind="choice",
            choices=("hub", "loader", "serve", "check", "kernel", "dev"),
        ),
    ),
)

COMMANDS: dict[str, Command] = {
    command.name: command
    for command in (
        SETUP_NIX,
        MATRIX,
        BUILD,
        SEAL,
        UNPACK,
        TEST,
        BENCHMARK,
        COMPLIANCE,
        UPLOAD,
        RELEASE,
        VERIFY,
        ROLLBACK,
        LOCK,
        DOWNLOAD,
        WHEEL,
        FRESHNESS,
        PIPELINE,
        HUB_SERVER,
        REPORT,
        INIT,
        ENVIRONMENT,
    )
}
