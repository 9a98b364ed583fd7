// The one function that ONNX Runtime looks for in the library.

#include <cstring>
#include <mutex>
#include <tuple>
#include <vector>

#include "ort_ops/attention_op.h"
#include "ort_ops/cached_attention_op.h"
#include "ort_ops/conv_op.h"
#include "ort_ops/embedding_op.h"
#include "ort_ops/linear_op.h"
#include "ort_ops/matmul_op.h"
#include "ort_ops/norm_op.h"
#include "ort_ops/operator.h"
#include "ort_ops/rnn_op.h"
#include "ort_ops/rotary_op.h"

#if defined(_WIN32)
#define OCTAVO_EXPORT extern "C" __declspec(dllexport)
#else
#define OCTAVO_EXPORT extern "C" __attribute__((visibility("default")))
#endif

namespace octavo::ort {
namespace {

// The operators of one SessionOptions, whose sessions share a number of threads.
template <class... K>
struct Registration {
  Api api;
  Threads threads;
  std::tuple<Operator<K>...> operators;

  explicit Registration(const Api& a) : api(a), operators(Operator<K>(a, &threads)...) {}

  void add_to(SessionOptions* options) {
    OpDomain* domain = nullptr;
    api(api::CreateCustomOpDomain{}, "ai.octavo", &domain);
    std::apply([&](const auto&... op) { (api(api::CustomOpDomainAdd{}, domain, static_cast<const CustomOp*>(&op)), ...); },
               operators);
    api(api::AddCustomOpDomain{}, options, domain);
  }
};

using All = Registration<AttentionOp, CachedAttentionOp, ConvOp, EmbeddingOp, GatedLinearOp, GroupedLinearOp, GruOp, LinearOp, LstmOp, MatMulOp, NormOp, RnnOp, RotaryOp>;

// An entry of options that have the operators: it is copied, and goes, with them.
constexpr const char* kRegistered = "octavo.registered";

// Kept until the process ends: ONNX Runtime does not say when a session has let go of its operators.
All& keep(std::unique_ptr<All> made) {
  static std::mutex lock;
  static auto* kept = new std::vector<std::unique_ptr<All>>;
  const std::lock_guard<std::mutex> guard(lock);
  kept->push_back(std::move(made));
  return *kept->back();
}

}  // namespace
}  // namespace octavo::ort

OCTAVO_EXPORT octavo::ort::Status* RegisterCustomOps(octavo::ort::SessionOptions* options,
                                                     const octavo::ort::ApiBase* base) {
  using namespace octavo::ort;
  const void* table = base->get_api(kApiVersion);
  if (!table) {
    const std::string message = std::string("octavo's operators need ONNX Runtime 1.17 or newer; this is ") +
                                base->version_string() + ". Install a newer one, or convert the model: octavo "
                                "convert-target --to portable";
    return Api(base->get_api(1)).status(ErrorCode::kFail, message.c_str());
  }
  // Asked for a newer table, 1.17 would write to stderr.
  const bool lends_memory = std::strncmp(base->version_string(), "1.17.", 5) != 0;
  const Api api(table, lends_memory);
  return guarded(api, [&] {
    int known = 0;
    api(api::HasSessionConfigEntry{}, options, kRegistered, &known);
    if (known) return;  // ONNX Runtime would take a domain twice and then open no session
    keep(std::make_unique<All>(api)).add_to(options);
    api(api::AddSessionConfigEntry{}, options, kRegistered, "1");
  });
}
