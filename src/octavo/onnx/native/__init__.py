"""The native target: one form an operator. `FORMS` maps an operator's name to its form.

A form stands where a rule stands for the portable target. Operators without one, and schemes that a
form does not hold, keep the form that the portable target has: a native file is one that may hold
Octavo's operators, beside any others.
"""

from __future__ import annotations

from octavo.onnx.native._recurrent import GATES
from octavo.onnx.native.conv import ConvForm
from octavo.onnx.native.embedding import EmbedLayerNormalizationForm, GatherForm
from octavo.onnx.native.form import NativeForm
from octavo.onnx.native.matmul import ProductForm
from octavo.onnx.native.recurrent import RecurrentForm
from octavo.onnx.rule import Rule
from octavo.onnx.rules import RULES
from octavo.onnx.rules._linear import LinearRule
from octavo.onnx.rules.conv import ConvRule
from octavo.onnx.rules.embed_layer_normalization import EmbedLayerNormalizationRule
from octavo.onnx.rules.gather import GatherRule


def _form(rule: Rule) -> NativeForm | None:
    match rule:
        case LinearRule():
            return ProductForm(rule)
        case ConvRule():
            return ConvForm()
        case GatherRule():
            return GatherForm(rule)
        case EmbedLayerNormalizationRule():
            return EmbedLayerNormalizationForm(rule)
        case _:
            return None


FORMS: dict[str, NativeForm] = {
    op: form for op, rule in RULES.items() if (form := _form(rule)) is not None
}
FORMS |= {op: RecurrentForm() for op in GATES}
