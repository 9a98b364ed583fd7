"""What stands for a cache of transformers in a forward that is watched: traced, or tried.

A stub is of the cache's own class, and hands what a forward asks of it to a session. What it does
not have makes a trace fail.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any

from torch import Tensor

from octavo.torch.blocks.cache.cache_layers import HOME
from octavo.torch.blocks.cache.call_caches import Session, is_cache
from octavo.torch.blocks.nodes import UnknownStep
from octavo.torch.blocks.trace.layer_index_probe import plain


class _Stub:
    """In the place of a cache: what it does not have makes a trace fail."""

    _session: Session
    _part: str

    def update(self, k: Tensor, v: Tensor, layer_idx: int, *args: Any, **kwargs: Any) -> Any:
        return self._session.update(self._part, k, v, plain(layer_idx), args, kwargs)

    def __bool__(self) -> bool:
        return self._session.has_layers(self._part)

    def __len__(self) -> int:
        raise UnknownStep("a cache is asked for the number of its layers")

    def get_seq_length(self, layer_idx: int = 0) -> Any:
        part = "self_attention_cache" if hasattr(type(self), "_two") else self._part
        return self._session.length(part, plain(layer_idx))

    @property
    def layers(self) -> Any:
        return _Layers(self._session, self._part)

    def __getattr__(self, name: str) -> Any:
        raise UnknownStep(f"a cache is asked for its {name}")


class _TwoStubs(_Stub):
    """In the place of the caches of self and cross attention."""

    _two = True
    self_attention_cache: Any
    cross_attention_cache: Any
    is_updated: Any


class _Layers:
    def __init__(self, session: Session, part: str) -> None:
        self._session, self._part = session, part

    def __getitem__(self, index: int) -> Any:
        return _Layer(self._session, self._part, plain(index))


class _Layer:
    def __init__(self, session: Session, part: str, index: int) -> None:
        self._at = session, part, index

    @property
    def keys(self) -> Tensor:
        session, part, index = self._at
        return session.read(part, index, "keys")

    @property
    def values(self) -> Tensor:
        session, part, index = self._at
        return session.read(part, index, "values")


class _Flags:
    def __init__(self, session: Session) -> None:
        self._session = session

    def get(self, index: int, default: Any = None) -> Any:
        return self._session.flag(plain(index))

    __getitem__ = get

    def __setitem__(self, index: int, value: Any) -> None:
        self._session.set_flag(plain(index), value)


@lru_cache(64)
def _stub_type(kind: type, stub: type) -> type:
    return type(f"{kind.__name__}Stub", (stub, kind), {})


def stub_of(cache: Any, session: Session) -> Any:
    """Return the stub that stands for `cache` in a forward that `session` watches."""
    if not is_cache(cache):
        raise UnknownStep(f"an argument is a {type(cache).__name__}")
    home = sys.modules[HOME]
    if not isinstance(cache, home.EncoderDecoderCache):
        return _made(type(cache), _Stub, session, "")
    made: Any = _made(type(cache), _TwoStubs, session, "")
    for part in ("self_attention_cache", "cross_attention_cache"):
        made.__dict__[part] = _made(type(getattr(cache, part)), _Stub, session, part)
    made.__dict__["is_updated"] = _Flags(session)
    return made


def _made(kind: type, stub: type, session: Session, part: str) -> Any:
    made: Any = object.__new__(_stub_type(kind, stub))
    made.__dict__.update(_session=session, _part=part)
    return made
