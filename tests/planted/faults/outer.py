"""Faults of `src/octavo`'s `tune`, `measure`, `results`, `report` and `cli`."""

from tests.planted.fault import Fault

FAULTS = (
    # tune
    Fault(
        "torn-last-line-of-a-history-stays",
        "src/octavo/tune/history.py",
        "file.truncate(whole)",
        "file.seek(whole)",
        ("tests/tune/test_history.py",),
    ),
    Fault(
        "trial-of-a-lost-worker-stays-failed-after-a-resumption",
        "src/octavo/tune/measurements.py",
        "return None if trial is None or is_lost(trial.error) else trial",
        "return trial",
        ("tests/tune/test_loop.py", "tests/tune/test_runners.py"),
    ),
    Fault(
        "bounds-of-a-pair-the-other-way-round-are-swapped",
        "src/octavo/tune/contest.py",
        "= 1 / ratio, 1 / high, 1 / low",
        "= 1 / ratio, 1 / low, 1 / high",
        ("tests/tune/test_contest.py",),
    ),
    Fault(
        "layer-name-with-brackets-is-read-as-a-pattern",
        "src/octavo/tune/space.py",
        "regex=re.escape(name)",
        "regex=name",
        ("tests/tune/test_space.py",),
    ),
    Fault(
        "tables-become-float-for-a-few-percent-of-time",
        "src/octavo/tune/ranking.py",
        "if high < (LOOKUP_PAYS if kind is Kind.EMBEDDING else PAYS)",
        "if high < PAYS",
        ("tests/tune/test_auto.py",),
    ),
    # tune/inc
    Fault(
        "boxes-beyond-the-number-of-detections-count",
        "src/octavo/tune/inc/boxes.py",
        "yield {key: value[: int(count)] for key, value in one.items()}",
        "yield dict(one)",
        ("tests/tune/inc/test_boxes_and_pixels.py",),
    ),
    Fault(
        "answer-may-end-before-it-starts",
        "src/octavo/tune/inc/metric_texts.py",
        "return first, first + int(np.argmax(end[first:]))",
        "return first, int(np.argmax(end))",
        ("tests/tune/inc/test_metrics.py",),
    ),
    Fault(
        "roc-takes-the-second-score-without-the-first",
        "src/octavo/tune/inc/metric_scores.py",
        "columns[:, -1] - (columns[:, 0] if columns.shape[1] == 2 else 0.0)",
        "columns[:, -1]",
        ("tests/tune/inc/test_metrics.py",),
    ),
    Fault(
        "op-wise-entry-speaks-of-names-that-only-begin-so",
        "src/octavo/tune/inc/entries.py",
        "return patterns.matches(self.regex, layer.name)",
        'return patterns.matches(f"{self.regex}.*", layer.name)',
        ("tests/tune/inc/test_config_recipe.py",),
    ),
    # measure
    Fault(
        "second-opening-has-the-order-of-the-first",
        "src/octavo/measure/openings.py",
        "second = first and self._open(names[::-1])",
        "second = first and self._open(names)",
        ("tests/measure/test_bench.py",),
    ),
    Fault(
        "upper-bound-of-an-interval-is-one-average-too-far-in",
        "src/octavo/measure/benchmark.py",
        "float(walsh[-1 - outside])",
        "float(walsh[-2 - outside])",
        ("tests/measure/test_interval.py", "tests/measure/test_bench.py"),
    ),
    Fault(
        "rows-left-over-of-a-row-group-are-lost",
        "src/octavo/measure/readers.py",
        "rest = table if rest is None else pyarrow.concat_tables([rest, table])",
        "rest = table",
        ("tests/measure/test_data.py",),
    ),
    # results
    Fault(
        "interval-far-below-equality-is-called-no-difference",
        "src/octavo/results/benchmark.py",
        "return max(self.high - 1, 1 - self.low)",
        "return self.high - 1",
        ("tests/results/test_bench_text.py", "tests/measure/test_bench.py"),
    ),
    Fault(
        "earlier-excludes-are-lost-from-the-advised-command",
        "src/octavo/results/advice.py",
        'repeated = {"--exclude"}',
        "repeated = set[str]()",
        ("tests/results/test_judgement.py",),
    ),
    Fault(
        "last-run-alone-says-whether-an-output-holds-unit-vectors",
        "src/octavo/results/accumulate.py",
        "self._unit = self._unit and is_unit(reference)",
        "self._unit = is_unit(reference)",
        ("tests/onnx/test_scores.py", "tests/results/test_comparison_text.py"),
    ),
    # report
    Fault(
        "bars-of-accumulated-errors-have-the-scale-of-layers-alone",
        "src/octavo/report/html/layers.py",
        "for d in (*alone, *accumulated) if d is not None",
        "for d in alone if d is not None",
        ("tests/report/test_html_evidence.py", "tests/report/test_html_pages.py"),
    ),
    Fault(
        "criterion-of-an-error-is-drawn-below-the-float-model",
        "src/octavo/report/plots/trials.py",
        "floor = reference - allowance if result.higher_is_better else reference + allowance",
        "floor = reference - allowance",
        ("tests/report/test_plots.py",),
    ),
    # cli
    Fault(
        "size-leaves-out-what-the-model-holds-beside-its-layers",
        "src/octavo/cli/bit_budget.py",
        "allowed = _bytes(size) - max(rest, 0)",
        "allowed = _bytes(size)",
        ("tests/test_cli_mixing.py",),
    ),
    Fault(
        "ops-matmul-reaches-products-of-two-activations",
        "src/octavo/cli/options.py",
        "return recipe.with_rules_first(*by_name, *products, *rules)",
        "return recipe.with_rules_first(*by_name, *rules)",
        ("tests/test_cli.py",),
    ),
    Fault(
        "recipe-that-missed-the-criterion-is-written",
        "src/octavo/cli/tune_steps.py",
        "if result.best.recipe is None or not result.best.meets:",
        "if result.best.recipe is None:",
        ("tests/test_cli_tune.py",),
    ),
)
