#include "ort_ops/conv_op.h"

#include <algorithm>
#include <utility>

namespace octavo::ort {
namespace {

constexpr double kMostBytes = 1e15;  // of filters: their sizes stay far from overflowing
constexpr auto kMostInPool = static_cast<std::int64_t>(kMostPool);

std::vector<std::int64_t> or_all(std::vector<std::int64_t> given, std::size_t count, std::int64_t otherwise) {
  return given.empty() ? std::vector<std::int64_t>(count, otherwise) : given;
}

std::string texts(const std::vector<std::int64_t>& numbers) {
  std::string all = "[";
  for (std::size_t i = 0; i < numbers.size(); ++i) all += (i ? ", " : "") + std::to_string(numbers[i]);
  return all + "]";
}

std::string mistake_in(const char* name, const std::vector<std::int64_t>& numbers, std::size_t count, std::int64_t least) {
  const bool good = numbers.size() == count && std::all_of(numbers.begin(), numbers.end(), [least](std::int64_t v) {
                      return v >= least && v <= INT32_MAX;
                    });
  if (good) return "";
  return std::string("the attribute ") + name + " is " + texts(numbers) + "; it has to be " + std::to_string(count) +
         " numbers of " + std::to_string(least) + " or more";
}

Window window_of(const Node& node) {
  const Window window(node.integers("kernel_shape", {}), node.integers("strides", {}), node.integers("dilations", {}),
                      node.integers("pads", {}), node.integers("pool", {}), node.text("auto_pad", "NOTSET"));
  const std::string mistake = window.mistake();
  if (!mistake.empty()) node.fail(mistake);
  return window;
}

// Fewer results than a pool takes are one pool: ONNX Runtime's MaxPool has it so.
void fit_pool(ConvShape& shape, int axis, std::size_t size) {
  shape.pool[axis] = std::max<std::size_t>(1, std::min(shape.pool[axis], shape.output(axis, size)));
}

ConvShape shape_of(const Node& node, const Window& window) {
  ConvShape s{node.size("M"), node.size("C"), 1, {}, {}, {}, {}, {}};
  const std::int64_t groups = node.integer("group", 1);
  const auto count = static_cast<std::size_t>(groups);
  if (groups < 1 || s.out % count != 0 || s.in % count != 0)
    node.fail("the attribute group is " + std::to_string(groups) + "; it has to divide M " + std::to_string(s.out) +
              " and C " + std::to_string(s.in));
  s.groups = count;
  const std::int64_t nothing[2] = {};
  window.describe(s, nothing);
  if (static_cast<double>(s.out) * static_cast<double>(s.kernel[0]) * static_cast<double>(s.kernel[1]) *
          static_cast<double>(s.group_in()) > kMostBytes)
    node.fail("its filters are too large: M " + std::to_string(s.out) + ", C " + std::to_string(s.in) + ", kernel_shape " +
              texts(window.kernel));
  if (s.depthwise() && s.pool_area() > 1)
    node.fail("the attribute pool is " + texts(window.pool) + "; filters of one channel and up to 512 taps have none");
  return s;
}

}  // namespace

Window::Window(std::vector<std::int64_t> kernel_shape, std::vector<std::int64_t> strides_, std::vector<std::int64_t> dilations_,
               std::vector<std::int64_t> pads_, std::vector<std::int64_t> pool_, std::string auto_pad_)
    : kernel(std::move(kernel_shape)),
      strides(or_all(std::move(strides_), kernel.size(), 1)),
      dilations(or_all(std::move(dilations_), kernel.size(), 1)),
      pads(or_all(std::move(pads_), 2 * kernel.size(), 0)),
      pool(or_all(std::move(pool_), kernel.size(), 1)),
      auto_pad(std::move(auto_pad_)) {}

std::string Window::mistake() const {
  if (kernel.size() != 1 && kernel.size() != 2)
    return "the attribute kernel_shape is " + texts(kernel) + "; it has to be one number, or two";
  for (const std::string& found : {mistake_in("kernel_shape", kernel, axes(), 1), mistake_in("strides", strides, axes(), 1),
                                   mistake_in("dilations", dilations, axes(), 1), mistake_in("pads", pads, 2 * axes(), 0),
                                   mistake_in("pool", pool, axes(), 1)})
    if (!found.empty()) return found;
  if (pool[0] > kMostInPool || pool.back() > kMostInPool || pool[0] * (axes() == 2 ? pool[1] : 1) > kMostInPool)
    return "the attribute pool is " + texts(pool) + "; a pool has at most " + std::to_string(kMostInPool) + " results";
  if (auto_pad == "NOTSET") return "";
  if (!by_size() && auto_pad != "VALID")
    return "the attribute auto_pad is '" + auto_pad + "'; there are NOTSET, SAME_UPPER, SAME_LOWER, VALID";
  const bool padded = std::any_of(pads.begin(), pads.end(), [](std::int64_t p) { return p != 0; });
  return padded ? "the attribute pads is " + texts(pads) + ", and auto_pad " + auto_pad + " takes none" : "";
}

void Window::describe(ConvShape& s, const std::int64_t* sizes) const {
  const std::size_t first = 2 - axes();  // of the core's two axes
  if (first == 1) {
    s.kernel[0] = s.stride[0] = s.dilation[0] = 1;
    s.before[0] = s.after[0] = 0;
    s.pool[0] = 1;
  }
  for (std::size_t i = 0; i < axes(); ++i) {
    std::int64_t before = pads[i], after = pads[axes() + i];
    if (by_size()) {
      const std::int64_t outputs = (sizes[i] + strides[i] - 1) / strides[i], span = dilations[i] * (kernel[i] - 1) + 1;
      const std::int64_t all = std::max<std::int64_t>(0, (outputs - 1) * strides[i] + span - sizes[i]);
      before = auto_pad == "SAME_LOWER" ? all - all / 2 : all / 2;
      after = all - before;
    }
    s.kernel[first + i] = static_cast<std::size_t>(kernel[i]);
    s.stride[first + i] = static_cast<std::size_t>(strides[i]);
    s.dilation[first + i] = static_cast<std::size_t>(dilations[i]);
    s.before[first + i] = static_cast<std::size_t>(before);
    s.after[first + i] = static_cast<std::size_t>(after);
    s.pool[first + i] = static_cast<std::size_t>(pool[i]);
  }
}

ConvOp::ConvOp(const Node& node) : window_(window_of(node)) {
  const ConvShape shape = shape_of(node, window_);
  const PackedData packed =
      node.packed(1, "W", {static_cast<std::int64_t>(conv_packed_bytes(shape))}, node.integer("checksum"), copy_);
  const float* scale = node.scales(2, "W_scale", {static_cast<std::int64_t>(shape.out)});
  const float* bias = node.constant<float>(3, "B", {static_cast<std::int64_t>(shape.out)}).data;
  layer_.emplace_back(shape, packed, scale, bias, activation_of(node, node.text("activation", "none")));
}

void ConvOp::run(Call& call) const {
  const Tensor<float> x = call.input<float>(0, "X");
  const Conv& layer = layer_[0];
  const std::size_t axes = window_.axes();
  if (x.shape.rank != axes + 2 || x.shape[1] != static_cast<std::int64_t>(layer.shape.in))
    throw Error("X has shape " + x.shape.text() + "; it has to be [batch, " + std::to_string(layer.shape.in) +
                (axes == 1 ? ", L]" : ", H, W]"));
  ConvShape shape = layer.shape;
  if (window_.by_size()) window_.describe(shape, x.shape.dims.data() + 2);
  const std::size_t first = 2 - axes;
  std::size_t sizes[2] = {1, 1};
  Shape out = x.shape;
  out[1] = static_cast<std::int64_t>(shape.out);
  for (std::size_t i = 0; i < axes; ++i) {
    const int axis = static_cast<int>(first + i);
    sizes[axis] = static_cast<std::size_t>(x.shape[2 + i]);
    if (shape.output(axis, sizes[axis]) == 0)
      throw Error("X has shape " + x.shape.text() + ": with padding, axis " + std::to_string(2 + i) + " has " +
                  std::to_string(shape.padded(axis, sizes[axis])) + " elements, and the kernel needs " +
                  std::to_string(shape.window(axis)) + " (dilation included)");
    fit_pool(shape, axis, sizes[axis]);
    out[2 + i] = static_cast<std::int64_t>(shape.pooled(axis, sizes[axis]));
  }
  float* to = call.output(0, out);
  conv(layer, shape, {x.data, static_cast<std::size_t>(x.shape[0]), sizes[0], sizes[1], to}, call.threads());
}

void ConvOp::infer(const Inference& inference) {
  const Inference::Dims x = inference.input(0);
  const Window window(inference.integers("kernel_shape"), inference.integers("strides"), inference.integers("dilations"),
                      inference.integers("pads"), inference.integers("pool"), inference.text("auto_pad", "NOTSET"));
  const std::int64_t m = inference.integer("M", -1);
  const std::size_t axes = window.axes();
  if (m < 1 || !window.mistake().empty() || x.size() != axes + 2) return;
  Inference::Dims y(axes + 2);
  y[0] = x[0];
  y[1] = Inference::known(m);
  ConvShape shape{};
  std::int64_t sizes[2] = {};
  for (std::size_t i = 0; i < axes; ++i) sizes[i] = std::max<std::int64_t>(0, x[2 + i].value);
  window.describe(shape, sizes);
  for (std::size_t i = 0; i < axes; ++i) {
    if (x[2 + i].value < 0) continue;
    const int axis = static_cast<int>(2 - axes + i);
    const auto size = static_cast<std::size_t>(sizes[i]);
    fit_pool(shape, axis, size);
    y[2 + i] = Inference::known(static_cast<std::int64_t>(shape.pooled(axis, size)));
  }
  inference.output(0, y);
}

}  // namespace octavo::ort
