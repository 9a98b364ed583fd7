// Indices that are constants for the compiler's front end: GCC keeps an array in registers only where it is
// indexed by nothing else, and only where all that does so is inlined.
// docs/notes/processors.md: "Sums stay in registers by construction"
#pragma once

#include <utility>

#include "contract/inlined.h"

namespace octavo {
namespace {

template <int... i>
using Indices = std::integer_sequence<int, i...>;
template <int n>
using Sequence = std::make_integer_sequence<int, n>;

}  // namespace
}  // namespace octavo
