// Scratch memory: lent by the host of a call, or kept by a thread between calls. Either way a kernel
// call allocates nothing from the system once warm.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

#include "contract/kernels.h"
#include "runtime/host.h"
#include "runtime/system.h"

namespace octavo {

// Memory aligned to kAlign that grows and is freed with its owner. Throws std::bad_alloc.
class Buffer {
 public:
  Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  Buffer(Buffer&& other) noexcept : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Buffer() { free_aligned(data_); }

  // At least `bytes`, never null; what was there is lost when it grows.
  std::uint8_t* need(std::size_t bytes) {
    if (bytes == 0) bytes = 1;  // memset and memcpy take no null pointer, even for nothing
    if (bytes <= size_) return data_;
    free_aligned(data_);
    size_ = 0;
    data_ = static_cast<std::uint8_t*>(aligned_memory(kAlign, round_up(bytes, kAlign)));
    if (!data_) throw std::bad_alloc();
    size_ = round_up(bytes, kAlign);
    if (size_ >= kLargeMemory) in_large_pages(data_, size_);
    return data_;
  }

 private:
  std::uint8_t* data_ = nullptr;
  std::size_t size_ = 0;
};

// Adds up what a call needs, then hands out the parts of one buffer.
class Layout {
 public:
  // The offset of `count` elements of T.
  template <class T>
  std::size_t add(std::size_t count) {
    const std::size_t at = bytes_;
    bytes_ += round_up(count * sizeof(T), kAlign);
    return at;
  }
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_ = 0;
};

// `bytes` of scratch memory for the call that this thread makes, aligned to kAlign; Tag tells purposes
// apart that are alive at once. Throws std::bad_alloc.
template <class Tag>
std::uint8_t* scratch(std::size_t bytes) {
  if (Host* lender = host()) return lender->memory(bytes);
  static thread_local Buffer buffer;
  return buffer.need(bytes);
}

// Default rounding and no flushing of subnormals, whatever the host has set, until the end of scope.
class FloatMode {
 public:
#if defined(__x86_64__)
  FloatMode() : before_(__builtin_ia32_stmxcsr()) {
    if (before_ != kDefault) __builtin_ia32_ldmxcsr(kDefault);
  }
  ~FloatMode() {
    if (before_ != kDefault) __builtin_ia32_ldmxcsr(before_);
  }

 private:
  static constexpr unsigned kDefault = 0x1f80;
  unsigned before_;
#elif defined(__aarch64__)
  FloatMode() {
    __asm__ volatile("mrs %0, fpcr" : "=r"(before_));
    if (before_ != 0) set(0);
  }
  ~FloatMode() {
    if (before_ != 0) set(before_);
  }

 private:
  static void set(std::uint64_t mode) { __asm__ volatile("msr fpcr, %0" : : "r"(mode) : "memory"); }
  std::uint64_t before_;
#else
  FloatMode() {}
#endif
};

}  // namespace octavo
