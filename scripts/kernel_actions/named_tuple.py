"""``typing.NamedTuple``, defined in a fifth of the time: it compiles nothing.

A plan waits for the definitions of forty of them, which were a tenth of its processor time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["NamedTuple"]

if TYPE_CHECKING:
    from typing import NamedTuple
else:
    from operator import itemgetter

    class _Definition(type):
        """Makes a class of its annotations."""

        def __new__(cls, name: str, bases: tuple[type, ...], members: dict[str, Any]) -> Any:
            made = super().__new__(cls, name, bases, {"__slots__": (), **members})
            fields = made._fields = made.__match_args__ = tuple(made.__annotations__)
            made._field_defaults = {field: members[field] for field in fields if field in members}
            for index, field in enumerate(fields):
                setattr(made, field, property(itemgetter(index)))
            return made

    class NamedTuple(tuple, metaclass=_Definition):
        """A tuple whose entries have names. They are compared, hashed and sorted as those of any tuple."""

        def __new__(cls, /, *values: Any, **named: Any) -> Any:
            rest = cls._fields[len(values) :]
            if named and tuple(named) == rest:
                values += tuple(named.values())
            elif named or rest:
                given = {**cls._field_defaults, **named}
                if not named.keys() <= set(rest) or not given.keys() >= set(rest):
                    wrong = sorted(named.keys() ^ set(rest))
                    raise TypeError(
                        f"{cls.__name__} is made with wrong or missing fields: {', '.join(wrong)}"
                    )
                values += tuple([given[field] for field in rest])
            elif len(values) > len(cls._fields):
                raise TypeError(f"{cls.__name__} has {len(cls._fields)} fields, not {len(values)}")
            return tuple.__new__(cls, values)

        def _replace(self, /, **changes: Any) -> Any:
            return type(self)(**{**dict(zip(self._fields, self, strict=True)), **changes})

        def __getnewargs__(self) -> tuple[Any, ...]:
            return tuple(self)

        def __repr__(self) -> str:
            pairs = zip(self._fields, self, strict=True)
            return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in pairs)})"
