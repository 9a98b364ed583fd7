// How many bytes of weights this process has layers over. Where no cache holds them all, a decoder's token reads each
// from memory, however small it is.
#pragma once

#include <atomic>
#include <cstddef>
#include <utility>

namespace octavo {

inline std::atomic<std::size_t> weights_in_use{0};

// The bytes of one layer, as long as it lives.
class WeightInUse {
 public:
  explicit WeightInUse(std::size_t bytes) : bytes_(bytes) { weights_in_use.fetch_add(bytes_, std::memory_order_relaxed); }
  ~WeightInUse() { weights_in_use.fetch_sub(bytes_, std::memory_order_relaxed); }
  WeightInUse(WeightInUse&& other) noexcept : bytes_(std::exchange(other.bytes_, 0)) {}
  WeightInUse& operator=(WeightInUse&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }

 private:
  std::size_t bytes_;
};

}  // namespace octavo
