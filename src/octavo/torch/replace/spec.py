"""`qconfig_spec` and `dtype`, with the meaning that torch.ao's quantize_dynamic gives them.

For each module, in this order: its own attribute `qconfig`, its dotted name ("" is the model), its
type, and what its parent has. None switches off. A type counts for subclasses too that keep its
forward. Names of single layers of an RNN stack ("encoder.lstm.l1") count as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from torch import nn

from octavo.core.qparams import QType
from octavo.errors import OptionError, did_you_mean, listed
from octavo.recipe import PRESETS, Granularity, Kind, Scheme, WeightScheme
from octavo.recipe.block_options import refuse_four_bits
from octavo.torch.dynamic_type import own_type
from octavo.torch.layers.registry import covering, declarations
from octavo.torch.qconfig.choice import QConfigChoice
from octavo.torch.replace.inventory import ModuleLayer
from octavo.torch.replace.mapping import default_mapping, inherited, not_alike, overrides
from octavo.torch.weight_choice import Answer, SchemeChoice, WeightChoice

_BY_DTYPE: dict[str, Scheme] = {
    "int8": Scheme(),
    "float16": PRESETS["float16"].default,
    "uint8": Scheme(WeightScheme(QType.UINT8, Granularity.CHANNEL, symmetric=False), None),
}
_ALIASES = {"qint8": "int8", "quint8": "uint8", "half": "float16"}
_DTYPES = [f"torch.{name}" for name in ("qint8", "float16", "quint8")] + [*_BY_DTYPE, *_ALIASES]
_NO_ATTRIBUTE = object()
_OWN = ("name", "attribute")  # how a module is chosen by itself, not with others
_BY_ITSELF = (Kind.EMBEDDING, Kind.CONV)  # never through a parent: torch.ao leaves them float


def storage_of(dtype: Any) -> str:
    """Return int8, float16 or uint8 for torch.qint8, torch.float16, torch.quint8 or their names."""
    text = str(dtype).removeprefix("torch.")
    text = _ALIASES.get(text, text)
    if text in _BY_DTYPE:
        return text
    refuse_four_bits("dtype", text)
    raise OptionError(f"dtype: {dtype!r} is not supported.{did_you_mean(str(dtype), _DTYPES)}")


def default_types(storage: str) -> list[type]:
    """Return the float layer types that are quantized to `storage` unless a spec says otherwise."""
    return [d.types()[0] for d in declarations() if storage in d.dtypes]


class QConfigSpec:
    """A checked `qconfig_spec`; `answers` tells what it says of each layer of a model."""

    def __init__(
        self, model: nn.Module, parts: Collection[ModuleLayer], given: Any, dtype: Any
    ) -> None:
        storage = storage_of(dtype)
        scheme = _BY_DTYPE[storage]
        self.default = given is None
        self.dtype = storage
        self.notes: list[str] = []
        if given is None:
            self._entries: dict[Any, WeightChoice | None] = dict.fromkeys(
                default_types(storage), SchemeChoice(scheme)
            )
        elif isinstance(given, Mapping):
            self._entries = {key: _value(key, value) for key, value in given.items()}
        elif isinstance(given, (set, frozenset, list, tuple)):
            self._entries = dict.fromkeys(given, SchemeChoice(scheme))
        else:
            raise OptionError(
                "qconfig_spec: needs None, a set of types and dotted names, or a dict from those "
                f"to qconfigs; got {type(given).__name__}"
            )
        # Like torch.ao's, an empty one leaves it to the attributes.
        if not self._entries and not any(hasattr(m, "qconfig") for m in model.modules()):
            raise OptionError(
                "qconfig_spec: is empty and so names nothing to quantize; leave it out to quantize "
                "every layer that can be, or name types and modules"
            )
        self._types = {t for t in self._entries if isinstance(t, type) and t is not nn.Module}
        self._check(model, parts)

    def answers(self, model: nn.Module, parts: Collection[ModuleLayer]) -> dict[str, Answer]:
        """Return, by layer name, what the spec asks of each layer."""
        by_module = self._by_module(model)
        modules = dict(model.named_modules())
        found = {}
        for part in parts:
            _, choice, how = by_module[id(modules[part.module])]
            layer = part.layer.name
            if part.index is not None and layer in self._entries:
                choice, how = self._entries[layer], "name"
            found[layer] = self._answer(part, modules[part.module], choice, how)
        return found

    def of_modules(self, model: nn.Module) -> dict[str, WeightChoice]:
        """Return, by name, what the spec says of modules, with weights or not; not of the model."""
        found = {name: choice for name, choice, _ in self._by_module(model).values()}
        return {name: choice for name, choice in found.items() if name and choice is not None}

    def refuse_unknown(self, model: nn.Module, mapping: Mapping[type, type]) -> None:
        """Raise OptionError where a type or name asks for a layer that has no quantized form."""
        names: dict[str, list[str]] = {}
        modules = dict(model.named_modules())
        for name, choice, how in self._by_module(model).values():
            if choice is not None and how in ("type", "name"):
                module = modules[name]
                known = inherited(module, {*mapping, *default_mapping()})
                if _holds_weights_alone(module) and known is None:
                    names.setdefault(own_type(module).__name__, []).append(name or "the model")
        if not names:
            return
        said = [f"{kind} ({listed(some, 3)})" for kind, some in names.items()]
        all_known = ", ".join(sorted(kind.__name__ for kind in mapping))
        raise OptionError(
            f"qconfig_spec asks for {' and '.join(said)}, of which there is no quantized form; "
            f"leave that out, or give it a type of your own in `mapping`, which has {all_known}"
        )

    def _by_module(self, model: nn.Module) -> dict[int, tuple[str, WeightChoice | None, str]]:
        """Return, by a module's id, its first name, what is said of it, and how.

        A module that stands in several places is held as one of its names says, if one is given.
        """
        found: dict[int, tuple[str, WeightChoice | None, str]] = {}
        for name, module, choice, how in self._walk(model, "", None, ""):
            first = found.setdefault(id(module), (name, choice, how))
            if first[1] == choice or not module._parameters:
                continue
            if (how in _OWN) == (first[2] in _OWN):
                raise OptionError(
                    f"qconfig_spec: {first[0]!r} and {name!r} are one and the same module, and are "
                    "told to be held differently; give one of these names a qconfig (or None), or "
                    "both the same"
                )
            if how in _OWN:
                found[id(module)] = (first[0], choice, how)
        return found

    def _answer(
        self, part: ModuleLayer, module: nn.Module, choice: WeightChoice | None, how: str
    ) -> Answer:
        kind = part.layer.kind
        if choice is None:
            if how:
                return Answer(None, f"switched off by {how} in qconfig_spec")
            return Answer(None, self._unasked(part, module))
        if kind in _BY_ITSELF and how == "parent":
            return Answer(
                None, f"{part.layer.op} is quantized where qconfig_spec has its own name or type"
            )
        if choice.storage == "uint8" and kind is not Kind.EMBEDDING and how == "parent":
            return Answer(None, "uint8 is for embeddings")
        named = how in _OWN or (how == "type" and own_type(module) in self._entries)
        return Answer(choice, named=named)

    def _unasked(self, part: ModuleLayer, module: nn.Module) -> str:
        if part.layer.kind is Kind.OTHER:
            return f"Octavo has no quantized form of {part.layer.op}"
        base = inherited(module, self._types)
        if base is not None:
            return not_alike(module, base)
        if not self.default:
            return "not named in qconfig_spec"
        if self.dtype == "uint8":
            return "dtype uint8 is for embeddings"
        return f"{part.layer.op} is float by default, as in torch.ao; name it in qconfig_spec"

    def _walk(
        self, module: nn.Module, name: str, choice: WeightChoice | None, how: str
    ) -> Iterator[tuple[str, nn.Module, WeightChoice | None, str]]:
        how = "parent" if how else ""
        key = self._type_key(module)
        if key is not None:
            choice, how = self._entries[key], "type"
        if name in self._entries:
            choice, how = self._entries[name], "name"
        qconfig = getattr(module, "qconfig", _NO_ATTRIBUTE)  # a class may have it for its modules
        if qconfig is not _NO_ATTRIBUTE:
            choice, how = _value(name, qconfig), "attribute"
        yield name, module, choice, how
        for child_name, child in module._modules.items():  # one that stands twice comes twice
            if child is None:
                continue
            yield from self._walk(child, f"{name}.{child_name}".removeprefix("."), choice, how)

    def _type_key(self, module: nn.Module) -> type | None:
        kind = own_type(module)
        if kind in self._entries:
            return kind
        base = inherited(module, self._types)
        if base is not None and not overrides(kind, base):
            return base
        declared = covering(module) if self.default else None
        with_others = None if declared is None else declared.chosen_with
        return with_others if with_others in self._entries else None

    def _check(self, model: nn.Module, parts: Collection[ModuleLayer]) -> None:
        names = {name for name, _ in model.named_modules(remove_duplicate=False)}
        names |= {part.layer.name for part in parts}
        present = {base for module in model.modules() for base in own_type(module).__mro__}
        for key in self._entries:
            if isinstance(key, str):
                if key not in names:
                    typed = next((t for t in present if t.__name__ == key.rpartition(".")[2]), None)
                    hint = f" {key!r} is also a type: pass the type, not its name." if typed else ""
                    raise OptionError(
                        f"qconfig_spec: the model has no module {key!r}.{hint}"
                        + did_you_mean(key, names - {""})
                    )
            elif not (isinstance(key, type) and issubclass(key, nn.Module)):
                raise OptionError(
                    f"qconfig_spec: {key!r} is neither a module type nor a dotted name"
                )
            elif key not in present and not self.default:
                self.notes.append(f"qconfig_spec names {key.__name__}; the model has none")


def _holds_weights_alone(module: nn.Module) -> bool:
    """Tell whether a module has parameters, and no modules in it but what computes these."""
    inner = any(name != "parametrizations" for name in module._modules)
    return not inner and next(module.parameters(), None) is not None


def _value(key: Any, value: Any) -> WeightChoice | None:
    if value is None:
        return None
    if isinstance(value, Scheme):
        return None if value.is_float else SchemeChoice(value)
    if hasattr(value, "weight") and hasattr(value, "activation"):
        return QConfigChoice(value)
    where = key if isinstance(key, str) else getattr(key, "__name__", repr(key))
    raise OptionError(
        f"qconfig_spec: the value for {where!r} is {value!r}; needs a QConfig, a Scheme, or None "
        "to leave it float"
    )
