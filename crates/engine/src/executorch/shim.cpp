// A C interface to ExecuTorch: one handle is one program file with one loaded method.
//
// Compiled against the headers of the ExecuTorch package into a separate library. ExecuTorch's
// symbols stay undefined in it and are resolved from the libraries that the caller opens before this
// one. Invariant: no exception leaves a function, contents of files are checked before use, and
// `pkgtool_et_text` returns the reason of a failed call. `ffi.rs` declares the same `extern "C"`
// functions for Rust.

#include <executorch/extension/flat_tensor/flat_tensor_data_map.h>
#include <executorch/extension/memory_allocator/malloc_memory_allocator.h>
#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/core/exec_aten/util/dim_order_util.h>
#include <executorch/runtime/executor/program.h>
#include <executorch/runtime/kernel/operator_registry.h>
#include <executorch/runtime/platform/platform.h>
#include <executorch/runtime/platform/runtime.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <vector>

// The package contains the library of the thread pool, but not its header.
namespace executorch::extension::threadpool {
class ThreadPool {
 public:
  size_t get_thread_count() const;
  bool _unsafe_reset_threadpool(uint32_t count);
};
ThreadPool* get_threadpool();
} // namespace executorch::extension::threadpool

namespace et = executorch::runtime;
using executorch::aten::ScalarType;
using executorch::aten::Tensor;
using executorch::aten::TensorImpl;
using executorch::extension::FlatTensorDataMap;
using executorch::extension::MallocMemoryAllocator;
using et::Error;
using et::EValue;
using et::FreeableBuffer;
using et::Result;
using et::Span;
using et::Tag;

namespace {

constexpr size_t MAX_RANK = 16;
// Exceeds the alignment that any kernel needs, and the bytes that any reads past the end of a tensor.
constexpr size_t ALIGNMENT = 64;

// ---- Error messages ----

// Messages belong to the calling thread: a session is used by one thread at a time.
thread_local std::string told;
constexpr size_t MOST_TOLD = 16 << 10;

void tell(const char* text, size_t length) noexcept {
  try {
    if (told.size() + length < MOST_TOLD) {
      told.append(told.empty() ? "" : "\n").append(text, length);
    }
  } catch (...) {
    // A message that does not fit in memory is dropped.
  }
}

__attribute__((format(printf, 2, 3))) Error fail(Error code, const char* format, ...) {
  char line[512];
  va_list values;
  va_start(values, format);
  int length = std::vsnprintf(line, sizeof line, format, values);
  va_end(values);
  if (length > 0) {
    tell(line, std::min<size_t>(length, sizeof line - 1));
  }
  return code;
}

// Receives the runtime's own log messages.
void listen(
    et_timestamp_t,
    et_pal_log_level_t level,
    const char*,
    const char*,
    size_t,
    const char* message,
    size_t length) {
  if (level == kFatal) {
    // The runtime aborts the process next, so the message goes to stderr.
    std::fprintf(stderr, "%.*s\n", static_cast<int>(length), message);
  } else if (level == kError) {
    tell(message, length);
  }
}

// Returns the code that `work` returns, or that of the exception that it throws.
template <typename Work>
uint32_t guarded(Work work) {
  try {
    told.clear();
    return static_cast<uint32_t>(work());
  } catch (const std::bad_alloc&) {
    return static_cast<uint32_t>(fail(Error::MemoryAllocationFailed, "allocation failed"));
  } catch (const std::exception& error) {
    return static_cast<uint32_t>(fail(Error::Internal, "%s", error.what()));
  } catch (...) {
    return static_cast<uint32_t>(fail(Error::Internal, "unknown exception"));
  }
}

#define TRY(result)          \
  if (!(result).ok()) {      \
    return (result).error(); \
  }

#define GIVE_UP_ON(call)                              \
  if (Error error = (call); error != Error::Ok) {     \
    return error;                                     \
  }

// ---- Memory and files ----

// Zeroed memory that is aligned for every kernel. Untouched pages cost nothing.
struct Block {
  std::unique_ptr<void, decltype(&std::free)> owned{nullptr, &std::free};
  Span<uint8_t> bytes;

