// ARM's mode in which subnormals are zeros, going into an operation and coming out of it.
#pragma once

#include <cstdint>

namespace octavo {
namespace {

// Until the end of scope. The compiler does not move what goes through memory across either end.
// docs/notes/processors.md: "Products of bfloat16 are two fused multiply-adds"
class FlushSubnormals {
 public:
  static constexpr bool kExact = false;
  FlushSubnormals() {
    __asm__ volatile("mrs %0, fpcr" : "=r"(before_));
    set(before_ | kFlush);
    __asm__ volatile("mrs %0, fpsr" : "=r"(status_));
    __asm__ volatile("msr fpsr, %0" : : "r"(status_ & ~kUnderflow) : "memory");
  }
  ~FlushSubnormals() {
    set(before_);
    std::uint64_t status;
    __asm__ volatile("mrs %0, fpsr" : "=r"(status) : : "memory");
    __asm__ volatile("msr fpsr, %0" : : "r"(status | (status_ & kUnderflow)) : "memory");
  }
  FlushSubnormals(const FlushSubnormals&) = delete;
  FlushSubnormals& operator=(const FlushSubnormals&) = delete;

  // Whether a result became zero: one just below 2^-126 does here, where x86 rounds it first.
  bool flushed() const {
    std::uint64_t status;
    __asm__ volatile("mrs %0, fpsr" : "=r"(status) : : "memory");
    return status & kUnderflow;
  }

 private:
  static constexpr std::uint64_t kFlush = 1 << 24, kUnderflow = 8;
  static void set(std::uint64_t mode) { __asm__ volatile("msr fpcr, %0" : : "r"(mode) : "memory"); }
  std::uint64_t before_, status_;
};

}  // namespace
}  // namespace octavo
