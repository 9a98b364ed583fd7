// Runs models in ONNX Runtime's library for Windows with Octavo's operators.
//
//     host.exe onnxruntime.dll octavo_ort.dll cases results
//
// Both files are sequences of 64-bit integers and of bytes behind their number (tests/windows/cases.py writes
// the one and reads the other). A case is a model, its threads and its inputs; a result its outputs, or what
// ONNX Runtime said instead.
#include <windows.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "ort_ops/ort_api.h"

namespace {

using namespace octavo::ort;
struct Env;
struct Session;

namespace api {
using namespace octavo::ort::api;
using CreateEnv = Function<3, int, const char*, Env**>;
using CreateSession = Function<8, const Env*, const void*, std::size_t, const SessionOptions*, Session**>;
using Run = Function<9, Session*, const void*, const char* const*, const Value* const*, std::size_t, const char* const*, std::size_t,
                     Value**>;
using CreateSessionOptions = Function<10, SessionOptions**>;
using SetThreads = Function<24, SessionOptions*, int>;
using RegisterLibrary = Function<29, SessionOptions*, const char*, void**>;
using OutputCount = Function<31, const Session*, std::size_t*>;
using OutputName = Function<37, const Session*, std::size_t, Allocator*, char**>;
using CreateTensor = Function<49, const MemoryInfo*, void*, std::size_t, const std::int64_t*, std::size_t, int, Value**>;
using CreateCpuMemory = Function<69, int, int, MemoryInfo**>;
using ReleaseEnv = Function<92, Env*>;
using ReleaseSession = Function<95, Session*>;
using ReleaseValue = Function<96, Value*>;
using ReleaseSessionOptions = Function<100, SessionOptions*>;
}  // namespace api

constexpr int kQuiet = 4;  // severity: only what ends the process is logged

class Reader {
 public:
  explicit Reader(const char* path) : file_(path, std::ios::binary) {}
  std::int64_t integer() {
    std::int64_t value = 0;
    read(&value, sizeof value);
    return value;
  }
  std::string bytes() {
    std::string all(static_cast<std::size_t>(integer()), '\0');
    read(all.data(), all.size());
    return all;
  }
  std::vector<std::int64_t> integers() {
    std::vector<std::int64_t> all(static_cast<std::size_t>(integer()));
    for (auto& i : all) i = integer();
    return all;
  }

 private:
  void read(void* to, std::size_t bytes) {
    if (!file_.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes))) throw std::runtime_error("the cases end too soon");
  }
  std::ifstream file_;
};

// Results whole or not at all: a case that ends the process leaves those before it.
class Writer {
 public:
  explicit Writer(const char* path) : file_(path, std::ios::binary) {}
  void integer(std::int64_t value) { result_.append(reinterpret_cast<const char*>(&value), sizeof value); }
  void bytes(const void* data, std::size_t bytes) {
    integer(static_cast<std::int64_t>(bytes));
    result_.append(static_cast<const char*>(data), bytes);
  }
  void drop() { result_.clear(); }
  void finish() {
    if (!file_.write(result_.data(), static_cast<std::streamsize>(result_.size())).flush()) throw std::runtime_error("no room for results");
    drop();
  }

 private:
  std::string result_;
  std::ofstream file_;
};

struct Tensor {
  std::string name, data;
  std::int64_t type;
  std::vector<std::int64_t> shape;
};

struct Case {
  std::string model;
  int threads;
  std::vector<Tensor> inputs;
};

Case read_case(Reader& reader) {
  Case c{reader.bytes(), static_cast<int>(reader.integer()), {}};
  c.inputs.resize(static_cast<std::size_t>(reader.integer()));
  for (Tensor& t : c.inputs) {
    t.name = reader.bytes();
    t.type = reader.integer();
    t.shape = reader.integers();
    t.data = reader.bytes();
  }
  return c;
}

struct Runtime {
  Api api;
  const char* library;
  Env* env = nullptr;
  MemoryInfo* memory = nullptr;
  Allocator* allocator = nullptr;

  Runtime(const void* table, const char* operators) : api(table), library(operators) {
    api(api::CreateEnv{}, kQuiet, "octavo", &env);
    api(api::CreateCpuMemory{}, 1, 0, &memory);
    api(api::DefaultAllocator{}, &allocator);
  }
  ~Runtime() { api.release(api::ReleaseEnv{}, env); }
};

