// States of weight-only layers go to Python's layers and come from them: the same bits on both sides.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <memory>

#include "bie/data/tensor_files.h"
#include "bie/layers/embedding.h"
#include "bie/layers/state_dict.h"
#include "bie/layers/weight_only.h"
#include "tests/support/scratch.h"

namespace bie::layers::test {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr bool is_sanitized = true;
#elif defined(__has_feature)
constexpr bool is_sanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
constexpr bool is_sanitized = false;
#endif

/// Runs weight_only_peer.py with this build's operators; its exit status.
int peer(const std::string& verb, const std::string& folder) {
  const std::string command = "BIE_OPS_LIBRARY='" BIE_OPS_FILE "' PYTHONPATH='" BIE_PYTHON_PACKAGE "' '" BIE_PYTHON
                              "' '" BIE_WEIGHT_ONLY_PEER "' " +
                              verb + " '" + folder + "'";
  return WEXITSTATUS(std::system(command.c_str()));
}

struct Case {
  const char* name;
  std::shared_ptr<QuantLayer> layer;
  std::function<at::Tensor(const at::Tensor&)> output;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  const auto linear = [&](const char* name, std::shared_ptr<CodedLinear> layer) {
    all.push_back({name, layer, [layer](const at::Tensor& x) { return layer->forward(x); }});
  };
  const WeightOnlyLinearOptions grouped{100, 9, 4, 32, true};
  linear("gba", std::make_shared<WeightOnlyLinearImpl>(grouped));
  linear("gptq", std::make_shared<WeightOnlyLinearImpl>(grouped));
  linear("mbwq", std::make_shared<MBWQLinearImpl>(MBWQLinearOptions{100, 9, 2, 32}));
  linear("exl2", std::make_shared<MBWQLinearImpl>(MBWQLinearOptions{96, 9, 0}));
  WeightOnlyEmbedding table(WeightOnlyEmbeddingOptions{11, 20, 4, 8, 3});
  TiedHead head(table);
  head->eval();
  all.push_back({"table", table.ptr(), [table, head](const at::Tensor& x) mutable {
                   const at::Tensor y = table->forward(x);
                   return at::cat({y, head->forward(y)}, 1);
                 }});
  return all;
}

TEST(WeightOnlyExchange, PythonsStatesComeAndGo) {
  if (is_sanitized) GTEST_SKIP() << "a Python without the sanitizer cannot load these operators";
  const bie::test::Scratch folder;
  const int status = peer("write", folder.folder());
  if (status == 77) GTEST_SKIP() << "safetensors is not installed";
  ASSERT_EQ(status, 0);
  const at::NoGradGuard no_grad;
  for (const Case& c : cases()) {
    auto tensors = data::load_safetensors(folder.path(std::string(c.name) + ".safetensors")).tensors;
    StateDict entries;
    for (const auto& [key, tensor] : tensors)
      if (key.starts_with("state.")) entries[key.substr(6)] = tensor;
    const StateDict given = entries;
    c.layer->eval();
    load_state_dict(*c.layer, entries);
    EXPECT_TRUE(c.output(tensors.at("x")).equal(tensors.at("y"))) << c.name;
    std::map<std::string, at::Tensor> back = {{"x", tensors.at("x")}, {"y", tensors.at("y")}};
    for (const auto& [key, tensor] : c.layer->state(/*packed=*/true)) {
      EXPECT_TRUE(tensor.equal(given.at(key))) << c.name << ' ' << key;
      back["state." + key] = tensor;
    }
    EXPECT_EQ(back.size() - 2, given.size()) << c.name;
    data::save_safetensors(folder.path(std::string(c.name) + ".cpp.safetensors"), back, {});
  }
  EXPECT_EQ(peer("check", folder.folder()), 0);
}

}  // namespace
}  // namespace bie::layers::test
