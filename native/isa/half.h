// float16 and bfloat16 <-> float32, over any vector type of vector_*.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "contract/kernels.h"

namespace octavo {
namespace {

// A type of 16 bits as memory operations of V.
template <class V, DType type>
struct HalfMemory {
  static_assert(type == DType::kFloat16 || type == DType::kBFloat16);
  using F = typename V::F;
  using Element = std::uint16_t;
  static constexpr bool kF16 = type == DType::kFloat16;

  static F load(const Element* p) { return kF16 ? V::load_f16(p) : V::load_bf16(p); }
  static F load_n(const Element* p, int n) { return kF16 ? V::load_f16_n(p, n) : V::load_bf16_n(p, n); }
  static void store(Element* p, F x) { kF16 ? V::store_f16(p, x) : V::store_bf16(p, x); }
  static void store_n(Element* p, F x, int n) { kF16 ? V::store_f16_n(p, x, n) : V::store_bf16_n(p, x, n); }
};

template <class V>
struct Halves {
  template <DType type>
  static void widen_as(const void* from, float* y, std::size_t n) {
    using Memory = HalfMemory<V, type>;
    const auto* x = static_cast<const std::uint16_t*>(from);
    std::size_t i = 0;
    for (; i + V::kWidth <= n; i += V::kWidth) V::store(y + i, Memory::load(x + i));
    if (i < n) {
      const int rest = static_cast<int>(n - i);
      V::store_n(y + i, Memory::load_n(x + i, rest), rest);
    }
  }

  template <DType type>
  static void narrow_as(const float* x, void* to, std::size_t n) {
    using Memory = HalfMemory<V, type>;
    auto* y = static_cast<std::uint16_t*>(to);
    std::size_t i = 0;
    for (; i + V::kWidth <= n; i += V::kWidth) Memory::store(y + i, V::load(x + i));
    if (i < n) {
      const int rest = static_cast<int>(n - i);
      Memory::store_n(y + i, V::load_n(x + i, rest), rest);
    }
  }

  static void widen(DType from, const void* x, float* y, std::size_t n) {
    if (from == DType::kFloat16) widen_as<DType::kFloat16>(x, y, n);
    else widen_as<DType::kBFloat16>(x, y, n);
  }

  static void narrow(DType to, const float* x, void* y, std::size_t n) {
    if (to == DType::kFloat16) narrow_as<DType::kFloat16>(x, y, n);
    else narrow_as<DType::kBFloat16>(x, y, n);
  }
};

}  // namespace
}  // namespace octavo
