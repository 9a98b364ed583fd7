#include "ort_ops/kernel.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <sstream>

#include "layers/pack.h"
#include "runtime/checksum.h"
#include "runtime/parallel.h"
#include "runtime/system.h"

namespace octavo::ort {
namespace {

constexpr std::int64_t kFirstPause = 1'000'000;  // nanoseconds between two trials; twice as many each time
constexpr unsigned kMostDoublings = 30;          // 12 days

// As many threads as can meet at most: the machine's processors, not those that the calling thread may
// use. It may be kept to one, and the session's threads to the others.
int processors() {
  static const int count = std::max(1, all_processors());
  return count;
}

std::int64_t nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Counts how many of `wanted` iterations run at once: each waits for the others, for a moment.
struct Trial {
  int wanted;
  std::atomic<int> arrived{0};
  std::atomic<bool> over{false};

  void arrive() {
    if (over.load(std::memory_order_acquire)) return;  // too late to have run beside the others
    arrived.fetch_add(1, std::memory_order_acq_rel);
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(200);
    while (!over.load(std::memory_order_acquire) && arrived.load(std::memory_order_acquire) < wanted &&
           std::chrono::steady_clock::now() < end) {
    }
    over.store(true, std::memory_order_release);
  }
};

int try_out(const Api& api, const KernelContext* context, int wanted) {
  Trial trial{wanted};
  const auto iteration = [](void* data, std::size_t) { static_cast<Trial*>(data)->arrive(); };
  if (!api.works(api::ParallelFor{}, context, +iteration, static_cast<std::size_t>(wanted), 0, &trial)) return 1;
  return std::max(1, trial.arrived.load());
}

}  // namespace

int Threads::count(const Api& api, const KernelContext* context) {
  const int wanted = processors();
  if (wanted == 1) return 1;
  int found = found_.load(std::memory_order_relaxed);
  if (found >= wanted) return found;
  // Again and again: threads that sleep come too late for the first trial, and a busy machine lets fewer
  // meet than there are. A trial takes 0.2 ms, and most sessions have fewer threads than the machine has
  // processors, so that each pause is twice the one before: ten trials in the first second, ten more in
  // the first quarter of an hour.
  std::int64_t next = next_.load(std::memory_order_relaxed);
  const std::int64_t now = nanoseconds();
  if (now < next || !next_.compare_exchange_strong(next, INT64_MAX, std::memory_order_relaxed)) return std::max(1, found);
  const int met = try_out(api, context, wanted);
  while (found < met && !found_.compare_exchange_weak(found, met, std::memory_order_relaxed)) {
  }
  const unsigned trial = trials_.fetch_add(1, std::memory_order_relaxed);
  const std::int64_t pause = trial == 0 ? 0 : kFirstPause << std::min(trial - 1, kMostDoublings);
  next_.store(nanoseconds() + pause, std::memory_order_relaxed);
  return std::max({1, found, met});
}

void check_extent(const Shape& shape, const std::string& name) {
  if (!shape.extent())
    throw Error(name + " has shape " + shape.text() + "; a tensor has axes of 0 or more, and at most " +
                std::to_string(Shape::kMostElements) + " elements where axes of 0 count as 1: give smaller inputs");
}

AnyTensor tensor_of(const Api& api, const Value* value, const char* name) {
  AnyTensor found;
  if (!value) return found;
  struct Info {
    const Api& api;
    TypeAndShape* held = nullptr;
    ~Info() { api.release(api::ReleaseTypeAndShape{}, held); }
  } info{api};
  api(api::GetTypeAndShape{}, value, &info.held);
  api(api::GetElementType{}, info.held, &found.type);
  api(api::GetDimensionsCount{}, info.held, &found.shape.rank);
  if (found.shape.rank > Shape::kMost)
    throw Error(std::string(name) + " has " + std::to_string(found.shape.rank) + " dimensions; at most " +
                std::to_string(Shape::kMost) + " are supported");
  api(api::GetDimensions{}, info.held, found.shape.dims.data(), found.shape.rank);
  check_extent(found.shape, name);
  void* data = nullptr;
  api(api::GetTensorMutableData{}, const_cast<Value*>(value), &data);
  static const char nothing[kAlign] = {};
  found.data = data ? data : nothing;  // an empty tensor may have no address
  return found;
}

Node::Node(const Api& api_, const KernelInfo* info_, const char* op, Threads& threads_)
    : api(api_), info(info_), threads(threads_) {
  std::size_t size = 0;
  std::string name;
  if (api.works(api::InfoNodeName{}, info, nullptr, &size) && size > 0) {
    name.resize(size);
    if (!api.works(api::InfoNodeName{}, info, name.data(), &size)) name.clear();
    name.resize(std::strlen(name.c_str()));
  }
  label = "node '" + name + "' (ai.octavo." + op + ")";
}

std::size_t Node::inputs() const {
  std::size_t count = 0;
  api(api::InfoInputCount{}, info, &count);
  return count;
}

std::size_t Node::outputs() const {
  std::size_t count = 0;
  api(api::InfoOutputCount{}, info, &count);
  return count;
}

std::int64_t Node::integer(const char* name) const {
  std::int64_t value = 0;
  if (!api.works(api::AttributeInt{}, info, name, &value)) fail(std::string("the attribute ") + name + " is missing");
  return value;
}

std::int64_t Node::integer(const char* name, std::int64_t otherwise) const {
  std::int64_t value = 0;
  return api.works(api::AttributeInt{}, info, name, &value) ? value : otherwise;
}

std::size_t Node::size(const char* name, std::int64_t least, std::int64_t most) const {
  const std::int64_t value = integer(name);
  if (value < least || value > most)
    fail(std::string("the attribute ") + name + " is " + std::to_string(value) + ", not in " + std::to_string(least) +
         ".." + std::to_string(most));
  return static_cast<std::size_t>(value);
}

float Node::number(const char* name, float otherwise) const {
  float value = 0.0f;
  return api.works(api::AttributeFloat{}, info, name, &value) ? value : otherwise;
}

std::string Node::text(const char* name, const char* otherwise) const {
  std::size_t size = 0;
  // Without room it says how much it needs; releases differ in whether that counts as an error.
  api.works(api::AttributeString{}, info, name, nullptr, &size);
  if (size == 0) return otherwise;
  std::string value(size, '\0');
  if (!api.works(api::AttributeString{}, info, name, value.data(), &size)) return otherwise;
  value.resize(std::strlen(value.c_str()));
  return value;
}

std::vector<std::int64_t> Node::integers(const char* name, std::vector<std::int64_t> otherwise) const {
  std::size_t size = 0;
  api.works(api::AttributeInts{}, info, name, nullptr, &size);
  if (size == 0) return otherwise;
  std::vector<std::int64_t> values(size);
  if (!api.works(api::AttributeInts{}, info, name, values.data(), &size)) return otherwise;
  return values;
}

AnyTensor Node::any_constant(std::size_t index, const char* name) const {
  int is_constant = 0;
  const Value* value = nullptr;
  if (!api.works(api::ConstantInput{}, info, index, &is_constant, &value) || !is_constant || !value)
    fail(std::string(name) + " is computed or comes from another graph; it has to be an initializer of the graph that "
         "the node is in");
  return tensor_of(api, value, name);
}

WeightFormat Node::format() const { return weight_format(text("weight_format", "int8")); }

PackedData Node::packed(std::size_t index, const char* name, const Shape& shape, std::int64_t wanted, Buffer& copy) const {
  if (format().group)
    fail("the attribute weight_format is " + text("weight_format", "int8") + "; this operator has int8 alone");
  return {checked_bytes(index, name, shape, wanted, copy), WeightFormat::kInt8};
}

PackedData Node::packed_matrix(std::size_t index, const char* name, std::size_t n, std::size_t k, std::int64_t wanted,
                               Buffer& copy) const {
  const WeightFormat found = format();
  const Shape bytes{static_cast<std::int64_t>(packed_bytes(n, k, found))};
  return {checked_bytes(index, name, found.group ? bytes : packed_shape(n, k), wanted, copy), found};
}

const std::int8_t* Node::checked_bytes(std::size_t index, const char* name, const Shape& shape, std::int64_t wanted,
                                       Buffer& copy) const {
  const Tensor<std::int8_t> found = constant<std::int8_t>(index, name, shape);
  const std::size_t bytes = shape.elements();
  if (static_cast<std::uint64_t>(wanted) != checksum(found.data, bytes))
    fail(std::string(name) + " does not hold what was written (its checksum differs): the file is damaged; "
         "quantize the model again or get the file again");
  if (reinterpret_cast<std::uintptr_t>(found.data) % kAlign == 0) return found.data;
  std::uint8_t* own = copy.need(bytes);
  std::memcpy(own, found.data, bytes);
  return reinterpret_cast<const std::int8_t*>(own);
}

const float* Node::scales(std::size_t index, const char* name, const Shape& shape) const {
  const Tensor<float> found = constant<float>(index, name, shape);
  for (std::size_t i = 0; i < shape.elements(); ++i)
    if (!(found.data[i] > 0.0f) || !std::isfinite(found.data[i]))
      fail(std::string(name) + "[" + std::to_string(i) + "] is " + std::to_string(found.data[i]) +
           "; scales are finite and above 0");
  return found.data;
}

Allocator* Node::allocator() const {
  Allocator* found = nullptr;
  if (api.lends_memory)
    api(api::InfoAllocator{}, info, 0, &found);
  else
    api(api::DefaultAllocator{}, &found);
  return found;
}

Call::~Call() {
  for (void* p : lent_) allocator_->free(allocator_, p);
}

std::size_t Call::inputs() const {
  std::size_t count = 0;
  api_(api::GetInputCount{}, context_, &count);
  return count;
}

bool Call::given(std::size_t index) const {
  const Value* value = nullptr;
  if (index < inputs()) api_(api::GetInput{}, context_, index, &value);
  return value;
}

AnyTensor Call::any_input(std::size_t index, const char* name) const {
  const Value* value = nullptr;
  api_(api::GetInput{}, context_, index, &value);
  if (!value) throw Error(std::string(name) + " is missing");
  return tensor_of(api_, value, name);
}

float* Call::output_if_wanted(std::size_t index, const Shape& shape) const {
  std::size_t count = 0;
  api_(api::GetOutputCount{}, context_, &count);
  if (index >= count) return nullptr;
  check_extent(shape, "output " + std::to_string(index));
  Value* value = nullptr;
  api_(api::GetOutput{}, context_, index, shape.dims.data(), shape.rank, &value);
  if (!value) return nullptr;
  void* data = nullptr;
  api_(api::GetTensorMutableData{}, value, &data);
  return static_cast<float*>(data);
}

float* Call::output(std::size_t index, const Shape& shape) const {
  float* data = output_if_wanted(index, shape);
  if (!data && shape.elements()) throw Error("output " + std::to_string(index) + " has no name; every output has to have one");
  return data;
}

// docs/notes/onnxruntime.md: "A phase is one ParallelFor"
void Call::parallel(int threads, int phases, Phase phase, void* job) {
  struct One {
    Phase phase;
    void* job;
    int number, threads;
  } one{phase, job, 0, threads};
  const auto iteration = [](void* data, std::size_t i) {
    const auto* o = static_cast<const One*>(data);
    o->phase(o->job, o->number, static_cast<int>(i), o->threads);
  };
  for (one.number = 0; one.number < phases; ++one.number)
    api_(api::ParallelFor{}, context_, +iteration, static_cast<std::size_t>(threads), 0, &one);
}

std::uint8_t* Call::memory(std::size_t bytes) {
  lent_.reserve(lent_.size() + 1);
  void* room = allocator_->alloc(allocator_, bytes + kAlign);
  if (!room) throw std::bad_alloc();
  lent_.push_back(room);
  const auto address = reinterpret_cast<std::uintptr_t>(room);
  return reinterpret_cast<std::uint8_t*>((address + kAlign - 1) / kAlign * kAlign);
}

std::size_t Inference::inputs() const {
  std::size_t count = 0;
  return api_.works(api::ShapeInputCount{}, context_, &count) ? count : 0;
}

Inference::Dims Inference::input(std::size_t index) const {
  TypeAndShape* info = nullptr;  // the context's own: it releases it
  std::size_t rank = 0;
  if (!api_.works(api::ShapeInput{}, context_, index, &info)) return {};
  if (!api_.works(api::GetDimensionsCount{}, info, &rank) || rank == 0) return {};
  std::vector<std::int64_t> values(rank);
  std::vector<const char*> symbols(rank, "");
  if (!api_.works(api::GetDimensions{}, info, values.data(), rank)) return {};
  if (!api_.works(api::GetSymbolicDimensions{}, info, symbols.data(), rank)) return {};
  Dims dims(rank);
  for (std::size_t i = 0; i < rank; ++i) {
    dims[i] = known(values[i]);
    if (symbols[i]) dims[i].symbol = symbols[i];
  }
  return dims;
}

void Inference::output(std::size_t index, const Dims& dims) const {
  static std::atomic<unsigned long> strangers{0};
  std::vector<std::int64_t> values;
  std::vector<std::string> names;
  for (const Dim& d : dims) {
    values.push_back(d.value < 0 ? -1 : d.value);
    // A size that nobody knows needs a name that nobody else has.
    names.push_back(d.value >= 0 ? "" : !d.symbol.empty() ? d.symbol : "octavo_" + std::to_string(strangers.fetch_add(1)));
  }
  std::vector<const char*> pointers;
  for (const std::string& name : names) pointers.push_back(name.c_str());
  TypeAndShape* info = nullptr;
  if (!api_.works(api::CreateTypeAndShape{}, &info)) return;
  if (api_.works(api::SetElementType{}, info, ElementType::kFloat) &&
      api_.works(api::SetDimensions{}, info, values.data(), values.size()) &&
      api_.works(api::SetSymbolicDimensions{}, info, pointers.data(), pointers.size()))
    api_.works(api::ShapeOutput{}, context_, index, info);
  api_.release(api::ReleaseTypeAndShape{}, info);
}

std::int64_t Inference::integer(const char* name, std::int64_t otherwise) const {
  const Attribute* attribute = nullptr;
  std::int64_t value = 0;
  std::size_t size = 0;
  if (!api_.works(api::ShapeAttribute{}, context_, name, &attribute)) return otherwise;
  return api_.works(api::ReadAttribute{}, attribute, AttributeType::kInt, &value, sizeof value, &size) ? value : otherwise;
}

std::vector<std::int64_t> Inference::integers(const char* name) const {
  const Attribute* attribute = nullptr;
  std::size_t size = 0;
  if (!api_.works(api::ShapeAttribute{}, context_, name, &attribute)) return {};
  api_.works(api::ReadAttribute{}, attribute, AttributeType::kInts, nullptr, 0, &size);  // says how much it needs
  std::vector<std::int64_t> values(size / sizeof(std::int64_t));
  if (values.empty() || !api_.works(api::ReadAttribute{}, attribute, AttributeType::kInts, values.data(), size, &size)) return {};
  return values;
}

std::string Inference::text(const char* name, const char* otherwise) const {
  const Attribute* attribute = nullptr;
  std::size_t size = 0;
  if (!api_.works(api::ShapeAttribute{}, context_, name, &attribute)) return otherwise;
  api_.works(api::ReadAttribute{}, attribute, AttributeType::kString, nullptr, 0, &size);
  std::string value(size, '\0');
  if (!size || !api_.works(api::ReadAttribute{}, attribute, AttributeType::kString, value.data(), size, &size)) return otherwise;
  value.resize(std::strlen(value.c_str()));
  return value;
}

Shape packed_shape(std::size_t n, std::size_t k) {
  return {static_cast<std::int64_t>((n + kBlockN - 1) / kBlockN), static_cast<std::int64_t>((k + kBlockK - 1) / kBlockK), kBlockN,
          kBlockK};
}

Activation activation_of(const Node& node, const std::string& wanted) {
  static constexpr const char* kNames[] = {"none", "relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid"};
  std::string all;
  for (int i = 0; i < static_cast<int>(std::size(kNames)); ++i) {
    if (wanted == kNames[i]) return static_cast<Activation>(i);
    all += std::string(i ? ", " : "") + kNames[i];
  }
  node.fail("the activation '" + wanted + "' is unknown; there are " + all);
}

std::vector<std::string> given_inputs(const Node& node, std::initializer_list<const char*> known) {
  std::istringstream words(node.text("given", ""));
  std::vector<std::string> found;
  for (std::string word; words >> word;) {
    bool allowed = false;
    for (const char* k : known) allowed = allowed || word == k;
    if (!allowed) {
      std::string all;
      for (const char* k : known) all += std::string(all.empty() ? "" : ", ") + k;
      node.fail("the attribute given holds '" + word + "'; this operator knows " + all);
    }
    found.push_back(word);
  }
  return found;
}

}  // namespace octavo::ort
