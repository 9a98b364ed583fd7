// The normative kernels: scalar, one statement for each definition in docs/numbers.md.
#include <cstddef>
#include <cstdint>

#include "contract/tables.h"
#include "isa/epilogue.h"
#include "isa/fill_table.h"
#include "isa/quantize_groups.h"
#include "isa/quantize_rows.h"
#include "isa/transpose_words.h"
#include "isa/vector_scalar.h"

namespace octavo {
namespace {

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

void gemm_of_groups(const Gemm& g) {
  const Weight& w = g.weight;
  const WeightFormat f = w.format;
  const GroupBlock of(f, w.k);
  for (std::size_t m = 0; m < g.rows; ++m) {
    const std::int8_t* a = reinterpret_cast<const std::int8_t*>(g.panel) + m * group_panel_stride(f.group, w.k);
    const RowQuant* quant = g.quant + m * of.groups;
    for (std::size_t n = g.block_begin * kBlockN; n < g.block_end * kBlockN && n < w.n; ++n) {
      const std::int8_t* block = w.data + n / kBlockN * of.bytes;
      const std::size_t c = n % kBlockN;
      float total = 0.0f;
      for (std::size_t j = 0; j < of.groups; ++j) {
        const std::int32_t z = of.zero(block, c, j);
        std::int32_t t = 0;
        for (std::size_t i = j * f.group; i < (j + 1) * f.group; ++i) t += (of.integer(block, c, i) - z) * a[i];
        const std::uint16_t bits = of.scale(block, c, j);
        const float scale = Scalar::load_f16(&bits);
        const float x = g.group ? Scalar::mul(Scalar::to_float(t), quant[j].scale) : Scalar::to_float(t);
        total = Scalar::fma(x, scale, total);
        if (!f.minimum) continue;
        const std::uint16_t least = of.minimum(block, c, j);
        const float minimum = Scalar::load_f16(&least);
        const float sum = Scalar::to_float(-quant[j].sum);
        total = Scalar::fma(g.group ? Scalar::mul(sum, quant[j].scale) : sum, minimum, total);
      }
      if (!g.group) {
        const float offset = reinterpret_cast<const float*>(block + of.offsets)[c];
        total = Scalar::mul(Scalar::fma(static_cast<float>(-quant->extra), offset, total), quant->scale);
      }
      finish_rows<Scalar>(g, n, m, 1, &total, 1);
    }
  }
}

}  // namespace

KernelTable reference_table() {
  KernelTable t{};
  t.name = "reference";
  t.bytes_per_input = 1;
  t.rows_per_weight_read = 16;
  t.quantize_rows = PlainRows<Scalar>::quantize;
  t.panel_rows = PlainRows<Scalar>::panel;
  t.quantize_groups = GroupRows<Scalar>::quantize;
  t.product(WeightKind::kInt8) = gemm;
  t.product(WeightKind::kGroups4) = t.product(WeightKind::kGroups8) = gemm_of_groups;
  fill_table<Scalar, AnyWords>(t);
  return t;
}

}  // namespace octavo
