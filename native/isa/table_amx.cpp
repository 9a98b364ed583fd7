// AMX (product_amx.h). A few rows run on VNNI, and sums that are too long for int32; whatever is no product is
// AVX-512's.
#include "contract/tables.h"
#include "isa/product_amx.h"
#include "isa/product_amx_groups.h"

namespace octavo {
namespace {

constexpr std::size_t kFewRows = 6;  // up to here VNNI is as fast

KernelTable vnni;

// Rows of a call on the tiles: what is left of 32 takes part if it is more than 16.
std::size_t squared_rows(const Gemm& g) {
  const std::size_t rest = g.rows % (2 * kTile);
  return rest > kTile ? g.rows : g.rows - rest;
}

// `g` from one row on.
Gemm below(const Gemm& g, std::size_t row) {
  Gemm rest = g;
  rest.panel += row * round_up(g.weight.k, kPanelK);
  rest.rows -= row;
  rest.quant += row * groups_of(g.weight.k, g.group);
  if (g.bias) rest.bias += row * g.bias_stride;
  if (g.factor) rest.factor += row * g.factor_stride;
  if (g.residual) rest.residual += row * g.residual_stride;
  rest.out += row * g.out_stride;
  return rest;
}

void gemm(const Gemm& g) {
  if (g.raw || g.rows <= kFewRows || g.weight.k == 0) return vnni.gemm(g);
  const std::size_t squared = squared_rows(g);
  if (g.group) {
    if (squared) group_squares(g, squared);
    if (squared < g.rows) vnni.gemm(below(g, squared));
    return;
  }
  Pending pending(g);
  if (squared) squares(g, squared, pending);
  if (squared < g.rows) wides(g, squared, g.rows - squared, pending);
  pending.finish();
  _tile_release();
}

void peak(std::size_t turns) {
  TileConfig(kTile).load();
  _tile_zero(4);
  _tile_zero(6);
  clear_sums();
  for (std::size_t i = 0; i < turns; ++i) {
    _tile_dpbusd(0, 4, 6);
    _tile_dpbusd(1, 4, 6);
    _tile_dpbusd(2, 4, 6);
    _tile_dpbusd(3, 4, 6);
  }
  _tile_release();
}

}  // namespace

// docs/notes/processors.md: "A table for AMX"
KernelTable amx_table() {
  KernelTable t = vnni = avx512vnni_table();
  t.name = "amx";
  t.rows_per_weight_read = 192;
  t.product(WeightKind::kInt8) = gemm;
  return t;
}

PeakLoop amx_peak() { return {peak, 4 * 16 * 16 * 64 * 2}; }

}  // namespace octavo
