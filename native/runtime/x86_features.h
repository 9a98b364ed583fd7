// What an x86-64 processor's answers mean: instructions that it has and whose registers the operating system saves.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace octavo {

// Words of CPUID's leaves (0 where the processor has no such leaf), and XCR0: the register states that the operating system
// saves, 0 where programs cannot ask.
struct X86Answers {
  std::uint32_t leaf1_ecx = 0;
  std::uint32_t leaf7_ebx = 0, leaf7_ecx = 0, leaf7_edx = 0;
  std::uint32_t leaf7_1_eax = 0;
  std::uint64_t xcr0 = 0;
};

// Names among: sse2 fma f16c avx2 avxvnni avx512f avx512dq avx512bw avx512vl avx512vnni avx512bf16 amxint8. All cores of a hybrid
// processor give one answer: what only some of them have is switched off.
inline std::vector<std::string> x86_features(const X86Answers& x) {
  constexpr std::uint64_t kYmm = 0x6, kZmm = 0xe6, kTiles = 0x60000;
  const auto bit = [](std::uint32_t word, int n) { return (word >> n & 1) != 0; };
  const auto saves = [&](std::uint64_t states) { return (x.xcr0 & states) == states; };
  // Hypervisors may hide a foundation and leave what stands on it.
  const bool avx = saves(kYmm) && bit(x.leaf1_ecx, 28), avx2 = avx && bit(x.leaf7_ebx, 5);
  const bool avx512 = saves(kZmm) && bit(x.leaf7_ebx, 16), tiles = saves(kTiles) && bit(x.leaf7_edx, 24);
  std::vector<std::string> names{"sse2"};
  const auto add = [&](const char* name, bool has) {
    if (has) names.emplace_back(name);
  };
  add("fma", avx && bit(x.leaf1_ecx, 12));
  add("f16c", avx && bit(x.leaf1_ecx, 29));
  add("avx2", avx2);
  add("avx512f", avx512);
  add("avx512dq", avx512 && bit(x.leaf7_ebx, 17));
  add("avx512bw", avx512 && bit(x.leaf7_ebx, 30));
  add("avx512vl", avx512 && bit(x.leaf7_ebx, 31));
  add("avx512vnni", avx512 && bit(x.leaf7_ecx, 11));
  add("amxint8", tiles && bit(x.leaf7_edx, 25));
  add("avxvnni", avx2 && bit(x.leaf7_1_eax, 4));
  add("avx512bf16", avx512 && bit(x.leaf7_1_eax, 5));
  return names;
}

}  // namespace octavo
