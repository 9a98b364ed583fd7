#include "ort_ops/rotary_op.h"

#include <vector>

namespace octavo::ort {
namespace {

std::int64_t dim(std::size_t n) { return static_cast<std::int64_t>(n); }

[[noreturn]] void refuse(const char* name, const Shape& found, const Shape& x, const std::string& wanted) {
  throw Error(std::string(name) + " has shape " + found.text() + " and X " + x.text() + "; it has to be " + wanted);
}

// Sets where cos and sin are, and the steps from one row of them to the next.
void read_tables(const Tensor<float>& cos, const Tensor<float>& sin, const Shape& x, bool by_positions, RotaryInputs& in) {
  const auto rows = dim(in.rows), turned = dim(in.turned);
  const auto check = [&](const Tensor<float>& table, const char* name) {
    const Shape& s = table.shape;
    const std::string pairs = std::to_string(turned / 2);
    if (by_positions) {
      if (s.rank != 2 || s[1] != turned / 2) refuse(name, s, x, "[positions, " + pairs + "]");
      return;
    }
    const bool batch = s.rank > 0 && (s[0] == 1 || s[0] == dim(in.batch));
    const bool each = s.rank == 4 && s[1] == 1 && s[2] == rows && s[3] == turned;
    const bool paired = s.rank == 3 && s[1] == rows && s[2] == turned / 2;
    if (!batch || !(each || paired))
      refuse(name, s, x, "[batch or 1, 1, " + std::to_string(rows) + ", " + std::to_string(turned) + "] or [batch or 1, " +
                             std::to_string(rows) + ", " + pairs + "]");
  };
  check(cos, "cos");
  check(sin, "sin");
  if (cos.shape != sin.shape) throw Error("cos has shape " + cos.shape.text() + " and sin " + sin.shape.text() + "; they have to be the same");
  in.cos = cos.data;
  in.sin = sin.data;
  in.each = cos.shape.rank == 4;
  in.table_row = in.each ? in.turned : in.turned / 2;
  in.table_batch = by_positions || cos.shape[0] == 1 ? 0 : in.rows * in.table_row;
}

// The row of cos and sin for every row of X.
std::vector<std::int64_t> positions_of(const Call& call, const Shape& x, std::int64_t known, const RotaryInputs& in) {
  const Tensor<std::int64_t> given = call.input<std::int64_t>(3, "positions");
  const bool first = given.shape == Shape{1};
  if (!first && given.shape != Shape{dim(in.batch), dim(in.rows)})
    refuse("positions", given.shape, x, "[" + std::to_string(in.batch) + ", " + std::to_string(in.rows) + "] or [1]");
  std::vector<std::int64_t> found(in.batch * in.rows);
  for (std::size_t i = 0; i < found.size(); ++i) {
    found[i] = first ? given.data[0] + dim(i % in.rows) : given.data[i];
    if (found[i] < 0 || found[i] >= known)
      throw Error("position " + std::to_string(found[i]) + " is none of cos and sin, which have " + std::to_string(known));
  }
  return found;
}

}  // namespace

RotaryOp::RotaryOp(const Node& node)
    : turned_(node.integer("turned", 0)), heads_(node.integer("heads", 0)), interleaved_(node.integer("interleaved", 0) != 0) {
  if (turned_ < 0 || turned_ % 2 != 0) node.fail("the attribute turned is " + std::to_string(turned_) + "; it has to be even, and 0 or more");
  if (heads_ < 0) node.fail("the attribute heads is " + std::to_string(heads_) + "; it has to be 0 or more");
}

// Of X, whose tables have `pairs` numbers in a row where those are for pairs; else 0.
void RotaryOp::read_sizes(const Shape& x, std::int64_t pairs, RotaryInputs& in) const {
  std::int64_t heads = heads_;
  if (x.rank == 3 && heads == 0 && turned_ == 0 && pairs > 0) heads = x[2] / (2 * pairs);
  const bool rows = x.rank == 3 && heads > 0 && x[2] % heads == 0;
  const std::int64_t width = rows ? x[2] / heads : x.rank == 4 ? x[3] : 0;
  const std::int64_t turned = turned_ == 0 ? width : turned_;
  if ((!rows && x.rank != 4) || turned % 2 != 0 || turned > width) {
    const std::string wanted = turned_ == 0 ? "an even number" : std::to_string(turned_) + " or more";
    throw Error("X has shape " + x.text() + "; it has to be [batch, heads, length, " + wanted + "]" +
                (heads > 0 ? ", or [batch, length, " + std::to_string(heads) + " times " + wanted + "]" : ""));
  }
  in.batch = static_cast<std::size_t>(x[0]);
  in.heads = static_cast<std::size_t>(rows ? heads : x[1]);
  in.rows = static_cast<std::size_t>(rows ? x[1] : x[2]);
  in.width = static_cast<std::size_t>(width);
  in.turned = static_cast<std::size_t>(turned);
  if (rows) in.x_steps = {in.rows * in.heads * in.width, in.width, in.heads * in.width};
  else in.x_steps = {in.heads * in.rows * in.width, in.rows * in.width, in.width};
  in.out_steps = in.x_steps;
}

void RotaryOp::run(Call& call) const {
  const Tensor<float> x = call.input<float>(0, "X"), cos = call.input<float>(1, "cos"), sin = call.input<float>(2, "sin");
  const bool by_positions = call.given(3);
  RotaryInputs in{};
  read_sizes(x.shape, cos.shape.rank == 4 ? 0 : cos.shape.last(), in);
  read_tables(cos, sin, x.shape, by_positions, in);
  in.out = call.output(0, x.shape);
  if (x.shape.elements() == 0) return;
  std::vector<std::int64_t> positions;
  if (by_positions) {
    positions = positions_of(call, x.shape, cos.shape[0], in);
    in.positions = positions.data();
    in.position_batch = in.rows;
    in.position_row = 1;
  }
  in.interleaved = interleaved_;
  in.x = x.data;
  rotary(in, call.threads());
}

void RotaryOp::infer(const Inference& inference) {
  const Inference::Dims x = inference.input(0);
  if (!x.empty()) inference.output(0, x);
}

}  // namespace octavo::ort
