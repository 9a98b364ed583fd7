"""Command lines and calls that fail, with the files that they need beside those of `errors`."""

# ruff: noqa: E501

from __future__ import annotations

Line = tuple[str, dict[str, str]]

LINES: dict[str, list[Line]] = {
    "Commands and options": [
        ("octavo quantise m.onnx", {}),
        ("octavo quantize", {}),
        ("octavo tune", {}),
        ("octavo compare m.onnx", {}),
        ("octavo bench", {}),
        ("octavo convert-target portable.onnx", {}),
        ("octavo quantize m.onnx --recipie int8", {}),
        ("octavo quantize m.onnx --cpu sse", {}),
        ("octavo quantize m.onnx --target nativ", {}),
        ("octavo quantize m.onnx --format qlinear", {}),
        ("octavo quantize m.onnx --format qdq --target native", {}),
        ("octavo quantize m.onnx --inputs data.npz --no-verify", {}),
        ("octavo quantize m.onnx --report page.txt", {}),
        ("octavo quantize m.onnx -o page.html --report page.html", {}),
        ("octavo quantize models:make --ops Conv", {}),
        ("octavo convert-target portable.onnx --to native --cpu any", {}),
        ("octavo bench m.onnx --shape xx=1x8", {}),
        ("octavo bench m.onnx --shape x=1x9", {}),
        ("octavo bench m.onnx --shape x:1", {}),
        ("octavo bench m.onnx --shape x=1x32,x=2x32", {}),
        ("octavo bench m.onnx --threads '1;2'", {}),
        ("octavo bench m.onnx --seconds 0", {}),
        ("octavo bench m.onnx --against openvino", {}),
        ("octavo bench models:make", {}),
    ],
    "Models that cannot be read or handled": [
        ("octavo quantize mm.onnx", {}),
        ("octavo inspect none/n.onnx --json", {}),
        ("octavo inspect .", {}),
        ("octavo inspect /dev/null", {}),
        ("octavo quantize text.onnx --json", {}),
        ("octavo quantize cut.onnx", {}),
        ("octavo quantize portable.onnx", {}),
        ("octavo quantize bare.onnx", {}),
        ("octavo convert-target m.onnx --to native --json", {}),
        ("octavo convert-target native.onnx --to native", {}),
        ("octavo convert-target gone.onnx --to native", {}),
        ("octavo doctor gone.onnx", {}),
        ("octavo doctor .", {}),
        ("octavo doctor text.onnx --json", {}),
        ("octavo bench m.onnx gone.onnx", {}),
        ("octavo bench text.onnx --json", {}),
    ],
    "Recipes, presets, layers, operators": [
        ("octavo quantize m.onnx --recipe int9", {}),
        ("octavo quantize m.onnx --recipe rr.yaml", {"r.yaml": "base: int8\n"}),
        ("octavo quantize m.onnx --recipe r.yaml", {"r.yaml": "base: int8\nmax_eror: 1\n"}),
        ("octavo quantize m.onnx --recipe r.yaml", {"r.yaml": "base: int9\n"}),
        ("octavo quantize m.onnx --recipe r.yaml", {"r.yaml": "base: int8\nmax_error: -1\n"}),
        ("octavo quantize m.onnx --recipe r.yaml", {"r.yaml": "base: int8\nmax_error: high\n"}),
        ("octavo quantize m.onnx --recipe r.yaml", {"r.yaml": "version: 2\nbase: int8\n"}),
        ("octavo quantize m.onnx --recipe r.yaml", {"r.yaml": "rules: []\n"}),
        ("octavo quantize m.onnx --recipe r.yaml", {"r.yaml": ""}),
        ("octavo quantize m.onnx --recipe r.yaml", {"r.yaml": "base: int8\nbase: int8\n"}),
        ("octavo quantize m.onnx --recipe r.yaml", {"r.yaml": "base: [int8\n"}),
        (
            "octavo quantize m.onnx --recipe r.yaml",
            {"r.yaml": "base: int8\nrules:\n- {nme: a, scheme: float}\n"},
        ),
        (
            "octavo quantize m.onnx --recipe r.yaml",
            {"r.yaml": "base: int8\nrules:\n- {name: layer0}\n"},
        ),
        (
            "octavo quantize m.onnx --recipe r.yaml",
            {"r.yaml": "base: int8\nrules:\n- {scheme: float}\n"},
        ),
        (
            "octavo quantize m.onnx --recipe r.yaml",
            {"r.yaml": "base: int8\nrules:\n- {name: layer7, scheme: float}\n"},
        ),
        (
            "octavo quantize m.onnx --recipe r.yaml",
            {"r.yaml": "base: int8\nrules:\n- {regex: 'a(', scheme: float}\n"},
        ),
        (
            "octavo quantize m.onnx --recipe r.yaml",
            {"r.yaml": "base: int8\nrules:\n- {kind: liner, scheme: float}\n"},
        ),
        (
            "octavo quantize m.onnx --recipe r.yaml",
            {"r.yaml": "base: int8\nrules:\n- {op: MatMull, scheme: float}\n"},
        ),
        (
            "octavo quantize m.onnx --recipe r.yaml",
            {"r.yaml": "default: {weight: {qtype: int4}}\n"},
        ),
        (
            "octavo quantize m.onnx --recipe r.yaml",
            {"r.yaml": "default: {weight: {granularity: row}}\n"},
        ),
        (
            "octavo quantize m.onnx --recipe r.yaml",
            {"r.yaml": "default: {weight: {granularity: block, block: 7}}\n"},
        ),
        (
            "octavo quantize m.onnx --recipe r.yaml",
            {"r.yaml": "default: {weight: {observer: minmx}}\n"},
        ),
        (
            "octavo quantize m.onnx --recipe r.yaml",
            {"r.yaml": "default: {activation: {qtype: int8}}\n"},
        ),
        ("octavo quantize m.onnx --ops MatMull", {}),
        (
            "octavo quantize m.onnx --recipe f.yaml --ops Conv",
            {"f.yaml": "name: quiet\ndefault: float\n"},
        ),
        ("octavo quantize m.onnx --only 'layr0'", {}),
        ("octavo quantize m.onnx --exclude 'layr*'", {}),
        ("octavo quantize m.onnx --exclude 'layer*'", {}),
        ("octavo quantize models:make --only quary", {}),
    ],
    "Outputs, inputs of the check, verification": [
        ("octavo quantize m.onnx -o none/out.onnx", {}),
        ("octavo quantize m.onnx -o .", {}),
        ("octavo quantize m.onnx -o m.onnx", {}),
        ("octavo quantize m.onnx -o /dev/full", {}),
        ("octavo quantize m.onnx", {"m.int8.onnx": "mine"}),
        ("octavo quantize models:make", {"make.int8.safetensors": "mine"}),
        ("octavo convert-target portable.onnx --to native", {"portable.native.onnx": "mine"}),
        (
            "octavo quantize m.onnx -o nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn.onnx",
            {},
        ),
        ("octavo quantize m.onnx -o out.onnx --report none/page.html", {}),
        ("octavo quantize models:make -o out.onnx", {}),
        ("octavo quantize m.onnx --inputs gone.npz", {}),
        ("octavo quantize m.onnx --inputs conf.yaml", {}),
        ("octavo quantize m.onnx --inputs bad.npz", {"bad.npz": "no archive"}),
        (
            "octavo quantize m.onnx --inputs i.jsonl",
            {
                "i.jsonl": '{"x": [[0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5]]}\n[1, 2]\n'
            },
        ),
        ("octavo quantize m.onnx --inputs i.jsonl", {"i.jsonl": "{x\n"}),
        (
            "octavo quantize m.onnx --recipe strict.yaml",
            {"strict.yaml": "base: int8\nmax_error: 1.0e-12\n"},
        ),
    ],
    "Comparing": [
        ("octavo compare gone.onnx portable.onnx", {}),
        ("octavo compare native.onnx m.onnx", {}),
        ("octavo compare m.onnx m.onnx --json", {}),
        ("octavo compare m.onnx native.onnx --inputs gone.npz", {}),
        ("octavo compare m.onnx q.safetensors", {}),
        ("octavo compare models:make native.onnx", {}),
        ("octavo compare models:wide q.safetensors", {}),
        ("octavo compare models:make gone.safetensors", {}),
        ("octavo compare models:make q.safetensors --inputs data.npz", {}),
    ],
    "Reports": [
        ("octavo report m.onnx --html page.html", {}),
        ("octavo report m.onnx gone.onnx --html page.html", {}),
        ("octavo report m.onnx portable.onnx --html page.txt", {}),
        (
            "octavo report m.onnx portable.onnx --html portable.html --inputs portable.html",
            {"portable.html": "<p>"},
        ),
        ("octavo report m.onnx portable.onnx --html page.html --shape x=1by4", {}),
        ("octavo report m.onnx portable.onnx --html page.html --threads 0", {}),
        ("octavo report m.onnx portable.onnx --html page.html --seconds 0", {}),
        ("octavo report m.onnx portable.onnx --html page.html --inputs gone.npz", {}),
        ("octavo report run.json --html page.html", {"run.json": '{"layers": 3}'}),
        ("octavo report run.json --html page.html --threads 1", {"run.json": "{}"}),
        ("octavo report models:make q.safetensors --html page.html --threads 1", {}),
    ],
    "Machines, packages, damaged weights": [],
    "Ctrl-C": [],
    "Calls of octavo.onnx, octavo.measure, octavo.recipe": [
        ('octavo.onnx.quantize_dynamic(None, "o.onnx")', {}),
        ('octavo.onnx.quantize_dynamic("m.onnx", 3)', {}),
        ('octavo.onnx.quantize_dynamic("m.onnx", "o.onnx", ["MatMull"])', {}),
        ('octavo.onnx.quantize_dynamic("m.onnx", "o.onnx", weight_type="QInt9")', {}),
        ('octavo.onnx.quantize_dynamic("m.onnx", "o.onnx", per_channel="yes")', {}),
        ('octavo.onnx.quantize_dynamic("m.onnx", "o.onnx", nodes_to_quantize="layer0")', {}),
        ('octavo.onnx.quantize_dynamic("m.onnx", "o.onnx", nodes_to_exclude=["layr0"])', {}),
        (
            'octavo.onnx.quantize_dynamic("m.onnx", "o.onnx", extra_options={"WeightSymetric": True})',
            {},
        ),
        (
            'octavo.onnx.quantize_dynamic("m.onnx", "o.onnx", extra_options={"WeightSymmetric": 1})',
            {},
        ),
        (
            'octavo.onnx.quantize_dynamic("m.onnx", "o.onnx", extra_options={"ActivationRestrictedAsymmetric": True})',
            {},
        ),
        (
            'octavo.onnx.quantize_dynamic("m.onnx", "o.onnx", recipe="int8-per-tensor", extra_options={"ActivationSymmetric": True})',
            {},
        ),
        (
            'octavo.onnx.quantize_dynamic("m.onnx", "o.onnx", recipe="int8-block", weight_type=octavo.onnx.QuantType.QUInt8)',
            {},
        ),
        ('octavo.onnx.quantize_dynamic("m.onnx", "o.onnx", recipe="int9")', {}),
        ('octavo.onnx.quantize_dynamic("m.onnx", "o.onnx", recipe=3)', {}),
        ('octavo.onnx.quantize_dynamic("m.onnx", "o.onnx", target="nativ")', {}),
        ('octavo.onnx.quantize_dynamic("m.onnx", "o.onnx", cpu="avx")', {}),
        ('octavo.onnx.quantize_dynamic("m.onnx", "o.onnx", quant_format="qqd")', {}),
        ('octavo.onnx.quantize_dynamic("m.onnx", "o.onnx", check_inputs=3)', {}),
        ('octavo.onnx.session("text.onnx")', {}),
        ('octavo.onnx.session("mm.onnx")', {}),
        ('octavo.onnx.convert_target("portable.onnx", "o.onnx", to="nativ")', {}),
        ("octavo.measure.bench({})", {}),
        ("octavo.measure.bench(3)", {}),
        ('octavo.measure.bench({"a": 3})', {}),
        ('octavo.measure.bench({"a": len}, seconds=0)', {}),
        ('octavo.recipe.preset("int9")', {}),
        ('octavo.recipe.Recipe.from_dict({"base": "int8", "ruls": []})', {}),
    ],
    "PyTorch models by name": [
        ("octavo quantize -o out.safetensors modles:make", {}),
        ("octavo quantize -o out.safetensors models.py:make", {}),
        ("octavo quantize -o out.safetensors models:mkae", {}),
        ("octavo quantize -o out.safetensors models:number", {}),
        ("octavo quantize -o out.safetensors models:ready", {}),
        ("octavo quantize -o out.safetensors models:three", {}),
        ("octavo quantize -o out.safetensors models:broken", {}),
        ("octavo quantize -o out.safetensors models:nan", {}),
        ("octavo quantize -o out.safetensors models:bare", {}),
        ("octavo quantize -o out.safetensors other:make", {"other.py": "x = 1 / 0\n"}),
        ("octavo inspect modles:make", {}),
    ],
    "Loading PyTorch files": [
        ('octavo.torch.load("gone.safetensors", models.make)', {}),
        (
            'octavo.torch.load("b.safetensors", models.make)',
            {"b.safetensors": "PK a zip file, as torch.save writes"},
        ),
        ('octavo.torch.load("q.safetensors", models.wide)', {}),
        ('octavo.torch.load("q.safetensors", models.bare)', {}),
        ('octavo.torch.load("q.safetensors", models.three)', {}),
        ('octavo.torch.load("q.safetensors", lambda: models.ready)', {}),
        ('octavo.torch.load("q.safetensors", models.make, skeleton="gpu")', {}),
        ('octavo.torch.save(models.make(), "f.safetensors")', {}),
    ],
    "Calls of octavo.torch": [
        ('octavo.torch.quantize_dynamic(models.make(), {"quary"})', {}),
        ('octavo.torch.quantize_dynamic(models.make(), {"Linear"})', {}),
        ("octavo.torch.quantize_dynamic(models.make(), {3})", {}),
        ("octavo.torch.quantize_dynamic(models.make(), 3)", {}),
        ("octavo.torch.quantize_dynamic(models.make(), set())", {}),
        ('octavo.torch.quantize_dynamic(models.make(), {"query": 3})', {}),
        ('octavo.torch.quantize_dynamic(models.make(), dtype="int9")', {}),
        ("octavo.torch.quantize_dynamic(models.make(), dtype=torch.quint4x2)", {}),
        ("octavo.torch.quantize_dynamic(models.make(), mapping=3)", {}),
        ("octavo.torch.quantize_dynamic(models.make(), mapping={torch.nn.Linear: 3})", {}),
        ('octavo.torch.quantize_dynamic(models.make(), recipe="int9")', {}),
        ('octavo.torch.quantize_dynamic(models.make(), {"query"}, recipe="int8")', {}),
        ("octavo.torch.quantize_dynamic(3)", {}),
        ("q = octavo.torch.quantize_dynamic(models.make())\noctavo.torch.quantize_dynamic(q)", {}),
        ("octavo.torch.quantize_dynamic(models.bare())", {}),
        ("octavo.torch.quantize_dynamic(models.nan())", {}),
        (
            "with torch.device('meta'): model = models.make()\noctavo.torch.quantize_dynamic(model)",
            {},
        ),
        (
            "q = octavo.torch.quantize_dynamic(models.make())\nq(torch.ones(2, 8, requires_grad=True)).sum().backward()",
            {},
        ),
        (
            "q = octavo.torch.quantize_dynamic(models.make())\ntorch.func.grad(lambda x: q(x).sum())(torch.ones(2, 8))",
            {},
        ),
        (
            "q = octavo.torch.quantize_dynamic(models.make())\nq.query.weight = torch.ones(16, 8)",
            {},
        ),
        ("q = octavo.torch.quantize_dynamic(models.make())\nq(torch.ones(2, 9))", {}),
        (
            "q = octavo.torch.quantize_dynamic(models.make())\nq(torch.ones(2, 8, dtype=torch.int64))",
            {},
        ),
        ("octavo.torch.report(models.make())", {}),
        ('octavo.torch.export_onnx(models.make(), (torch.ones(2, 8),), "e.onnx")', {}),
        (
            'q = octavo.torch.quantize_dynamic(models.make())\noctavo.torch.export_onnx(q, (torch.ones(2, 8),), "e.onnx", target="nativ")',
            {},
        ),
        (
            'q = octavo.torch.quantize_dynamic(models.make())\noctavo.torch.export_onnx(q, (torch.ones(2, 8),), "e.onnx", opset_version=3)',
            {},
        ),
        ("octavo.torch.qconfig.MinMaxObserver.with_args(qshceme='x')", {}),
        (
            "from octavo.torch.qconfig import MinMaxObserver, QConfig\nQConfig(activation=None, weight=MinMaxObserver())",
            {},
        ),
        ('octavo.torch.compare(models.make(), models.make(), {"x": torch.ones(2, 8)})', {}),
    ],
    "Tuning files": [
        ("octavo tune cnf.yaml --model m.onnx", {}),
        ("octavo tune c.yaml --model m.onnx", {"c.yaml": ""}),
        (
            "octavo tune c.yaml --model m.onnx",
            {"c.yaml": "model: {name: m, framework: onnxrt_integerops}\ntunning: {}\n"},
        ),
        ("octavo tune c.yaml --model m.onnx", {"c.yaml": "model: {name: m}\n"}),
        ("octavo tune c.yaml --model m.onnx", {"c.yaml": "quantization: {}\n"}),
        ("octavo tune c.yaml --model m.onnx", {"c.yaml": "model: {name: m, framework: onnxrt}\n"}),
        ("octavo tune c.yaml --model m.onnx", {"c.yaml": "model: {name: m, framework: mxnet}\n"}),
        (
            "octavo tune c.yaml --model m.onnx",
            {"c.yaml": "model: {name: m, framework: onnxrt_integerops}\nversion: 2.0\n"},
        ),
        (
            "octavo tune c.yaml --model m.onnx",
            {
                "c.yaml": "model: {name: m, framework: onnxrt_integerops}\nquantization: {approach: quant_aware_training}\n"
            },
        ),
        (
            "octavo tune c.yaml --model m.onnx",
            {
                "c.yaml": "model: {name: m, framework: onnxrt_integerops}\nquantization: {approach: dynamic}\n"
            },
        ),
        (
            "octavo tune c.yaml --model m.onnx",
            {
                "c.yaml": "model: {name: m, framework: onnxrt_integerops}\nquantization: {approach: post_training_dynamic_quant}\npruning: {}\n"
            },
        ),
        (
            "octavo tune c.yaml --model m.onnx",
            {"c.yaml": "model: {name: m, framework: onnxrt_integerops}\n<<: *a\n"},
        ),
        ("octavo tune c.yaml --model m.onnx", {"c.yaml": "model: {name: m\n"}),
        (
            "octavo tune c.yaml --model m.onnx",
            {"c.yaml": "model: {name: m, name: n, framework: mxnet}\n"},
        ),
        (
            "octavo tune c.yaml --model m.onnx",
            {
                "c.yaml": "model: {name: m, framework: onnxrt_integerops}\nquantization: {approach: post_training_dynamic_quant}\ntuning: {accuracy_criterion: {relative: 1.5}}\n"
            },
        ),
        (
            "octavo tune c.yaml --model m.onnx",
            {
                "c.yaml": "model: {name: m, framework: onnxrt_integerops}\nquantization: {approach: post_training_dynamic_quant}\ntuning: {accuracy_criterion: {relative: a lot}}\n"
            },
        ),
        (
            "octavo tune c.yaml --model m.onnx",
            {
                "c.yaml": "model: {name: m, framework: onnxrt_integerops}\nquantization: {approach: post_training_dynamic_quant}\ntuning: {accuracy_criterion: {relative: 0.1, absolute: 1}}\n"
            },
        ),
        (
            "octavo tune c.yaml --model m.onnx",
            {
                "c.yaml": "model: {name: m, framework: onnxrt_integerops}\nquantization: {approach: post_training_dynamic_quant}\ntuning: {accuracy_criterion: {}}\n"
            },
        ),
        (
            "octavo tune c.yaml --model m.onnx",
            {
                "c.yaml": "model: {name: m, framework: onnxrt_integerops}\nquantization: {approach: post_training_dynamic_quant}\ntuning: {objective: speed}\n"
            },
        ),
        (
            "octavo tune c.yaml --model m.onnx",
            {
                "c.yaml": "model: {name: m, framework: onnxrt_integerops}\nquantization: {approach: post_training_dynamic_quant}\ntuning: {strategy: {name: bayes}}\n"
            },
        ),
        (
            "octavo tune c.yaml --model m.onnx",
            {
                "c.yaml": "model: {name: m, framework: onnxrt_integerops}\nquantization: {approach: post_training_dynamic_quant}\ntuning: {exit_policy: {timeout: -1}}\n"
            },
        ),
        (
            "octavo tune c.yaml --model m.onnx",
            {
                "c.yaml": "model: {name: m, framework: onnxrt_integerops}\nquantization: {approach: post_training_dynamic_quant}\ntuning: {exit_policy: {max_trials: 0}}\n"
            },
        ),
        (
            "octavo tune c.yaml --model m.onnx",
            {
                "c.yaml": "model: {name: m, framework: onnxrt_integerops}\nquantization: {approach: post_training_dynamic_quant}\ntuning: {random_seed: x}\n"
            },
        ),
        (
            "octavo tune c.yaml --model m.onnx",
            {
                "c.yaml": "model: {name: m, framework: onnxrt_integerops}\nquantization: {approach: post_training_dynamic_quant}\ntuning: {multi_objectives: {objective: [modelsize, accuracy], weight: [1]}}\n"
            },
        ),
        (
            "octavo tune c.yaml --model m.onnx --data data.npz",
            {
                "c.yaml": "model: {name: m, framework: onnxrt_integerops}\nquantization: {approach: post_training_dynamic_quant}\ntuning: {accuracy_criterion: {relative: 0.01}}\nevaluation: {accuracy: {metric: {topk: 2}}}\n"
            },
        ),
        (
            "octavo tune c.yaml --model m.onnx --data data.npz",
            {
                "c.yaml": "model: {name: m, framework: onnxrt_integerops}\nquantization: {approach: post_training_dynamic_quant}\ntuning: {accuracy_criterion: {relative: 0.01}}\nevaluation: {accuracy: {metric: {top: 1}}}\n"
            },
        ),
        (
            "octavo tune c.yaml --model m.onnx --data data.npz",
            {
                "c.yaml": "model: {name: m, framework: onnxrt_integerops}\nquantization: {approach: post_training_dynamic_quant}\ntuning: {accuracy_criterion: {relative: 0.01}}\nevaluation: {accuracy: {metric: {topk: 1, MSE: {}}}}\n"
            },
        ),
        (
            "octavo tune c.yaml --model m.onnx --data data.npz",
            {
                "c.yaml": "model: {name: m, framework: onnxrt_integerops}\nquantization: {approach: post_training_dynamic_quant}\ntuning: {accuracy_criterion: {relative: 0.01}}\nevaluation: {accuracy: {metric: {mAP: {}}}}\n"
            },
        ),
        (
            "octavo tune c.yaml --model m.onnx",
            {
                "c.yaml": "model: {name: m, framework: onnxrt_integerops}\nquantization: {approach: post_training_dynamic_quant}\nevaluation: {accuracy: {metric: {topk: 1}}}\n"
            },
        ),
        (
            "octavo tune c.yaml --model m.onnx",
            {"c.yaml": "model: {name: m, framework: tensorflow}\n"},
        ),
        (
            "octavo tune c.yaml --model m.onnx",
            {
                "c.yaml": "model: {name: m, framework: pytorch}\nquantization: {approach: post_training_dynamic_quant}\n"
            },
        ),
        ("octavo tune c.yaml --model m.onnx", {"c.yaml": "model: {name: m, framework: pytorch}\n"}),
    ],
    "Tuning": [
        ("octavo tune conf.yaml", {}),
        ("octavo tune conf.yaml --model mm.onnx --json", {}),
        ("octavo tune conf.yaml --model bare.onnx", {}),
        ("octavo tune conf.yaml --model m.onnx --workers 0", {}),
        ("octavo tune conf.yaml --model m.onnx --evaluate accuracy", {}),
        ("octavo tune conf.yaml --model m.onnx --evaluate acuracies:accuracy", {}),
        ("octavo tune conf.yaml --model m.onnx --evaluate accuracies:acuracy", {}),
        ("octavo tune conf.yaml --model m.onnx --evaluate accuracies:number", {}),
        ("octavo tune conf.yaml --model m.onnx --evaluate accuracies:fails", {}),
        ("octavo tune conf.yaml --model m.onnx --evaluate accuracies:not_finite", {}),
        ("octavo tune conf.yaml --model m.onnx --evaluate accuracies:no_number", {}),
        ("octavo tune conf.yaml --model m.onnx --evaluate accuracies:unnamed", {}),
        ("octavo tune conf.yaml --model m.onnx --data dta.npz", {}),
        ("octavo tune conf.yaml --model m.onnx --data m.onnx", {}),
        ("octavo tune conf.yaml --model m.onnx --data data.npz --batch-size 0", {}),
        ("octavo tune conf.yaml --model m.onnx --shape xx=1x32", {}),
        ("octavo tune conf.yaml --model m.onnx -o best.safetensors", {}),
        ("octavo tune conf.yaml --model m.onnx -o none/best.onnx", {}),
        ("octavo tune conf.yaml --model m.onnx", {"m.tuned.onnx": "mine"}),
        ("octavo tune conf.yaml --model m.onnx --recipe-out conf.yaml", {}),
        ("octavo tune conf.yaml --model m.onnx --recipe-out best.txt", {}),
        ("octavo tune conf.yaml --model m.onnx --report data.npz", {}),
        ("octavo tune conf.yaml --model m.onnx --workspace data.npz", {}),
        ("octavo tune conf.yaml --model m.onnx --data d.jsonl", {"d.jsonl": "{x\n"}),
        (
            "octavo tune conf.yaml --model m.onnx --workspace w --resume",
            {"w/history.jsonl": '{"kind": "start", "key": "", "value": {}}\n[]\n'},
        ),
        ("octavo tune conf.yaml --model models:make", {}),
        ('octavo.tune.tune("m.onnx", strategy="atuo")', {}),
        ('octavo.tune.tune("m.onnx", objective="speed")', {}),
        ('octavo.tune.tune("m.onnx", criterion=float("nan"))', {}),
        ('octavo.tune.tune("m.onnx", metric="tpok", data="data.npz")', {}),
        ('octavo.tune.tune("m.onnx", max_trials=0)', {}),
        ('octavo.tune.tune("m.onnx", timeout=-1)', {}),
        ('octavo.tune.Quantization("conf.yaml").modell = 3', {}),
        ('octavo.tune.Quantization("conf.yaml").fit()', {}),
    ],
}
