/* What newer headers and a newer static C++ library take for granted and glibc 2.28 does not have, as hidden functions of
   the library that is linked: old_glibc.py. */
#include <stddef.h>

#pragma GCC visibility push(hidden)

#ifdef __x86_64__
enum { kStatVersion = 1 };
#else
enum { kStatVersion = 0 };
#endif

struct stat;
struct stat64;
#pragma GCC visibility push(default)
int __fxstat(int version, int file, struct stat* out);
int __fxstat64(int version, int file, struct stat64* out);
int __xstat(int version, const char* path, struct stat* out);
int __xstat64(int version, const char* path, struct stat64* out);
#pragma GCC visibility pop

/* 2.33: until then the headers had them. */
int fstat(int file, struct stat* out) { return __fxstat(kStatVersion, file, out); }
int fstat64(int file, struct stat64* out) { return __fxstat64(kStatVersion, file, out); }
int stat(const char* path, struct stat* out) { return __xstat(kStatVersion, path, out); }
int stat64(const char* path, struct stat64* out) { return __xstat64(kStatVersion, path, out); }

/* 2.32: whether shared_ptr may count without atomic operations. */
char __libc_single_threaded = 0;
