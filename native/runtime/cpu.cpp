#include "runtime/cpu.h"

#include <cstdint>

#include "runtime/system.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace octavo {

#if defined(__x86_64__)
namespace {

// XCR0: which register states the operating system saves. Bits 17 and 18 are AMX's tiles.
std::uint64_t xcr0() {
  std::uint32_t eax, ebx, ecx, edx;
  if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx & (1u << 27))) return 0;
  std::uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<std::uint64_t>(high) << 32) | low;
}

}  // namespace

std::vector<std::string> cpu_features() {
  std::vector<std::string> names{"sse2"};
  std::uint32_t eax, ebx, ecx, edx;
  const std::uint64_t saved = xcr0();
  const bool ymm = (saved & 0x6) == 0x6, zmm = (saved & 0xe6) == 0xe6;
  const bool tiles = (saved & 0x60000) == 0x60000;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) && ymm) {
    if (ecx & (1u << 12)) names.push_back("fma");
    if (ecx & (1u << 29)) names.push_back("f16c");
  }
  if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return names;
  const std::uint32_t subleaves = eax;
  if (ymm && (ebx & (1u << 5))) names.push_back("avx2");
  if (zmm && (ebx & (1u << 16))) names.push_back("avx512f");
  if (zmm && (ebx & (1u << 17))) names.push_back("avx512dq");
  if (zmm && (ebx & (1u << 30))) names.push_back("avx512bw");
  if (zmm && (ebx & (1u << 31))) names.push_back("avx512vl");
  if (zmm && (ecx & (1u << 11))) names.push_back("avx512vnni");
  if (tiles && (edx & (1u << 25))) names.push_back("amxint8");
  if (subleaves >= 1 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx)) {
    if (ymm && (eax & (1u << 4))) names.push_back("avxvnni");
    if (zmm && (eax & (1u << 5))) names.push_back("avx512bf16");
  }
  return names;
}

#elif defined(__aarch64__)
namespace {

#if defined(__linux__)
// The bits of Linux's <asm/hwcap.h>, some of which are younger than the headers of old systems.
bool has_dotprod() { return getauxval(AT_HWCAP) & (1ul << 20); }
bool has_i8mm() { return getauxval(AT_HWCAP2) & (1ul << 13); }
bool has_bf16() { return getauxval(AT_HWCAP2) & (1ul << 14); }
#elif defined(__APPLE__)
bool has(const char* feature) {
  int value = 0;
  std::size_t bytes = sizeof value;
  return sysctlbyname(feature, &value, &bytes, nullptr, 0) == 0 && value != 0;
}
bool has_dotprod() { return has("hw.optional.arm.FEAT_DotProd"); }
bool has_i8mm() { return has("hw.optional.arm.FEAT_I8MM"); }
bool has_bf16() { return has("hw.optional.arm.FEAT_BF16"); }
#else
bool has_dotprod() { return false; }
bool has_i8mm() { return false; }
bool has_bf16() { return false; }
#endif

}  // namespace

std::vector<std::string> cpu_features() {
  std::vector<std::string> names{"neon"};
  if (has_dotprod()) names.push_back("dotprod");
  if (has_i8mm()) names.push_back("i8mm");
  if (has_bf16()) names.push_back("bf16");
  return names;
}
#else
std::vector<std::string> cpu_features() { return {}; }
#endif

std::size_t l2_cache_bytes() {
  const std::size_t bytes = caches().second;
  return bytes ? bytes : 1 << 20;
}

std::size_t last_cache_bytes() {
  const std::size_t bytes = caches().last;
  return bytes ? bytes : 32 << 20;
}

}  // namespace octavo
