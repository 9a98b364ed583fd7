// Says what a processor can run: arguments are its answers, as hexadecimal words in the order of X86Answers.
#include "runtime/x86_features.h"

#include <cstdio>
#include <cstdlib>

int main(int, char** word) {
  const auto next = [&] { return std::strtoull(*++word, nullptr, 16); };
  octavo::X86Answers x;
  for (std::uint32_t* to : {&x.leaf1_ecx, &x.leaf7_ebx, &x.leaf7_ecx, &x.leaf7_edx, &x.leaf7_1_eax}) *to = static_cast<std::uint32_t>(next());
  x.xcr0 = next();
  for (const std::string& name : octavo::x86_features(x)) std::printf("%s\n", name.c_str());
}
