// The normative kernels: scalar, one statement for each definition in docs/architecture.md.
#include <cstddef>
#include <cstdint>

#include "contract/row_scale.h"
#include "contract/tables.h"
#include "isa/epilogue.h"
#include "isa/fill_table.h"
#include "isa/row_range.h"
#include "isa/transpose_words.h"
#include "isa/vector_scalar.h"

namespace octavo {
namespace {

void quantize_rows(const QuantizeRows& q) {
  const std::size_t groups = groups_of(q.k, q.group), stride = round_up(q.k, kPanelK);
  for (std::size_t m = 0; m < q.rows; ++m) {
    std::uint8_t* to = q.panel + m * stride;
    for (std::size_t g = 0; g < groups; ++g) {
      const std::size_t first = g * q.group, n = q.group && q.k - first > q.group ? q.group : q.k - first;
      const float* x = q.x + m * q.stride + first;
      const RowScale r = RowRange<Scalar>::scale(x, n);
      std::int32_t sum = 0;
      for (std::size_t i = 0; i < n; ++i) {
        std::int32_t v = r.finite() ? Scalar::round(x[i] * r.inverse) + r.zero_point : 0;
        v = v < 0 ? 0 : v > 255 ? 255 : v;
        to[first + i] = static_cast<std::uint8_t>(v);
        sum += v - r.zero_point;
      }
      q.quant[m * groups + g] = row_quant(r.scale, r.zero_point, sum, q.group);
    }
    for (std::size_t i = q.k; i < stride; ++i) to[i] = 0;
  }
}

void panel_rows(const PanelRows& p) {
  const std::size_t groups = groups_of(p.k, p.group), stride = round_up(p.k, kPanelK);
  for (std::size_t m = 0; m < p.rows; ++m) {
    std::uint8_t* to = p.panel + m * stride;
    for (std::size_t i = 0; i < stride; ++i) to[i] = i < p.k ? p.q[m * p.stride + i] : 0;
    for (std::size_t g = 0; g < groups; ++g) {
      const std::size_t first = g * p.group, n = p.group && p.k - first > p.group ? p.group : p.k - first;
      const std::int32_t z = p.zero_point[m * groups + g];
      std::int32_t sum = 0;
      for (std::size_t i = 0; i < n; ++i) sum += to[first + i] - z;
      p.quant[m * groups + g] = row_quant(p.scale[m * groups + g], z, sum, p.group);
    }
  }
}

std::int32_t dot(const std::uint8_t* a, const std::int8_t* block, std::size_t column, std::size_t first,
                 std::size_t last) {
  std::int32_t acc = 0;
  for (std::size_t k = first; k < last; ++k)
    acc += a[k] * block[(k / kBlockK * kBlockN + column) * kBlockK + k % kBlockK];
  return acc;
}

void gemm(const Gemm& g) {
  const Weight& w = g.weight;
  const std::size_t stride = round_up(w.k, kPanelK), groups = groups_of(w.k, g.group);
  for (std::size_t m = 0; m < g.rows; ++m) {
    const std::uint8_t* a = g.panel + m * stride;
    const RowQuant* quant = g.quant + m * groups;
    for (std::size_t n = g.block_begin * kBlockN; n < g.block_end * kBlockN && n < w.n; ++n) {
      const std::int8_t* block = w.data + n / kBlockN * w.block_bytes();
      if (g.raw) {
        const std::size_t first = g.chunk * kChunkK, last = first + kChunkK < w.k ? first + kChunkK : w.k;
        const std::int32_t sum = dot(a, block, n % kBlockN, first, last);
        finish_raw_rows<Scalar>(g, n, m, 1, &sum, 1);
        continue;
      }
      float f = 0.0f;
      for (std::size_t i = 0; i < groups; ++i) {
        const std::size_t first = i * g.group, last = g.group && first + g.group < w.k ? first + g.group : w.k;
        const Epilogue<Scalar> finish(g, n, i);
        const std::int32_t t = finish.exact(dot(a, block, n % kBlockN, first, last), quant[i]);
        f = i == 0 ? finish.scaled(t, quant[i]) : Scalar::fma(Scalar::to_float(t), quant[i].scale, f);
      }
      finish_rows<Scalar>(g, n, m, 1, &f, 1);
    }
  }
}

std::uint64_t read_bytes(const std::uint8_t* data, std::size_t n) {
  std::uint64_t all = 0;
  for (std::size_t i = 0; i < n; ++i) all ^= data[i];
  return all;
}

}  // namespace

KernelTable reference_table() {
  KernelTable t{};
  t.name = "reference";
  t.bytes_per_input = 1;
  t.rows_per_weight_read = 16;
  t.quantize_rows = quantize_rows;
  t.panel_rows = panel_rows;
  t.product(WeightFormat::kInt8) = gemm;
  t.read = read_bytes;
  fill_table<Scalar, AnyWords>(t);
  return t;
}

}  // namespace octavo
