"""Faults in the C++ core and the operators for ONNX Runtime."""

from tests.planted.fault import Fault

FAULTS = (
    # --- isa: one instruction set, or what all share ---
    Fault(
        "cells-of-bytes-count-padding-in-a-rows-sum",
        "native/isa/quantize_rows_avx2.h",
        "row_quant(scale, z - 128, sum, group, sum_quads(negative))",
        "row_quant(scale, z - 128, sum + 128 * (written - static_cast<std::int32_t>(n)), group, "
        "sum_quads(negative))",
        ("tests/core/test_linear.py", "tests/core/test_extent.py"),
    ),
    Fault(
        "range-leaves-out-the-last-value-of-a-rows-rest",
        "native/isa/row_range.h",
        "static_cast<int>(n - i)",
        "static_cast<int>(n - i) - 1",
        ("tests/core/test_quantize_rows.py", "tests/core/test_linear.py"),
    ),
    Fault(
        "group-search-compares-errors-without-importance",
        "native/isa/round_groups.h",
        "error = V::fma(g.times(i, off), off, error);",
        "error = V::fma(off, off, error);",
        ("tests/core/test_group_rounding.py",),
    ),
    Fault(
        "attention-merge-adds-sums-of-chunks-unscaled",
        "native/isa/attention_rows.h",
        "sum = __builtin_fmaf(part->sum, part->top, sum);",
        "sum += part->sum;",
        ("tests/core/test_attention_fields.py",),
    ),
    Fault(
        "mask-bits-of-the-last-queries-are-dropped",
        "native/isa/attention_panel.h",
        "bit == 7 || r + 1 == b.rows",
        "bit == 7",
        ("tests/core/test_attention_fields.py",),
    ),
    Fault(
        "gru-candidate-gate-is-not-clipped",
        "native/isa/cells.h",
        "t[i] = bounded<clipped>(V::load(gates + at(first + i * kWidth, 3)), s.clip);",
        "t[i] = V::load(gates + at(first + i * kWidth, 3));",
        ("tests/core/test_recurrent.py", "tests/native_target/test_recurrent_op.py"),
    ),
    Fault(
        "reference-rounds-half-up-to-float16",
        "native/isa/vector_scalar.h",
        "size + 0xfffu + (size >> 13 & 1u) - (112u << 23)",
        "size + 0x1000u - (112u << 23)",
        ("tests/core/test_half.py",),
    ),
    Fault(
        "avx2-rounds-nan-to-bfloat16-like-a-number",
        "native/isa/vector_avx2.h",
        "return _mm256_blendv_epi8(rounded, quiet, nan);",
        "return rounded;",
        ("tests/core/test_half.py",),
    ),
    # --- contract ---
    Fault(
        "scale-of-a-wide-row-overflows",
        "native/contract/row_scale.h",
        "hi / 255.0f - lo / 255.0f",
        "(hi - lo) / 255.0f",
        ("tests/core/test_quantize_rows.py", "tests/core/test_linear.py"),
    ),
    Fault(
        "zero-point-of-output-8-is-that-of-output-0",
        "native/contract/kernels.h",
        "c < 8 ? 0 : 4",
        "c <= 8 ? 0 : 4",
        ("tests/core/test_grouped_linear.py", "tests/torch/layers/test_torch_packed_embedding.py"),
    ),
    # --- layers ---
    Fault(
        "residual-of-16-bits-starts-anew-with-each-tile-of-rows",
        "native/layers/linear.cpp",
        "(first + m + r) * out.residual_stride + column",
        "(first + r) * out.residual_stride + column",
        ("tests/core/test_linear.py", "tests/core/test_half.py"),
    ),
    Fault(
        "long-weight-packs-its-second-part-too-early",
        "native/layers/quantize_weight.cpp",
        "to + i * kBlockN",
        "to + i * kBlockK",
        ("tests/core/test_quantize_weight.py", "tests/core/test_packing.py"),
    ),
    Fault(
        "initial-state-is-not-sorted-by-length",
        "native/layers/rnn_direction.cpp",
        "h0 + item * outs",
        "h0 + r * outs",
        ("tests/core/test_recurrent.py", "tests/native_target/test_recurrent_op.py"),
    ),
    Fault(
        "index-one-beyond-the-table-is-let-through",
        "native/layers/embedding.cpp",
        "count == 0 || highest < rows",
        "count == 0 || highest <= rows",
        ("tests/core/test_embedding.py", "tests/native_target/test_embedding_op.py"),
    ),
    Fault(
        "padding-on-the-right-is-0-not-the-zero-point",
        "native/layers/conv_windows.cpp",
        "std::memset(row + (s.before[1] + w) * pixel_bytes, r.zero_point, "
        "s.after[1] * pixel_bytes);",
        "std::memset(row + (s.before[1] + w) * pixel_bytes, 0, s.after[1] * pixel_bytes);",
        ("tests/core/test_convolution.py",),
    ),
    Fault(
        "slice-in-steps-loses-its-last-element",
        "native/layers/program_views.cpp",
        "(stop - start + step - 1) / step",
        "(stop - start) / step",
        ("tests/core/test_program.py",),
    ),
    Fault(
        "window-hides-nothing-in-blocks-that-causality-shows",
        "native/layers/attention_panels.cpp",
        "earliest.end < first + keys || latest.begin > first",
        "earliest.end < first + keys",
        ("tests/core/test_attention_fields.py", "tests/native_target/test_attention_layouts.py"),
    ),
    # --- ort_ops ---
    Fault(
        "causal-queries-are-the-last-ones-always",
        "native/ort_ops/attention_op.cpp",
        "causal_ == kLast",
        "causal_ != 0",
        (
            "tests/native_target/test_attention_op.py",
            "tests/native_target/test_attention_layouts.py",
        ),
    ),
    Fault(
        "final-states-of-batch-first-layers-are-not-turned",
        "native/ort_ops/rnn_op.cpp",
        "swap_axes(state.from, directions(), batch, hidden, state.to)",
        "swap_axes(state.from, batch, directions(), hidden, state.to)",
        ("tests/native_target/test_recurrent_op.py",),
    ),
    Fault(
        "all-items-of-a-cache-are-as-long-as-the-first",
        "native/ort_ops/cached_attention_problem.cpp",
        "alike = alike && before[b] == before[0];",
        "alike = true;",
        ("tests/onnx/rules/test_group_query.py",),
    ),
    Fault(
        "lowest-negative-index-does-not-count-from-the-end",
        "native/ort_ops/embedding_op.cpp",
        "i >= -all",
        "i > -all",
        ("tests/native_target/test_embedding_op.py", "tests/native_target/test_embedding_form.py"),
    ),
    # --- python ---
    Fault(
        "form-of-a-call-takes-an-axis-of-one-for-any",
        "native/python/bind_guard.cpp",
        "t.shape[i] < 2 ? t.shape[i] : 2",
        "t.shape[i] < 1 ? t.shape[i] : 1",
        (
            "tests/torch/blocks/test_torch_blocks.py",
            "tests/torch/blocks/test_torch_block_state.py",
        ),
    ),
    Fault(
        "version-of-a-weight-is-not-asked-for",
        "native/python/bind_sources.cpp",
        "if (version_of(tensor) != version) return false;",
        "static_cast<void>(version);",
        (
            "tests/torch/layers/test_torch_edits.py",
            "tests/torch/layers/test_torch_written_weights.py",
        ),
    ),
    # --- runtime ---
    Fault(
        "what-the-leader-of-a-team-throws-is-swallowed",
        "native/runtime/parallel.cpp",
        "if (error) std::rethrow_exception(error);",
        "error = nullptr;",
        ("tests/core/test_program.py",),
    ),
)
