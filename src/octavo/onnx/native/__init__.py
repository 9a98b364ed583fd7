"""The native target: one form an operator. `FORMS` maps an operator's name to its form.

A form stands where a rule stands for the portable target. Operators without one, and schemes that a
form does not hold, keep the form that the portable target has: a native file is one that may hold
Octavo's operators, beside any others.
"""

from __future__ import annotations

from octavo.onnx.native._recurrent import GATES
from octavo.onnx.native.form import NativeForm
from octavo.onnx.native.linear import LinearForm
from octavo.onnx.native.recurrent import RecurrentForm
from octavo.onnx.rules import RULES
from octavo.onnx.rules._linear import LinearRule

FORMS: dict[str, NativeForm] = {
    op: LinearForm(rule) for op, rule in RULES.items() if isinstance(rule, LinearRule)
}
FORMS |= {op: RecurrentForm() for op in GATES}
