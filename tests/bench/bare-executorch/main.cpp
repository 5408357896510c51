// ExecuTorch and nothing else: loads a program's `forward`, runs it on ones for so many seconds, prints
// the nanoseconds of each run as JSON. Arguments: program, threads, seconds.
#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

// The package's libraries have this, its headers do not.
namespace executorch::extension::threadpool {
class ThreadPool {
 public:
  bool _unsafe_reset_threadpool(uint32_t count);
};
ThreadPool* get_threadpool();
}  // namespace executorch::extension::threadpool

using executorch::aten::ScalarType;
using executorch::runtime::Error;
using executorch::runtime::EValue;
using Clock = std::chrono::steady_clock;

// Ones, of the types that inputs have here.
static std::vector<uint8_t> ones(ScalarType type, size_t bytes) {
  std::vector<uint8_t> data(bytes);
  const auto fill = [&](auto one) {
    for (size_t at = 0; at + sizeof(one) <= bytes; at += sizeof(one)) {
      std::memcpy(data.data() + at, &one, sizeof(one));
    }
  };
  switch (type) {
    case ScalarType::Float: fill(1.0f); break;
    case ScalarType::Long: fill(int64_t{1}); break;
    case ScalarType::Int: fill(int32_t{1}); break;
    default: break;
  }
  return data;
}

int main(int count, char** arguments) {
  if (count != 4) return 64;
  const auto threads = static_cast<uint32_t>(std::atoi(arguments[2]));
  const double seconds = std::atof(arguments[3]);
  executorch::extension::threadpool::get_threadpool()->_unsafe_reset_threadpool(threads);
  executorch::extension::Module module(arguments[1], executorch::extension::Module::LoadMode::Mmap);
  if (module.load_method("forward") != Error::Ok) return 1;
  const auto meta = module.method_meta("forward");
  std::vector<std::vector<uint8_t>> data;
  std::vector<executorch::extension::TensorPtr> tensors;
  std::vector<EValue> inputs;
  for (size_t at = 0; at < meta->num_inputs(); ++at) {
    const auto info = meta->input_tensor_meta(at);
    data.push_back(ones(info->scalar_type(), info->nbytes()));
    const std::vector<int> sizes(info->sizes().begin(), info->sizes().end());
    tensors.push_back(executorch::extension::make_tensor_ptr(sizes, data.back().data(), info->scalar_type()));
    inputs.push_back(tensors.back());
  }
  std::vector<long long> times;
  for (int warm = 0; warm < 5; ++warm) (void)module.forward(inputs);
  const auto begin = Clock::now();
  do {
    const auto start = Clock::now();
    if (!module.forward(inputs).ok()) return 2;
    times.push_back(std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count());
  } while (std::chrono::duration<double>(Clock::now() - begin).count() < seconds || times.size() < 3);
  std::printf("{\"times_ns\": [");
  for (size_t at = 0; at < times.size(); ++at) std::printf("%s%lld", at ? ", " : "", times[at]);
  std::printf("]}\n");
}
