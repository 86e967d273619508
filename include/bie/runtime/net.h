// The runtime for C++17: bie_runtime.h with owners and exceptions. Header alone, over the C API.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
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
  /// Of bytes that stay. @throws NetError
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
  /// "" where the net has none.
  std::string metadata(const std::string& key) const {
    const char* const text = bie_net_metadata(net_.get(), key.c_str());
    return text == nullptr ? "" : text;
  }
  std::string summary() const { return bie_net_summary(net_.get()); }
  const bie_net* get() const { return net_.get(); }

 private:
  std::shared_ptr<bie_net> net_;
};

/// What one thread runs a net with.
class Context {
 public:
  /// @throws NetError, here and below.
  explicit Context(const SharedNet& net, const bie_options& options = {}) : net_(net) {
    bie_context* context = nullptr;
    check(bie_context_create(net.get(), &options, &context));
    context_ = {context, bie_context_free};
  }

  /// Of a net with one input and one output.
  void run(const float* input, std::int64_t batch, float* output) {
    const void* const inputs[] = {input};
    void* const outputs[] = {output};
    check(bie_run(context_.get(), batch, inputs, outputs));
  }
  std::vector<float> run(const std::vector<float>& input) {
    const std::int64_t elements = net_.input().elements, batch = static_cast<std::int64_t>(input.size()) / elements;
    if (batch * elements != static_cast<std::int64_t>(input.size()))
      throw NetError(BIE_BAD_ARGUMENT, "the input is no whole number of samples");
    std::vector<float> output(static_cast<std::size_t>(batch * net_.output().elements));
    run(input.data(), batch, output.data());
    return output;
  }

 private:
  SharedNet net_;
  std::unique_ptr<bie_context, void (*)(bie_context*)> context_{nullptr, bie_context_free};
};

}  // namespace bie::runtime
