"""Locks kernels with the ``kernels`` package's own code, for the Hub of HF_ENDPOINT. A program of its own.

It is run in a fresh process, as the package reads its settings when it is imported, and imports nothing
of the suite. Its input is JSON: ``dependencies``, a map from repositories to versions, and ``trusted``, in
place of the parameter ``trust_remote_code`` that ``kernels lock`` does not have. Its answer is JSON too:
``lock``, the text of the file; or ``kind`` (``trust``, ``input`` or ``surroundings``), ``error``, and the
``repo_id`` that it is about, which may be empty.
"""

import json
import sys
from pathlib import Path
from typing import Any


class UntrustedError(Exception):
    """A repository of a publisher that the Hub does not list as trusted."""


def lock(dependencies: dict[str, int], trusted: Any, seen: list[str]) -> str:
    """What ``kernels lock`` would write for ``dependencies``; ``seen`` gets the repositories in turn."""
    # A lock is the same with Torch or without, and to import it takes seconds.
    sys.modules["torch"] = None  # type: ignore[assignment]
    from kernels import locking
    from kernels._rust import KernelDependency, KernelVersion
    from kernels.hf_hub import _get_hf_api

    check = locking._check_trust_remote_code

    def check_trust(*, repo_id: str, local_files_only: bool, trust_remote_code: Any) -> None:
        seen.append(repo_id)
        try:
            check(repo_id=repo_id, local_files_only=local_files_only, trust_remote_code=trusted)
        except ValueError as error:
            # kernels says the same of a Hub that does not answer and of one that knows no such organisation.
            cause = error.__context__
            if cause is None or getattr(getattr(cause, "response", None), "status_code", None) == 404:
                raise UntrustedError(repo_id) from error
            raise cause from None

    locking._check_trust_remote_code = check_trust
    wanted = [
        KernelDependency(repo_id=repo_id, version=KernelVersion.Version(version))
        for repo_id, version in dependencies.items()
    ]
    return str(locking.extract_dependency_locks(wanted, api=_get_hf_api()).to_json())


def main() -> None:
    """Answer the question in the first file of the arguments by the second."""
    import httpx2
    from huggingface_hub.errors import (
        EntryNotFoundError,
        HfHubHTTPError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    asked = json.loads(Path(sys.argv[1]).read_bytes())
    seen: list[str] = []
    try:
        answer = {"lock": lock(asked["dependencies"], asked["trusted"], seen)}
    except UntrustedError as error:
        answer = {"kind": "trust", "error": str(error)}
    except (RepositoryNotFoundError, RevisionNotFoundError, EntryNotFoundError, ValueError) as error:
        message = getattr(error, "server_message", None) or str(error)
        answer = {"kind": "input", "error": f"{type(error).__name__}: {message}"}
    except (HfHubHTTPError, httpx2.HTTPError, OSError) as error:
        answer = {"kind": "surroundings", "error": f"{type(error).__name__}: {error}"}
    except (ImportError, AttributeError, TypeError) as error:
        what = f"this version of kernels locks in another way: {type(error).__name__}: {error}"
        answer = {"kind": "surroundings", "error": what}
    answer["repo_id"] = seen[-1] if seen else ""
    Path(sys.argv[2]).write_text(json.dumps(answer))


if __name__ == "__main__":
    main()
