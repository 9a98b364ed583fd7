#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <cstring>
#include <optional>
#include <utility>

#include "layers/gate_powers.h"
#include "layers/linear.h"
#include "layers/pack.h"
#include "layers/rnn.h"
#include "python/bind.h"
#include "runtime/arena.h"
#include "runtime/parallel.h"

namespace octavo {

using namespace nb::literals;

namespace {

using Floats = Array<const float, 1>;
using Vector = std::optional<Floats>;
using Blocks = Array<const float, 3>;
using Cube = nb::ndarray<float, nb::ndim<3>, nb::device::cpu>;
using ConstCube = nb::ndarray<const float, nb::ndim<3>, nb::device::cpu>;
using States = std::optional<Array<float, 3>>;
using ConstStates = std::optional<Array<const float, 3>>;
using Lengths = std::optional<Array<const std::int64_t, 1>>;

// A weight with the arrays that it refers to.
class BoundMatrix {
 public:
  static BoundMatrix int8(Array<const std::uint8_t, 1> packed, std::size_t n, std::size_t k, Floats scale,
                          const Vector& bias, const std::string& format_name) {
    const WeightFormat format = weight_format(format_name);
    expect(!format.group, "Matrix: weights in groups are for linear layers, not " + format_name);
    const PackedData data = packed_data(packed, packed_bytes(n, k, format), format, "Matrix");
    expect(k <= kChunkK, "Matrix: int8 weights have up to " + std::to_string(kChunkK) + " inputs");
    expect(scale.shape(0) == n && (!bias || bias->shape(0) == n), "Matrix: scale and bias need one element a row");
    BoundMatrix m;
    m.linear_.emplace(data, n, k, 0, scale.data(), nullptr,
                      bias ? bias->data() : nullptr, Activation::kNone);
    m.packed_ = std::move(packed);
    m.n_ = n;
    m.k_ = k;
    return m;
  }

  static BoundMatrix float32(Blocks blocks, std::size_t n, const Vector& bias) {
    expect(blocks.shape(0) == (n + kBlockN - 1) / kBlockN && blocks.shape(2) == kBlockN,
           "Matrix: float weights need shape [ceil(n/16), k, 16]");
    expect(!bias || bias->shape(0) == n, "Matrix: bias needs one element a row");
    BoundMatrix m;
    m.n_ = n;
    m.k_ = blocks.shape(1);
    if (bias) {
      const std::size_t bytes = round_up(n, kBlockN) * sizeof(float);
      std::memset(m.bias_.need(bytes), 0, bytes);
      std::memcpy(m.bias_.need(bytes), bias->data(), n * sizeof(float));
      m.has_bias_ = true;
    }
    m.float_ = std::move(blocks);
    return m;
  }

  Matrix view() {
    if (linear_) return {&linear_->weight, nullptr, linear_->bias, n_, k_};
    return {nullptr, float_.data(), has_bias_ ? reinterpret_cast<const float*>(bias_.need(1)) : nullptr, n_, k_};
  }

 private:
  Array<const std::uint8_t, 1> packed_;
  Blocks float_;
  std::optional<Linear> linear_;
  Buffer bias_;
  bool has_bias_ = false;
  std::size_t n_ = 0, k_ = 0;
};

// A network with the weights that it refers to: `layers` is a list of lists (one a direction) of
// (reverse, input, state, second or None).
class BoundRecurrent {
 public:
  BoundRecurrent(int kind, std::size_t hidden, std::size_t output, float clip, nb::list layers) : owner_(layers) {
    net_.kind = static_cast<Recurrence>(kind);
    net_.hidden = hidden;
    net_.output = output;
    net_.clip = clip;
    expect(hidden > 0 && output > 0 && layers.size() > 0, "Recurrent: hidden, output and layers are 1 or more");
    std::size_t inputs = 0;
    for (nb::handle layer : layers) {
      std::vector<Direction> directions;
      for (nb::handle direction : nb::cast<nb::list>(layer)) {
        const auto parts = nb::cast<nb::tuple>(direction);
        directions.push_back({nb::cast<bool>(parts[0]), false, view(parts[1]), view(parts[2]), view(parts[3])});
        if (inputs == 0) inputs = directions.back().input.k;
        check(directions.back(), inputs);
      }
      expect(directions.size() == 1 || directions.size() == 2, "Recurrent: a layer has one or two directions");
      expect(net_.layers.empty() || directions.size() == net_.layers[0].size(),
             "Recurrent: all layers have the same directions");
      inputs = directions.size() * output;
      net_.layers.push_back(std::move(directions));
    }
    powers_.fold(net_);
  }

  // Addresses, for front ends that have checked them; 0 for what is not there.
  void run(std::uintptr_t x, std::size_t steps, std::size_t batch, std::size_t x_step, std::size_t x_item,
           std::uintptr_t y, std::size_t y_step, std::size_t y_item, std::size_t y_direction, std::uintptr_t h0,
           std::uintptr_t c0, std::uintptr_t h, std::uintptr_t c, std::uintptr_t lengths, int threads) const {
    call({pointer<const float>(x), steps, batch, x_step, x_item, pointer<const std::int64_t>(lengths),
          pointer<float>(y), y_step, y_item, y_direction, pointer<const float>(h0), pointer<const float>(c0),
          pointer<float>(h), pointer<float>(c)},
         threads);
  }

