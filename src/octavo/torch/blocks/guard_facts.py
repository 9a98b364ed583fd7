"""What a block is, as far as its forward can tell: its modules, their attributes, its code.

From this come its guards (`octavo.core.guards.first_broken`), and a fingerprint that all blocks of
one structure share, whose calls are then traced once.
"""

from __future__ import annotations

import sys
from enum import Enum
from functools import lru_cache, partial
from types import FunctionType, MethodType
from typing import Any

from torch import Tensor, nn

from octavo.core.guards import first_broken
from octavo.torch import ops
from octavo.torch.blocks.forward_code import Code
from octavo.torch.blocks.trace.layer_index_probe import PLACES
from octavo.torch.dynamic_type import type_behind
from octavo.torch.layers.base import QuantizedModule

_OWN = frozenset(vars(nn.Module())) | {"_bound", "_own"}
_IMPLEMENTATIONS = ("_attn_implementation_internal", "_experts_implementation_internal")
_COLLECTING = "transformers.utils.output_capturing"


class State(Enum):
    """What became of a block."""

    AS_IT_WAS = 0
    CHANGED = 1  # other parts or attributes
    WRITTEN = 2  # other weights
    DISTURBED = 3  # other code, somebody who watches, training: it may be over in the next call


_STATES = (
    *(State.CHANGED, State.DISTURBED, State.CHANGED, State.DISTURBED),
    *(State.WRITTEN, State.DISTURBED, State.DISTURBED),
)
"""What it says that a group of guards is broken."""


def state_of(guards: tuple[tuple[Any, ...], ...]) -> State:
    """Tell by the guards of a block in which state it is."""
    broken = first_broken(guards)
    return State.AS_IT_WAS if broken < 0 else _STATES[broken]


class Facts:
    """A block as it is now, but for its code: that is as Octavo first saw it."""

    def __init__(self, block: nn.Module) -> None:
        self.block = block
        self._modules = list(block.named_modules())
        self.code = note_code(block)
        self._entries: list[Any] = []
        self._absences: list[Any] = []
        self._types: list[Any] = []
        self._calm: list[Any] = []
        self._hooks: list[Any] = []
        self._print: list[Any] = []
        self.silent: set[int] = set()
        """Hooks that are known to do nothing, by identity."""
        self.reason = ""
        """Why no program may stand for the block: what its forward reads may change unseen."""
        self._kept: list[Any] = []
        self._configs: dict[int, Any] = {}
        for name, module in self._modules:
            self._module(name, module)
        for config in list(self._configs.values()):
            self._config(config)
        self._code()
        self.fingerprint = tuple(self._print)
        if self.code.writes:
            self.reason = f"{self.code.writes} writes what may outlive the call"
        elif self.code.unseen:
            self.reason = f"{self.code.unseen}, which may change unseen"

    def guards(self, sources: list[Any]) -> tuple[tuple[Any, ...], ...]:
        """Return the groups that `first_broken` takes; `sources` is that of unchanged memory."""
        attributes = [part for item in self.code.attributes for part in item]
        groups = (self._entries, self._absences, self._types, attributes, sources)
        return tuple(map(tuple, (*groups, self._calm, self._hooks)))

    def silence(self) -> bool:
        """Note hooks that do nothing as silent; return whether all hooks are."""
        for own, kind, silent in zip(*(iter(self._hooks),) * 3, strict=True):
            for hook in own[kind].values():
                if id(hook) in silent:
                    continue
                if not self._served() or not _collects_attentions(hook):
                    return False
                silent.add(id(hook))
                self._kept.append(hook)
        return True

    def disturbance(self) -> str:
        """Say why a block that has programs runs its own forward: other code, training, a hook."""
        if changed := self.code.changed():
            return changed
        for name, module in self._modules:
            place = f"{name} in it" if name else "it"
            if module.training:
                return f"{place} is in training mode"
            if name and (module._forward_hooks or module._forward_pre_hooks):
                return f"{place} has a forward hook"
        return "a method or an attention function that it calls was replaced"

    def _served(self) -> bool:
        """Tell whether attention returns no weights: transformers' sdpa has none."""
        found = [vars(c).get(_IMPLEMENTATIONS[0]) for c in self._configs.values()]
        return bool(found) and all(f == "sdpa" for f in found)

    def _module(self, name: str, module: nn.Module) -> None:
        own = module.__dict__
        kind = type(module)
        self._types += [module, kind]
        self._print.append((name, type_behind(kind)))
        self._entries += [own, "_modules", module._modules]
        for key, child in module._modules.items():
            self._entries += [module._modules, key, child]
        self._calm += [own, "training", False]
        if module is not self.block:
            self._absences += [own, "forward"]
            for hooks in ("_forward_hooks", "_forward_pre_hooks"):
                self._hooks += [own, hooks, self.silent]
        for _, method, function in self.code.attributes:
            same = getattr(kind, method, None)
            if method == "forward" or same is not function or isinstance(same, property):
                continue
            if callable(function) or method not in own:  # an own number is an attribute as any
                self._absences += [own, method]
        if isinstance(module, QuantizedModule):
            self._print += [(k, _plain(v)) for k, v in sorted(module.config().items())]
            return
        for held in (module._parameters, module._buffers):
            self._entries += [own, "_parameters" if held is module._parameters else "_buffers"]
            self._entries.append(held)
            for key, tensor in held.items():
                self._entries += [held, key, tensor]
                known = None if tensor is None else (tuple(tensor.shape), tensor.dtype)
                self._print.append((key, known))
        home = type_behind(kind).__module__
        torchs, trusted = home.startswith("torch.nn."), home.startswith("transformers.")
        for key in sorted(own.keys() - _OWN if torchs else own.keys() & self.code.names - _OWN):
            self._attribute(own, key, own[key], trusted)

    def _attribute(self, own: dict[str, Any], key: str, value: Any, trusted: bool) -> None:
        """Note an attribute of a module.

        `trusted`: the module's class is of a package whose layers change no list once made.
        """
        self._entries += [own, key, value]
        if isinstance(value, (Tensor, list, dict, set)) and _is_filled(value) and not trusted:
            self.reason = f"its attribute {key} is a {type(value).__name__} that may change unseen"
        if _is_record(value):
            self._configs[id(value)] = value
        elif key not in PLACES:
            self._print.append((key, _plain(value)))

    def _config(self, config: Any) -> None:
        own = vars(config)
        for key in sorted(own.keys() & (self.code.names | {*_IMPLEMENTATIONS})):
            self._entries += [own, key, own[key]]
            self._print.append((key, _plain(own[key])))

    def _code(self) -> None:
        for owner, key, value in self.code.entries:
            self._calm += [owner, key, value]
        self._absences += [part for absence in self.code.absences for part in absence]
        self._print += [(name, _plain(value)) for _, name, value in self.code.attributes]
        words = {word for config in self._configs.values() for word in _words(config)}
        for interface in self.code.interfaces:
            for word in words:
                for held in (interface._global_mapping, interface._local_mapping):
                    if word in held:
                        self._calm += [held, word, _was(held, word)]
                        self._print.append((word, _was(held, word)))
                    else:
                        self._absences += [held, word]
        loads = vars(ops)
        self._entries += [loads, "_loads", loads["_loads"]]


