// One operator as ONNX Runtime wants it described. An operator is a class K with
//
//     static constexpr const char* kName;
//     static constexpr Input kInputs[];               // constants too; optional or many ones come last
//     static constexpr bool kManyOutputs, kOptionalOutputs;  // and kOutputs, their number
//     explicit K(const Node&);                        // throws Error
//     void run(Call&) const;                          // any number of threads at once; throws Error
//     static void infer(const Inference&);
//
// and `Operator<K>` the table of functions for it.
#pragma once

#include <cstddef>
#include <iterator>
#include <memory>
#include <new>

#include "ort_ops/kernel.h"

namespace octavo::ort {

enum Kind : int { kRequired = 0, kOptional = 1, kVariadic = 2 };

struct Input {
  ElementType type;  // kUndefined: any
  Kind kind = kRequired;
};

// ONNX Runtime reads the members that the version stands for: up to end_version.
struct CustomOp {
  std::uint32_t version = kApiVersion;
  void* (*create)(const CustomOp*, const void*, const KernelInfo*) = nullptr;
  const char* (*name)(const CustomOp*) = nullptr;
  const char* (*provider)(const CustomOp*) = nullptr;
  ElementType (*input_type)(const CustomOp*, std::size_t) = nullptr;
  std::size_t (*input_count)(const CustomOp*) = nullptr;
  ElementType (*output_type)(const CustomOp*, std::size_t) = nullptr;
  std::size_t (*output_count)(const CustomOp*) = nullptr;
  void (*compute)(void*, KernelContext*) = nullptr;
  void (*destroy)(void*) = nullptr;
  int (*input_kind)(const CustomOp*, std::size_t) = nullptr;
  int (*output_kind)(const CustomOp*, std::size_t) = nullptr;
  int (*input_memory)(const CustomOp*, std::size_t) = nullptr;
  int (*least_variadic_inputs)(const CustomOp*) = nullptr;
  int (*homogeneous_inputs)(const CustomOp*) = nullptr;
  int (*least_variadic_outputs)(const CustomOp*) = nullptr;
  int (*homogeneous_outputs)(const CustomOp*) = nullptr;
  Status* (*create_v2)(const CustomOp*, const void*, const KernelInfo*, void**) = nullptr;
  Status* (*compute_v2)(void*, KernelContext*) = nullptr;
  Status* (*infer)(const CustomOp*, ShapeContext*) = nullptr;
  int (*start_version)(const CustomOp*) = nullptr;
  int (*end_version)(const CustomOp*) = nullptr;
  void* later[4] = {};  // of API 18: none of ours writes over its inputs
};
static_assert(offsetof(CustomOp, infer) == 152 && sizeof(CustomOp) == 208, "ONNX Runtime's layout");

// Status of an exception in flight; null for none.
template <class F>
Status* guarded(const Api& api, F f) noexcept {
  try {
    f();
    return nullptr;
  } catch (const std::bad_alloc&) {
    return api.status(ErrorCode::kFail, "octavo: there is not enough memory");
  } catch (const std::exception& error) {
    return api.status(ErrorCode::kInvalidArgument, error.what());
  }
}

// f(), whose errors say which node it was.
template <class F>
void labelled(const std::string& label, F f) {
  try {
    f();
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    throw Error(label + ": " + error.what());
  }
}

template <class K>
struct Operator : CustomOp {
  Api api;
  Threads* threads;

  // A kernel with what its calls need of the session.
  struct Made {
    Api api;
    Threads& threads;
    std::string label;
    Allocator* allocator;
    K kernel;

    Made(const Node& node) : api(node.api), threads(node.threads), label(node.label), allocator(nullptr), kernel(node) {
      allocator = node.allocator();
    }
    ~Made() {
      if (api.lends_memory) api.release(api::ReleaseAllocator{}, allocator);
    }
  };

  Operator(const Api& api_, Threads* threads_) : api(api_), threads(threads_) {
    name = [](const CustomOp*) { return K::kName; };
    provider = [](const CustomOp*) -> const char* { return "CPUExecutionProvider"; };
    input_type = [](const CustomOp*, std::size_t i) { return K::kInputs[i].type; };
    input_count = [](const CustomOp*) { return std::size(K::kInputs); };
    output_type = [](const CustomOp*, std::size_t) { return ElementType::kFloat; };
    output_count = [](const CustomOp*) -> std::size_t { return K::kOutputs; };
    input_kind = [](const CustomOp*, std::size_t i) -> int { return K::kInputs[i].kind; };
    output_kind = [](const CustomOp*, std::size_t) -> int {
      return K::kManyOutputs ? kVariadic : K::kOptionalOutputs ? kOptional : kRequired;
    };
    input_memory = [](const CustomOp*, std::size_t) { return 0; };
    least_variadic_inputs = [](const CustomOp*) { return 1; };
    least_variadic_outputs = homogeneous_outputs = least_variadic_inputs;
    homogeneous_inputs = [](const CustomOp*) { return 0; };
    start_version = [](const CustomOp*) { return 1; };
    end_version = [](const CustomOp*) { return INT32_MAX; };
    destroy = [](void* made) { delete static_cast<Made*>(made); };
    create_v2 = [](const CustomOp* op, const void*, const KernelInfo* info, void** made) {
      const auto* self = static_cast<const Operator*>(op);
      return guarded(self->api, [&] {
        const Node node(self->api, info, K::kName, *self->threads);
        labelled(node.label, [&] { *made = new Made(node); });
      });
    };
    compute_v2 = [](void* made, KernelContext* context) {
      const auto* m = static_cast<const Made*>(made);
      return guarded(m->api, [&] {
        Call call(m->api, context, m->allocator, m->threads);
        const Hosted hosted(call);
        labelled(m->label, [&] { m->kernel.run(call); });
      });
    };
    infer = [](const CustomOp* op, ShapeContext* context) {
      const auto* self = static_cast<const Operator*>(op);
      // ONNX Runtime drops what this returns, and would leak it.
      if (Status* status = guarded(self->api, [&] { K::infer(Inference(self->api, context)); }))
        self->api.release(api::ReleaseStatus{}, status);
      return static_cast<Status*>(nullptr);
    };
  }
};

}  // namespace octavo::ort
