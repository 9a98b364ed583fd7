// What the files of several instruction sets include may not become a function of its own there: of
// equal functions in several files the linker keeps one, perhaps that of AVX-512, for all of them.
// So a function of this folder is OCTAVO_INLINE, or lies in an unnamed namespace.
// docs/notes/processors.md: "No table leaves a function to the others"
#pragma once

#define OCTAVO_INLINE inline __attribute__((always_inline))
