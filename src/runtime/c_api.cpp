// bie_runtime.h over the classes of this folder: every exception becomes a status and a sentence.
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "bie/formats/error.h"
#include "bie/runtime/bie_runtime.h"
#include "formats/c_error.h"
#include "runtime/graph.h"
#include "runtime/net.h"
#include "runtime/runner.h"

struct bie_net {
  std::shared_ptr<const bie::runtime::Net> net;
};

struct bie_context {
  bie::runtime::Runner context;
  std::atomic_flag is_running = ATOMIC_FLAG_INIT;
};

namespace {

using bie::formats::NetValue;

using bie::formats::fail;
using bie::formats::last_error;

template <class Body>
bie_status guarded(const Body& body) {
  return bie::formats::guarded<bie_status>({BIE_BAD_FILE, BIE_NO_MEMORY, BIE_FAILED}, body);
}

/// Holds a context for one call.
class Turn {
 public:
  explicit Turn(std::atomic_flag& flag) : flag_(flag), is_ours_(!flag.test_and_set(std::memory_order_acquire)) {}
  ~Turn() {
    if (is_ours_) flag_.clear(std::memory_order_release);
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  bool is_ours() const { return is_ours_; }

 private:
  std::atomic_flag& flag_;
  const bool is_ours_;
};

bie_status tell(const bie_net* net, bool input, std::int32_t index, bie_tensor* tensor) {
  if (net == nullptr || tensor == nullptr) return fail(BIE_BAD_ARGUMENT, "a null pointer in place of a net or tensor");
  const auto& file = net->net->file();
  const auto& ends = input ? file.inputs : file.outputs;
  if (index < 0 || static_cast<std::size_t>(index) >= ends.size()) {
    std::snprintf(last_error, sizeof(last_error), "there is no %s %d, the net has %zu", input ? "input" : "output",
                  index, ends.size());
    return BIE_BAD_ARGUMENT;
  }
  const NetValue& value = file.values[ends[static_cast<std::size_t>(index)]];
  *tensor = {static_cast<std::int32_t>(value.sizes.size()), {1, 1, 1}, bie::runtime::elements_of(value)};
  for (std::size_t i = 0; i < value.sizes.size(); ++i) tensor->sizes[i] = value.sizes[i];
  return BIE_OK;
}

bie_status status_of(const bie::runtime::RunResult& result, const bie::runtime::Net& net) {
  using bie::kernels::Status;
  if (result.status == Status::ok) return BIE_OK;
  if (result.node == bie::runtime::RunResult::no_node)
    std::snprintf(last_error, sizeof(last_error), "the input holds NaN or infinity");
  else
    std::snprintf(last_error, sizeof(last_error), "node %zu (%s): %s", result.node,
                  bie::runtime::net_op_names[net.file().nodes[result.node].op], bie::kernels::describe(result.status));
  return result.status == Status::not_finite      ? BIE_BAD_VALUES
         : result.status == Status::out_of_memory ? BIE_NO_MEMORY
                                                  : BIE_FAILED;
}

}  // namespace

extern "C" {

const char* bie_version(void) { return BIE_VERSION; }
const char* bie_last_error(void) { return last_error; }

bie_status bie_net_load(const char* path, bie_net** net) {
  if (path == nullptr || net == nullptr) return fail(BIE_BAD_ARGUMENT, "a null pointer in place of a path or net");
  *net = nullptr;
  return guarded([&] {
    auto file = bie::formats::load_net(path);
    try {
      *net = new bie_net{std::make_shared<const bie::runtime::Net>(std::move(file))};
    } catch (const bie::formats::Error& error) {
      bie::formats::fail_file("net file", path, error.what());
    }
    return BIE_OK;
  });
}

bie_status bie_net_from_memory(const void* bytes, size_t size, bie_net** net) {
  if (bytes == nullptr || net == nullptr) return fail(BIE_BAD_ARGUMENT, "a null pointer in place of bytes or a net");
  *net = nullptr;
  if (size > static_cast<size_t>(PTRDIFF_MAX))
    return fail(BIE_BAD_ARGUMENT, "no memory has so many bytes as size says");
  return guarded([&] {
    const auto* at = static_cast<const std::uint8_t*>(bytes);
    std::shared_ptr<char> copy;
    if (reinterpret_cast<std::uintptr_t>(bytes) % 64 != 0) {
      copy = bie::runtime::memory_of(static_cast<std::int64_t>(size));
      std::memcpy(copy.get(), bytes, size);
      at = reinterpret_cast<const std::uint8_t*>(copy.get());
    }
    auto file = bie::formats::read_net("in memory", at, static_cast<std::int64_t>(size));
    file.owners.push_back(copy);
    *net = new bie_net{std::make_shared<const bie::runtime::Net>(std::move(file))};
    return BIE_OK;
  });
}

void bie_net_free(bie_net* net) { delete net; }

int32_t bie_net_inputs(const bie_net* net) {
  return net == nullptr ? 0 : static_cast<int32_t>(net->net->file().inputs.size());
}
int32_t bie_net_outputs(const bie_net* net) {
  return net == nullptr ? 0 : static_cast<int32_t>(net->net->file().outputs.size());
}
bie_status bie_net_input(const bie_net* net, int32_t index, bie_tensor* tensor) {
  return tell(net, true, index, tensor);
}
bie_status bie_net_output(const bie_net* net, int32_t index, bie_tensor* tensor) {
  return tell(net, false, index, tensor);
}
const char* bie_net_metadata(const bie_net* net, const char* key) {
  if (net == nullptr || key == nullptr) return nullptr;
  for (const auto& [name, text] : net->net->file().metadata)
    if (name == key) return text.c_str();
  return nullptr;
}
const char* bie_net_summary(const bie_net* net) { return net == nullptr ? "" : net->net->summary().c_str(); }
int64_t bie_net_weight_bytes(const bie_net* net) { return net == nullptr ? 0 : net->net->weight_bytes(); }

bie_status bie_context_create(const bie_net* net, const bie_options* options, bie_context** context) {
  if (net == nullptr || context == nullptr)
    return fail(BIE_BAD_ARGUMENT, "a null pointer in place of a net or context");
  *context = nullptr;
  const bie_options asked = options == nullptr ? bie_options{} : *options;
  if (asked.max_batch < 0 || asked.max_batch > 1 << 16)
    return fail(BIE_BAD_ARGUMENT, "max_batch is out of its range, 0 to 65536");
  if (asked.threads < 0 || asked.threads > 1024)
    return fail(BIE_BAD_ARGUMENT, "threads is out of its range, 0 to 1024");
  return guarded([&] {
    const int threads = asked.threads == 0 ? 1 : asked.threads;
    const bie::kernels::Parallel given{asked.parallel_for, asked.pool, threads};
    *context = new bie_context{{net->net, asked.max_batch == 0 ? 1 : asked.max_batch, threads,
                                asked.parallel_for == nullptr ? nullptr : &given}};
    return BIE_OK;
  });
}

void bie_context_free(bie_context* context) { delete context; }
int64_t bie_context_bytes(const bie_context* context) { return context == nullptr ? 0 : context->context.bytes(); }

bie_status bie_run(bie_context* context, int64_t batch, const void* const* inputs, void* const* outputs) {
  if (context == nullptr || inputs == nullptr || outputs == nullptr)
    return fail(BIE_BAD_ARGUMENT, "a null pointer in place of a context, inputs or outputs");
  const auto& file = context->context.net().file();
  constexpr std::int64_t most_samples = std::int64_t{1} << 32;
  if (batch < 0 || batch > most_samples) return fail(BIE_BAD_ARGUMENT, "batch is out of its range, 0 to 2^32");
  for (std::size_t i = 0; i < file.inputs.size(); ++i)
    if (inputs[i] == nullptr && batch > 0) return fail(BIE_BAD_ARGUMENT, "an input is a null pointer");
  for (std::size_t i = 0; i < file.outputs.size(); ++i)
    if (outputs[i] == nullptr && batch > 0) return fail(BIE_BAD_ARGUMENT, "an output is a null pointer");
  const Turn turn(context->is_running);
  if (!turn.is_ours()) return fail(BIE_BUSY, "another thread is running this context: each thread needs its own");
  return guarded([&] { return status_of(context->context.run(batch, inputs, outputs), context->context.net()); });
}

}  // extern "C"
