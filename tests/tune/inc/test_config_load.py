"""Configurations as people have them: what comes out, what is idle, and files that are none."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.errors import ConfigError, OptionError
from octavo.tune import load_config
from octavo.tune.goals import Criterion
from octavo.tune.inc.config import Config, Inert, MetricSpec
from tests import fresh

BERT = Path(__file__).with_name("bert_dynamic.yaml")
HEAD = "model: {name: m, framework: %s}\n"
DYNAMIC = "quantization: {approach: post_training_dynamic_quant}\n"


def load(tmp_path: Path, text: str, framework: str = "onnxrt_integerops") -> Config:
    path = tmp_path / "conf.yaml"
    path.write_text(f"model: {{name: m, framework: {framework}}}\n{text}", encoding="utf-8")
    return load_config(path)


def error_of(tmp_path: Path, text: str, framework: str = "onnxrt_integerops") -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text, framework)
    return str(caught.value).replace(f"{tmp_path}/", "").splitlines()


def test_a_file_as_it_stands() -> None:
    before = BERT.read_bytes(), BERT.stat().st_mtime_ns
    config = load_config(str(BERT))
    assert (BERT.read_bytes(), BERT.stat().st_mtime_ns) == before
    assert config == Config(
        path=BERT,
        model_name="bert",
        framework="onnxrt_integerops",
        approach="dynamic",
        criterion=Criterion(relative=0.01),
        objectives=(("performance", 1.0),),
        strategy="auto",
        timeout=0,
        max_trials=100,
        performance_only=False,
        seed=9527,
        sampling_size=(8, 16, 32),
        inert=config.inert,
    )
    assert (config.front_end, config.quant_format) == ("onnx", "qoperator")
    (idle,) = config.inert
    assert (idle.line, idle.path) == (8, "quantization.calibration.sampling_size")
    assert "dynamic quantization" in idle.reason
    assert str(idle) == f"line 8: {idle.path} does nothing here: {idle.reason}"


def test_nothing_said_means_the_defaults(tmp_path: Path) -> None:
    config = load(tmp_path, "")
    assert config.approach == "static"  # Neural Compressor's default
    assert config.criterion == Criterion(relative=0.01)
    assert config.objectives == (("performance", 1.0),)
    assert (config.strategy, config.timeout, config.max_trials) == ("auto", 0, 100)
    assert (config.seed, config.workspace, config.resume) == (1978, None, False)
    assert (config.metrics, config.dataset) == ((), None)
    assert (config.iteration, config.warmup, config.performance_iteration) == (-1, 5, -1)
    assert (config.inert, config.notes, config.entries) == ((), (), ())
    assert config.sampling_size == (100,)


EVERYTHING = """\
version: 1.0
device: cpu
quantization:
  approach: post_training_auto_quant
  calibration: {sampling_size: [50, 100]}
  recipes: {scale_propagation_concat: True}
evaluation:
  accuracy:
    metric:
      topk: 5
    iteration: 20
    dataloader:
      batch_size: 8
      dataset:
        GLUE:
          data_dir: /data
          model_name_or_path: bert-base-uncased
          dynamic_length: no
      transform: {Resize: {size: 256}, ToTensor: }
    postprocess: {transform: {LabelShift: 1}}
  performance:
    warmup: 10
    iteration: 200
    configs:
      cores_per_instance: 4
      num_of_instance: 7
tuning:
  strategy: {name: bayesian, sigopt_project_id: x}
  accuracy_criterion: {absolute: 0.02, higher_is_better: False}
  objective: modelsize
  exit_policy: {timeout: 3600, max_trials: 50, performance_only: True}
  random_seed: 7
  tensorboard: True
  workspace: {path: ./work, resume: ./work/history.snapshot}
  diagnosis: {op_list: a b}