  bool resize(size_t size) {
    if (size > SIZE_MAX - 2 * ALIGNMENT) {
      return false;
    }
    owned.reset(std::calloc(size + 2 * ALIGNMENT, 1));
    auto address = reinterpret_cast<uintptr_t>(owned.get());
    auto aligned = (address + ALIGNMENT - 1) & ~uintptr_t{ALIGNMENT - 1};
    bytes = {reinterpret_cast<uint8_t*>(aligned), size};
    return owned != nullptr;
  }
};

// A memory-mapped part of a file, and the loader for its contents.
class Mapped final : public et::DataLoader {
 public:
  Mapped() = default;
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;

  ~Mapped() override {
    if (map_ != MAP_FAILED) {
      munmap(map_, map_size_);
    }
  }

  // `length` 0 maps the whole file.
  Error open(const char* path, uint64_t offset, uint64_t length) {
    int file = ::open(path, O_RDONLY | O_CLOEXEC);
    struct stat about {};
    if (file < 0 || fstat(file, &about) != 0) {
      Error error = fail(Error::AccessFailed, "%s: %s", path, strerror(errno));
      if (file >= 0) {
        ::close(file);
      }
      return error;
    }
    map_size_ = static_cast<size_t>(about.st_size);
    map_ = mmap(nullptr, map_size_, PROT_READ, MAP_PRIVATE, file, 0);
    int problem = errno;
    ::close(file);
    if (map_ == MAP_FAILED) {
      return fail(Error::AccessFailed, "%s cannot be mapped: %s", path, strerror(problem));
    }
    if (offset > map_size_ || length > map_size_ - offset) {
      return fail(Error::AccessFailed, "%s is truncated", path);
    }
    size_ = length == 0 ? map_size_ - offset : length;
    base_ = static_cast<uint8_t*>(map_) + offset;
    if (offset % alignof(std::max_align_t) == 0) {
      return Error::Ok;
    }
    // The program's offset in its container may be misaligned.
    if (!moved_.resize(size_)) {
      return fail(Error::MemoryAllocationFailed, "allocation failed for the program");
    }
    std::memcpy(moved_.bytes.data(), base_, size_);
    base_ = moved_.bytes.data();
    return Error::Ok;
  }

  Result<FreeableBuffer> load(size_t offset, size_t size, const SegmentInfo&) const override {
    if (offset > size_ || size > size_ - offset) {
      return fail(Error::InvalidProgram, "the file ends before its data");
    }
    return FreeableBuffer(base_ + offset, size, nullptr);
  }

  Error load_into(size_t offset, size_t size, const SegmentInfo&, void* to) const override {
    if (offset > size_ || size > size_ - offset) {
      return fail(Error::InvalidProgram, "the file ends before its data");
    }
    std::memcpy(to, base_ + offset, size);
    return Error::Ok;
  }

  Result<size_t> size() const override {
    return size_;
  }

 private:
  void* map_ = MAP_FAILED;
  size_t map_size_ = 0;
  uint8_t* base_ = nullptr;
  size_t size_ = 0;
  Block moved_;
};

// The tensors of several data files. For a name in several files the preferred file wins. Without a
// preferred file such a name is an error.
class DataFiles final : public et::NamedDataMap {
 public:
  Error add(const char* path, bool preferred) {
    auto file = std::make_unique<Mapped>();
    GIVE_UP_ON(file->open(path, 0, 0));
    auto loaded = FlatTensorDataMap::load(file.get());
    if (!loaded.ok()) {
      return fail(loaded.error(), "%s is not a data file", path);
    }
    auto map = std::make_unique<FlatTensorDataMap>(std::move(loaded.get()));
    auto count = map->get_num_keys();
    TRY(count);
    for (uint32_t index = 0; index < *count; ++index) {
      auto key = map->get_key(index);
      TRY(key);
      auto [place, is_new] = places_.try_emplace(*key, Place{map.get(), preferred});
      if (is_new) {
        keys_.push_back(place->first.c_str());
      } else if (preferred) {
        place->second = Place{map.get(), true};
      } else if (!place->second.preferred) {
        place->second.map = nullptr;
      }
    }
    files_.push_back(std::move(file));
    maps_.push_back(std::move(map));
    return Error::Ok;
  }

