#include "ort_ops/matmul_op.h"

#include <utility>

#include "layers/matmul.h"
#include "ort_ops/broadcast.h"

namespace octavo::ort {
namespace {

// All dimensions but the last two.
Shape leading(Shape shape) {
  shape.rank -= 2;
  return shape;
}

std::size_t size_at(const Shape& shape, std::size_t from_end) { return static_cast<std::size_t>(shape[shape.rank - from_end]); }

// Which of the matrices that `shape` counts each of those of `all` is.
void places(const Shape& shape, const Shape& all, std::size_t count, std::size_t* to) {
  const Strides strides = strides_in(shape, all);
  for (std::size_t i = 0; i < count; ++i) {
    std::size_t rest = i, at = 0;
    for (std::size_t d = all.rank; d-- > 0;) {
      const auto size = static_cast<std::size_t>(all[d]);
      at += rest % size * strides[d];
      rest /= size;
    }
    to[i] = at;
  }
}

}  // namespace

MatMulOp::MatMulOp(const Node& node) : transposed_(node.integer("transpose_b", 0) != 0) {}

void MatMulOp::run(Call& call) const {
  const Tensor<float> a = call.input<float>(0, "A"), b = call.input<float>(1, "B");
  for (const auto& [tensor, name] : {std::pair(&a, "A"), std::pair(&b, "B")})
    if (tensor->shape.rank < 2)
      throw Error(std::string(name) + " has shape " + tensor->shape.text() + "; it has to have two dimensions or more");
  MatMul p{a.data, b.data, transposed_, size_at(a.shape, 2), size_at(a.shape, 1), size_at(b.shape, transposed_ ? 2 : 1), 0,
           nullptr, nullptr, 0, nullptr};
  if (size_at(b.shape, transposed_ ? 1 : 2) != p.k)
    throw Error("A has shape " + a.shape.text() + " and B " + b.shape.text() + (transposed_ ? " (transposed)" : "") +
                ": their inner dimensions differ");
  Shape as = leading(a.shape), bs = leading(b.shape), lead = broadcast(as, "A", bs, "B"), shape = lead;
  shape[shape.rank++] = static_cast<std::int64_t>(p.m);
  shape[shape.rank++] = static_cast<std::int64_t>(p.n);
  p.out = call.output(0, shape);
  if (shape.elements() == 0) return;
  p.count = lead.elements();
  p.b_count = bs.elements();
  if (p.b_count == 1 && as.elements() == p.count) {  // rows of one product
    p.m *= p.count;
    p.count = 1;
    as = bs = lead = Shape{};
  }
  auto* of = reinterpret_cast<std::size_t*>(call.memory(2 * p.count * sizeof(std::size_t) + 1));
  p.a_of = of;
  p.b_of = of + p.count;
  places(as, lead, p.count, of);
  places(bs, lead, p.count, of + p.count);
  matmul(p, call.threads());
}

void MatMulOp::infer(const Inference& inference) {
  Inference::Dims a = inference.input(0), b = inference.input(1);
  if (a.size() < 2 || b.size() < 2) return;
  const std::size_t column = b.size() - (inference.integer("transpose_b", 0) ? 2 : 1);
  const Inference::Dim m = a[a.size() - 2], n = b[column];
  a.resize(a.size() - 2);
  b.resize(b.size() - 2);
  Inference::Dims y = broadcast(a, b);
  y.push_back(m);
  y.push_back(n);
  inference.output(0, y);
}

}  // namespace octavo::ort
