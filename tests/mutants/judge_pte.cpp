// Loads programs with ExecuTorch and runs each method with zeros and with ones, each program in a process of its own.
//
// Reads lines of the paths of a program and, after a tab, of a data file, and answers each with a line: `ok`, `load`
// or `run` for the step that failed, or `died`, then a tab and what the runtime said last. It goes by the engine's own
// interface to the runtime.

#include "../../crates/engine/src/executorch/shim.cpp"

#include <sys/resource.h>
#include <sys/wait.h>

#include <iostream>

namespace {

// Ones of an element type, as bytes; zeros of types that are not here.
std::vector<uint8_t> filled(const PkgtoolEtValue& value, bool with_ones) {
  std::vector<uint8_t> bytes(value.bytes + 1);
  auto fill = [&](auto one) {
    for (size_t at = 0; with_ones && at + sizeof one <= value.bytes; at += sizeof one) {
      std::memcpy(bytes.data() + at, &one, sizeof one);
    }
  };
  switch (static_cast<ScalarType>(value.dtype)) {
    case ScalarType::Float:
      fill(1.0f);
      break;
    case ScalarType::Double:
      fill(1.0);
      break;
    case ScalarType::Bool:
      fill(uint8_t{1});
      break;
    default:
      break;
  }
  return bytes;
}

// Sets inputs, runs, and looks at outputs; false if something of it fails.
bool runs(PkgtoolEtMethod* method, bool with_ones) {
  PkgtoolEtValue value;
  // Numbers stay as they are; tensors need memory.
  std::vector<EValue> there(method->inputs.size());
  auto found = guarded([&] { return method->method->get_inputs(there.data(), there.size()); });
  if (found != 0) {
    return false;
  }
  for (size_t index = 0; pkgtool_et_slot(method, false, index, &value); ++index) {
    auto bytes = filled(value, with_ones);
    value.data = bytes.data();
    bool is_tensor = value.kind == TENSOR;
    if (value.kind == OTHER || (is_tensor && pkgtool_et_set(method, index, &value) != 0)) {
      return false;
    }
  }
  if (pkgtool_et_run(method) != 0) {
    return false;
  }
  for (size_t index = 0; pkgtool_et_slot(method, true, index, &value); ++index) {
    if (pkgtool_et_get(method, index, &value) != 0) {
      return false;
    }
  }
  return true;
}

// The step of a method that fails; null if none does.
const char* failing_step(const char* path, const std::string& data, const char* name) {
  uint32_t code = 0;
  auto* method = pkgtool_et_open(path, 0, 0, &code);
  if (code != 0 || (!data.empty() && pkgtool_et_add_data(method, data.c_str(), false) != 0) ||
      pkgtool_et_load(method, name) != 0) {
    return "load";
  }
  return runs(method, false) && runs(method, true) ? nullptr : "run";
}

void judge(const std::string& path, const std::string& data) {
  pkgtool_et_start();
  uint32_t code = 0;
  auto* opened = pkgtool_et_open(path.c_str(), 0, 0, &code);
  const char* step = code == 0 ? nullptr : "load";
  for (size_t index = 0; step == nullptr && index < opened->program->num_methods(); ++index) {
    auto name = opened->program->get_method_name(index);
    step = name.ok() ? failing_step(path.c_str(), data, *name) : "load";
  }
  std::string said = pkgtool_et_text();
  std::replace(said.begin(), said.end(), '\n', ' ');
  std::cout << (step == nullptr ? "ok" : step) << '\t' << (step == nullptr ? "" : said) << std::endl;
}

} // namespace

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    auto tab = line.find('\t');
    std::string data = tab == std::string::npos ? "" : line.substr(tab + 1);
    pid_t child = fork();
    if (child == 0) {
      rlimit memory{8ul << 30, 8ul << 30};
      setrlimit(RLIMIT_AS, &memory);
      rlimit core{0, 0};
      setrlimit(RLIMIT_CORE, &core);
      alarm(20);
      judge(line.substr(0, tab), data);
      _exit(0);
    }
    int status = 0;
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) {
      std::cout << "died\tby signal " << WTERMSIG(status) << std::endl;
    }
  }
}