def _was(held: dict[str, Any], word: str) -> Any:
    """Return what the interface `held` first had under the name `word`."""
    return _first.setdefault(id(held), (held, {}))[1].setdefault(word, held[word])


_first: dict[int, tuple[Any, dict[str, Any]]] = {}


def note_code(block: nn.Module) -> Code:
    """Return the code of a block's forwards as it was when it was first asked for."""
    kinds: dict[type, None] = {}
    words: set[str] = set()
    for module in block.modules():
        kinds[type_behind(type(module))] = None
        for value in vars(module).values():
            if _is_config(value):
                words |= _words(value)
    return _code_of(tuple(kinds), tuple(sorted(words)))


@lru_cache(512)
def _code_of(kinds: tuple[type, ...], words: tuple[str, ...]) -> Code:
    return Code(kinds, words)


def _is_config(value: Any) -> bool:
    return hasattr(value, "to_dict") and hasattr(value, "__dict__")


def _is_record(value: Any) -> bool:
    """Tell whether `value` is a config or plain object, whose attributes a forward may read."""
    others = (nn.Module, Tensor, FunctionType, MethodType, type, Enum, partial)
    return _is_config(value) or (hasattr(value, "__dict__") and not isinstance(value, others))


def _is_filled(value: Any) -> bool:
    return isinstance(value, Tensor) or len(value) > 0


def _words(config: Any) -> set[str]:
    """Return the names of the implementations that a config of transformers chooses."""
    found = (vars(config).get(key) for key in _IMPLEMENTATIONS)
    return {word for word in found if isinstance(word, str)}


def _plain(value: Any) -> Any:
    """Return a value that is equal for what a forward cannot tell apart."""
    if value is None or isinstance(value, (bool, int, float, str, type, FunctionType)):
        return type(value), value
    if isinstance(value, (tuple, list)) and len(value) < 100:
        return type(value), tuple(_plain(part) for part in value)
    if isinstance(value, dict) and len(value) < 100:
        return dict, tuple((_plain(k), _plain(v)) for k, v in value.items())
    if isinstance(value, Tensor):
        return tuple(value.shape), value.dtype
    return type(value), id(value)


def _collects_attentions(hook: Any) -> bool:
    """Tell whether a hook is transformers' own and collects an output that sdpa has None for."""
    if type(hook) is not FunctionType or hook.__module__ != _COLLECTING:
        return False
    if sys.modules.get(_COLLECTING) is None:
        return False
    try:
        cells = [cell.cell_contents for cell in hook.__closure__ or ()]
    except ValueError:  # an empty one
        return False
    held = dict(zip(hook.__code__.co_freevars, cells, strict=True))
    return str(held.get("key", "")).endswith("attentions") and held.get("index") == 1