  // Arrays: x [T, B, I] and y [T, B, directions * output] with a contiguous last axis, states contiguous.
  void apply(const ConstCube& x, const Cube& y, const ConstStates& h0, const ConstStates& c0, const States& h,
             const States& c, const Lengths& lengths, int threads) const {
    const std::size_t steps = x.shape(0), batch = x.shape(1), directions = net_.layers[0].size();
    expect(x.shape(2) == net_.layers[0][0].input.k && last_contiguous(x),
           "x: needs shape [T, B, input_size] with a contiguous last axis");
    expect(y.shape(0) == steps && y.shape(1) == batch && y.shape(2) == directions * net_.output && last_contiguous(y),
           "y: needs shape [T, B, directions * output_size] with a contiguous last axis");
    check_states(h0, "h0", batch, net_.output);
    check_states(c0, "c0", batch, net_.hidden);
    check_states(h, "h", batch, net_.output);
    check_states(c, "c", batch, net_.hidden);
    if (lengths) check_lengths(*lengths, batch, steps);
    call({x.data(), steps, batch, stride(x, 0), stride(x, 1), data(lengths), y.data(), stride(y, 0), stride(y, 1),
          net_.output, data(h0), data(c0), data(h), data(c)},
         threads);
  }

 private:
  static Matrix view(nb::handle matrix) { return matrix.is_none() ? Matrix{} : nb::cast<BoundMatrix&>(matrix).view(); }

  template <class A>
  static auto data(const std::optional<A>& array) -> decltype(array->data()) {
    return array ? array->data() : nullptr;
  }
  template <class A>
  static std::size_t stride(const A& array, std::size_t axis) {
    return static_cast<std::size_t>(array.stride(axis));
  }

  static void check_lengths(const Array<const std::int64_t, 1>& lengths, std::size_t batch, std::size_t steps) {
    expect(lengths.shape(0) == batch, "lengths: needs one element a batch item");
    for (std::size_t b = 0; b < batch; ++b) {
      const std::int64_t length = lengths.data()[b];
      if (length >= 0 && length <= static_cast<std::int64_t>(steps)) continue;
      expect(false, "lengths: item " + std::to_string(b) + " is " + std::to_string(length) + ", not in 0.." +
                        std::to_string(steps));
    }
  }

  template <class A>
  static bool last_contiguous(const A& a) {
    return a.size() == 0 || ((a.shape(2) <= 1 || a.stride(2) == 1) && a.stride(0) >= 0 && a.stride(1) >= 0);
  }

  template <class S>
  void check_states(const S& states, const char* name, std::size_t batch, std::size_t width) const {
    const std::size_t count = net_.layers.size() * net_.layers[0].size();
    if (!states || (states->shape(0) == count && states->shape(1) == batch && states->shape(2) == width)) return;
    expect(false, std::string(name) + ": needs shape (" + std::to_string(count) + ", " + std::to_string(batch) + ", " +
                      std::to_string(width) + ")");
  }

  void check(const Direction& d, std::size_t inputs) const {
    const std::size_t units = round_up(net_.hidden, kBlockN);
    const bool lstm = net_.kind == Recurrence::kLstm, reset = net_.kind == Recurrence::kGruReset;
    const std::size_t gates = gates_of(net_.kind);
    expect(d.input.n == units * gates && d.input.k == inputs, "Recurrent: an input weight has the wrong shape");
    expect(d.state.n == units * (reset ? 2 : gates) && d.state.k == net_.output,
           "Recurrent: a state weight has the wrong shape");
    if (lstm && !d.second.empty())
      expect(d.second.n == net_.output && d.second.k == net_.hidden, "Recurrent: a projection has the wrong shape");
    else if (reset)
      expect(d.second.n == units && d.second.k == net_.hidden, "Recurrent: a weight of n has the wrong shape");
    else
      expect(d.second.empty(), "Recurrent: only an LSTM and a GRU that resets first have a third weight");
    expect(net_.output == net_.hidden || (lstm && !d.second.empty()),
           "Recurrent: output differs from hidden without a projection");
  }

  void call(const Sequence& sequence, int threads) const {
    double work = 0.0;
    for (const auto& layer : net_.layers)
      for (const Direction& d : layer) work += d.input.bytes() + d.state.bytes() + d.second.bytes();
    const MaybeRelease release(work * static_cast<double>(sequence.steps * sequence.batch) > kLongWork);
    recurrent(net_, sequence, threads > 0 ? threads : num_threads());
  }

  nb::object owner_;
  GatePowers powers_;
  Recurrent net_;
};

}  // namespace

void bind_rnn(nb::module_& m) {
  nb::class_<BoundMatrix>(m, "Matrix")
      .def_static("int8", &BoundMatrix::int8, "packed"_a, "n"_a, "k"_a, "scale"_a, "bias"_a.none(), "weight_format"_a = "int8")
      .def_static("float32", &BoundMatrix::float32, "blocks"_a, "n"_a, "bias"_a.none());
  nb::class_<BoundRecurrent>(m, "Recurrent")
      .def(nb::init<int, std::size_t, std::size_t, float, nb::list>(), "kind"_a, "hidden"_a, "output"_a, "clip"_a,
           "layers"_a)
      .def("run", &BoundRecurrent::run, "x"_a, "steps"_a, "batch"_a, "x_step"_a, "x_item"_a, "y"_a, "y_step"_a,
           "y_item"_a, "y_direction"_a, "h0"_a, "c0"_a, "h"_a, "c"_a, "lengths"_a, "threads"_a)
      .def("apply", &BoundRecurrent::apply, "x"_a.noconvert(), "y"_a.noconvert(), "h0"_a.noconvert().none(),
           "c0"_a.noconvert().none(), "h"_a.noconvert().none(), "c"_a.noconvert().none(),
           "lengths"_a.noconvert().none(), "threads"_a);
}

}  // namespace octavo
