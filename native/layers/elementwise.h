// Functions of elements over views of any strides: of one, of two that broadcast, of rows.
#pragma once

#include "contract/kernels.h"
#include "layers/program_values.h"

namespace octavo {

// All write `out`, which lies as its strides say; inputs broadcast to it. `out` may be an input of its sizes and strides.
void unary(Unary op, const View& x, const View& out, int threads);
void binary(Binary op, const View& a, const View& b, const View& out, int threads);

// Functions that no instruction set has for itself: the C library's in float64, rounded to float32.
enum class Slow : int { kSin, kCos, kLog, kSoftplus };
void slow(Slow op, const View& x, const View& out, int threads);
void power(const View& x, float exponent, const View& out, int threads);

// To bool, of float32, int64 or bool.
enum class Compare : int { kGt, kGe, kLt, kLe, kEq, kNe };
void compare(Compare op, const View& a, const View& b, const View& out, int threads);

enum class Logic : int { kAnd, kOr };
void logic(Logic op, const View& a, const View& b, const View& out, int threads);
void logical_not(const View& x, const View& out, int threads);

// Integers wrap around; quotients are rounded down, of 0 they are 0.
enum class Integer : int { kAdd, kSub, kMul, kDiv, kMin, kMax };
void integers(Integer op, const View& a, const View& b, const View& out, int threads);

// Where `condition` is true `a`, else `b`; both of out's type.
void where(const View& condition, const View& a, const View& b, const View& out, int threads);

// From one type to another; to bool: whether it is not 0.
void convert(const View& x, const View& out, int threads);

}  // namespace octavo
