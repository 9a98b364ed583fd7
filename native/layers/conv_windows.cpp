#include <algorithm>
#include <cstring>

#include "contract/tables.h"
#include "layers/conv_call.h"
#include "layers/long_sums.h"
#include "runtime/parallel.h"

namespace octavo {
namespace {

constexpr std::size_t kBlockRows = 256, kLeastRows = 32;  // windows at a time: at most, and where they are long
constexpr std::size_t kPanelBytes = 192 << 10;            // of windows at a time: they stay in the L2 cache
// (one pool, of up to 64 windows, is more than either where windows are long)
constexpr std::size_t kTileBlocks = 4;                    // blocks of output channels at a time
constexpr std::size_t kTileN = kTileBlocks * kBlockN;
constexpr std::size_t kImageBytes = 4 << 20;              // quantized images at a time

// Convolutions as products: windows of the quantized image are rows of a panel. Three phases for each
// few images: ranges, integers, products.
struct ByWindows : ConvCall {
  using ConvCall::ConvCall;

  bool in_place;                              // windows are pixels: no copy of them
  std::size_t pixel_bytes, group_bytes, image_bytes, batch, panel_k;
  std::size_t block, block_rows;              // output pixels at a time, and their windows: a pool's each
  std::uint8_t* base = nullptr;
  std::size_t windows, panels, quants, tiles, sums, levels, thread_base, per_thread;
  const std::size_t* offsets = nullptr;       // of the runs of a window
  std::size_t runs, run_bytes;

  int phases() const { return static_cast<int>((n + batch - 1) / batch) * 3; }
  bool has_long_sums() const { return s.k() > kChunkK; }

  void plan(int threads) {
    const std::size_t c = s.group_in();
    // Pools take windows in another order than the image has them.
    in_place = s.taps() == 1 && s.stride[0] == 1 && s.stride[1] == 1 && padded_h == h && padded_w == w &&
               s.pool_area() == 1;
    panel_k = round_up(s.k(), kPanelK);
    pixel_bytes = in_place ? panel_k : c;
    group_bytes = padded_h * padded_w * pixel_bytes;
    image_bytes = s.groups * group_bytes;
    batch = std::max<std::size_t>(1, std::min(n, kImageBytes / std::max<std::size_t>(1, image_bytes)));
    const std::size_t fit = kPanelBytes / std::max<std::size_t>(1, panel_k) / kLeastRows * kLeastRows;
    const std::size_t each = (batch * s.groups * pixels() * s.pool_area() + slices - 1) / slices;  // windows of one thread
    const std::size_t most = std::min(std::max(kLeastRows, std::min(fit, kBlockRows)), round_up(each, kPanelM));
    block = std::max<std::size_t>(1, most / s.pool_area());
    block_rows = round_up(block * s.pool_area(), kPanelM);
    runs = s.dilation[1] == 1 ? s.kernel[0] : s.taps();
    run_bytes = s.dilation[1] == 1 ? s.kernel[1] * c : c;
    lay_out(threads);
  }

  void lay_out(int threads) {
    Layout one;  // what one thread needs
    windows = one.add<std::uint8_t>(in_place ? 0 : block_rows * panel_k + 128);
    panels = one.add<std::uint8_t>(t.plain_panels() ? 0 : block_rows * panel_k * t.bytes_per_input);
    quants = one.add<RowQuant>(block_rows);
    tiles = one.add<float>(block_rows * kTileN);
    sums = one.add<std::int64_t>(has_long_sums() ? block_rows * kTileN : 0);
    levels = one.add<float>(block_rows * 2);
    per_thread = one.bytes();
    Layout layout;
    const std::size_t images = layout.add<std::uint8_t>(batch * image_bytes + kPanelM * panel_k + 64);
    const std::size_t found = layout.add<ValueRange>(batch * slices), at = layout.add<std::size_t>(runs);
    thread_base = layout.add<std::uint8_t>(per_thread * static_cast<std::size_t>(threads));
    base = scratch<ConvScratch>(layout.bytes()) + images;
    ranges = reinterpret_cast<ValueRange*>(base + found);
    auto* offset = reinterpret_cast<std::size_t*>(base + at);
    const std::size_t across = s.dilation[1] == 1 ? 1 : s.kernel[1];  // runs of one row
    for (std::size_t i = 0; i < runs; ++i) {
      const std::size_t row = i / across, column = i % across;
      offset[i] = (row * s.dilation[0] * padded_w + column * s.dilation[1]) * pixel_bytes;
    }
    offsets = offset;
  }

