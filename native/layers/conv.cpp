#include "layers/conv.h"

#include <algorithm>
#include <new>

#include "layers/pack.h"
#include "layers/work.h"
#include "runtime/parallel.h"

namespace octavo {
namespace {

constexpr double kMostBytes = 1e15;  // of a padded image: the sizes of its parts stay far from overflowing

}  // namespace

std::size_t conv_packed_bytes(const ConvShape& s) {
  return s.depthwise() ? s.out * s.taps() : s.groups * packed_bytes(s.group_out(), s.k());
}

void conv_pack(const ConvShape& s, const std::int8_t* q, std::int8_t* packed) {
  if (s.depthwise()) {
    std::copy(q, q + s.out * s.taps(), packed);
    return;
  }
  const std::size_t c = s.group_in(), k = s.k(), n = s.group_out();
  std::vector<std::int8_t> turned(n * k);
  for (std::size_t g = 0; g < s.groups; ++g) {
    for (std::size_t o = 0; o < n; ++o)
      for (std::size_t i = 0; i < c; ++i)
        for (std::size_t j = 0; j < s.taps(); ++j)
          turned[o * k + j * c + i] = q[((g * n + o) * c + i) * s.taps() + j];
    pack(turned.data(), n, k, k, packed + g * packed_bytes(n, k));
  }
}

Conv::Conv(const ConvShape& s, const PackedData& packed, const float* scales, const float* biases,
           Activation act)
    : shape(s), activation(act) {
  if (s.depthwise()) {
    taps.assign(packed.data, packed.data + s.out * s.taps());
    scale.assign(scales, scales + s.out);
    bias.assign(s.out, 0.0f);
    if (biases) bias.assign(biases, biases + s.out);
    return;
  }
  const std::size_t n = s.group_out();
  groups.reserve(s.groups);
  for (std::size_t g = 0; g < s.groups; ++g)
    groups.emplace_back(PackedData{packed.data + g * packed_bytes(n, s.k(), packed.format), packed.format}, n, s.k(), 0, scales + g * n, nullptr,
                        biases ? biases + g * n : nullptr, act);
}

void conv(const Conv& layer, const ConvShape& s, const ConvImages& images, int threads) {
  const double in = static_cast<double>(s.in), n = static_cast<double>(images.n);
  const double padded = static_cast<double>(s.padded(0, images.h)) * static_cast<double>(s.padded(1, images.w));
  if (padded * (in + 1.0) > kMostBytes) throw std::bad_alloc();
  const double outputs = n * static_cast<double>(s.out) * static_cast<double>(s.output(0, images.h)) *
                         static_cast<double>(s.output(1, images.w));
  if (outputs == 0.0 || s.pooled(0, images.h) == 0 || s.pooled(1, images.w) == 0) return;
  const double inputs = n * in * static_cast<double>(images.h) * static_cast<double>(images.w);
  const double phases = s.depthwise() ? 2.0 : 3.0;
  threads = earned_threads(threads, outputs * static_cast<double>(s.k()) / rate::kTileMacs + (outputs + inputs) / rate::kFloats, phases);
  if (s.depthwise()) conv_by_planes(layer, s, images, threads);
  else conv_by_windows(layer, s, images, threads);
}

}  // namespace octavo
