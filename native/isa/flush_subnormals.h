// x86's mode in which subnormals are zeros, going into an operation and coming out of it.
#pragma once

namespace octavo {
namespace {

// Until the end of scope. The compiler does not move what goes through memory across either end.
class FlushSubnormals {
 public:
  static constexpr bool kExact = true;  // as the reference does it
  FlushSubnormals() {
    __asm__ volatile("stmxcsr %0" : "=m"(before_) : : "memory");
    set(before_ | kFlush);
  }
  ~FlushSubnormals() { set(before_); }
  FlushSubnormals(const FlushSubnormals&) = delete;
  FlushSubnormals& operator=(const FlushSubnormals&) = delete;

 private:
  static constexpr unsigned kFlush = 0x8040;  // results, operands
  static void set(unsigned mode) { __asm__ volatile("ldmxcsr %0" : : "m"(mode) : "memory"); }
  unsigned before_;
};

}  // namespace
}  // namespace octavo
