#include "layers/attention_pairs.h"

#include <algorithm>

namespace octavo {

void pair_inputs(const KernelTable& t, const float* row, std::size_t n, float* to) {
  if (n % 2) to[n / 2] = 0.0f;
  t.narrow(DType::kBFloat16, row, to, n);
}

void AttentionPairs::pack(std::size_t piece) const {
  const AttentionInputs& in = call_.in;
  const std::size_t head = first_ + piece / blocks_, item = head / in.kv_heads, kv_head = head % in.kv_heads;
  const std::size_t begin = piece % blocks_ * kBlockKeys, end = std::min(begin + kBlockKeys, in.keys);
  for (std::size_t key = begin; key < end; ++key)
    pair_inputs(call_.t, call_.k(item, kv_head, key), in.depth, k_of(head) + key * inputs_);
  for (std::size_t key = begin; key < end; key += 2) {
    const float* next = key + 1 < end ? call_.v(item, kv_head, key + 1) : nullptr;
    call_.t.pair_rows({call_.v(item, kv_head, key), next, v_of(head) + key / 2 * in.value_depth, in.value_depth});
  }
}

}  // namespace octavo
