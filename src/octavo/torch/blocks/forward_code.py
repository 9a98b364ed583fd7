"""The code that a block's forward runs: functions, and the names that they look up.

A function that somebody puts in the place of one of these means to be called: a block whose code is
not what it was when Octavo first saw it is left to its own forward.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterable
from contextlib import suppress
from enum import Enum
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    MethodType,
    ModuleType,
    SimpleNamespace,
)
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from octavo.torch.dynamic_type import type_behind

_OTHERS = ("torch", "octavo", "builtins", "functools", "typing", "contextlib")
"""Modules whose functions are taken for granted."""
_CHANGED = "is not what it was when Octavo first saw the block's code"
_LOADS_GLOBAL = frozenset("LOAD_GLOBAL LOAD_NAME LOAD_FROM_DICT_OR_GLOBALS".split())
_WRITES = frozenset("STORE_ATTR DELETE_ATTR STORE_GLOBAL DELETE_GLOBAL STORE_SUBSCR".split())
_MUTATORS = frozenset(
    "append extend insert pop clear setdefault setattr remove discard "
    "add_ sub_ mul_ div_ copy_ fill_ zero_".split()
)
_KEEPS_NOTHING = ("transformers",)
"""Packages whose layers keep nothing from call to call but what a trace shows."""
_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_CONTAINERS = (list, dict, set, bytearray, tuple, frozenset)
_TORCHS = (torch.dtype, torch.device, torch.memory_format, torch.layout)
_UNCHANGING = (*_PLAIN, *_TORCHS, FunctionType, BuiltinFunctionType, type(Ellipsis), range, Enum)


class Code:
    """What the forwards of some classes are made of.

    `words` are those by which interfaces choose their functions.
    """

    def __init__(self, kinds: Iterable[type], words: Iterable[str] = ()) -> None:
        self.kinds = list(dict.fromkeys(type_behind(kind) for kind in kinds))
        self.names: set[str] = set()
        """Names of attributes and texts in the functions: what they may read of an object."""
        self.entries: list[tuple[dict[str, Any], str, Any]] = []
        """Names of modules that are looked up, by dict."""
        self.attributes: list[tuple[Any, str, Any]] = []
        """Methods and data of classes; defaults of functions; what closures hold."""
        self.writes = ""
        """A function that may leave something behind which no trace shows; "" where none does."""
        self.unseen = ""
        """What the functions read that may change without a trace of it; "" for nothing."""
        self.modules: list[dict[str, Any]] = []
        """What modules and objects hold that are globals, and are read as `settings.FACTOR`."""
        self.absences: list[tuple[dict[str, Any], str]] = []
        """Names that objects do not have of their own, by their dict: their class answers."""
        self.classes: list[type] = []
        """Classes that are globals, and are read as `Settings.FACTOR`."""
        self.interfaces: list[Any] = []
        """Objects that choose a function by a name, as transformers has them."""
        self.objects: list[Any] = []
        self._seen: set[int] = set()
        self._waiting: list[FunctionType] = []
        for kind in self.kinds:
            self._method(kind, "forward")
            if kind.__module__.startswith("torch.nn."):  # whose functions are not looked into
                for name, value in vars(kind).items():
                    if isinstance(value, FunctionType) and not name.startswith("__"):
                        self._method(kind, name)
        before = -1
        while before != len(self.names):
            before = len(self.names)
            self._walk()
            for interface in self.interfaces:
                for word in words:
                    for held in (interface._global_mapping, interface._local_mapping):
                        self._visit(held.get(word))
            for kind in self.kinds:
                for name in [n for n in self.names if isinstance(_found(kind, n), FunctionType)]:
                    self._method(kind, name)
                for name in [n for n in self.names if _is_data(kind, n)]:
                    self._data(kind, name)
            self._read_modules()
            self._walk()
        self._functions()

    def _data(self, kind: type, name: str) -> None:
        """Note a number, text or property of a class, which an instance may override."""
        value = _static(kind, name)
        if any(k is kind and n == name for k, n, _ in self.attributes):
            return
        self.attributes.append((kind, name, getattr(kind, name)))
        if isinstance(value, property) and value.fget is not None:
            self._visit(value.fget)

    def _method(self, kind: type, name: str) -> None:
        function = _found(kind, name)
        if function is None or any(k is kind and n == name for k, n, _ in self.attributes):
            return
        self.attributes.append((kind, name, function))
        self._visit(function)

    def _visit(self, value: Any) -> None:
        if isinstance(value, MethodType):
            value = value.__func__
        if not isinstance(value, FunctionType) or id(value) in self._seen:
            return
        if (value.__module__ or "").partition(".")[0] in _OTHERS and not value.__closure__:
            return
        self._seen.add(id(value))
        self._waiting.append(value)

    def _walk(self) -> None:
        while self._waiting:
            function = self._waiting.pop()
            home = (function.__module__ or "").partition(".")[0]
            trusted = home in (*_OTHERS, *_KEEPS_NOTHING)
            for name, cell in zip(
                function.__code__.co_freevars, function.__closure__ or (), strict=True
            ):
                with suppress(ValueError):  # an empty one
                    self._visit(cell.cell_contents)
                    if not trusted:
                        self._held(cell, "cell_contents", f"{function.__qualname__}'s {name}")
            if home in _OTHERS:
                continue
            names, loaded = _names(function.__code__)
            if not trusted:
                if _may_write(function.__code__):
                    self.writes = self.writes or function.__qualname__
                for defaults in ("__defaults__", "__kwdefaults__"):
                    self._defaults(function, defaults)
            self.names |= names
            for name in loaded & function.__globals__.keys():
                self._global(function.__globals__, name)

    def _defaults(self, function: FunctionType, defaults: str) -> None:
        """Watch what a function takes for arguments that are not given."""
        if held := getattr(function, defaults):
            self.attributes.append((function, defaults, held))
            if isinstance(held, dict):
                self.entries += [(held, name, value) for name, value in held.items()]
            for value in held.values() if isinstance(held, dict) else held:
                self._see(value, f"a default of {function.__qualname__}")

    def _held(self, owner: Any, name: str, place: str) -> None:
        """Watch an attribute by its identity, which tells all of it where its value is plain."""
        value = getattr(owner, name)
        if not any(o is owner and n == name for o, n, _ in self.attributes):
            self.attributes.append((owner, name, value))
            self._see(value, place)

    def _see(self, value: Any, place: str) -> None:
        """Note a value whose content may change while it stays the same object."""
        if isinstance(value, (tuple, frozenset)):
            for part in value:
                self._see(part, place)
        elif not isinstance(value, (*_UNCHANGING, type, ModuleType)) and not callable(value):
            self.unseen = self.unseen or f"{place} is a {type(value).__name__}"

    def _read_modules(self) -> None:
        """Note what the functions may read of modules, objects and classes."""
        for held in list(self.modules):
            for name in sorted(self.names & held.keys()):
                self._global(held, name)
        for kind in list(self.classes):
            for name in sorted(n for n in self.names if not n.startswith("__")):
                if not any(name in vars(k) for k in kind.__mro__):
                    continue
                value = _static(kind, name)
                if isinstance(value, (classmethod, staticmethod)):
                    self._visit(value.__func__)
                elif isinstance(value, (FunctionType, property)):
                    self._visit(value.fget if isinstance(value, property) else value)
                else:
                    self._held(kind, name, f"{kind.__qualname__}.{name}")
                for held in (vars(o) for o in self.objects if isinstance(o, kind)):
                    known = any(h is held and n == name for h, n in self.absences)
                    if name not in held and not known:
                        self.absences.append((held, name))

    def _global(self, owner: dict[str, Any], name: str) -> None:
        value = owner[name]
        home = _home(value if isinstance(value, (ModuleType, type)) else type(value))
        ours = home not in (*_OTHERS, *_KEEPS_NOTHING, *sys.stdlib_module_names)
        if isinstance(value, ModuleType):
            if ours and not any(held is vars(value) for held in self.modules):
                self.modules.append(vars(value))
            return
        if isinstance(value, type):
            if ours and not issubclass(value, BaseException) and value not in self.classes:
                self.classes.append(value)
            return
        if hasattr(value, "_global_mapping"):
            if not any(value is known for known in self.interfaces):
                self.interfaces.append(value)
        elif not isinstance(value, (FunctionType, *_PLAIN)):
            if owner.get("__name__", "").partition(".")[0] not in (*_OTHERS, *_KEEPS_NOTHING):
                self._object(owner, name, ours)
            return
        if not any(d is owner and n == name for d, n, _ in self.entries):
            self.entries.append((owner, name, value))
            self._visit(value)

    def _object(self, owner: dict[str, Any], name: str, ours: bool) -> None:
        """Watch an object that a global names, and what the functions read of it."""
        value = owner[name]
        place = f"{owner.get('__name__', 'its module')}.{name}"
        if any(d is owner and n == name for d, n, _ in self.entries):
            return
        self.entries.append((owner, name, value))
        if isinstance(value, nn.Module):
            if next(value.parameters(), next(value.buffers(), None)) is not None:
                self.unseen = self.unseen or f"{place} is a module with weights"
        elif isinstance(value, (Tensor, *_CONTAINERS)) or not hasattr(value, "__dict__"):
            self._see(value, place)
        elif ours or isinstance(value, SimpleNamespace):
            self.modules.append(vars(value))
            self.classes.append(type(value))
            self.objects.append(value)

    def changed(self) -> str:
        """Name what is another than it was when Octavo first saw the code; "" for nothing."""
        for owner, name, value in self.entries:
            if owner.get(name) is not value:
                return f"{owner.get('__name__', 'its module')}.{name} {_CHANGED}"
        for owner, name in self.absences:
            if name in owner:
                return f"an object's {name} {_CHANGED}"
        for kind, name, value in self.attributes:
            if getattr(kind, name, None) is not value:
                return f"{getattr(kind, '__qualname__', 'a closure')}.{name} {_CHANGED}"
        return ""

    def _functions(self) -> None:
        held = vars(functional)
        used = self.names & held.keys()
        self.entries += [(held, n, held[n]) for n in sorted(used) if callable(held[n])]


def _home(value: Any) -> str:
    """Return the name of the package that a Python module or a class belongs to."""
    named = value.__name__ if isinstance(value, ModuleType) else value.__module__
    return str(named).partition(".")[0]


def _found(kind: type, name: str) -> Any:
    """Return an attribute of a class; None where it is missing or nn.Module's own."""
    value = getattr(kind, name, None)
    return None if value is None or getattr(nn.Module, name, None) is value else value


