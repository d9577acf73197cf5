"""Our named tuples are those of ``typing``, but for the time that they take to define."""

from __future__ import annotations

import copy
import pickle
import typing

import pytest
from kernel_actions import named_tuple
from kernel_actions.errors import Place


class _Ours(named_tuple.NamedTuple):
    """Ours."""

    name: str
    values: tuple[int, ...] = ()
    place: Place | None = None

    @property
    def twice(self) -> str:
        return self.name * 2

    def __str__(self) -> str:
        return self.name


class _Theirs(typing.NamedTuple):
    name: str
    values: tuple[int, ...] = ()
    place: Place | None = None


@pytest.mark.parametrize(
    ("values", "named"),
    [
        (("a",), {}),
        (("a", (1,)), {}),
        (("a", (1,), None), {}),
        ((), {"name": "a"}),
        ((), {"name": "a", "values": (1,), "place": None}),
        ((), {"place": None, "name": "a"}),
        (("a",), {"place": None}),
        (("a",), {"values": (1,), "place": None}),
        ((), {}),
        ((), {"values": (1,)}),
        (("a",), {"name": "a"}),
        (("a",), {"other": 1}),
        (("a", (1,), None, 1), {}),
        (("a", (1,), None), {"place": None}),
    ],
)
def test_they_are_made_as_those_of_typing_are(
    values: tuple[typing.Any, ...], named: dict[str, typing.Any]
) -> None:
    try:
        expected = _Theirs(*values, **named)
    except TypeError:
        with pytest.raises(TypeError):
            _Ours(*values, **named)
        return
    made = _Ours(*values, **named)
    assert made == expected and hash(made) == hash(expected)
    assert repr(made) == repr(expected).replace("_Theirs", "_Ours")
    assert (made.name, made.values, made.place) == (expected.name, expected.values, expected.place)
    assert made._replace(name="b") == expected._replace(name="b")


def test_they_are_immutable_and_keep_their_methods_and_kind() -> None:
    made = _Ours("a")
    for name in ("name", "other", "twice"):
        with pytest.raises(AttributeError):
            setattr(made, name, "b")
    with pytest.raises(TypeError):
        made._replace(other=1)  # type: ignore[call-arg]
    assert (made.twice, str(made), f"{made}") == ("aa", "a", "a")
    for same in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert type(same) is _Ours and same == made
    match made:
        case _Ours(name, values):
            assert (name, values) == ("a", ())
