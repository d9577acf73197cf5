"""The day by which ages are counted and waivers end: today, or the one that ``KA_TODAY`` names."""

from __future__ import annotations

import datetime
import os

from kernel_actions.errors import WrongInput

VARIABLE = "KA_TODAY"


def today() -> datetime.date:
    """The day, in the time of Greenwich. Raises ``WrongInput`` when the variable holds no day."""
    if not is_set():
        return datetime.datetime.now(datetime.timezone.utc).date()
    text = os.environ[VARIABLE]
    try:
        return datetime.datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=datetime.timezone.utc).date()
    except ValueError as error:
        what = f"{VARIABLE} is {text[:80]!r}, which is no day"
        raise WrongInput(what, repair=f"write it as in {VARIABLE}=2027-03-31, or unset it") from error


def is_set() -> bool:
    """Whether another day than today was asked for."""
    return bool(os.environ.get(VARIABLE))