"""


def test_everything_said(tmp_path: Path) -> None:
    config = load(tmp_path, EVERYTHING, "onnxrt_qdq")
    assert config.approach == "auto"
    assert config.quant_format == "qdq"
    assert config.sampling_size == (50, 100)
    assert config.metrics == (MetricSpec("topk", {"k": 5}),)
    assert (config.iteration, config.warmup, config.performance_iteration) == (20, 10, 200)
    assert config.dataset == "GLUE"
    assert config.criterion == Criterion(absolute=0.02, higher_is_better=False)
    assert config.objectives == (("modelsize", 1.0),)
    assert (config.strategy, config.timeout, config.max_trials) == ("bayesian", 3600, 50)
    assert config.performance_only is True
    assert (config.seed, config.workspace) == (7, Path("work"))
    assert config.resume == "./work/history.snapshot"
    assert [(i.line, i.path) for i in config.inert] == [
        (7, "quantization.recipes"),
        (13, "evaluation.accuracy.dataloader"),
        (21, "evaluation.accuracy.postprocess"),
        (25, "evaluation.performance.configs"),
        (29, "tuning.strategy.sigopt_project_id"),
        (34, "tuning.tensorboard"),
        (36, "tuning.diagnosis"),
    ]
    assert all(i.reason for i in config.inert)


@pytest.mark.parametrize(
    ("framework", "front_end", "quant_format"),
    [
        ("onnxrt_integerops", "onnx", "qoperator"),
        ("onnxrt_qoperator", "onnx", "qoperator"),
        ("onnxrt_qlinearops", "onnx", "qoperator"),
        ("onnxrt_qdq", "onnx", "qdq"),
        ("pytorch", "torch", None),
        ("pytorch_fx", "torch", None),
        ("pytorch_ipex", "torch", None),
        ("tensorflow", "tensorflow", "qoperator"),
        ("tensorflow_itex", "tensorflow", "qoperator"),
    ],
)
def test_frameworks(
    tmp_path: Path, framework: str, front_end: str, quant_format: str | None
) -> None:
    config = load(tmp_path, DYNAMIC, framework)
    assert (config.framework, config.front_end) == (framework, front_end)
    assert config.quant_format == quant_format
    assert len(config.notes) == (framework == "onnxrt_qlinearops")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", 1),
        ("quantization:\n", 2),
        ("quantization:\n  approach: post_training_static_quant\n", 3),
    ],
)
def test_static_quantization_of_pytorch_is_refused(tmp_path: Path, text: str, line: int) -> None:
    for framework in ("pytorch", "pytorch_fx", "pytorch_ipex"):
        (message,) = error_of(tmp_path, text, framework)
        assert message.startswith(f"conf.yaml:{line}: quantization.approach: ")
        assert "--approach dynamic" in message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", None),
        ("quantization:\n", None),
        (
            "quantization: {approach: post_training_static_quant, calibration: {sampling_size: 3}}",
            "post_training_static_quant",
        ),
        ("quantization: {approach: quant_aware_training}", "quant_aware_training"),
        ("quantization: {approach: nonsense}", "nonsense"),
        ("quantization: {approach: post_training_dynamic_quant}", None),
    ],
)
@pytest.mark.parametrize("framework", ["pytorch", "onnxrt_integerops", "tensorflow"])
def test_any_file_runs_as_dynamic_where_that_is_asked(
    tmp_path: Path, text: str, said: str | None, framework: str
) -> None:
    path = tmp_path / "conf.yaml"
    path.write_text(HEAD % framework + text)
    config = load_config(path, approach="dynamic")
    assert config.approach == "dynamic"
    starts = [f"line 2: quantization.approach: {said} is done"] if said else []
    assert [note[: len(s)] for note, s in zip(config.notes, starts, strict=True)] == starts
    if "calibration" in text:
        assert [i.path for i in config.inert] == ["quantization.calibration.sampling_size"]


def test_an_approach_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "conf.yaml").write_text(HEAD % "pytorch")
    with pytest.raises(OptionError, match=r"--approach.*Did you mean 'dynamic'"):
        load_config(tmp_path / "conf.yaml", approach="dynamics")
    (tmp_path / "conf.yaml").write_text((HEAD % "pytorch") + "quantization: 3\n")
    with pytest.raises(ConfigError, match="quantization: value 3 is not a section"):
        load_config(tmp_path / "conf.yaml", approach="dynamic")


def test_names_of_older_releases(tmp_path: Path) -> None:
    dynamic = "quantization: {approach: post_training_dynamic_quant}\n"
    config = load(tmp_path, dynamic, "onnxrt_qdqops")
    assert (config.framework, config.quant_format) == ("onnxrt_qdq", "qdq")
    old = tuning(tmp_path, "multi_objective: {objective: [modelsize, footprint], weight: 0.7 0.3}")
    new = tuning(tmp_path, "multi_objectives: {objective: [modelsize, footprint], weight: 0.7 0.3}")
    assert old.objectives == new.objectives
    assert [weight for _, weight in old.objectives] == [0.7, 0.3]
    (message,) = error_of(
        tmp_path, "tuning:\n  multi_objective: {objective: modelsize, weight: 0}\n"
    )
    assert "tuning.multi_objective.weight" in message
    both = "multi_objective: {objective: modelsize}, multi_objectives: {objective: accuracy}"
    (message,) = error_of(tmp_path, f"tuning: {{{both}}}")
    assert "tuning.multi_objective: is there beside multi_objectives" in message


def test_keys_are_idle_only_where_they_do_nothing(tmp_path: Path) -> None:
    text = "quantization: {{approach: {}, calibration: {{sampling_size: 5}}}}\n"
    static = load(tmp_path, text.format("post_training_static_quant"))
    dynamic = load(tmp_path, text.format("post_training_dynamic_quant"))
    assert (len(static.inert), len(dynamic.inert)) == (0, 1)
    path = tmp_path / "conf.yaml"
    for framework, idle in (("tensorflow", 0), ("onnxrt_qdq", 2)):
        path.write_text(
            f"model:\n  name: m\n  framework: {framework}\n  inputs: a, b\n  outputs: [c]\n"
        )
        config = load_config(path)
        assert (config.inputs, config.outputs) == (("a", "b"), ("c",))
        assert len(config.inert) == idle
        assert not idle or config.inert[0] == Inert(4, "model.inputs", config.inert[0].reason)


def tuning(tmp_path: Path, text: str) -> Config:
    return load(tmp_path, f"{DYNAMIC}tuning: {{{text}}}\n")


@pytest.mark.parametrize(
    ("framework", "text", "field", "value", "note"),
    [
        ("onnxrt_qlinearops", DYNAMIC, "approach", "dynamic", "1: model.framework: onnxrt_qlin"),
        (
            "pytorch_fx",
            "quantization: {approach: post_training_auto_quant}",
            *("approach", "dynamic", "2: quantization.approach: Octavo has no static int8 layers"),
        ),
        (
            "onnxrt_qdq",
            f"{DYNAMIC}tuning: {{accuracy_criterion: {{relative: -0.01}}}}",
            *("criterion", Criterion(relative=-0.01), "-0.01 asks for more accuracy than the floa"),
        ),
        (
            "onnxrt_qdq",
            DYNAMIC + "tuning: {objective: footprint, multi_objectives: {objective: modelsize}}",
            *(
                "objectives",
                (("modelsize", 1.0),),
                "3: tuning.objective: multi_objectives de",
            ),
        ),
        *(
            (
                "pytorch",
                f"{DYNAMIC}tuning: {{strategy: {{name: {said}}}}}",
                *("strategy", done, f"3: tuning.strategy.name: {said} is done as {done}"),
            )
            for said, done in (("mse_v2", "mse"), ("conservative", "basic"))
        ),
    ],
)
def test_what_is_done_otherwise_is_noted(
    tmp_path: Path, framework: str, text: str, field: str, value: Any, note: str
) -> None:
    config = load(tmp_path, text, framework)
    assert getattr(config, field) == value
    (found,) = config.notes
    assert note in found


def test_static_quantization_with_qlinearops_is_not_noted(tmp_path: Path) -> None:
    assert load(tmp_path, "", "onnxrt_qlinearops").notes == ()


CRITERION, OBJECTIVES = "accuracy_criterion: ", "multi_objectives: "
OUTPUTS = "{output_index_mapping: {boxes: 0, scores: 2, classes: 1}}"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (CRITERION + "{relative:  0.01}", Criterion(relative=0.01)),
        (CRITERION + "{relative: 1%}", Criterion(relative=0.01)),
        (CRITERION + '{relative: "0.5%"}', Criterion(relative=0.005)),
        (CRITERION + "{relative: 0}", Criterion(relative=0.0)),
        (CRITERION + "{relative: 1e-3}", Criterion(relative=0.001)),
        (CRITERION + "{absolute: 2}", Criterion(absolute=2.0)),
        (
            CRITERION + "{absolute: 0.1, higher_is_better: no}",
            Criterion(absolute=0.1, higher_is_better=False),
        ),
        ("objective: footprint", [("footprint", 1.0)]),
        (
            OBJECTIVES + "{objective: 'performance, modelsize', weight: 0.7 0.3}",
            [("performance", 0.7), ("modelsize", 0.3)],
        ),
        (
            OBJECTIVES + "{objective: [accuracy, footprint], higher_is_better: 'True False'}",
            [("accuracy", 1.0), ("footprint", 1.0)],
        ),
        (OBJECTIVES + "{objective: modelsize}", [("modelsize", 1.0)]),
        ("metric: {topk: 1}", MetricSpec("topk", {"k": 1})),
        ("metric: {GLUE: {task: mrpc}}", MetricSpec("GLUE", {"task": "mrpc"})),
        ("metric: {SquadF1: }", MetricSpec("SquadF1")),
        ("metric: {F1: {average: macro}}", MetricSpec("F1", {"average": "macro"})),
        ("metric: {Accuracy: {threshold: 0}}", MetricSpec("Accuracy", {"threshold": 0})),
        (
            f"metric: {{COCOmAPv2: {OUTPUTS}}}",
            MetricSpec(
                "COCOmAPv2", {"output_index_mapping": {"boxes": 0, "scores": 2, "classes": 1}}
            ),
        ),
        ("metric: ", ()),
        (
            "multi_metrics: {weight: 0.9 0.1, higher_is_better: 'True, False', topk: 1, MSE: {}}",
            (
                MetricSpec("topk", {"k": 1}, 0.9, higher_is_better=True),
                MetricSpec("MSE", {}, 0.1, higher_is_better=False),
            ),
        ),
    ],
)
def test_criteria_objectives_and_metrics(tmp_path: Path, text: str, found: Any) -> None:
    section = text.partition(":")[0]
    if "metric" in section:
        config = load(tmp_path, f"{DYNAMIC}evaluation:\n  accuracy: {{{text}}}\n")
        assert config.metrics == (found if isinstance(found, tuple) else (found,))
    elif section == "accuracy_criterion":
        assert tuning(tmp_path, text).criterion == found
    else:
        assert tuning(tmp_path, text).objectives == tuple(found)


TUNING, ACCURACY = "tuning:\n  ", "evaluation:\n  accuracy: "


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (TUNING + "accuracy_criterion: {relative: 0.1, absolute: 0.1}", "accuracy_criterion"),
        (TUNING + "accuracy_criterion: {higher_is_better: true}", "accuracy_criterion"),
        (
            TUNING + "multi_objectives: {objective: 'modelsize, footprint', weight: 1 2 3}",
            "multi_objectives.weight: has 3 values for 2",
        ),
        (TUNING + "multi_objectives: {objective: modelsize, weight: 0}", "multi_objectives.weight"),
        (
            TUNING + "multi_objectives: {objective: 'modelsize, modelsize'}",
            "multi_objectives.objective",
        ),
        (ACCURACY + "{metric: {topk: 1}, multi_metrics: {topk: 1}}", "multi_metrics"),
        (ACCURACY + "{metric: {topk: 1, F1: }}", "metric: names topk and F1"),
        (
            ACCURACY + "{multi_metrics: {weight: 1 2, topk: 1}}",
            "multi_metrics.weight: has 2 values for 1",
        ),
        (
            ACCURACY + "{multi_metrics: {higher_is_better: 'no, no', topk: 1}}",
            "multi_metrics.higher_is_better: has 2 values for 1",
        ),
        (ACCURACY + "{multi_metrics: {}}", "multi_metrics: names no metric"),
    ],
)
def test_what_does_not_fit_together(tmp_path: Path, text: str, place: str) -> None:
    (message,) = error_of(tmp_path, text)
    assert message.startswith("conf.yaml:3: ") and place in message


def test_all_mistakes_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = (
        "tuning:\n  objective: speed\n  exit_policy:\n    max_trial: 3\n    timeout: soon\n"
        "quantization:\n  op_wise:\n    conv1:\n      weight:\n        dtype:\n"
        "          - int8\n          - int4\n"
        "pruning:\nmodle: x\n"
    )
    messages = error_of(tmp_path, text)
    starts = [
        "conf.yaml:3: tuning.objective: value 'speed' ",
        "conf.yaml:5: tuning.exit_policy.max_trial: unknown key 'max_trial'; ",
        "conf.yaml:6: tuning.exit_policy.timeout: value 'soon' ",
        "conf.yaml:11: quantization.op_wise.conv1.weight.dtype: value 'int4' ",
        "conf.yaml:14: pruning: ",
        "conf.yaml:15: modle: unknown key 'modle'; ",
    ]
    assert [m[: len(s)] for m, s in zip(messages, starts, strict=True)] == starts
    assert "Did you mean 'max_trials'?" in messages[1]
    assert "Did you mean 'model'" in messages[5]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# nothing\n\n", "1: "),
        ("- a\n- b\n", "1: the file: value ['a', 'b'] "),
        ("hello", "1: the file: value 'hello' "),
        ("model:\n  name: a\n  name: b\n", "3: key 'name' is there twice"),
        ("model: {name: a\ntuning: {}", "2: "),
        ("model:\n  name: a\n\tframework: b", "3: "),
        ("model:\n  name: *gone\n", "2: found undefined alias 'gone'"),
        ("[" * 500, "1: "),
        ("model:\n  name: !env HOME\n", "2: cannot read the value of type !env"),
    ],
)
def test_files_that_are_no_configuration(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "conf.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert str(caught.value).startswith(f"{path}:{message}")
    assert type(caught.value) is ConfigError


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the configuration: Is a directory"):
        load_config(tmp_path)
    (tmp_path / "latin.yaml").write_bytes("model:\n  name: größe\n".encode("latin-1"))
    with pytest.raises(ConfigError, match=r"latin\.yaml:2: a configuration is UTF-8 text; byte 0x"):
        load_config(tmp_path / "latin.yaml")


KEYS = """model name framework tuning quantization approach op_wise a weight dtype evaluation
accuracy metric topk multi_metrics strategy objective accuracy_criterion relative dataloader
dataset dummy shape exit_policy timeout sampling_size inputs""".split()
TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text("ab,%1. ", max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5)
    ),
    max_leaves=12,
)


@settings(deadline=None, max_examples=60)
@given(tree=TREES)
def test_whatever_the_file_holds_it_loads_or_says_where_it_is_wrong(
    tmp_path_factory: pytest.TempPathFactory, tree: Any
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_text(json.dumps(tree, indent=1).replace("NaN", ".nan").replace("Infinity", ".inf"))
    before = path.read_bytes()
    try:
        assert isinstance(load_config(path), Config)
    except ConfigError as error:
        assert all(line.startswith(f"{path}:") for line in str(error).splitlines())
    assert path.read_bytes() == before


def test_importing_tuning_loads_no_large_package() -> None:
    fresh.python("""
        import sys
        for name in ("pydantic", "ruamel", "ruamel.yaml", "optuna", "torch", "onnx"):
            sys.modules[name] = None  # importing it fails
        import octavo.tune
        octavo.tune.Config
    """)


def test_an_unknown_name_lists_the_known_ones() -> None:
    import octavo.tune

    with pytest.raises(AttributeError, match=r"has no attribute 'loads'; it has .*load_config"):
        octavo.tune.loads  # noqa: B018