  template <class T>
  T* mine(std::size_t part, int thread) const {
    return reinterpret_cast<T*>(base + thread_base + static_cast<std::size_t>(thread) * per_thread + part);
  }

  void operator()(int phase, int thread, int threads) const {
    const FloatMode mode;
    const std::size_t first = static_cast<std::size_t>(phase / 3) * batch, count = std::min(batch, n - first);
    if (phase % 3 == 0) return find_ranges(first, count, thread, threads);
    if (phase % 3 == 1) {
      const Share rows = share(count * s.groups * padded_h, 1, thread, threads);
      for (std::size_t i = rows.begin; i < rows.end;) {
        const std::size_t part = i / padded_h, row = i % padded_h, last = std::min(padded_h, row + rows.end - i);
        quantize(first, part / s.groups, part % s.groups, row, last);
        i += last - row;
      }
      return;
    }
    const std::size_t blocks = (pixels() + block - 1) / block;
    const Share all = share(count * s.groups * blocks, 1, thread, threads);
    for (std::size_t i = all.begin; i < all.end; ++i) {
      const std::size_t part = i / blocks, pixel = i % blocks * block;
      multiply(first, part / s.groups, part % s.groups, pixel, std::min(block, pixels() - pixel), thread);
    }
  }

  // Rows begin..end of one group of the padded image.
  void quantize(std::size_t first, std::size_t image, std::size_t group, std::size_t begin,
                std::size_t end) const {
    const RowScale r = scale(image);
    const std::size_t c = s.group_in(), row_bytes = padded_w * pixel_bytes;
    std::uint8_t* to = base + image * image_bytes + group * group_bytes;
    const float* from = x + (first + image) * image_size() + group * c * h * w;
    if (pixel_bytes != c) std::memset(to + begin * row_bytes, 0, (end - begin) * row_bytes);
    const auto run = [&](std::size_t row, std::size_t column, std::size_t pixels) {
      t.quantize_pixels({from + row * w, c, h * w, pixels, r.inverse, r.zero_point,
                         to + ((row + s.before[0]) * padded_w + column) * pixel_bytes, pixel_bytes});
    };
    if (padded_w == w && padded_h == h) return run(begin, 0, (end - begin) * w);
    for (std::size_t i = begin; i < end; ++i) {
      std::uint8_t* row = to + i * row_bytes;
      if (i < s.before[0] || i >= s.before[0] + h) {
        std::memset(row, r.zero_point, row_bytes);
        continue;
      }
      std::memset(row, r.zero_point, s.before[1] * pixel_bytes);
      run(i - s.before[0], s.before[1], w);
      std::memset(row + (s.before[1] + w) * pixel_bytes, r.zero_point, s.after[1] * pixel_bytes);
    }
  }

