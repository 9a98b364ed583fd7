// MinGW's fmaf rounds twice: it adds in the x87's 64 bits. Ours stands in its place in the library for Windows.

#include <cstdint>
#include <cstring>

extern "C" float fmaf(float x, float y, float z) {
  const double product = static_cast<double>(x) * y;  // exact
  double sum = product + z;
  // What the sum has lost: Knuth's TwoSum.
  const double added = sum - product;
  const double lost = (product - (sum - added)) + (z - added);
  if (lost != 0.0 && __builtin_isfinite(sum)) {
    // To odd, which says "more than that": float32 rounds the result as if it had all bits of the sum (Boldo, Melquiond 2008).
    std::uint64_t bits;
    std::memcpy(&bits, &sum, sizeof bits);
    if (bits % 2 == 0) bits += (lost > 0) == (sum > 0) ? 1 : -1;
    std::memcpy(&sum, &bits, sizeof bits);
  }
  return static_cast<float>(sum);
}
