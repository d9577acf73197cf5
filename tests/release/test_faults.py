"""A release that meets a fault at any of its requests, or is killed there: the Hub holds the release before
or the new one, whole, and the next run finishes it."""

from __future__ import annotations

import copy
import itertools
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi, constants
from huggingface_hub.utils._http import close_session
from kernel_actions import release
from kernel_actions.errors import KernelActionsError
from kernel_actions.hub import client, patience
from kernel_actions.release import preparation, protocol, record, rollback

from tests.hub.faulty import FAULTS, Faulty, in_child
from tests.release.helpers import CPU, CUDA, Kernel, command
from tests.release.test_release import Tree, heads, hub_tags, titles

# Faults that no repetition mends: the run ends with an error that says what to do.
ENDING = {"401", "kill", "kill-after", "wrong-hash"}
WRITES = ("POST", "PUT", "DELETE")


def ends(fault: str, request: str) -> bool:
    """Whether a fault may end the run. 412 is about the parent of a commit, and none of other requests."""
    return fault in ENDING or (fault == "412" and "/commit/" not in request)


@dataclass
class Sweep:
    """Two commits of a kernel, built: each case releases the second over the first, in a repository of
    its own."""

    old: Kernel
    new: Kernel
    proxy: Faulty
    address: str
    api: HfApi
    count: int = 0

    def repository(self, name: str) -> str:
        """A repository that holds the first release."""
        repo_id = f"acme/{name}"
        self.old.release(self.address, repo_id=repo_id, git_tag=False)
        return repo_id

    @property
    def files(self) -> dict[str, client.LocalFile]:
        """What the second release holds."""
        return client.local_folders({f"build/{one}": self.new.root / "build" / one for one in (CPU, CUDA)})

    def release(self, repo_id: str, address: str = "") -> release.Released:
        return self.new.release(address or self.proxy.url, repo_id=repo_id, git_tag=False)


@pytest.fixture(scope="module")
def total() -> Iterator[list[int]]:
    """Counts the cases of all tests, and says how many they were."""
    counts: list[int] = []
    yield counts
    sys.__stderr__.write(f"\n{sum(counts)} cases of faults in all\n")


@pytest.fixture
def sweep(
    total: list[int],
    tmp_path: Path,
    address: str,
    api: HfApi,
    quick: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Sweep]:
    monkeypatch.setattr(patience, "PAUSE", 0.005)
    monkeypatch.setattr(patience, "TIMEOUT", 1.0)
    for name in ("HF_HUB_DOWNLOAD_TIMEOUT", "HF_HUB_ETAG_TIMEOUT"):
        monkeypatch.setattr(constants, name, 1)
    # huggingface_hub's own pauses, and what a release looks at besides the Hub.
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda seconds: None)
    monkeypatch.setattr("huggingface_hub.file_download.time.sleep", lambda seconds: None)
    monkeypatch.setattr(protocol, "lacks", lambda prepared: ())
    monkeypatch.setattr(release, "lacks", lambda prepared: ())
    monkeypatch.setattr(preparation, "_planned", lambda *_unused, is_needed: (frozenset(), None, {}))
    old = Kernel(tmp_path / "kernel", "acme/unused")
    old.build()
    new = copy.copy(old)
    new.root = shutil.copytree(old.root, tmp_path / "new")
    (new.root / "CARD.md").write_text("# relu, mended\n")
    new.commit("fix: mend it", rounding="x = 1\n")
    new.build(table=b"\0" + os.urandom(100))
    proxy = Faulty(address)
    made = Sweep(old, new, proxy, address, api)
    yield made
    proxy.close()
    total.append(made.count)


def requests_of(sweep: Sweep, name: str) -> list[str]:
    """The requests of a release that nothing happens to."""
    repo_id = sweep.repository(name)
    sweep.proxy.arm()
    sweep.release(repo_id)
    return [one.replace(repo_id, "*") for one in sweep.proxy.seen]


def check_case(sweep: Sweep, tree: Tree, name: str, at: int, fault: str, match: str = "") -> str:
    """Run one case; what became of the run: done, or an error's name."""
    repo_id = sweep.repository(name)
    before = tree(repo_id, "v1")
    sweep.proxy.arm(at, fault, match=match)
    outcome = "done"
    if fault.startswith("kill"):
        outcome = str(in_child(lambda: sweep.release(repo_id) and None, sweep.proxy))
        assert outcome in ("-9", "0")
    else:
        try:
            sweep.release(repo_id)
        except KernelActionsError as error:
            outcome = type(error).__name__
            assert "\n" not in str(error)
            request = sweep.proxy.seen[sweep.proxy.at]
            assert ends(fault, request), f"{fault} at {request}: {error}"
    assert sweep.proxy.at >= 0, f"there is no request {match}"
    sweep.proxy.arm()
    there = tree(repo_id, "v1")
    if there != before:
        # Not the old one any more: the new one, whole.
        assert titles(sweep.api, repo_id, "v1")[0] == "Release 1.0.1"
        assert {path.split("/")[1] for path in there if path.startswith("build/")} == {CPU, CUDA}
        assert f"build/{CPU}/rounding.py" in there
    done = sweep.release(repo_id)
    assert str(done.plan.version) == "1.0.1"
    final = tree(repo_id, "v1")
    assert there in (before, final)
    held = client.remote_files(client.connect(sweep.address), repo_id, "v1")
    for path, file in sweep.files.items():
        assert file.is_same(held[path]), path
    assert titles(sweep.api, repo_id, "v1") == ["Release 1.0.1", "Release 1.0.0", "initial commit"]
    assert heads(sweep.api, repo_id).keys() == {"main", "v1"}
    assert hub_tags(sweep.api, repo_id)["v1.0.1"] == heads(sweep.api, repo_id)["v1"]
    assert titles(sweep.api, repo_id, "main")[0] == "Update the card to 1.0.1"
    assert sweep.release(repo_id).is_unchanged
    sweep.count += 1
    return outcome


