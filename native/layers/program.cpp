#include "layers/program.h"

#include <algorithm>
#include <stdexcept>

#include "layers/copy.h"
#include "runtime/arena.h"
#include "runtime/parallel.h"

namespace octavo {
namespace {

struct ProgramScratch;
constexpr double kTeamWork = 2e4;  // nanoseconds of work that a team is gathered for

}  // namespace

int Program::input(ValueType type, std::size_t axes) {
  inputs.push_back(static_cast<int>(values.size()));
  values.push_back({type, Origin::kInput, axes, {}, nullptr, -1});
  return inputs.back();
}

int Program::input_integer() {
  given_integers.push_back(static_cast<int>(integers.size()));
  integers.push_back({0, true});
  return given_integers.back();
}

int Program::constant(ValueType type, const void* data, const std::vector<std::size_t>& sizes) {
  const int number = value(type);
  Known& made = values.back();
  made.origin = Origin::kConstant;
  made.view.type = type;
  made.view.set_sizes(sizes.data(), sizes.size());
  made.view.lay_out();
  made.data = data;
  return number;
}

int Program::scalar(float value) {
  scalars_.push_back(std::make_unique<float>(value));
  return constant(ValueType::kFloat32, scalars_.back().get(), {});
}

int Program::value(ValueType type) {
  values.push_back({type, Origin::kStep, 0, {}, nullptr, -1});
  return static_cast<int>(values.size()) - 1;
}

int Program::size() {
  integers.push_back({0, false});
  return static_cast<int>(integers.size()) - 1;
}

int Program::literal(std::int64_t size) {
  integers.push_back({size, false});
  return static_cast<int>(integers.size()) - 1;
}

void Program::add(std::unique_ptr<Step> step) { steps.push_back(std::move(step)); }

void Program::output(int value) { outputs.push_back(value); }

void Program::finish(std::string given) {
  name = std::move(given);
  const auto use = [&](int value, int step) {
    int& last = values[static_cast<std::size_t>(value)].last_use;
    last = std::max(last, step);
  };
  for (const int value : outputs) use(value, static_cast<int>(steps.size()));
  for (std::size_t i = steps.size(); i-- > 0;) {
    const Step& step = *steps[i];
    for (const int value : step.reads) use(value, static_cast<int>(i));
    for (const int value : step.makes) use(value, static_cast<int>(i));
    // Whoever reads a view reads the memory of its source.
    for (const int value : step.makes)
      if (step.shares >= 0) use(step.shares, values[static_cast<std::size_t>(value)].last_use);
  }
}

Call::Call(const Program& of) : program(of), values(of.values.size()), integers(of.integers.size()), memory_(of.values.size()) {
  for (std::size_t i = 0; i < of.integers.size(); ++i) integers[i] = of.integers[i].literal;
  for (std::size_t i = 0; i < of.values.size(); ++i) {
    const Program::Known& known = of.values[i];
    values[i].type = known.type;
    if (known.origin != Origin::kConstant) continue;
    values[i] = known.view;
    values[i].memory = static_cast<int>(i);
    memory_[i].data = static_cast<std::uint8_t*>(const_cast<void*>(known.data));
  }
  results.resize(of.outputs.size());
}

std::size_t Call::size(int number, const char* what) const {
  const std::int64_t found = integer(number);
  if (found < 0) throw std::invalid_argument(std::string(what) + " is " + std::to_string(found) + ", no size");
  return static_cast<std::size_t>(found);
}

void Call::take(int value) {
  View& v = at(value);
  v.memory = value;
  v.offset = 0;
  Memory& m = memory_[static_cast<std::size_t>(value)];
  m.bytes = v.bytes();
  m.since = static_cast<int>(step_);
  taken_.push_back(value);
}

View& Call::make(int value, const std::size_t* sizes, std::size_t axes) {
  View& v = at(value);
  v.set_sizes(sizes, axes);
  v.lay_out();
  take(value);
  return v;
}

View& Call::share(int value, int source) {
  View& v = at(value);
  v = at(source);
  return v;
}

const View& Call::staged(int value, int staged) {
  if (at(staged).memory < 0) return at(value);
  copy(at(value), at(staged), threads);
  return at(staged);
}

void Call::expect_type(int value, ValueType type, const char* what) {
  if (at(value).type != type) fail(value, std::string(what) + " needs " + name_of(type));
}

void Call::fail(int value, const std::string& what) {
  throw std::invalid_argument("value " + std::to_string(value) + ", " + at(value).text() + ": " + what);
}

void Call::fail(const std::string& what) { throw std::invalid_argument(what); }

void Call::resolve() {
  taken_.clear();
  work = 0.0;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (program.values[i].origin == Origin::kStep) values[i].memory = -1;
  for (const int input : program.inputs) {
    View& v = at(input);
    v.memory = input;
    v.offset = 0;
    memory_[static_cast<std::size_t>(input)].data = v.data;
  }
  step_ = 0;
  try {
    for (; step_ < program.steps.size(); ++step_) program.steps[step_]->resolve(*this);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(where() + error.what());
  }
  choose_results();
  place();
}

std::string Call::where() const {
  return program.name + ", step " + std::to_string(step_) + " (" + program.steps[step_]->name() + "): ";
}

void Call::choose_results() {
  for (std::size_t i = 0; i < results.size(); ++i) {
    Result& r = results[i];
    r.value = program.outputs[i];
    r.view = at(r.value);
    const int owner = r.view.memory;
    const bool made = program.values[static_cast<std::size_t>(owner)].origin == Origin::kStep;
    bool free = made && r.view.type == at(owner).type && r.view.count() == at(owner).count() && r.view.dense();
    for (std::size_t j = 0; j < i && free; ++j) free = !(results[j].own && results[j].view.memory == owner);
    r.own = free;
    if (!free) r.view.lay_out();
  }
}

// Memory of values that are alive at once lies apart; what is no longer read is used again.
void Call::place() {
  free_.clear();
  alive_.clear();
  top_ = most_ = 0;
  for (const int value : taken_) {
    Memory& m = memory_[static_cast<std::size_t>(value)];
    for (std::size_t i = 0; i < alive_.size();) {
      const auto one = static_cast<std::size_t>(alive_[i]);
      if (program.values[one].last_use >= m.since) {
        ++i;
        continue;
      }
      release(memory_[one].offset, round_up(memory_[one].bytes, kAlign));
      alive_[i] = alive_.back();
      alive_.pop_back();
    }
    m.data = nullptr;
    bool own = false;
    for (const Result& r : results) own = own || (r.own && r.view.memory == value);
    if (own || m.bytes == 0) continue;
    m.offset = fit(round_up(m.bytes, kAlign));
    alive_.push_back(value);
  }
}

void Call::run() {
  std::uint8_t* scratch_memory = scratch<ProgramScratch>(most_);
  for (const Result& r : results)
    if (r.own) memory_[static_cast<std::size_t>(r.view.memory)].data = r.view.data;
  for (View& v : values) {
    if (v.memory < 0) continue;
    const Memory& m = memory_[static_cast<std::size_t>(v.memory)];
    v.data = (m.data || m.since < 0 ? m.data : scratch_memory + m.offset) + v.offset;
  }
  auto all = [this] { run_steps(); };
  // Steps that are short by themselves pay for threads that are awake.
  if (threads > 1 && work > kTeamWork) with_team(threads, all);
  else all();
}

void Call::run_steps() {
  step_ = 0;
  try {
    for (; step_ < program.steps.size(); ++step_)
      if (program.steps[step_]->computes()) program.steps[step_]->run(*this);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(where() + error.what());
  }
  for (const Result& r : results)
    if (!r.own) copy(at(r.value), r.view, threads);
}

std::size_t Call::fit(std::size_t bytes) {
  for (std::size_t i = 0; i < free_.size(); ++i) {
    Free& gap = free_[i];
    if (gap.bytes < bytes) continue;
    const std::size_t found = gap.offset;
    gap.offset += bytes;
    gap.bytes -= bytes;
    if (gap.bytes == 0) free_.erase(free_.begin() + static_cast<std::ptrdiff_t>(i));
    return found;
  }
  const std::size_t found = top_;
  top_ += bytes;
  most_ = std::max(most_, top_);
  return found;
}

// Gaps are in order, and neighbours are one; one at the top is none.
void Call::release(std::size_t offset, std::size_t bytes) {
  auto next = std::find_if(free_.begin(), free_.end(), [&](const Free& f) { return f.offset > offset; });
  next = free_.insert(next, {offset, bytes});
  if (next + 1 != free_.end() && next->offset + next->bytes == (next + 1)->offset) {
    next->bytes += (next + 1)->bytes;
    free_.erase(next + 1);
  }
  if (next != free_.begin() && (next - 1)->offset + (next - 1)->bytes == next->offset) {
    (next - 1)->bytes += next->bytes;
    next = free_.erase(next) - 1;
  }
  if (next->offset + next->bytes == top_) {
    top_ = next->offset;
    free_.erase(next);
  }
}

}  // namespace octavo