  bool empty() const {
    return maps_.empty();
  }

  Result<const et::TensorLayout> get_tensor_layout(std::string_view key) const override {
    auto map = find(key);
    TRY(map);
    return (*map)->get_tensor_layout(key);
  }

  Result<FreeableBuffer> get_data(std::string_view key) const override {
    auto map = find(key);
    TRY(map);
    return (*map)->get_data(key);
  }

  Error load_data_into(std::string_view key, void* to, size_t size) const override {
    auto map = find(key);
    TRY(map);
    return (*map)->load_data_into(key, to, size);
  }

  Result<uint32_t> get_num_keys() const override {
    return static_cast<uint32_t>(keys_.size());
  }

  Result<const char*> get_key(uint32_t index) const override {
    if (index >= keys_.size()) {
      return Error::InvalidArgument;
    }
    return keys_[index];
  }

 private:
  struct Place {
    const FlatTensorDataMap* map;
    bool preferred;
  };

  Result<const FlatTensorDataMap*> find(std::string_view key) const {
    auto place = places_.find(std::string(key));
    if (place == places_.end()) {
      return Error::NotFound;
    }
    if (place->second.map == nullptr) {
      const char* name = place->first.c_str();
      return fail(Error::InvalidExternalData, "several data files have a tensor `%s`", name);
    }
    return place->second.map;
  }

  std::vector<std::unique_ptr<Mapped>> files_;
  std::vector<std::unique_ptr<FlatTensorDataMap>> maps_;
  std::map<std::string, Place> places_;
  std::vector<const char*> keys_;
};

// ---- Values ----

// Kinds of values; `ffi.rs` has the same numbers.
enum Kind : int32_t { NONE = 0, TENSOR = 1, INT = 2, DOUBLE = 3, BOOL = 4, OTHER = 5 };

Kind kind_of(const Result<Tag>& tag) {
  // Lists have no tag.
  switch (tag.ok() ? *tag : Tag::ListScalar) {
    case Tag::None:
      return NONE;
    case Tag::Tensor:
      return TENSOR;
    case Tag::Int:
      return INT;
    case Tag::Double:
      return DOUBLE;
    case Tag::Bool:
      return BOOL;
    default:
      return OTHER;
  }
}

} // namespace

extern "C" {

// A value of an input or output.
struct PkgtoolEtValue {
  int32_t kind;
  // ExecuTorch's code of the element type.
  int32_t dtype;
  uint32_t rank;
  int32_t sizes[MAX_RANK];
  // Dimensions from the outermost in memory.
  uint8_t order[MAX_RANK];
  const void* data;
  uint64_t bytes;
  // An integer, or a boolean as 0 or 1.
  int64_t integer;
  double number;
};
static_assert(sizeof(PkgtoolEtValue) == 128, "as `RawValue` in ffi.rs");

} // extern "C"

namespace {

Error describe(PkgtoolEtValue& value, Span<const int32_t> sizes, Span<const uint8_t> order) {
  if (sizes.size() > MAX_RANK || order.size() != sizes.size()) {
    return fail(Error::InvalidProgram, "a tensor has %zu dimensions", sizes.size());
  }
  value.rank = static_cast<uint32_t>(sizes.size());
  std::copy(sizes.begin(), sizes.end(), value.sizes);
  std::copy(order.begin(), order.end(), value.order);
  return Error::Ok;
}

// The description of an input or output before the first run.
struct Slot {
  // Has the maximum sizes and no data.
  PkgtoolEtValue value{};
  // Is true if the program plans memory for it. Otherwise it is stored in `memory`.
  bool planned = true;
  Block memory;