@pytest.mark.parametrize(
    ("request_", "fault"),
    [
        # Sent by nobody knows whom, as no answer came.
        ("POST .*/commit/v1$", "reset-after"),
        pytest.param("POST .*/commit/v1$", "kill-after", marks=pytest.mark.slow),
        pytest.param("^PUT ", "wrong-hash", marks=pytest.mark.slow),
        # Read once more to be copied, at the promotion.
        pytest.param("^GET .*/resolve/.*/rounding.py", "wrong-hash", marks=pytest.mark.slow),
    ],
)
def test_a_fault_where_it_hurts_most(sweep: Sweep, tree: Tree, request_: str, fault: str) -> None:
    check_case(sweep, tree, f"hurts-{fault}-{len(request_)}", -1, fault, match=request_)


@pytest.mark.slow
def test_a_fault_at_the_requests_that_change_something(
    sweep: Sweep, tree: Tree, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = requests_of(sweep, "faults-plain")
    # Each kind of request that writes, once, with some faults each; the whole sweep has all.
    kinds = {one: at for at, one in enumerate(seen) if one.startswith(WRITES)}
    outcomes = []
    for number, (kind, at) in enumerate(kinds.items()):
        for fault in {FAULTS[number % len(FAULTS)], FAULTS[(number + 5) % len(FAULTS)]}:
            name = f"fault-{at}-{fault}"
            outcomes.append((kind, fault, check_case(sweep, tree, name, at, fault)))
    with capsys.disabled():
        print(f"\n{sweep.count} cases of {len(kinds)} requests that write, {len(FAULTS)} faults")
    assert sweep.count >= 20


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_at_every_request(
    sweep: Sweep, tree: Tree, fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = requests_of(sweep, f"sweep-{fault}")
    outcomes: dict[str, int] = {}
    for at in range(len(seen)):
        outcome = check_case(sweep, tree, f"sweep-{fault}-{at}", at, fault)
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    with capsys.disabled():
        print(f"\n{sweep.count} cases of {fault}: {outcomes}")


@pytest.mark.parametrize("step", [pytest.param(1, id="every"), pytest.param(9, id="some")])
@pytest.mark.slow
def test_a_fault_at_the_requests_of_a_rollback(
    sweep: Sweep, tree: Tree, step: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def content(repo_id: str, revision: str) -> dict[str, str]:
        return {path: oid for path, oid in tree(repo_id, revision).items() if path != record.FILE_NAME}

    def back(repo_id: str) -> None:
        rollback.carry_out(rollback.prepare(client.connect(sweep.proxy.url), repo_id, "v1.0.0"))

    repo_id = sweep.repository("rollback-plain")
    sweep.release(repo_id, sweep.address)
    new = content(repo_id, "v1")
    sweep.proxy.arm()
    back(repo_id)
    count = len(sweep.proxy.seen)
    cases = 0
    for at in range(0, count, step):
        fault = FAULTS[at // step % len(FAULTS)]
        # From the new release on the branch again, each time.
        sweep.proxy.arm()
        rollback.carry_out(rollback.prepare(client.connect(sweep.address), repo_id, "v1.0.1"))
        assert content(repo_id, "v1") == new
        sweep.proxy.arm(at, fault)
        if fault.startswith("kill"):
            assert in_child(lambda: back(repo_id), sweep.proxy) in (-9, 0)
        else:
            try:
                back(repo_id)
            except KernelActionsError as error:
                assert ends(fault, sweep.proxy.seen[at]), f"{fault} at {sweep.proxy.seen[at]}: {error}"
        sweep.proxy.arm()
        assert content(repo_id, "v1") in (new, content(repo_id, "v1.0.0"))
        back(repo_id)
        assert content(repo_id, "v1") == content(repo_id, "v1.0.0")
        value: Any = sweep.api.hf_hub_download(
            repo_id, record.FILE_NAME, repo_type="kernel", revision="v1", cache_dir=sweep.new.root / "cache"
        )
        assert [one["release"] for one in json.loads(Path(value).read_bytes())["rolled_back"]] == ["1.0.1"]
        cases += 1
        sweep.count += 1
    with capsys.disabled():
        print(f"\n{cases} cases of the {count} requests of a rollback")


@pytest.mark.slow
def test_eighteen_variants_are_seen_by_one_commit_and_only_changes_are_sent(
    sweep: Sweep, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """18 variants of 20 MB, with a reader that looks at the version all the time."""
    monkeypatch.setattr(patience, "TIMEOUT", 60.0)
    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 60)
    close_session()
    names = [f"torch{number}-cxx11-cu130-x86_64-linux" for number in range(210, 228)]
    repo_id = "acme/eighteen"
    size = 20_000_000

    def build(kernel: Kernel, changed: int) -> None:
        for index, name in enumerate(names):
            table = os.urandom(16) if index == changed else bytes([index]) * 16
            kernel.build(name, table=b"\0" + table + bytes(size - 17))

    seen: dict[str, None] = {}
    is_done = threading.Event()

    def look() -> None:
        while not is_done.is_set():
            refs = sweep.api.list_repo_refs(repo_id, repo_type="kernel")
            seen.update({one.target_commit: None for one in refs.branches if one.name == "v1"})
            time.sleep(0.02)

    for kernel in (sweep.old, sweep.new):
        shutil.rmtree(kernel.root / "build")
    build(sweep.old, -1)
    sweep.proxy.objects = 0
    first = sweep.old.release(sweep.proxy.url, repo_id=repo_id, git_tag=False)
    sent_first = sweep.proxy.objects
    reader = threading.Thread(target=look, daemon=True)
    reader.start()
    build(sweep.new, 3)
    sweep.proxy.objects = 0
    staged = sweep.new.release(sweep.proxy.url, repo_id=repo_id, git_tag=False, stages=("stage",))
    sent_stage, sweep.proxy.objects = sweep.proxy.objects, 0
    second = sweep.release(repo_id)
    rolled = rollback.carry_out(rollback.prepare(client.connect(sweep.proxy.url), repo_id, "v1.0.0"))
    sent_rest = sweep.proxy.objects
    time.sleep(0.2)
    is_done.set()
    reader.join()
    assert titles(sweep.api, repo_id, "v1") == [
        "Roll back to 1.0.0", "Release 1.0.1", "Release 1.0.0", "initial commit",
    ]  # fmt: skip
    assert set(seen) <= {first.commit, second.commit, rolled.commit}
    assert staged.staged not in seen
    # The name of the repository is part of each object.
    assert len(names) * size <= sent_first < len(names) * (size + 100)
    assert size <= sent_stage < size + 100
    assert sent_rest == 0
    with capsys.disabled():
        print(
            f"\nfirst release {sent_first} bytes of objects, a patch of one variant {sent_stage}, "
            f"promotion and rollback {sent_rest}; the reader saw {len(seen)} commits"
        )


_LOADER = """
import sys
from kernels import get_kernel
kernel = get_kernel(sys.argv[1], version=1, backend="cpu", trust_remote_code=True)
assert kernel.relu(-1) == 0
print(kernel.rounding.which)
"""


@pytest.mark.slow
def test_who_loads_the_version_all_the_time_gets_what_was_verified(
    kernel: Kernel, address: str, tmp_path: Path
) -> None:
    """The real loader, while releases are made, one of which does not load, and one is taken back."""
    init = kernel.root / "torch-ext" / "relu" / "__init__.py"
    good = init.read_text() + "\n\nfrom . import rounding\n"

    def attempt(which: str, source: str) -> int:
        init.write_text(source)
        kernel.commit(f"fix: {which}", rounding=f"which = {which!r}\n")
        kernel.build()
        return command(kernel.root, "release", "--hub", address).returncode

    assert attempt("first", good) == 0
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "HF_ENDPOINT": address}
    seen: list[str] = []
    is_done = threading.Event()

    def look() -> None:
        # A process each time, as a loaded kernel stays loaded.
        while not is_done.is_set():
            loaded = subprocess.run(
                [sys.executable, "-I", "-c", _LOADER, kernel.repo_id],
                env={**environment, "HF_HUB_DISABLE_XET": "1"}, capture_output=True, text=True, check=False,
            )  # fmt: skip
            seen.append(loaded.stdout.strip() or loaded.stderr)

    reader = threading.Thread(target=look, daemon=True)
    reader.start()
    outcomes = [attempt("second", good), attempt("broken", good + "raise RuntimeError('no')\n")]
    outcomes.append(command(kernel.root, "rollback", "--to", "v1.0.0", "--hub", address).returncode)
    outcomes.append(attempt("third", good))
    count = len(seen)
    while len(seen) < count + 2:
        time.sleep(0.1)
    is_done.set()
    reader.join()
    assert outcomes == [0, 1, 0, 0]
    assert seen[-1] == "third" and set(seen) <= {"first", "second", "third"}, seen
    print(f"loaded {len(seen)} times: {[name for name, _ in itertools.groupby(seen)]}")
