// The runtime for C++17: bie_runtime.h with owners and exceptions. Header alone, over the C API.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bie/runtime/bie_runtime.h"

namespace bie::runtime {

/// what() is the runtime's sentence.
class NetError : public std::runtime_error {
 public:
  NetError(bie_status code, const std::string& sentence) : std::runtime_error(sentence), status(code) {}
  bie_status status;
};

inline void check(bie_status status) {
  if (status != BIE_OK) throw NetError(status, bie_last_error());
}

/// A net that several threads may share.
class SharedNet {
 public:
  /// @throws NetError
  explicit SharedNet(const std::string& path) {
    bie_net* net = nullptr;
    check(bie_net_load(path.c_str(), &net));
    net_ = {net, bie_net_free};
  }
  /// Loads from memory, which must outlive the net. @throws NetError
  SharedNet(const void* bytes, std::size_t size) {
    bie_net* net = nullptr;
    check(bie_net_from_memory(bytes, size, &net));
    net_ = {net, bie_net_free};
  }

  bie_tensor input(int index = 0) const {
    bie_tensor tensor;
    check(bie_net_input(net_.get(), index, &tensor));
    return tensor;
  }
  bie_tensor output(int index = 0) const {
    bie_tensor tensor;
    check(bie_net_output(net_.get(), index, &tensor));
    return tensor;
  }
  /// "" if the net has none.
  std::string metadata(const std::string& key) const {
    const char* const text = bie_net_metadata(net_.get(), key.c_str());
    return text == nullptr ? "" : text;
  }
  std::string summary() const { return bie_net_summary(net_.get()); }
  const bie_net* get() const { return net_.get(); }

 private:
  std::shared_ptr<bie_net> net_;
};

/// Runs a net, from any number of threads at the same time. A call takes a bie_context that no other call is using and
/// makes one where there is none, so a program of one thread has one. Options apply to each of them: `threads` are
/// started per context, and the caller's `parallel_for` has to accept calls side by side.
class Context {
 public:
  /// @throws NetError, here and below.
  explicit Context(const SharedNet& net, const bie_options& options = {}) : pool_(new Pool{net, options, {}, {}}) {
    pool_->give(pool_->made());
  }

  /// @throws NetError where the net does not have one input and one output, too.
  void run(const float* input, std::int64_t batch, float* output) {
    const int ins = bie_net_inputs(pool_->net.get()), outs = bie_net_outputs(pool_->net.get());
    if (ins != 1 || outs != 1)
      throw NetError(BIE_BAD_ARGUMENT, "expected a net of one input and one output, got " + std::to_string(ins) +
                                           " and " + std::to_string(outs));
    const void* const inputs[] = {input};
    void* const outputs[] = {output};
    run(batch, inputs, outputs);
  }
  std::vector<float> run(const std::vector<float>& input) {
    const SharedNet& net = pool_->net;
    const std::int64_t elements = net.input().elements, batch = static_cast<std::int64_t>(input.size()) / elements;
    if (batch * elements != static_cast<std::int64_t>(input.size()))
      throw NetError(BIE_BAD_ARGUMENT, "the input is no whole number of samples");
    std::vector<float> output(static_cast<std::size_t>(batch * net.output().elements));
    run(input.data(), batch, output.data());
    return output;
  }
  /// One pointer per input and per output of the net.
  void run(std::int64_t batch, const void* const* inputs, void* const* outputs) {
    Owner context = pool_->take();
    const bie_status status = bie_run(context.get(), batch, inputs, outputs);
    pool_->give(std::move(context));
    check(status);
  }

 private:
  using Owner = std::unique_ptr<bie_context, void (*)(bie_context*)>;

  struct Pool {
    SharedNet net;
    bie_options options;
    std::mutex mutex;
    std::vector<Owner> free;

    Owner made() const {
      bie_context* context = nullptr;
      check(bie_context_create(net.get(), &options, &context));
      return {context, bie_context_free};
    }
    Owner take() {
      {
        const std::lock_guard<std::mutex> lock(mutex);
        if (!free.empty()) {
          Owner context = std::move(free.back());
          free.pop_back();
          return context;
        }
      }
      return made();
    }
    void give(Owner context) {
      const std::lock_guard<std::mutex> lock(mutex);
      free.push_back(std::move(context));
    }
  };

  std::unique_ptr<Pool> pool_;
};

}  // namespace bie::runtime