  void describe(const Result<Tag>& tag) {
    value.kind = kind_of(tag);
  }

  Error describe(const Result<et::TensorInfo>& info) {
    TRY(info);
    value.dtype = static_cast<int32_t>(info->scalar_type());
    value.bytes = info->nbytes();
    planned = info->is_memory_planned();
    return ::describe(value, info->sizes(), info->dim_order());
  }

  Error grow(size_t size) {
    if (memory.bytes.size() < size && !memory.resize(size)) {
      return fail(Error::MemoryAllocationFailed, "allocation failed for a tensor");
    }
    return Error::Ok;
  }
};

} // namespace

// A program file with one loaded method. Members are destroyed in reverse order: the method first.
struct PkgtoolEtMethod {
  Mapped file;
  DataFiles data;
  std::unique_ptr<et::Program> program;
  MallocMemoryAllocator method_memory;
  MallocMemoryAllocator temporary_memory;
  std::vector<Block> blocks;
  std::vector<Span<uint8_t>> spans;
  std::unique_ptr<et::HierarchicalAllocator> planned;
  std::unique_ptr<et::MemoryManager> manager;
  std::vector<Slot> inputs;
  std::vector<Slot> outputs;
  std::unique_ptr<et::Method> method;

  Error open(const char* path, uint64_t offset, uint64_t length) {
    GIVE_UP_ON(file.open(path, offset, length));
    // With minimal verification an invalid file crashes the runtime.
    auto found = et::Program::load(&file, et::Program::Verification::InternalConsistency);
    TRY(found);
    program = std::make_unique<et::Program>(std::move(found.get()));
    return Error::Ok;
  }

  Error load(const char* name) {
    auto meta = program->method_meta(name);
    if (!meta.ok()) {
      return fail(meta.error(), "method `%s` is missing; methods: %s", name, methods().c_str());
    }
    inputs.resize(meta->num_inputs());
    for (size_t index = 0; index < inputs.size(); ++index) {
      inputs[index].describe(meta->input_tag(index));
      if (inputs[index].value.kind == TENSOR) {
        GIVE_UP_ON(inputs[index].describe(meta->input_tensor_meta(index)));
      }
    }
    outputs.resize(meta->num_outputs());
    for (size_t index = 0; index < outputs.size(); ++index) {
      outputs[index].describe(meta->output_tag(index));
      if (outputs[index].value.kind == TENSOR) {
        GIVE_UP_ON(outputs[index].describe(meta->output_tensor_meta(index)));
      }
    }
    GIVE_UP_ON(plan(*meta));
    // Messages about lists do not belong to the next failure.
    told.clear();
    auto* external = data.empty() ? nullptr : &data;
    auto loaded = program->load_method(name, manager.get(), nullptr, external);
    TRY(loaded);
    method = std::make_unique<et::Method>(std::move(loaded.get()));
    return place_outputs();
  }

  std::string methods() const {
    std::string all;
    for (size_t index = 0; index < program->num_methods(); ++index) {
      auto name = program->get_method_name(index);
      if (name.ok()) {
        all.append(all.empty() ? "`" : ", `").append(*name).append("`");
      }
    }
    return all.empty() ? "none" : all;
  }

