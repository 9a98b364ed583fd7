// Steps whose results have an element for each of their inputs', which broadcast.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "layers/elementwise.h"
#include "layers/program.h"

namespace octavo {

// A function of up to three values of broadcasting sizes. What it computes is given as `compute`(call, inputs, out).
class ElementStep final : public Step {
 public:
  using Compute = std::function<void(const View* const* inputs, const View& out, int threads)>;
  ElementStep(const char* name, std::vector<int> inputs, int made, Compute compute, double nanoseconds);
  const char* name() const override { return name_; }
  void resolve(Call& call) const override;
  void run(Call& call) const override;

 private:
  const char* name_;
  int made_;
  Compute compute_;
  double nanoseconds_;  // an element
};

// The steps of a function. Types are for the caller to check.
std::unique_ptr<Step> unary_step(Unary op, int x, int made);
std::unique_ptr<Step> slow_step(Slow op, int x, int made);
std::unique_ptr<Step> power_step(int x, float exponent, int made);
std::unique_ptr<Step> not_step(int x, int made);
std::unique_ptr<Step> convert_step(int x, int made);
std::unique_ptr<Step> binary_step(Binary op, int a, int b, int made);
std::unique_ptr<Step> compare_step(Compare op, int a, int b, int made);
std::unique_ptr<Step> logic_step(Logic op, int a, int b, int made);
std::unique_ptr<Step> integer_step(Integer op, int a, int b, int made);
std::unique_ptr<Step> where_step(int condition, int a, int b, int made);

}  // namespace octavo
