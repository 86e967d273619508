// Files of torch.save are loaded unchanged: every dtype, view, parameter class and protocol.
#include "bie/data/tensor_files.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <map>
#include <string>

#include "tests/data/torch_peer.h"
#include "tests/support/scratch.h"

namespace bie::data::test {
namespace {

using bie::test::expect_sentence;
using bie::test::read_file;
using bie::test::refusal;

using Tensors = std::map<std::string, at::Tensor>;

/// The tensors of every_kind() in torch_file_peer.py.
Tensors every_kind() {
  const at::Tensor ramp = at::arange(24).reshape({2, 3, 4});
  const at::Tensor base = at::arange(100).to(at::kFloat);
  return {{"bool", ramp.remainder(3).eq(0)},
          {"uint8", (ramp * 11).to(at::kByte)},
          {"int8", (ramp * 11 - 128).to(at::kChar)},
          {"int16", (ramp * 1000 - 12000).to(at::kShort)},
          {"int32", (ramp * 100000000 - 1200000000).to(at::kInt)},
          {"int64", ramp * 100000000000 - 1200000000000},
          {"float16", (ramp * 0.25 - 3).to(at::kHalf)},
          {"bfloat16", (ramp * 0.25 - 3).to(at::kBFloat16)},
          {"float32", ramp * 0.25 - 3},
          {"float64", ramp.to(at::kDouble) * 0.25 - 3},
          {"scalar", at::scalar_tensor(2.5)},
          {"empty", at::zeros({3, 0, 2})},
          {"base", base},
          {"slice", base.slice(0, 10, 40, 3)},
          {"transposed", base.reshape({4, 25}).t()},
          {"element", base.select(0, 7)},
          {"parameter", at::full({2}, 2.0)},
          {"with_attribute", at::full({2}, 3.0)},
          {"tensor_with_attribute", at::full({2}, 4.0)},
          {"subclass", at::tensor({1, -2, 3, -4}, at::kChar).reshape({2, 2})},
          {"ünïcode ✓", at::ones({1})}};
}

Tensors module() {
  return {{"first.weight", at::arange(6).to(at::kFloat).reshape({2, 3})},
          {"first.bias", at::full({2}, 0.5)},
          {"norm.weight", at::ones({2})},
          {"norm.bias", at::zeros({2})},
          {"norm.num_batches_tracked", at::scalar_tensor(1, at::kLong)}};
}

void expect_same(const Tensors& tensors, const Tensors& all_wanted) {
  for (const auto& [name, wanted] : all_wanted) {
    ASSERT_EQ(tensors.count(name), 1u) << name;
    const at::Tensor& got = tensors.at(name);
    EXPECT_EQ(got.scalar_type(), wanted.scalar_type()) << name;
    ASSERT_EQ(got.sizes(), wanted.sizes()) << name;
    EXPECT_TRUE(wanted.numel() == 0 || got.strides() == wanted.strides()) << name;
    EXPECT_FALSE(got.requires_grad()) << name;
    EXPECT_TRUE(at::equal(got, wanted)) << name;
  }
}

class TorchFile : public testing::TestWithParam<const char*> {
 protected:
  static std::string file(const std::string& name) { return torch_files().path(name + ".pt"); }
};

TEST_F(TorchFile, EveryDtypeViewAndParameterInEveryProtocol) {
  for (const char* protocol : {"2", "3", "4", "5"}) {
    SCOPED_TRACE(protocol);
    const Tensors tensors = load_torch_state_dict(file(std::string("every_kind_") + protocol));
    expect_same(tensors, every_kind());
    EXPECT_EQ(tensors.size(), every_kind().size());
  }
}

TEST_F(TorchFile, ViewsOfOneStorageStayViewsOfOne) {
  Tensors tensors = load_torch_state_dict(file("every_kind_2"));
  for (const char* view : {"slice", "transposed", "element"})
    EXPECT_TRUE(tensors.at(view).is_alias_of(tensors.at("base"))) << view;
  EXPECT_FALSE(tensors.at("float32").is_alias_of(tensors.at("base")));
  const std::string bytes = read_file(file("every_kind_2"));
  tensors.at("base").fill_(9);
  EXPECT_EQ(tensors.at("element").item<float>(), 9);
  const at::Tensor slice = tensors.at("slice");
  tensors.clear();
  EXPECT_TRUE(at::equal(slice, at::full({10}, 9.0)));
  EXPECT_EQ(read_file(file("every_kind_2")), bytes);
}

class TorchFileForms : public TorchFile {};

TEST_P(TorchFileForms, TheStateDictIsFound) {
  const Tensors tensors = load_torch_state_dict(file(GetParam()));
  expect_same(tensors, module());
  EXPECT_EQ(tensors.size(), module().size() + 2);  // and the running statistics
}

INSTANTIATE_TEST_SUITE_P(Files, TorchFileForms,
                         testing::Values("module", "checkpoint", "model_key", "model_state_dict_key", "keep_vars"),
                         [](const auto& file) { return std::string(file.param); });

TEST_F(TorchFile, WhatIsNoTensorIsLeftOut) {
  EXPECT_EQ(load_torch_state_dict(file("protocol_4_bytes_and_sets")).size(), 1u);
  EXPECT_EQ(load_torch_state_dict(file("ordered")).size(), 1u);
  EXPECT_EQ(load_torch_state_dict(file("recursive")).size(), 1u);
  EXPECT_TRUE(load_torch_state_dict(file("nothing")).empty());
}

TEST_F(TorchFile, ValuesPastTheShortMemoAreRight) {
  const Tensors tensors = load_torch_state_dict(file("many"));
  ASSERT_EQ(tensors.size(), 300u);
  for (int i = 0; i < 300; ++i)
    EXPECT_TRUE(at::equal(tensors.at("layer" + std::to_string(i) + ".weight"), at::full({2}, double(i)))) << i;
}

struct Refused {
  const char* name;
  const char* part;
};

class TorchFileRefused : public testing::TestWithParam<Refused> {};

TEST_P(TorchFileRefused, InOneSentence) {
  const std::string path = torch_files().path(std::string(GetParam().name) + ".pt");
  expect_sentence(refusal([&] { load_torch_state_dict(path); }), path, GetParam().part);
}

INSTANTIATE_TEST_SUITE_P(Files, TorchFileRefused,
                         testing::Values(Refused{"legacy", "load it with torch and save it again"},
                                         Refused{"tensor", "expected a state dict, got one tensor"},
                                         Refused{"list", "expected a state dict, got no dict"},
                                         Refused{"no_tensor", "a dict without tensors"},
                                         Refused{"integer_key", "a tensor whose key is no string"},
                                         Refused{"complex", R"("torch"."ComplexFloatStorage")"},
                                         Refused{"sparse", R"("torch._utils"."_rebuild_sparse_tensor")"},
                                         Refused{"expanded", "1000 elements in a storage of 1"},
                                         Refused{"stranger", R"("__main__"."Stranger")"},
                                         Refused{"whole_module", R"("__main__"."Net")"},
                                         Refused{"missing", "No such file"}),
                         [](const auto& file) { return std::string(file.param.name); });

}  // namespace
}  // namespace bie::data::test
