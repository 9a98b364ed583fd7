// AMX (product_amx.h). A few rows run on VNNI, sums that are too long for int32, and weights in groups of 32; whatever
// is no product is AVX-512's.
#include "contract/tables.h"
#include "isa/product_amx.h"
#include "isa/product_amx_groups.h"
#include "isa/product_amx_weight_groups.h"

namespace octavo {
namespace {

constexpr std::size_t kFewRows = 6;  // up to here VNNI is as fast

KernelTable vnni;

// Rows of a call on the tiles: what is left of 32 takes part if it is `least` or more.
std::size_t squared_rows(const Gemm& g, std::size_t least) {
  const std::size_t rest = g.rows % (2 * kTile);
  return rest >= least ? g.rows : g.rows - rest;
}

// `g` from one row on.
Gemm below(const Gemm& g, std::size_t row) {
  const WeightFormat& f = g.weight.format;
  Gemm rest = g;
  rest.panel += row * (f.group ? group_panel_stride(f.group, g.weight.k) : round_up(g.weight.k, kPanelK));
  rest.rows -= row;
  rest.quant += row * (f.group ? f.groups(g.weight.k) : groups_of(g.weight.k, g.group));
  if (g.bias) rest.bias += row * g.bias_stride;
  if (g.factor) rest.factor += row * g.factor_stride;
  if (g.residual) rest.residual += row * g.residual_stride;
  rest.out += row * g.out_stride;
  return rest;
}

void gemm(const Gemm& g) {
  if (g.raw || g.rows <= kFewRows || g.weight.k == 0) return vnni.gemm(g);
  const std::size_t squared = squared_rows(g, kTile + 1);
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

// docs/notes/processors.md: "On AMX weights in groups of 32 gain nothing"
template <int bits>
void gemm_of_weight_groups(const Gemm& g) {
  constexpr std::size_t kLeast = 24;  // fewer are faster on VNNI
  const WeightFormat& f = g.weight.format;
  const std::size_t squared = f.group < kPanelK || f.minimum ? 0 : squared_rows(g, kLeast);
  if (squared) g.group ? weight_group_squares<bits, true>(g, squared) : weight_group_squares<bits, false>(g, squared);
  if (squared < g.rows) vnni.product(kind_of(f))(below(g, squared));
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
  t.product(WeightKind::kGroups4) = gemm_of_weight_groups<4>;
  t.product(WeightKind::kGroups8) = gemm_of_weight_groups<8>;
  return t;
}

PeakLoop amx_peak() { return {peak, 4 * 16 * 16 * 64 * 2}; }

}  // namespace octavo
