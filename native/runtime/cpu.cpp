#include "runtime/cpu.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "runtime/system.h"
#include "runtime/x86_features.h"

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

std::uint64_t xcr0() {
  std::uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<std::uint64_t>(high) << 32) | low;
}

X86Answers answers() {
  constexpr std::uint32_t kAsksForXcr0 = 1u << 27;
  X86Answers x;
  std::uint32_t eax, ebx, ecx, edx;
  if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx)) return x;
  x.leaf1_ecx = ecx;
  if (ecx & kAsksForXcr0) x.xcr0 = xcr0();
  if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return x;
  x.leaf7_ebx = ebx;
  x.leaf7_ecx = ecx;
  x.leaf7_edx = edx;
  const std::uint32_t subleaves = eax;
  if (subleaves >= 1 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx)) x.leaf7_1_eax = eax;
  return x;
}

}  // namespace

std::vector<std::string> cpu_features() { return x86_features(answers()); }

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

bool has_bfloat16_products() {
  const char* wanted = std::getenv("OCTAVO_BFLOAT16");
  if (wanted && std::strcmp(wanted, "emulated") == 0) return false;
  const std::vector<std::string> features = cpu_features();
  return std::find(features.begin(), features.end(), "avx512bf16") != features.end();
}

std::size_t l2_cache_bytes() {
  const std::size_t bytes = caches().second;
  return bytes ? bytes : 1 << 20;
}

std::size_t last_cache_bytes() {
  const std::size_t bytes = caches().last;
  return bytes ? bytes : 32 << 20;
}

}  // namespace octavo
