// Large pages for memory that is about to be written for the first time.
#pragma once

#include <cstddef>

namespace octavo {

constexpr std::size_t kLargeMemory = 4 << 20;  // bytes from which on they pay

// Asks the system for them where it can; changes no content.
void in_large_pages(void* memory, std::size_t bytes);

}  // namespace octavo
