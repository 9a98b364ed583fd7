#include <algorithm>
#include <cstring>

#include "contract/tables.h"
#include "layers/conv_call.h"
#include "runtime/parallel.h"

namespace octavo {
namespace {

// Filters over one channel each: planes of q - zero point as floats, in which the sums are exact; no
// turning of channels. Two phases: ranges, and all the rest.
struct ByPlanes : ConvCall {
  using ConvCall::ConvCall;

  std::size_t run, row;                      // floats of the columns of one phase of the stride, of a row
  std::uint8_t* base = nullptr;
  std::size_t thread_base, per_thread, plane_floats;
  const std::size_t* offsets = nullptr;      // of the taps

  void plan(int threads) {
    run = (padded_w + s.stride[1] - 1) / s.stride[1];
    row = run * s.stride[1];
    plane_floats = padded_h * row + 64;
    Layout layout;
    const std::size_t found = layout.add<ValueRange>(n * slices), at = layout.add<std::size_t>(s.taps());
    per_thread = round_up(plane_floats * sizeof(float), kAlign);
    thread_base = layout.add<std::uint8_t>(per_thread * static_cast<std::size_t>(threads));
    base = scratch<ConvScratch>(layout.bytes());
    ranges = reinterpret_cast<ValueRange*>(base + found);
    auto* offset = reinterpret_cast<std::size_t*>(base + at);
    for (std::size_t i = 0; i < s.taps(); ++i) {
      const std::size_t column = i % s.kernel[1] * s.dilation[1];
      offset[i] = i / s.kernel[1] * s.dilation[0] * row + column % s.stride[1] * run + column / s.stride[1];
    }
    offsets = offset;
  }

  void operator()(int phase, int thread, int threads) const {
    const FloatMode mode;
    if (phase == 0) return find_ranges(0, n, thread, threads);
    auto* plane = reinterpret_cast<float*>(base + thread_base + static_cast<std::size_t>(thread) * per_thread);
    std::memset(plane, 0, plane_floats * sizeof(float));  // the padding, for all planes
    const Share mine = share(n * s.in, 1, thread, threads);
    for (std::size_t i = mine.begin; i < mine.end; ++i) filter(i / s.in, i % s.in, plane);
  }

  void filter(std::size_t image, std::size_t channel, float* plane) const {
    const RowScale r = scale(image);
    const float* from = x + (image * s.in + channel) * h * w;
    t.quantize_levels({from, h, w, r.inverse, r.zero_point, plane + s.before[0] * row, row, s.before[1], s.stride[1],
                       run});
    for (std::size_t o = channel * s.group_out(); o < (channel + 1) * s.group_out(); ++o)
      t.depthwise({plane, s.stride[0] * row, offsets, layer.taps.data() + o * s.taps(), s.taps(), out_h, out_w,
                   r.scale, layer.scale[o], layer.bias[o], layer.activation,
                   out + (image * s.out + o) * pixels()});
  }
};

}  // namespace

void conv_by_planes(const Conv& layer, const ConvShape& shape, const ConvImages& images, int threads) {
  ByPlanes call(layer, shape, images, threads);
  call.plan(threads);
  parallel(threads, 2, call);
}

}  // namespace octavo
