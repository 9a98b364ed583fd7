// K and V of some heads in pairs of bfloat16, made once for all panels that read them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "layers/attention_call.h"
#include "runtime/arena.h"

namespace octavo {

// A head is a batch item's kv head: head h is kv head h % kv_heads of item h / kv_heads.
class AttentionPairs {
 public:
  static constexpr std::size_t kBlockKeys = 256;  // that one piece of work packs

  AttentionPairs(const AttentionCall& call, std::size_t first, std::size_t heads)
      : call_(call),
        first_(first),
        heads_(heads),
        inputs_(pairs_of(call.in.depth)),
        keys_(pairs_of(call.in.keys)),
        blocks_((call.in.keys + kBlockKeys - 1) / kBlockKeys) {}

  // Bytes of a head.
  static std::size_t bytes_of(const AttentionCall& call) { return AttentionPairs(call, 0, 1).bytes(); }
  std::size_t bytes() const { return heads_ * (k_floats() + v_floats()) * sizeof(float); }
  void use(std::uint8_t* memory) { base_ = reinterpret_cast<float*>(memory); }

  std::size_t pieces() const { return heads_ * blocks_; }
  void pack(std::size_t piece) const;

  // Pairs of one key after the other, `inputs()` apart.
  const float* k(std::size_t head, std::size_t key) const { return k_of(head) + key * inputs_; }
  std::size_t inputs() const { return inputs_; }
  // Pairs of keys, value_depth apart; `key` is even.
  const float* v(std::size_t head, std::size_t key) const { return v_of(head) + key / 2 * call_.in.value_depth; }

 private:
  std::size_t k_floats() const { return round_up(call_.in.keys * inputs_, 16); }
  std::size_t v_floats() const { return round_up(keys_ * call_.in.value_depth, 16); }
  float* k_of(std::size_t head) const { return base_ + (head - first_) * (k_floats() + v_floats()); }
  float* v_of(std::size_t head) const { return k_of(head) + k_floats(); }

  const AttentionCall& call_;
  std::size_t first_, heads_, inputs_, keys_, blocks_;
  float* base_ = nullptr;
};

// A row of n inputs as pairs; what is missing of the last one is 0.
void pair_inputs(const KernelTable& t, const float* row, std::size_t n, float* to);

}  // namespace octavo