  // Allocates the memory in which the export planned the method's tensors.
  Error plan(const et::MethodMeta& meta) {
    blocks.resize(meta.num_memory_planned_buffers());
    for (size_t index = 0; index < blocks.size(); ++index) {
      auto size = meta.memory_planned_buffer_size(index);
      TRY(size);
      auto device = meta.memory_planned_buffer_device(index);
      TRY(device);
      if (!device->is_cpu()) {
        return fail(Error::NotSupported, "the program needs memory on a device other than the CPU");
      }
      if (*size < 0 || !blocks[index].resize(static_cast<size_t>(*size))) {
        const char* format = "cannot allocate %lld bytes of memory for its tensors";
        return fail(Error::MemoryAllocationFailed, format, static_cast<long long>(*size));
      }
      spans.push_back(blocks[index].bytes);
    }
    Span<Span<uint8_t>> all(spans.data(), spans.size());
    planned = std::make_unique<et::HierarchicalAllocator>(all);
    manager =
        std::make_unique<et::MemoryManager>(&method_memory, planned.get(), &temporary_memory);
    return Error::Ok;
  }

  // Allocates memory for outputs without planned memory, for their maximum size.
  Error place_outputs() {
    for (size_t index = 0; index < outputs.size(); ++index) {
      Slot& slot = outputs[index];
      if (slot.value.kind == TENSOR && !slot.planned) {
        GIVE_UP_ON(slot.grow(slot.value.bytes));
        Span<uint8_t> bytes = slot.memory.bytes;
        GIVE_UP_ON(method->set_output_data_ptr(bytes.data(), bytes.size(), index));
      }
    }
    return Error::Ok;
  }

  Error set(size_t index, const PkgtoolEtValue& value) {
    switch (value.kind) {
      case TENSOR:
        return set_tensor(index, value);
      case INT:
        return method->set_input(EValue(value.integer), index);
      case DOUBLE:
        return method->set_input(EValue(value.number), index);
      case BOOL:
        return method->set_input(EValue(value.integer != 0), index);
      default:
        return method->set_input(EValue(), index);
    }
  }

  Error set_tensor(size_t index, PkgtoolEtValue value) {
    Slot& slot = inputs[index];
    void* data = const_cast<void*>(value.data);
    if (!slot.planned) {
      // The method uses this memory directly and may write to it.
      GIVE_UP_ON(slot.grow(value.bytes));
      std::memcpy(slot.memory.bytes.data(), data, value.bytes);
      data = slot.memory.bytes.data();
    }
    int32_t strides[MAX_RANK];
    GIVE_UP_ON(et::dim_order_to_stride(value.sizes, value.order, value.rank, strides));
    auto dtype = static_cast<ScalarType>(value.dtype);
    TensorImpl tensor(dtype, value.rank, value.sizes, data, value.order, strides);
    return method->set_input(EValue(Tensor(&tensor)), index);
  }

  Error get(size_t index, PkgtoolEtValue& value) const {
    const EValue& found = method->get_output(index);
    value = {};
    value.kind = kind_of(found.tag);
    if (value.kind == INT) {
      value.integer = found.toInt();
    } else if (value.kind == DOUBLE) {
      value.number = found.toDouble();
    } else if (value.kind == BOOL) {
      value.integer = found.toBool() ? 1 : 0;
    } else if (value.kind == TENSOR) {
      const Tensor& tensor = found.toTensor();
      auto sizes = tensor.sizes();
      auto order = tensor.dim_order();
      value.dtype = static_cast<int32_t>(tensor.scalar_type());
      value.bytes = tensor.nbytes();
      value.data = tensor.const_data_ptr();
      if (value.bytes > 0 && value.data == nullptr) {
        return fail(Error::InvalidProgram, "output %zu has no memory", index);
      }
      return describe(value, {sizes.data(), sizes.size()}, {order.data(), order.size()});
    }
    return Error::Ok;
  }
};

