"""Attention: Octavo's kernel, PyTorch's scaled_dot_product_attention, ONNX Runtime's node.

All read q, k and v [1, length, heads, depth] as linear layers leave them, and each call makes its
output anew. A part of `benchmarks.kernels`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks import ours, peers
from benchmarks.ours import OCTAVO
from benchmarks.parts import compare
from benchmarks.peers import Bound, Float32
from benchmarks.runner import Cell, Job
from octavo.measure.timing import Comparison

CELLS: tuple[Cell, ...] = (
    *((12, 12, n, n, depth) for depth in (32, 64) for n in (16, 128, 512)),
    *((4, 4, n, n, depth) for depth in (64, 80, 128) for n in (512, 1500)),
    (2, 2, 4096, 4096, 64),
    *((12, 12, n, 1500, 64) for n in (1, 4)),
    *((32, 8, 1, n, 128) for n in (128, 2048)),
)
"""Heads, kv heads, queries, keys, depth."""
MANY = tuple(cell for cell in CELLS if cell[2] >= 512)
"""Those in which the time to pack K and V as bfloat16 is small."""
FLOAT32, TORCH_BFLOAT16 = f"{OCTAVO}, float32", f"{peers.TORCH}, bfloat16"


def label(cell: Cell) -> str:
    """`32 heads over 8, 1 x 2048 of 128`: queries by keys."""
    heads, kv_heads, queries, keys, depth = cell
    over = "" if heads == kv_heads else f" over {kv_heads}"
    return f"{heads} heads{over}, {queries} x {keys} of {depth}"


def attention(job: Job) -> dict[str, Comparison]:
    """Octavo's kernel and its float peers."""
    found = {}
    for cell in job.cells:
        q, k, v = operands(cell)
        bound = {OCTAVO: ours.attention(q, k, v)} if job.ours else {}
        bound[peers.TORCH] = torch_attention(q, k, v)
        if cell[0] == cell[1]:
            bound[peers.ONNX] = onnx_attention(q, k, v, job.threads)
        found[label(cell)] = compare(bound, job.rounds)
    return found


def in_bfloat16(job: Job) -> dict[str, Comparison]:
    """Products of bfloat16, over those of float32 and over peers (PyTorch, of bfloat16 too)."""
    found = {}
    for cell in job.cells:
        q, k, v = operands(cell)
        bound = {
            OCTAVO: ours.attention(q, k, v, bfloat16=True),
            FLOAT32: ours.attention(q, k, v),
            peers.TORCH: torch_attention(q, k, v),
            TORCH_BFLOAT16: torch_attention(q, k, v, bfloat16=True),
            peers.ONNX: onnx_attention(q, k, v, job.threads),
        }
        found[label(cell)] = compare(bound, job.rounds)
    return found


def operands(cell: Cell) -> tuple[Float32, Float32, Float32]:
    """q [1, queries, heads, depth], k and v [1, keys, kv_heads, depth]."""
    heads, kv_heads, queries, keys, depth = cell
    random = np.random.default_rng(cell)
    shapes = ((1, queries, heads, depth), *[(1, keys, kv_heads, depth)] * 2)
    q, k, v = (random.standard_normal(shape, np.float32) for shape in shapes)
    return q, k, v


def torch_attention(q: Float32, k: Float32, v: Float32, bfloat16: bool = False) -> Bound:
    """`torch.nn.functional.scaled_dot_product_attention`."""
    import torch

    given = [torch.from_numpy(x).transpose(1, 2) for x in (q, k, v)]
    if bfloat16:
        given = [x.bfloat16() for x in given]
    options = {"enable_gqa": True} if q.shape[2] != k.shape[2] else {}

    def run() -> Any:
        return torch.nn.functional.scaled_dot_product_attention(*given, **options)

    return Bound(run, lambda: np.asarray(run().transpose(1, 2).float()))


def onnx_attention(q: Float32, k: Float32, v: Float32, threads: int) -> Bound:
    """ONNX Runtime's MultiHeadAttention."""
    import onnxruntime
    from onnx import TensorProto, helper

    flat: Mapping[str, Float32] = {
        name: x.reshape(1, x.shape[1], -1) for name, x in (("q", q), ("k", k), ("v", v))
    }
    node = helper.make_node(
        *("MultiHeadAttention", list(flat), ["y"]), domain="com.microsoft", num_heads=q.shape[2]
    )
    infos = {
        name: helper.make_tensor_value_info(name, TensorProto.FLOAT, x.shape)
        for name, x in {**flat, "y": flat["q"]}.items()
    }
    graph = helper.make_graph([node], "attention", [infos[n] for n in flat], [infos["y"]])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    binding = session.io_binding()
    for name, x in flat.items():
        binding.bind_input(name, "cpu", 0, np.float32, x.shape, x.ctypes.data)
    binding.bind_output("y", "cpu")

    def run(keep: Mapping[str, Float32] = flat) -> None:  # the binding has addresses only
        session.run_with_iobinding(binding)

    def output() -> Float32:
        run()
        found: Float32 = binding.copy_outputs_to_cpu()[0].reshape(q.shape)
        return found

    return Bound(run, output)
