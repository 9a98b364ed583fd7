"""What the schema is made of: sections with known keys, and what is said of each key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_origin

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainValidator,
    create_model,
    model_validator,
)

from octavo.errors import listed
from octavo.tune.config import values


@dataclass(frozen=True)
class Idle:
    """Beside a key's type: it is accepted and changes nothing, for `reason`.

    Unless `needed_by`, a framework or an approach, is what the file asks for.
    """

    reason: str
    needed_by: tuple[str, ...] = ()


class Section(BaseModel):
    """A mapping with known keys. One that is left empty in the file has none."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    @model_validator(mode="before")
    @classmethod
    def _mapping(cls, data: Any) -> Any:
        if data is None:
            return {}
        if not isinstance(data, Mapping):
            keys = listed(cls.model_fields) or "nothing"
            raise values.wrong(data, "a section", f"a mapping with {keys}")
        return data

    def given(self) -> dict[str, Any]:
        """What the file itself says, by key, in the schema's order."""
        fields = type(self).model_fields
        return {key: getattr(self, key) for key in fields if key in self.model_fields_set}

    def get(self, *path: str, default: Any = None) -> Any:
        """What the file says at `path`, else `default`."""
        value: Any = self
        for key in path:
            if not isinstance(value, Section) or key not in value.model_fields_set:
                return default
            value = getattr(value, key)
        return value


Kind = Any  # an annotation: what pydantic takes as the type of a field


def section(
    name: str,
    required: Mapping[str, Kind] | None = None,
    optional: Mapping[str, Kind] | None = None,
) -> type[Section]:
    """A section called `name` with these keys. What the file leaves out is None: see `get`."""
    fields: dict[str, Any] = {key: (kind, ...) for key, kind in (required or {}).items()}
    fields |= {key: (kind, None) for key, kind in (optional or {}).items()}
    return create_model(name, __base__=Section, **fields)


def idle(kind: Kind, reason: str, *needed_by: str) -> Kind:
    """`kind`, of a key that changes nothing unless one of `needed_by` is asked for: see Idle."""
    return Annotated[kind, Idle(reason, needed_by)]


def checked(check: Callable[[Any], Any]) -> Kind:
    """The type of a key whose values pass `check`."""
    return Annotated[Any, PlainValidator(check)]


def word(what: str, *known: Any) -> Kind:
    """The type of a key that takes one of the values in `known`."""
    return checked(values.one_of(what, *known))


def refused(reason: str) -> Kind:
    """The type of a key that is known and not done."""
    return checked(values.refused(reason))


def by_name(key: Callable[[Any], str], kind: Kind) -> Kind:
    """The type of a mapping from names that pass `key` to `kind`."""
    names: Any = dict[checked(key), kind]  # type: ignore[misc]
    return Annotated[names, BeforeValidator(values.mapping_or_nothing)]


def child(kind: Kind, key: str | int) -> Kind:
    """The type of what stands at `key` in a section or mapping of the type `kind`; None if none."""
    if isinstance(kind, type) and issubclass(kind, Section):
        field = kind.model_fields.get(str(key))
        return None if field is None else field.annotation
    origin: Any = get_origin(kind)
    if origin is dict:
        return get_args(kind)[1]
    return None


TEXT = checked(values.text)
FLAG = checked(values.flag)
WHOLE = checked(values.whole())
POSITIVE = checked(values.whole(1))
NUMBER = checked(values.number())
NUMBERS = checked(values.many(values.number(), "a list of numbers"))
NAMES = checked(values.names)
LIST = checked(values.any_list)
