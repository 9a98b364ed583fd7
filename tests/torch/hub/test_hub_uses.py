"""What is done with a model that was loaded so: adapters, trainers, pipelines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import nn

import octavo.torch
from octavo.errors import NotTrainableError
from octavo.torch.hub import OctavoConfig
from octavo.torch.layers.linear import QuantizedLinear
from tests.torch.hub.families import BERT, BY_NAME, checkpoint, load, outputs

QWEN = BY_NAME["qwen3-tied"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A decoder and an encoder, float, and the decoder as int8."""
    root = tmp_path_factory.mktemp("hub")
    found = {"decoder": checkpoint(QWEN, root / "decoder")}
    found["encoder"] = checkpoint(BERT, root / "encoder")
    made = load(QWEN, found["decoder"], quantization_config=OctavoConfig())
    made.save_pretrained(root / "int8")
    return found | {"int8": root / "int8"}


@pytest.fixture
def decoder(folders: dict[str, Path]) -> Any:
    return load(QWEN, folders["int8"])


def test_a_pipeline_takes_the_argument_and_the_folder(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "cat"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    tokenizer = transformers.BertTokenizer(str(tmp_path / "vocab.txt"))
    given = {"quantization_config": {"quant_method": "octavo", "recipe": "int8"}}
    pipe = transformers.pipeline(
        "feature-extraction",
        model=str(folders["encoder"]),
        tokenizer=tokenizer,
        device="cpu",
        model_kwargs=given,
    )
    assert isinstance(pipe.model.encoder.layer[0].output.dense, QuantizedLinear)
    pipe.save_pretrained(tmp_path / "pipe")
    again = transformers.pipeline("feature-extraction", model=str(tmp_path / "pipe"), device="cpu")
    assert again("a cat") == pipe("a cat")


def test_a_folder_can_be_written_over_itself(folders: dict[str, Path], tmp_path: Path) -> None:
    load(QWEN, folders["int8"]).save_pretrained(tmp_path)
    model = load(QWEN, tmp_path)  # mapped from there
    expected = model.lm_head.packed.clone()
    model.save_pretrained(tmp_path)
    assert torch.equal(model.lm_head.packed, expected)
    assert torch.equal(load(QWEN, tmp_path).lm_head.packed, expected)


@pytest.mark.parametrize("place", ["cpu", "auto", {"": "cpu"}])
def test_a_device_map_of_the_cpu_is_taken(place: Any, folders: dict[str, Path]) -> None:
    pytest.importorskip("accelerate")
    stored = load(QWEN, folders["int8"], device_map=place)
    made = load(QWEN, folders["decoder"], device_map=place, quantization_config=OctavoConfig())
    stored.tie_weights()  # as accelerate does
    assert torch.equal(stored.lm_head.packed, made.lm_head.packed)


def test_octavo_saves_it_too(decoder: Any, folders: dict[str, Path], tmp_path: Path) -> None:
    octavo.torch.save(decoder, tmp_path / "model.safetensors")
    config = transformers.AutoConfig.from_pretrained(folders["decoder"])
    again = octavo.torch.load(
        tmp_path / "model.safetensors",
        lambda: transformers.AutoModelForCausalLM.from_config(config),
    )
    assert torch.equal(again.lm_head.packed, decoder.lm_head.packed)


@pytest.mark.slow
def test_a_trainer_predicts_and_says_why_it_does_not_train(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    pytest.importorskip("accelerate")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        folders["encoder"], quantization_config=OctavoConfig()
    )
    data: Any = [{"input_ids": torch.arange(2, 9), "labels": torch.tensor(1)}] * 4
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path / "runs"), report_to=[], use_cpu=True, disable_tqdm=True
    )
    trainer = transformers.Trainer(model, arguments, train_dataset=data)
    with torch.no_grad():
        expected = model(torch.arange(2, 9)[None]).logits
    found = torch.from_numpy(trainer.predict(data).predictions)
    assert torch.allclose(found, expected.expand(4, 2), rtol=1e-4)
    trainer.save_model(str(tmp_path / "saved"))
    kind = transformers.AutoModelForSequenceClassification
    again = kind.from_pretrained(tmp_path / "saved")
    assert isinstance(again.bert.encoder.layer[0].output.dense, QuantizedLinear)
    with pytest.raises(NotTrainableError, match="quantized weights are integers"):
        trainer.train()


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated")
def test_adapters_of_peft_are_float_on_an_int8_base(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    peft = pytest.importorskip("peft")
    names = ["q_proj", "down_proj"]
    adapted = peft.get_peft_model(
        load(QWEN, folders["int8"]), peft.LoraConfig(target_modules=names, r=4)
    )
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(parameter, std=0.1)
    inputs = QWEN.inputs()
    plain = outputs(load(QWEN, folders["int8"]), inputs)
    expected = outputs(adapted.eval(), inputs)
    assert (expected - plain).norm() > 0.05 * plain.norm()
    adapted.save_pretrained(tmp_path)
    again = peft.PeftModel.from_pretrained(load(QWEN, folders["int8"]), tmp_path)
    assert torch.equal(outputs(again, inputs), expected)
    inside = load(QWEN, folders["int8"])
    inside.load_adapter(str(tmp_path))
    assert torch.equal(outputs(inside, inputs), expected)
    merged = again.merge_and_unload()
    assert isinstance(merged.model.layers[0].self_attn.q_proj, QuantizedLinear)
    assert (outputs(merged, inputs) - expected).norm() < 0.05 * expected.norm()
