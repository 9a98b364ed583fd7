// One call of a table's product, of made-up numbers, for cycles.py to trace: one_product TABLE M K N BITS GROUP [rows|each]
//
// BITS 8 and GROUP 0: int8 weights. A group of weights otherwise; `each`: activations have a scale for each group.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "contract/kernels.h"
#include "contract/tables.h"

using namespace octavo;

extern "C" __attribute__((noinline)) void traced(const KernelTable& t, const Gemm& g) {
  t.gemm(g);
  __asm__ volatile("" : : : "memory");  // no tail call
}

namespace {

template <class T>
T* aligned(std::size_t n) {
  void* p = std::aligned_alloc(kAlign, round_up(n * sizeof(T) + kAlign, kAlign));
  std::memset(p, 1, n * sizeof(T));
  return static_cast<T*>(p);
}

KernelTable table_named(const char* name) {
  for (KernelTable (*make)() : {neon_mull_table, neon_table, neon_i8mm_table}) {
    const KernelTable t = make();
    if (std::strcmp(t.name, name) == 0) return t;
  }
  std::fprintf(stderr, "no table %s\n", name);
  std::exit(2);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 7) return 2;
  const KernelTable t = table_named(argv[1]);
  const std::size_t m = std::strtoul(argv[2], nullptr, 10), k = std::strtoul(argv[3], nullptr, 10), n = std::strtoul(argv[4], nullptr, 10);
  const int bits = std::atoi(argv[5]);
  const std::size_t group = std::strtoul(argv[6], nullptr, 10), rows = round_up(m, kPanelM);
  Weight w;
  w.format = {group, bits, false, false};
  w.n = n;
  w.k = k;
  w.data = aligned<std::int8_t>(w.block_bytes() * w.blocks());
  w.scale = aligned<float>(w.padded_n());
  w.colsum = aligned<std::int32_t>(w.padded_n());
  Gemm g{};
  g.panel = aligned<std::uint8_t>(rows * group_panel_stride(group ? group : kPanelK, k));
  g.rows = m;
  g.quant = aligned<RowQuant>(rows * w.format.groups(k));
  g.group = argc > 7 && std::strcmp(argv[7], "each") == 0 ? group : 0;
  g.weight = w;
  g.block_end = w.blocks();
  g.bias = aligned<float>(w.padded_n());
  g.out = aligned<float>(m * n);
  g.out_stride = n;
  traced(t, g);  // what is made once is made here
  traced(t, g);
  return 0;
}
