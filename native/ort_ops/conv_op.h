// ai.octavo.Conv: y = pool(activation(conv(x, W) + B)) with each image of x [batch, C, ...] quantized as it comes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "layers/conv.h"
#include "ort_ops/operator.h"

namespace octavo::ort {

// ONNX's attributes of a window, and the pools behind it: one number for each spatial axis, of which there
// are one or two.
struct Window {
  std::vector<std::int64_t> kernel, strides, dilations, pads;  // pads: all begins, then all ends
  std::vector<std::int64_t> pool;
  std::string auto_pad;

  // Left out attributes have ONNX's defaults.
  Window(std::vector<std::int64_t> kernel_shape, std::vector<std::int64_t> strides, std::vector<std::int64_t> dilations,
         std::vector<std::int64_t> pads, std::vector<std::int64_t> pool, std::string auto_pad);

  std::size_t axes() const { return kernel.size(); }
  // What is wrong with the attributes; empty where nothing is.
  std::string mistake() const;
  // Fills in windows, and padding for an image of sizes[axes]; a missing height is 1. Sizes matter only
  // where `by_size`.
  void describe(ConvShape& shape, const std::int64_t* sizes) const;
  bool by_size() const { return auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER"; }
};

// Inputs X [batch, C, L] or [batch, C, H, W], W int8 [bytes], packed as conv.h says, W_scale [M], B [M].
// Attributes M (output channels), C, and ONNX's group, kernel_shape, strides, dilations, pads, auto_pad;
// activation, checksum; pool: the largest of each so many results that lie side by side, along each
// spatial axis, is the output (ones: all of them).
class ConvOp {
 public:
  static constexpr const char* kName = "Conv";
  static constexpr Input kInputs[] = {{ElementType::kFloat}, {ElementType::kInt8}, {ElementType::kFloat}, {ElementType::kFloat}};
  static constexpr std::size_t kOutputs = 1;
  static constexpr bool kManyOutputs = false, kOptionalOutputs = false;

  explicit ConvOp(const Node& node);
  void run(Call& call) const;
  static void infer(const Inference& inference);

 private:
  Buffer copy_;
  Window window_;
  std::vector<Conv> layer_;  // one
};

}  // namespace octavo::ort
