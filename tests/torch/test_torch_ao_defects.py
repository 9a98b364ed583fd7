"""What failed or misled in torch.ao.quantization.quantize_dynamic (2.13), one test each."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from octavo.errors import OptionError
from octavo.torch import quantize_dynamic
from octavo.torch.layers.base import QuantizedModule


class Scaled(nn.Module):
    """A parametrization."""

    def forward(self, weight: Tensor) -> Tensor:
        return weight * 2


class Subclass(nn.Linear):
    """A Linear by another name."""


def near(found: Tensor, exact: Tensor, share: float = 0.03) -> None:
    """Within `share` of the largest exact value: int8's steps, and far below a wrong layer's."""
    assert found.shape == exact.shape and found.dtype == exact.dtype
    assert (found - exact).abs().max() <= share * exact.abs().max()


@pytest.fixture(autouse=True)
def _seeded() -> Any:
    torch.manual_seed(0)
    with torch.inference_mode():
        yield


def test_unknown_names_are_errors() -> None:
    with pytest.raises(OptionError, match="no module 'liner'"):
        quantize_dynamic(nn.Sequential(nn.Linear(4, 4)), {"liner"})


def test_empty_sets_are_errors() -> None:
    with pytest.raises(OptionError, match="is empty"):
        quantize_dynamic(nn.Sequential(nn.Linear(4, 4)), set())


def test_a_model_that_is_a_linear_layer_is_converted() -> None:
    model, x = nn.Linear(32, 16), torch.randn(3, 32)
    quantized = quantize_dynamic(model)
    assert isinstance(quantized, QuantizedModule)
    near(quantized(x), model(x))


def test_plain_rnn_is_converted() -> None:
    model, x = nn.RNN(16, 16), torch.randn(5, 2, 16)
    quantized = quantize_dynamic(model)
    assert isinstance(quantized, QuantizedModule)
    near(quantized(x)[0], model(x)[0])


def test_subclasses_of_linear_are_converted() -> None:
    model, x = nn.Sequential(Subclass(32, 16)), torch.randn(3, 32)
    quantized = quantize_dynamic(model)
    assert isinstance(quantized[0], QuantizedModule)
    near(quantized(x), model(x))


def test_a_module_used_twice_is_converted_in_both_places() -> None:
    layer = nn.Linear(16, 16)
    model, x = nn.Sequential(layer, nn.Tanh(), layer), torch.randn(3, 16)
    quantized = quantize_dynamic(model)
    assert isinstance(quantized[0], QuantizedModule) and quantized[2] is quantized[0]
    near(quantized(x), model(x))


def test_a_parametrized_linear_is_converted() -> None:
    model, x = nn.Sequential(nn.Linear(16, 16)), torch.randn(3, 16)
    parametrize.register_parametrization(model[0], "weight", Scaled())
    quantized = quantize_dynamic(model)
    assert isinstance(quantized[0], QuantizedModule)
    near(quantized(x), model(x))


def test_four_bit_embeddings_are_refused_and_not_made_of_eight() -> None:
    with pytest.raises(OptionError, match="quint4x2"):
        quantize_dynamic(nn.Sequential(nn.Embedding(4, 4)), {nn.Embedding}, torch.quint4x2)


@pytest.mark.parametrize("batch_first", [False, True])
def test_transformer_encoders_work_in_eval_mode(batch_first: bool) -> None:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=batch_first)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=batch_first).eval()
    x = torch.randn(3, 5, 16)
    near(quantize_dynamic(model)(x), model(x), 0.06)


def test_multihead_attention_works_in_eval_mode() -> None:
    model, x = nn.MultiheadAttention(16, 2).eval(), torch.randn(5, 3, 16)
    near(quantize_dynamic(model)(x, x, x)[0], model(x, x, x)[0], 0.06)


@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_cells_hold_their_biases_and_nothing_made_up(kind: type[nn.Module]) -> None:
    model = kind(8, 8)
    quantized = quantize_dynamic(model)
    assert not list(quantized.parameters())
    again = quantize_dynamic(model)
    state = quantized.state_dict()
    assert all(torch.equal(state[name], tensor) for name, tensor in again.state_dict().items())


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN, nn.Linear, nn.LSTMCell])
def test_state_dicts_load_with_weights_only(kind: type[nn.Module]) -> None:
    model = kind(8, 8)
    quantized, other = quantize_dynamic(model), quantize_dynamic(kind(8, 8))
    file = io.BytesIO()
    torch.save(quantized.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    x = torch.randn(3, 8) if kind in (nn.Linear, nn.LSTMCell) else torch.randn(4, 3, 8)
    first, second = quantized(x), other(x)
    pair = (first, second) if isinstance(first, Tensor) else (first[0], second[0])
    assert torch.equal(*pair)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN, nn.Linear])
def test_export_and_fullgraph_compilation_work(kind: type[nn.Module]) -> None:
    quantized = quantize_dynamic(nn.Sequential(kind(8, 8)))
    x = torch.randn(4, 3, 8)
    exact = quantized(x)
    exported = torch.export.export(quantized, (x,)).module()(x)
    compiled = torch.compile(quantized, fullgraph=True, backend="aot_eager")(x)
    for found in (exported, compiled):
        pairs = [(found, exact)] if kind is nn.Linear else [(found[0], exact[0])]
        assert all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.filterwarnings("ignore:LSTM with projections")  # the float layer's
@pytest.mark.parametrize("options", [{"bias": False}, {"proj_size": 4}, {"batch_first": True}])
def test_lstm_options_work(options: dict[str, Any]) -> None:
    model, x = nn.LSTM(8, 8, **options), torch.randn(4, 3, 8)
    near(quantize_dynamic(model)(x)[0], model(x)[0], 0.06)


def test_unbatched_sequences_work() -> None:
    model, x = nn.GRU(8, 8), torch.randn(4, 8)
    near(quantize_dynamic(model)(x)[0], model(x)[0], 0.06)


def test_inputs_of_one_axis_work() -> None:
    model, x = nn.Linear(32, 16), torch.randn(32)
    near(quantize_dynamic(model)(x), model(x))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_float_dtypes_work(dtype: torch.dtype) -> None:
    model, x = nn.Linear(32, 16), torch.randn(3, 32)
    near(quantize_dynamic(model)(x.to(dtype)), model(x).to(dtype))


@pytest.mark.parametrize("kind", [nn.Linear, nn.LSTM])
def test_an_outlier_costs_the_other_rows_nothing(kind: type[nn.Module]) -> None:
    quantized = quantize_dynamic(kind(32, 16))
    x = torch.randn(4, 3, 32)
    scaled = x.clone()
    scaled[:, 1] *= 100
    found, alone = (
        out if isinstance(out, Tensor) else out[0] for out in map(quantized, (scaled, x))
    )
    assert torch.equal(found[:, [0, 2]], alone[:, [0, 2]])


def test_nothing_deprecated_is_touched() -> None:
    """Warnings are errors in tests, and no buffer has one of torch's quantized dtypes."""
    model = nn.Sequential(nn.Linear(8, 8), nn.Embedding(4, 8), nn.LSTM(8, 8))
    quantized = quantize_dynamic(model, {nn.Linear, nn.LSTM, nn.Embedding})
    assert not any(tensor.is_quantized for tensor in quantized.buffers())
