"""What embeddings and embedding bags share: a table of rows, and how it is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from octavo.core.embedding import Embedding as Kernel
from octavo.core.kernels import aligned
from octavo.core.kernels.packing import ALIGNMENT
from octavo.core.live_buffers import Read
from octavo.torch.layers.base import QuantizedModule
from octavo.torch.memory import array, float32, optional, tensor_of
from octavo.torch.quantizer import Buffers, Quantizer
from octavo.torch.weight_choice import HALVES, WeightChoice, rounded

Call = Callable[[Tensor], Tensor]

INDICES = (torch.int32, torch.int64)


class TableModule(QuantizedModule):
    """Rows of a table [num_embeddings, embedding_dim], however it is stored, in its `dtype`."""

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None, dtype: str
    ) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = padding_idx
        self.cast(_dtype(dtype))

    def cast(self, dtype: torch.dtype) -> None:
        """Take `dtype` for the float table's, and so for outputs."""
        super().cast(dtype)
        self.dtype = _name(dtype)

    def _in_kind(self, rows: Tensor) -> Tensor:
        return rows if self.dtype == "float32" else rows.to(self._output_dtype)

    @property
    def weight(self) -> Tensor:
        """The table [num_embeddings, embedding_dim] in `dtype`, computed when it is used."""
        shape = (self.num_embeddings, self.embedding_dim)
        return self._computed_weight(shape, self._dequantize)

    def _dequantize(self) -> Tensor:
        raise NotImplementedError


class QuantizedTable(TableModule):
    """A table [num_embeddings, embedding_dim] of integers or 16-bit floats.

    `storage` is "int8", "uint8", "float16" or "bfloat16", `zero_points` "", "int32" or "float32"
    ("": all are 0), `dtype` that of the float table, and so of the outputs. Buffers: `table` of
    `storage`; for integers `scale` float32 and `zero_point` of `zero_points` [num_embeddings]. A
    row is `(table - zero_point) * scale` in float32.
    """

    CONFIG: ClassVar[tuple[str, ...]] = (
        *("num_embeddings", "embedding_dim", "padding_idx", "storage", "zero_points", "dtype"),
    )
    OWN: ClassVar[tuple[str, ...]] = ()
    """What a subclass takes over from the float module besides."""

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        storage: str = "int8",
        zero_points: str = "",
        dtype: str = "float32",
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, padding_idx, dtype)
        self.storage, self.zero_points = storage, zero_points
        zero = torch.zeros(num_embeddings, dtype=_dtype(zero_points)) if zero_points else None
        self._hold(
            table=torch.zeros(num_embeddings, embedding_dim, dtype=_dtype(storage)),
            scale=None if storage in HALVES else torch.ones(num_embeddings),
            zero_point=zero,
        )

    @classmethod
    def adapt(cls, choice: Any) -> tuple[Any, str]:
        return choice.for_tables(grouped=cls.GROUPED)  # type: ignore[no-any-return]

    @classmethod
    def try_choice(cls, choice: Any, weight: Any, name: str) -> None:
        if choice.format.group:
            rounded(choice, weight, name)
        else:
            choice.rows(weight, name)

    @classmethod
    def refuses(cls, module: nn.Module, choice: Any) -> str:
        if module.max_norm is not None:
            return (
                f"max_norm={module.max_norm} rescales rows of the float table while it is used; "
                "set it to None after training"
            )
        return ""

    @classmethod
    def _quantized(cls, module: Any, choice: Any, quantizer: Quantizer, name: str) -> Any:
        weight = module.weight

        def make() -> Buffers:
            if choice.storage in HALVES:
                return _rounded(choice, weight, quantizer, name)
            return _integers(choice, weight, quantizer, name)

        held = quantizer.once(choice, weight, name, "table", make)
        zero = held["zero_point"]
        with torch.device("meta"):
            made = cls(
                module.num_embeddings,
                module.embedding_dim,
                module.padding_idx,
                choice.storage,
                "" if zero is None else _name(zero.dtype),
                _name(weight.dtype),
                **{key: getattr(module, key) for key in cls.OWN},
            )
        made._fill(**held)
        return made

    def _reads(self, name: str) -> Read:
        moved = name == "table" and self.table.data_ptr() % ALIGNMENT  # `array` may have copied it
        return Read.SUMMED if moved else Read.LIVE

    def integers(self) -> Tensor:
        """Return the table as it is stored, [num_embeddings, embedding_dim]."""
        return self.table

    def _dequantize(self) -> Tensor:
        every = torch.arange(self.num_embeddings)
        return rows_of(self.table, self.scale, self.zero_point, every)

    def extra_repr(self) -> str:
        """Return what `print(model)` shows of the layer."""
        said = [f"{self.num_embeddings}, {self.embedding_dim}"]
        if self.padding_idx is not None:
            said.append(f"padding_idx={self.padding_idx}")
        said += [f"{key}={getattr(self, key)!r}" for key in self.OWN]
        said.append(self.storage + (f", {self.zero_points} zero points" * bool(self.zero_points)))
        return ", ".join(said)


