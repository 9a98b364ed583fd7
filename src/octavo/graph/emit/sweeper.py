"""Removes from a graph what quantized forms have replaced."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir


class Sweeper:
    """Takes replaced nodes out of the graph, and with them whatever nothing reads any more."""

    def __init__(self, model: ir.Model) -> None:
        self._model = model
        self._dropped_inputs: list[str] = []

    def replace(self, node: ir.Node, outputs: Sequence[ir.Value | None]) -> None:
        """Replace `node` by `outputs`, of which a None stands for one that nothing reads."""
        for old, new in zip(node.outputs, outputs, strict=False):
            if new is None:
                continue
            new.name, new.type, new.shape = old.name, old.type, old.shape
            old.replace_all_uses_with(new, replace_graph_outputs=True)
        inputs = [i for i in node.inputs if i is not None]
        graph = node.graph
        assert graph is not None
        graph.remove(node, safe=True)
        for value in inputs:
            self.unused(value)

    def unused(self, value: ir.Value) -> None:
        """Remove `value` and what made it, as far as nothing reads them."""
        stack = [value]
        while stack:
            v = stack.pop()
            if v.uses() or v.is_graph_output():
                continue
            node = v.producer()
            if node is None:
                self._drop_initializer(v)
            elif node.graph is not None and not any(
                o.uses() or o.is_graph_output() for o in node.outputs
            ):
                stack.extend(i for i in node.inputs if i is not None)
                node.graph.remove(node, safe=True)

    def notes(self) -> list[str]:
        """Say what was removed from the model's interface."""
        if not self._dropped_inputs:
            return []
        return [
            "these initializers were also graph inputs and are constant now: "
            + ", ".join(sorted(self._dropped_inputs))
        ]

    def _drop_initializer(self, value: ir.Value) -> None:
        graph = value.graph
        if graph is None or not value.is_initializer():
            return
        if value.is_graph_input():
            graph.inputs.remove(value)
            self._dropped_inputs.append(value.name or "")
        if value.name is not None and value.name in graph.initializers:
            del graph.initializers[value.name]