  // Output pixels pixel..pixel + count of one group: windows, product, pools, and channels first again.
  void multiply(std::size_t first, std::size_t image, std::size_t group, std::size_t pixel, std::size_t count,
                int thread) const {
    const Linear& part = layer.groups[group];
    Gemm g{};
    g.panel = panel(image, group, pixel, count, thread);
    g.rows = count * s.pool_area();
    g.quant = mine<RowQuant>(quants, thread);
    g.weight = part.weight;
    g.bias = part.bias;
    g.activation = part.activation;
    auto* tile = mine<float>(tiles, thread);
    float* to = out + ((first + image) * s.out + group * s.group_out()) * pixels() + pixel;
    for (std::size_t b = 0; b < part.weight.blocks(); b += kTileBlocks) {
      const std::size_t column = b * kBlockN, columns = std::min(kTileN, part.weight.n - column);
      g.block_begin = b;
      g.block_end = std::min(b + kTileBlocks, part.weight.blocks());
      g.out = tile - column;  // the kernel adds the column
      g.out_stride = kTileN;
      if (has_long_sums()) long_sums(t, g, tile, mine<std::int64_t>(sums, thread), kTileN, column, columns);
      else t.gemm(g);
      if (s.pool_area() > 1) each_run(pixel, count, [&](std::size_t, std::size_t done, std::size_t run) {
        const float* from = tile + done * s.pool_area() * kTileN;
        t.max_pool({from, kTileN, run, columns, s.pool[0], s.pool[1], run * s.pool[1], tile + done * kTileN});
      });
      t.transpose({tile, count, columns, kTileN, to + column * pixels(), pixels()});
    }
  }

  // Output pixels pixel..pixel + count, as far as they lie in one row at a time: the first of a run, how
  // many of `count` come before it, and its length.
  template <class Run>
  void each_run(std::size_t pixel, std::size_t count, Run run) const {
    for (std::size_t done = 0; done < count;) {
      const std::size_t left = pooled_w - (pixel + done) % pooled_w, length = std::min(left, count - done);
      run(pixel + done, done, length);
      done += length;
    }
  }

  // Windows of those pixels. Where pools take several, they lie run by run, and in it row by row.
  void copy_windows(const std::uint8_t* integers, std::size_t pixel, std::size_t count, std::uint8_t* to) const {
    Windows w{integers, out_w, s.stride[0] * padded_w * pixel_bytes, s.stride[1] * pixel_bytes, pixel, count,
              offsets, runs, run_bytes, to, panel_k};
    if (s.pool_area() == 1) return t.windows(w);
    each_run(pixel, count, [&](std::size_t first, std::size_t, std::size_t run) {
      w.count = run * s.pool[1];
      for (std::size_t row = 0; row < s.pool[0]; ++row, w.to += w.count * panel_k) {
        w.first = (first / pooled_w * s.pool[0] + row) * out_w + first % pooled_w * s.pool[1];
        t.windows(w);
      }
    });
  }

  // The panel of those pixels, and RowQuant of each: one and the same, but where panels carry more
  // than the integers.
  const std::uint8_t* panel(std::size_t image, std::size_t group, std::size_t pixel, std::size_t count,
                            int thread) const {
    const std::size_t rows = count * s.pool_area();
    const RowScale r = scale(image);
    const std::uint8_t* integers = base + image * image_bytes + group * group_bytes;
    if (in_place) {
      integers += pixel * pixel_bytes;
    } else {
      auto* to = mine<std::uint8_t>(windows, thread);
      copy_windows(integers, pixel, count, to);
      integers = to;
    }
    auto* quant = mine<RowQuant>(quants, thread);
    if (t.plain_panels()) {
      std::fill(quant, quant + rows, RowQuant{r.scale, zero_pair(r.zero_point), 0, 0});
      return integers;
    }
    auto* scale = mine<float>(levels, thread);
    auto* zero = reinterpret_cast<std::int32_t*>(scale + block_rows);
    std::fill(scale, scale + rows, r.scale);
    std::fill(zero, zero + rows, r.zero_point);
    auto* made = mine<std::uint8_t>(panels, thread);
    t.panel_rows({integers, rows, s.k(), panel_k, scale, zero, 0, made, quant, false});
    return made;
  }
};

}  // namespace

void conv_by_windows(const Conv& layer, const ConvShape& shape, const ConvImages& images, int threads) {
  ByWindows call(layer, shape, images, threads);
  call.plan(threads);
  parallel(threads, call.phases(), call);
}

}  // namespace octavo