extern "C" {

// Must be called once, before any other function.
void pkgtool_et_start() {
  et::register_pal(et::PalImpl::create(listen, __FILE__));
  et::runtime_init();
}

// Returns the messages of the last failure on this thread, one per line; may be empty.
const char* pkgtool_et_text() {
  return told.c_str();
}

// Sets the number of threads for methods; 0 uses the library's default. No method may be loaded.
// Returns the resulting number of threads, 0 if the thread pool is unavailable.
uint32_t pkgtool_et_set_threads(uint32_t count) {
  uint32_t there = 0;
  guarded([&] {
    auto* pool = executorch::extension::threadpool::get_threadpool();
    if (pool == nullptr) {
      return Error::OutOfResources;
    }
    if (count != 0 && count != pool->get_thread_count()) {
      (void)pool->_unsafe_reset_threadpool(count);
    }
    there = static_cast<uint32_t>(pool->get_thread_count());
    return Error::Ok;
  });
  return there;
}

// Returns the name of a registered backend and whether it is usable here; null past the last one.
const char* pkgtool_et_backend(size_t index, bool* available) {
  const char* name = nullptr;
  guarded([&] {
    if (index >= et::get_num_registered_backends()) {
      return Error::NotFound;
    }
    auto known = et::get_backend_name(index);
    TRY(known);
    const auto* backend = et::get_backend_class(*known);
    *available = backend != nullptr && backend->is_available();
    name = *known;
    return Error::Ok;
  });
  return name;
}

// Returns true if a kernel is registered for an operator, such as `aten::add.out`.
bool pkgtool_et_has_kernel(const char* name) {
  bool there = false;
  guarded([&] {
    there = et::registry_has_op_function(name);
    return Error::Ok;
  });
  return there;
}

// Opens the program at `offset` of a file. The caller must close the handle, even after errors.
PkgtoolEtMethod* pkgtool_et_open(
    const char* path,
    uint64_t offset,
    uint64_t length,
    uint32_t* code) {
  PkgtoolEtMethod* opened = nullptr;
  *code = guarded([&] {
    opened = new PkgtoolEtMethod();
    return opened->open(path, offset, length);
  });
  return opened;
}

// Adds a data file with tensors of the program. Must precede loading the method.
uint32_t pkgtool_et_add_data(PkgtoolEtMethod* method, const char* path, bool preferred) {
  return guarded([&] { return method->data.add(path, preferred); });
}

// Loads a method.
uint32_t pkgtool_et_load(PkgtoolEtMethod* method, const char* name) {
  return guarded([&] { return method->load(name); });
}

void pkgtool_et_close(PkgtoolEtMethod* method) {
  guarded([&] {
    delete method;
    return Error::Ok;
  });
}

// Describes an input or output of a loaded method; returns false past the last one.
bool pkgtool_et_slot(const PkgtoolEtMethod* method, bool output, size_t at, PkgtoolEtValue* value) {
  const auto& slots = output ? method->outputs : method->inputs;
  if (at < slots.size()) {
    *value = slots[at].value;
  }
  return at < slots.size();
}

// Sets an input to a value of its kind and rank. The index must exist. Elements are copied.
uint32_t pkgtool_et_set(PkgtoolEtMethod* method, size_t index, const PkgtoolEtValue* value) {
  return guarded([&] { return method->set(index, *value); });
}

// Runs a loaded method, whose inputs must be set.
uint32_t pkgtool_et_run(PkgtoolEtMethod* method) {
  return guarded([&] { return method->method->execute(); });
}

// Runs the next instruction of a method, whose inputs must be set. Returns `Error::EndOfMethod` after
// the last one; the method can run again then. After any other error the method is unusable.
uint32_t pkgtool_et_step(PkgtoolEtMethod* method) {
  return guarded([&] {
    Error error = method->method->step();
    if (error != Error::EndOfMethod) {
      return error;
    }
    GIVE_UP_ON(method->method->reset_execution());
    return Error::EndOfMethod;
  });
}

// Returns an output. The index must exist. The elements are valid until the next run.
uint32_t pkgtool_et_get(const PkgtoolEtMethod* method, size_t index, PkgtoolEtValue* value) {
  return guarded([&] { return method->get(index, *value); });
}

} // extern "C"
