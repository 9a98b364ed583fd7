// What this library needs of ONNX Runtime's C interface, declared by position: the interface is a table
// of function pointers whose order never changes, and a version asked for has at least its functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace octavo::ort {

// Types of ONNX Runtime that are only pointed to.
struct Status;
struct Value;
struct KernelInfo;
struct KernelContext;
struct ShapeContext;
struct TypeAndShape;
struct SessionOptions;
struct OpDomain;
struct MemoryInfo;
struct Attribute;

struct Allocator {
  std::uint32_t version;
  void* (*alloc)(Allocator*, std::size_t);
  void (*free)(Allocator*, void*);
  const MemoryInfo* (*info)(const Allocator*);
};

struct ApiBase {
  const void* (*get_api)(std::uint32_t version);
  const char* (*version_string)();
};

// The interface of ONNX Runtime 1.17: the first with shape inference for custom operators and with
// the thread pool of the session.
constexpr std::uint32_t kApiVersion = 17;

enum class ElementType : int { kUndefined = 0, kFloat = 1, kUint8 = 2, kInt8 = 3, kInt32 = 6, kInt64 = 7, kBool = 9 };
enum class ErrorCode : int { kFail = 1, kInvalidArgument = 2 };
enum class AttributeType : int { kInt = 1, kInts = 2, kFloat = 3, kString = 5 };

// A function of the table: where it stands, and its arguments. All return a Status but the releases.
template <std::size_t Index, class... Arguments>
struct Function {};

namespace api {
using GetErrorMessage = Function<2, const Status*>;
using CreateCustomOpDomain = Function<26, const char*, OpDomain**>;
using CustomOpDomainAdd = Function<27, OpDomain*, const void*>;
using AddCustomOpDomain = Function<28, SessionOptions*, OpDomain*>;
using GetTensorMutableData = Function<51, Value*, void**>;
using CreateTypeAndShape = Function<57, TypeAndShape**>;
using SetElementType = Function<58, TypeAndShape*, ElementType>;
using SetDimensions = Function<59, TypeAndShape*, const std::int64_t*, std::size_t>;
using GetElementType = Function<60, const TypeAndShape*, ElementType*>;
using GetDimensionsCount = Function<61, const TypeAndShape*, std::size_t*>;
using GetDimensions = Function<62, const TypeAndShape*, std::int64_t*, std::size_t>;
using GetSymbolicDimensions = Function<63, const TypeAndShape*, const char**, std::size_t>;
using GetTypeAndShape = Function<65, const Value*, TypeAndShape**>;
using DefaultAllocator = Function<78, Allocator**>;
using AttributeFloat = Function<85, const KernelInfo*, const char*, float*>;
using AttributeInt = Function<86, const KernelInfo*, const char*, std::int64_t*>;
using AttributeString = Function<87, const KernelInfo*, const char*, char*, std::size_t*>;
using GetInputCount = Function<88, const KernelContext*, std::size_t*>;
using GetOutputCount = Function<89, const KernelContext*, std::size_t*>;
using GetInput = Function<90, const KernelContext*, std::size_t, const Value**>;
using GetOutput = Function<91, KernelContext*, std::size_t, const std::int64_t*, std::size_t, Value**>;
using ReleaseStatus = Function<93, Status*>;
using ReleaseTypeAndShape = Function<99, TypeAndShape*>;
using AddSessionConfigEntry = Function<130, SessionOptions*, const char*, const char*>;
using ReleaseAllocator = Function<132, Allocator*>;
using AttributeInts = Function<163, const KernelInfo*, const char*, std::int64_t*, std::size_t*>;
using InfoInputCount = Function<230, const KernelInfo*, std::size_t*>;
using InfoOutputCount = Function<231, const KernelInfo*, std::size_t*>;
using HasSessionConfigEntry = Function<237, const SessionOptions*, const char*, int*>;
using InfoNodeName = Function<244, const KernelInfo*, char*, std::size_t*>;
using ConstantInput = Function<249, const KernelInfo*, std::size_t, int*, const Value**>;
using ShapeInputCount = Function<267, const ShapeContext*, std::size_t*>;
using ShapeInput = Function<268, const ShapeContext*, std::size_t, TypeAndShape**>;
using ShapeAttribute = Function<269, const ShapeContext*, const char*, const Attribute**>;
using ShapeOutput = Function<270, const ShapeContext*, std::size_t, const TypeAndShape*>;
using SetSymbolicDimensions = Function<271, TypeAndShape*, const char**, std::size_t>;
using ReadAttribute = Function<272, const Attribute*, AttributeType, void*, std::size_t, std::size_t*>;
using ParallelFor = Function<274, const KernelContext*, void (*)(void*, std::size_t), std::size_t, std::size_t, void*>;
using InfoAllocator = Function<278, const KernelInfo*, int, Allocator**>;  // of 1.18: see Api::lends_memory
}  // namespace api

// What goes wrong in a kernel; becomes a Status at the border.
struct Error : std::runtime_error {
  explicit Error(const std::string& what) : std::runtime_error(what) {}
};

template <class T>
struct As {
  using type = T;
};

class Api {
 public:
  explicit Api(const void* table = nullptr, bool lends = false)
      : lends_memory(lends), table_(static_cast<const void* const*>(table)) {}

  // Whether kernels can have their session's allocator, which ONNX Runtime 1.17 cannot give.
  bool lends_memory;

  // Calls a function that returns a Status; throws Error with its message where it fails.
  template <std::size_t Index, class... Arguments>
  void operator()(Function<Index, Arguments...> f, typename As<Arguments>::type... arguments) const {
    if (Status* status = tried(f, arguments...)) raise(status);
  }

  // The same without an exception: whether it succeeded.
  template <std::size_t Index, class... Arguments>
  bool works(Function<Index, Arguments...> f, typename As<Arguments>::type... arguments) const {
    Status* status = tried(f, arguments...);
    if (status) release(api::ReleaseStatus{}, status);
    return !status;
  }

  template <std::size_t Index, class T>
  void release(Function<Index, T*>, typename As<T>::type* object) const {
    if (object) reinterpret_cast<void (*)(T*)>(entry(Index))(object);
  }

  Status* status(ErrorCode code, const char* message) const {
    return reinterpret_cast<Status* (*)(ErrorCode, const char*)>(entry(0))(code, message);
  }

 private:
  void* entry(std::size_t index) const { return const_cast<void*>(table_[index]); }

  template <std::size_t Index, class... Arguments>
  Status* tried(Function<Index, Arguments...>, Arguments... arguments) const {
    return reinterpret_cast<Status* (*)(Arguments...)>(entry(Index))(arguments...);
  }

  [[noreturn]] void raise(Status* status) const {
    const char* said = reinterpret_cast<const char* (*)(const Status*)>(entry(2))(status);
    const std::string message = said ? said : "ONNX Runtime gives no reason";
    release(api::ReleaseStatus{}, status);
    throw Error(message);
  }

  const void* const* table_;
};

}  // namespace octavo::ort
