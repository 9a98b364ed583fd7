// Runs an 8-bit model of target native in a C++ program: token ids in, an embedding out.
//
//     octavo quantize "$(python samples.py embedder)" --to native -o model   # or a model of yours
//     cp "$(python -c 'import octavo.onnx as o; print(o.custom_ops_library())')" .
//     g++ -std=c++17 embed.cpp -I /usr/include/onnxruntime -lonnxruntime -o embed
//     ./embed model/onnx/model.onnx ./liboctavo_ort.so 101 7592 2088 102
//
// ONNX Runtime 1.17 or newer: `apt install libonnxruntime-dev` (Debian 13, Ubuntu 25.04), or the
// archive of https://github.com/microsoft/onnxruntime/releases, with -I and -L of its folders.
// It prints the mean of the tokens' hidden states, scaled to length 1.

#include <onnxruntime_cxx_api.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

int main(int argc, char** argv) try {
  if (argc < 4) {
    std::fprintf(stderr, "usage: %s model.onnx liboctavo_ort.so TOKEN..\n", argv[0]);
    return 2;
  }
  std::vector<int64_t> ids;
  for (int i = 3; i < argc; ++i) ids.push_back(std::atoll(argv[i]));
  std::vector<int64_t> ones(ids.size(), 1), zeros(ids.size(), 0);

  Ort::Env env(ORT_LOGGING_LEVEL_WARNING, "embed");
  Ort::SessionOptions options;
  options.RegisterCustomOpsLibrary(argv[2]);  // Octavo's operators
  Ort::Session session(env, argv[1], options);

  auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
  const int64_t shape[] = {1, static_cast<int64_t>(ids.size())};
  Ort::AllocatorWithDefaultOptions allocator;
  std::vector<std::string> names;
  std::vector<Ort::Value> inputs;
  for (size_t i = 0; i < session.GetInputCount(); ++i) {
    names.push_back(session.GetInputNameAllocated(i, allocator).get());
    auto& values = names.back() == "input_ids" ? ids : names.back() == "attention_mask" ? ones : zeros;
    inputs.push_back(
        Ort::Value::CreateTensor<int64_t>(memory, values.data(), values.size(), shape, 2));
  }
  std::vector<const char*> input_names;
  for (const auto& name : names) input_names.push_back(name.c_str());

  const char* output = "last_hidden_state";
  auto found = session.Run(
      Ort::RunOptions{}, input_names.data(), inputs.data(), inputs.size(), &output, 1);

  const size_t width = found[0].GetTensorTypeAndShapeInfo().GetShape()[2];
  const float* hidden = found[0].GetTensorData<float>();
  std::vector<double> sum(width, 0.0);
  for (size_t t = 0; t < ids.size(); ++t)
    for (size_t k = 0; k < width; ++k) sum[k] += hidden[t * width + k];
  double length = 0.0;
  for (double value : sum) length += value * value;
  for (double value : sum) std::printf("%.6f\n", value / std::sqrt(length));
  return 0;
} catch (const Ort::Exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
