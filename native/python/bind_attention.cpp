#include <nanobind/stl/array.h>

#include <array>

#include "layers/attention.h"
#include "layers/norm.h"
#include "layers/rotary.h"
#include "python/bind.h"
#include "runtime/parallel.h"

namespace octavo {

using namespace nb::literals;

namespace {

// Work from which a call gives up Python's lock: about 20 us.
constexpr double kLongProducts = 1e6;
constexpr std::size_t kLongRows = 50000;

// Sizes: batch, heads, queries, keys, depth, value_depth. Strides: of q, k and v from item to item, then of
// `bias` or `mask` for batch, head, query and key.
void run_attention(std::uintptr_t q, std::uintptr_t k, std::uintptr_t v, std::uintptr_t out, const std::array<std::size_t, 6>& sizes,
                   const std::array<std::size_t, 7>& strides, float scale, std::uintptr_t bias, std::uintptr_t mask, int threads) {
  AttentionInputs in{};
  in.batch = sizes[0];
  in.heads = sizes[1];
  in.queries = sizes[2];
  in.keys = sizes[3];
  in.depth = sizes[4];
  in.value_depth = sizes[5];
  in.q = pointer<const float>(q);
  in.k = pointer<const float>(k);
  in.v = pointer<const float>(v);
  const std::size_t width = in.heads * in.depth;
  in.q_steps = {strides[0], width, in.depth};
  in.k_steps = {strides[1], width, in.depth};
  in.v_steps = {strides[2], in.heads * in.value_depth, in.value_depth};
  in.scale = scale;
  in.bias = pointer<const float>(bias);
  in.mask = pointer<const std::uint8_t>(mask);
  in.bias_batch = strides[3];
  in.bias_head = strides[4];
  in.bias_query = strides[5];
  in.bias_key = strides[6];
  in.out = pointer<float>(out);
  const double work = static_cast<double>(in.batch * in.heads * in.queries) * static_cast<double>(in.keys * (in.depth + in.value_depth));
  const MaybeRelease release(work > kLongProducts);
  attention(in, threads > 0 ? threads : num_threads());
}

void run_norm(Norm kind, std::uintptr_t x, std::size_t rows, std::size_t columns, std::size_t stride, std::uintptr_t residual,
              std::uintptr_t weight, std::uintptr_t bias, float eps, std::uintptr_t sum, std::uintptr_t out, std::size_t out_stride,
              int threads) {
  const MaybeRelease release(rows * columns > kLongRows);
  NormRows in;
  in.kind = kind;
  in.x = pointer<const float>(x);
  in.rows = rows;
  in.columns = columns;
  in.stride = stride;
  in.residual = pointer<const float>(residual);
  in.residual_stride = columns;
  in.weight = pointer<const float>(weight);
  in.bias = pointer<const float>(bias);
  in.eps = eps;
  in.sum = pointer<float>(sum);
  in.sum_stride = columns;
  in.out = pointer<float>(out);
  in.out_stride = out_stride;
  norm(in, threads > 0 ? threads : num_threads());
}

void run_layer_norm(std::uintptr_t x, std::size_t rows, std::size_t columns, std::size_t stride, std::uintptr_t weight,
                    std::uintptr_t bias, float eps, std::uintptr_t out, std::size_t out_stride, int threads) {
  run_norm(Norm::kLayer, x, rows, columns, stride, 0, weight, bias, eps, 0, out, out_stride, threads);
}

// Rows without gaps; `residual`, `weight`, `bias` and `sum` may be 0.
void run_norm_rows(int kind, std::uintptr_t x, std::size_t rows, std::size_t columns, std::uintptr_t residual, std::uintptr_t weight,
                   std::uintptr_t bias, float eps, std::uintptr_t sum, std::uintptr_t out, int threads) {
  run_norm(static_cast<Norm>(kind), x, rows, columns, columns, residual, weight, bias, eps, sum, out, columns, threads);
}

// Sizes: batch, heads, rows, width, turned. Strides: of x, then of `out`, for batch, head and row; of the tables for
// batch and row; of positions for batch and row.
void run_rotary(std::uintptr_t x, std::uintptr_t cos, std::uintptr_t sin, std::uintptr_t positions, std::uintptr_t out,
                const std::array<std::size_t, 5>& sizes, const std::array<std::size_t, 10>& strides, bool interleaved, bool each, int threads) {
  RotaryInputs in{};
  in.batch = sizes[0];
  in.heads = sizes[1];
  in.rows = sizes[2];
  in.width = sizes[3];
  in.turned = sizes[4];
  in.interleaved = interleaved;
  in.each = each;
  in.x = pointer<const float>(x);
  in.x_steps = {strides[0], strides[1], strides[2]};
  in.out = pointer<float>(out);
  in.out_steps = {strides[3], strides[4], strides[5]};
  in.cos = pointer<const float>(cos);
  in.sin = pointer<const float>(sin);
  in.table_batch = strides[6];
  in.table_row = strides[7];
  in.positions = pointer<const std::int64_t>(positions);
  in.position_batch = strides[8];
  in.position_row = strides[9];
  const MaybeRelease release(in.batch * in.heads * in.rows * in.width > kLongRows);
  rotary(in, threads > 0 ? threads : num_threads());
}

}  // namespace

void bind_attention(nb::module_& m) {
  m.def("attention", &run_attention, "q"_a, "k"_a, "v"_a, "out"_a, "sizes"_a, "strides"_a, "scale"_a, "bias"_a, "mask"_a, "threads"_a);
  m.def("layer_norm", &run_layer_norm, "x"_a, "rows"_a, "columns"_a, "stride"_a, "weight"_a, "bias"_a, "eps"_a, "out"_a,
        "out_stride"_a, "threads"_a);
  m.def("norm_rows", &run_norm_rows, "kind"_a, "x"_a, "rows"_a, "columns"_a, "residual"_a, "weight"_a, "bias"_a, "eps"_a, "total"_a, "out"_a,
        "threads"_a);
  m.def("rotary", &run_rotary, "x"_a, "cos"_a, "sin"_a, "positions"_a, "out"_a, "sizes"_a, "strides"_a, "interleaved"_a, "each"_a, "threads"_a);
}

}  // namespace octavo