Session* open(const Runtime& rt, const Case& c) {
  SessionOptions* options = nullptr;
  Session* session = nullptr;
  void* handle = nullptr;
  rt.api(api::CreateSessionOptions{}, &options);
  rt.api(api::SetThreads{}, options, c.threads);
  rt.api(api::RegisterLibrary{}, options, rt.library, &handle);
  try {
    rt.api(api::CreateSession{}, rt.env, c.model.data(), c.model.size(), options, &session);
  } catch (const Error&) {
    rt.api.release(api::ReleaseSessionOptions{}, options);
    throw;
  }
  rt.api.release(api::ReleaseSessionOptions{}, options);
  return session;
}

std::vector<std::string> output_names(const Runtime& rt, const Session* session) {
  std::size_t count = 0;
  rt.api(api::OutputCount{}, session, &count);
  std::vector<std::string> names;
  for (std::size_t i = 0; i < count; ++i) {
    char* name = nullptr;
    rt.api(api::OutputName{}, session, i, rt.allocator, &name);
    names.emplace_back(name);
    rt.allocator->free(rt.allocator, name);
  }
  return names;
}

void write_output(const Runtime& rt, Value* value, Writer& writer) {
  TypeAndShape* info = nullptr;
  void* data = nullptr;
  ElementType type;
  std::size_t rank = 0, elements = 1;
  rt.api(api::GetTypeAndShape{}, value, &info);
  rt.api(api::GetElementType{}, info, &type);
  rt.api(api::GetDimensionsCount{}, info, &rank);
  std::vector<std::int64_t> shape(rank);
  rt.api(api::GetDimensions{}, info, shape.data(), rank);
  rt.api.release(api::ReleaseTypeAndShape{}, info);
  rt.api(api::GetTensorMutableData{}, value, &data);
  writer.integer(static_cast<std::int64_t>(rank));
  for (std::int64_t size : shape) {
    writer.integer(size);
    elements *= static_cast<std::size_t>(size);
  }
  if (type != ElementType::kFloat) throw Error("an output that is not float32");
  writer.bytes(data, elements * sizeof(float));
}

void run(const Runtime& rt, Session* session, Case& c, Writer& writer) {
  const std::vector<std::string> wanted = output_names(rt, session);
  std::vector<const char*> inputs, outputs;
  std::vector<const Value*> values;
  for (Tensor& t : c.inputs) {
    Value* value = nullptr;
    rt.api(api::CreateTensor{}, rt.memory, t.data.data(), t.data.size(), t.shape.data(), t.shape.size(), static_cast<int>(t.type), &value);
    inputs.push_back(t.name.c_str());
    values.push_back(value);
  }
  for (const std::string& name : wanted) outputs.push_back(name.c_str());
  std::vector<Value*> made(wanted.size(), nullptr);
  rt.api(api::Run{}, session, nullptr, inputs.data(), values.data(), values.size(), outputs.data(), outputs.size(), made.data());
  writer.integer(static_cast<std::int64_t>(made.size()));
  for (Value* value : made) {
    write_output(rt, value, writer);
    rt.api.release(api::ReleaseValue{}, value);
  }
  for (const Value* value : values) rt.api.release(api::ReleaseValue{}, const_cast<Value*>(value));
}

void run_all(const Runtime& rt, Reader& reader, Writer& writer) {
  for (std::int64_t left = reader.integer(); left > 0; --left) {
    Case c = read_case(reader);
    try {
      Session* session = open(rt, c);
      run(rt, session, c, writer);
      rt.api.release(api::ReleaseSession{}, session);
    } catch (const Error& error) {
      writer.drop();
      writer.integer(-1);
      writer.bytes(error.what(), std::string(error.what()).size());
    }
    writer.finish();
  }
}

const void* table_of(const char* path) {
  const HMODULE module = LoadLibraryA(path);
  if (!module) throw std::runtime_error("no library " + std::string(path) + ": error " + std::to_string(GetLastError()));
  const auto found = reinterpret_cast<void*>(GetProcAddress(module, "OrtGetApiBase"));
  const auto* base = reinterpret_cast<const ApiBase* (*)()>(found)();
  std::printf("ONNX Runtime %s\n", base->version_string());
  return base->get_api(kApiVersion);
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 5) return 2;
  try {
    const Runtime rt(table_of(arguments[1]), arguments[2]);
    Reader reader(arguments[3]);
    Writer writer(arguments[4]);
    run_all(rt, reader, writer);
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
  return 0;
}
