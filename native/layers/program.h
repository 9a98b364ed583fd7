// A chain of tensor steps, as a transformer block is one, run as a whole: values with sizes and strides that each
// call brings along, one scratch memory that values share by when they live, kernels over the table in use.
//
//     Program p; p.add<...>(step); p.finish(...)      once: what follows what, who reads a value last
//     Call call(p, ...); call.resolve(); call.run()   each time: sizes, then memory, then kernels
//
// Values and sizes have numbers, in the order in which they are made. octavo.core.program is the typed front.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "layers/program_values.h"

namespace octavo {

class Call;

// A step of a program. It has no state: what a call brings along is in the call.
class Step {
 public:
  virtual ~Step() = default;
  virtual const char* name() const = 0;
  // Sizes of the results, and the memory that they ask for. Throws std::invalid_argument.
  virtual void resolve(Call& call) const = 0;
  // Whether run() does anything.
  virtual bool computes() const { return true; }
  virtual void run(Call&) const {}

  std::vector<int> reads, makes;  // values; `makes` includes what is used meanwhile only
  int shares = -1;                // a view's source: the results live in the memory of that value, or may
};

enum class Origin : int { kInput, kConstant, kStep };

class Program {
 public:
  // A value that each call is given, in order; its axes are checked.
  int input(ValueType type, std::size_t axes);
  // An integer that each call is given, in order: a size.
  int input_integer();
  // Contiguous memory that outlives the program.
  int constant(ValueType type, const void* data, const std::vector<std::size_t>& sizes);
  // The program's own memory: one float32 of no axes.
  int scalar(float value);
  // A value that the step added next makes. Its number.
  int value(ValueType type);
  // A size that the step added next makes.
  int size();
  int literal(std::int64_t size);
  void add(std::unique_ptr<Step> step);
  void output(int value);
  // No step is added from here on.
  void finish(std::string name);

  struct Known {
    ValueType type;
    Origin origin;
    std::size_t axes;        // of inputs
    View view;               // of constants
    const void* data;
    int last_use;            // the step after which nobody reads it; steps: outputs are read behind the last
  };
  struct Integer {
    std::int64_t literal;
    bool given;
  };
  std::string name = "program";
  std::vector<Known> values;
  std::vector<Integer> integers;
  std::vector<int> inputs, given_integers, outputs;
  std::vector<std::unique_ptr<Step>> steps;

 private:
  std::vector<std::unique_ptr<float>> scalars_;
};

// A call of a program. It may be used again, by one thread at a time.
class Call {
 public:
  explicit Call(const Program& program);

  const Program& program;
  int threads = 1;
  std::vector<View> values;             // by number; the caller fills in inputs
  std::vector<std::int64_t> integers;   // by number; the caller fills in what is given

  // Sizes of all values, and where their memory lies. Throws std::invalid_argument, which names program and step.
  void resolve();

  // An output lies in memory that the caller makes for it. Where it is no step's whole result (an input, a part, what
  // another output is too), it is copied there when all is done.
  struct Result {
    int value;
    bool own;                            // it is the step's result itself
    View view;                           // sizes and strides of the memory; its data is set by the caller
  };
  std::vector<Result> results;           // one for each output
  double work = 0.0;                     // about how many nanoseconds the steps take
  // Computes. Throws std::bad_alloc, and std::invalid_argument for an index that there is not; what was copied into given
  // memory until then stays there.
  void run();

  // For steps.
  View& at(int value) { return values[static_cast<std::size_t>(value)]; }
  std::int64_t integer(int number) const { return integers[static_cast<std::size_t>(number)]; }
  std::size_t size(int number, const char* what) const;  // an integer that is no size is refused
  // Memory for a result whose sizes and strides are set.
  void take(int value);
  View& make(int value, const std::size_t* sizes, std::size_t axes);  // contiguous
  // A view of what `source` is; sizes, strides and offset may be changed behind it.
  View& share(int value, int source);
  // What `value` is: where memory was made at `staged`, a copy there.
  const View& staged(int value, int staged);
  void expect_type(int value, ValueType type, const char* what);
  [[noreturn]] void fail(int value, const std::string& what);
  [[noreturn]] void fail(const std::string& what);

 private:
  struct Memory {
    std::size_t bytes = 0, offset = 0;
    std::uint8_t* data = nullptr;        // given from outside
    int since = -1;                      // the step that makes it; -1: given
  };
  struct Free {
    std::size_t offset, bytes;
  };
  std::string where() const;             // program and step, for errors
  void run_steps();
  void place();                          // offsets in the scratch memory
  void choose_results();
  std::size_t fit(std::size_t bytes);
  void release(std::size_t offset, std::size_t bytes);

  std::vector<Memory> memory_;           // by value
  std::vector<int> taken_;               // values with memory of the scratch or of a result, by step
  std::vector<int> alive_;
  std::vector<Free> free_;
  std::size_t step_ = 0, top_ = 0, most_ = 0;  // of the scratch memory: where it ends now, and did at most
};

}  // namespace octavo