def in_kernel(table: Tensor, zero_point: Tensor | None) -> bool:
    """Tell whether the core takes the table: it has neither 16-bit floats nor float zero points."""
    whole = zero_point is None or not zero_point.is_floating_point()
    return not table.is_floating_point() and whole


def core(table: Tensor, scale: Tensor, zero_point: Tensor | None) -> Kernel:
    """Build the native core's table over these tensors."""
    return Kernel(array(table), array(scale), optional(zero_point))


def lookup(table: Any) -> Call:
    """Build the function that hands indices in tensors to a table of the core over addresses."""
    dim, run = table.dim, table.run
    threads = torch.get_num_threads

    def call(indices: Tensor) -> Tensor:
        places = checked(indices)
        out = torch.empty((*places.shape, dim), dtype=torch.float32)
        wide = places.dtype is torch.int64
        run(places.data_ptr(), wide, places.numel(), out.data_ptr(), dim, threads())
        return out

    return call


def rows_of(
    table: Tensor, scale: Tensor | None, zero_point: Tensor | None, indices: Tensor
) -> Tensor:
    """Return the rows float32 [..., embedding_dim] of `indices`, of any table, by PyTorch.

    Raises IndexError, which names position and index, and ValueError for vectors of other tables.
    """
    for name, vector in (("scale", scale), ("zero_point", zero_point)):
        if vector is not None and vector.shape != table.shape[:1]:
            raise ValueError(
                f"{name}: needs shape {list(table.shape[:1])}, one for each row of the table, not "
                f"{list(vector.shape)}"
            )
    bad = torch.nonzero((indices < 0) | (indices >= len(table)))
    if len(bad):
        place = bad[0].tolist()
        raise IndexError(
            f"indices: {int(indices[tuple(place)])} at {place} is not in 0..{len(table) - 1}, the "
            "rows of the table"
        )
    rows = nn.functional.embedding(indices, table).float()
    if zero_point is not None:
        rows -= zero_point[indices].unsqueeze(-1)
    return rows if scale is None else rows.mul_(scale[indices].unsqueeze(-1))


def checked(indices: Tensor, name: str = "input") -> Tensor:
    """Return `indices` without gaps; raise TypeError unless they are int32 or int64 on the CPU."""
    if indices.dtype not in INDICES:
        raise TypeError(f"{name}: needs int32 or int64, not {_name(indices.dtype)}")
    if not indices.is_cpu:
        raise TypeError(
            f"{name}: is on {indices.device}; quantized layers run on the CPU: call {name}.cpu()"
        )
    return indices.contiguous()


def _integers(choice: WeightChoice, weight: Tensor, quantizer: Quantizer, name: str) -> Buffers:
    found = choice.rows(float32(weight), name)
    quantizer.count(name, found.signal, found.noise)
    # A row that begins with a cache line has one line less to fetch.
    q = aligned(found.q.nbytes).view(found.q.dtype).reshape(found.q.shape)
    q[...] = found.q
    return {
        "table": tensor_of(q),
        "scale": tensor_of(found.scale),
        "zero_point": tensor_of(found.zero_point),
    }


def _rounded(choice: WeightChoice, weight: Tensor, quantizer: Quantizer, name: str) -> Buffers:
    values = weight.detach().to("cpu")
    table = values.to(_dtype(choice.storage), copy=True, memory_format=torch.contiguous_format)
    bad = torch.nonzero(~torch.isfinite(table))
    if len(bad):
        row, column = bad[0].tolist()
        raise ValueError(
            f"{name}: weight: holds NaN, infinity or values beyond {choice.storage}, the first "
            f"{float(values[row, column])} at [{row}, {column}]"
        )
    quantizer.count_rounded(name, values.float(), table.float())
    return {"table": table, "scale": None, "zero_point": None}


def _dtype(name: str) -> torch.dtype:
    return getattr(torch, name)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
