#include <nanobind/stl/array.h>

#include <array>

#include "layers/attention.h"
#include "layers/layer_norm.h"
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

void run_layer_norm(std::uintptr_t x, std::size_t rows, std::size_t columns, std::size_t stride, std::uintptr_t weight,
                    std::uintptr_t bias, float eps, std::uintptr_t out, std::size_t out_stride, int threads) {
  const MaybeRelease release(rows * columns > kLongRows);
  layer_norm({pointer<const float>(x), rows, columns, stride, pointer<const float>(weight), pointer<const float>(bias), eps,
              pointer<float>(out), out_stride},
             threads > 0 ? threads : num_threads());
}

}  // namespace

void bind_attention(nb::module_& m) {
  m.def("attention", &run_attention, "q"_a, "k"_a, "v"_a, "out"_a, "sizes"_a, "strides"_a, "scale"_a, "bias"_a, "mask"_a, "threads"_a);
  m.def("layer_norm", &run_layer_norm, "x"_a, "rows"_a, "columns"_a, "stride"_a, "weight"_a, "bias"_a, "eps"_a, "out"_a,
        "out_stride"_a, "threads"_a);
}

}  // namespace octavo
