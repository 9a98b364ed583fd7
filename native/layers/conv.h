// Dynamically quantized convolutions over images [N, C, H, W], over the table in use. A row, the thing
// with one scale and zero point, is one image with all its channels. Weights are symmetric.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "contract/kernels.h"
#include "layers/linear.h"
#include "runtime/arena.h"

namespace octavo {

struct ConvShape {
  std::size_t out, in;                      // channels, all groups together
  std::size_t groups;
  std::size_t kernel[2], stride[2], dilation[2];  // height, width
  std::size_t before[2], after[2];          // padding: top and left, bottom and right
  // Max pooling of the results, as large as its stride: the largest of each pool[0] by pool[1] is what is
  // written; a rest that makes no whole pool is left out.
  std::size_t pool[2] = {1, 1};

  std::size_t group_in() const { return in / groups; }
  std::size_t group_out() const { return out / groups; }
  std::size_t taps() const { return kernel[0] * kernel[1]; }
  std::size_t k() const { return taps() * group_in(); }
  // One input a filter, and sums that float32 holds exactly: 512 * 255 * 128 < 2^24.
  bool depthwise() const { return group_in() == 1 && taps() <= 512; }
  std::size_t pool_area() const { return pool[0] * pool[1]; }
  std::size_t padded(int axis, std::size_t size) const { return before[axis] + size + after[axis]; }
  std::size_t window(int axis) const { return dilation[axis] * (kernel[axis] - 1) + 1; }
  // 0 where the padded image is smaller than the kernel.
  std::size_t output(int axis, std::size_t size) const {
    const std::size_t all = padded(axis, size);
    return all < window(axis) ? 0 : (all - window(axis)) / stride[axis] + 1;
  }
  std::size_t pooled(int axis, std::size_t size) const { return output(axis, size) / pool[axis]; }
};

// Results that one pool may have: they are computed together. Depthwise filters have no pools.
constexpr std::size_t kMostPool = 64;

// Packed weights of int8: for depthwise filters [out][taps] as they are; else for each group a packed
// [out / groups, k] (pack.h) with k in the order kernel row, kernel column, channel.
std::size_t conv_packed_bytes(const ConvShape& shape);
// From q [out][in / groups][kernel height][kernel width]. `packed` is aligned to kAlign.
void conv_pack(const ConvShape& shape, const std::int8_t* q, std::int8_t* packed);

class Conv {
 public:
  // scale [out], bias [out] or null. The packed data must outlive the layer and be aligned to kAlign.
  Conv(const ConvShape& shape, const PackedData& packed, const float* scale, const float* bias,
       Activation activation);
  Conv(Conv&&) = default;

  ConvShape shape;
  std::vector<Linear> groups;               // empty for depthwise filters, which have:
  std::vector<float> taps, scale, bias;     // [out][taps], [out], [out]
  Activation activation;
};

// Contiguous images and where their results go.
struct ConvImages {
  const float* x;                           // [n, in, h, w]
  std::size_t n, h, w;
  float* out;                               // [n, out, pooled(0, h), pooled(1, w)]
};

// Throws std::bad_alloc before anything is written. `shape` is the layer's own, but for the padding where
// that depends on the image's size (then `images.out` has the sizes that it gives).
void conv(const Conv& layer, const ConvShape& shape, const ConvImages& images, int threads);
inline void conv(const Conv& layer, const ConvImages& images, int threads) {
  conv(layer, layer.shape, images, threads);
}

// The two ways of it: any filters, as products over windows; and depthwise ones, plane by plane.
void conv_by_windows(const Conv& layer, const ConvShape& shape, const ConvImages& images, int threads);
void conv_by_planes(const Conv& layer, const ConvShape& shape, const ConvImages& images, int threads);

}  // namespace octavo