def _is_data(kind: type, name: str) -> bool:
    """Tell whether a class has plain data or a property under a name that nn.Module lacks."""
    if hasattr(nn.Module, name) or kind.__module__.startswith("torch.nn."):
        return False
    plain = (bool, int, float, str, tuple, property)
    return isinstance(_static(kind, name), plain)


def _static(kind: type, name: str) -> Any:
    """Return an attribute of a class or its bases without binding it; None where there is none.

    `inspect.getattr_static` takes 30 times as long, which loading a model is to be spared.
    """
    return next((vars(k)[name] for k in kind.__mro__ if name in vars(k)), None)


def _may_write(code: CodeType) -> bool:
    """Tell whether code has instructions or calls that change what outlives the call."""
    if any(i.opname in _WRITES for i in dis.get_instructions(code)):
        return True
    if _MUTATORS & set(code.co_names):
        return True
    return any(_may_write(part) for part in code.co_consts if isinstance(part, CodeType))


def _names(code: CodeType) -> tuple[set[str], set[str]]:
    """Return the attributes and texts in a function and those inside it, and the globals it loads.

    One name may be both: `self.scale` reads no global `scale`, and that one no attribute.
    """
    names = {constant for constant in code.co_consts if isinstance(constant, str)}
    loaded = set()
    for instruction in dis.get_instructions(code):
        if instruction.opname in _LOADS_GLOBAL:
            loaded.add(instruction.argval)
        elif instruction.opcode in dis.hasname:
            names.add(instruction.argval)
    for part in code.co_consts:
        if isinstance(part, CodeType):
            inner, inner_loaded = _names(part)
            names |= inner
            loaded |= inner_loaded
    return names, loaded | (names if "globals" in loaded else set())
