// Saved tensors are loaded unchanged, by us and by the official package, and a failed write leaves the old file.
#include "bie/data/tensor_files.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdlib>

#include "tests/support/scratch.h"

namespace bie::data::test {
namespace {

using bie::test::expect_sentence;
using bie::test::read_file;
using bie::test::refusal;
using bie::test::Scratch;

const std::map<std::string, std::string> peer_metadata = {
    {"bie", R"({"format_version": 1})"}, {"naïve", "ünïcode ✓\n"}, {"", ""}, {"🐝", "\"\\\t\x7f"}};

/// The tensors of safetensors_peer.py.
std::map<std::string, at::Tensor> peer_tensors() {
  const at::Tensor ramp = at::arange(24).reshape({2, 3, 4});
  return {{"BOOL", ramp.remainder(3).eq(0)},
          {"U8", (ramp * 11).to(at::kByte)},
          {"I8", (ramp * 11 - 128).to(at::kChar)},
          {"I16", (ramp * 1000 - 12000).to(at::kShort)},
          {"I32", (ramp * 100000000 - 1200000000).to(at::kInt)},
          {"I64", ramp * 100000000000 - 1200000000000},
          {"F16", (ramp * 0.25 - 3).to(at::kHalf)},
          {"BF16", (ramp * 0.25 - 3).to(at::kBFloat16)},
          {"F32", ramp * 0.25 - 3},
          {"F64", ramp.to(at::kDouble) * 0.25 - 3},
          {"scalar", at::scalar_tensor(2.5)},
          {"scalar BOOL", at::scalar_tensor(true, at::kBool)},
          {"scalar U8", at::scalar_tensor(200, at::kByte)},
          {"scalar BF16", at::scalar_tensor(-1.5, at::kBFloat16)},
          {"empty", at::zeros({3, 0, 2})},
          {"empty BOOL", at::zeros({0}, at::kBool)},
          {"empty I64", at::zeros({0, 0}, at::kLong)},
          {"", at::full({2}, 2.0)},
          {"層.重み 🐝\u2028\x7f", at::full({3}, 3.0)},
          {"line\nbreak\x01", at::full({4}, 4.0)},
          {"odd \"name\"\\ü", at::ones({1})}};
}

void expect_same(const SafetensorsFile& file, const std::map<std::string, at::Tensor>& tensors) {
  ASSERT_EQ(file.tensors.size(), tensors.size());
  for (const auto& [name, wanted] : tensors) {
    ASSERT_EQ(file.tensors.count(name), 1u) << name;
    const at::Tensor& got = file.tensors.at(name);
    EXPECT_EQ(got.scalar_type(), wanted.scalar_type()) << name;
    EXPECT_TRUE(got.is_contiguous()) << name;
    ASSERT_EQ(got.sizes(), wanted.sizes()) << name;
    EXPECT_TRUE(at::equal(got, wanted)) << name;
  }
}

/// Exit status of the peer script.
int peer(const std::string& action, const std::string& path) {
  const std::string command = "'" BIE_PYTHON "' '" BIE_SAFETENSORS_PEER "' " + action + " '" + path + "'";
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

constexpr int peer_missing = 77;

TEST(Safetensors, RoundTripKeepsEveryDtype) {
  const Scratch scratch;
  save_safetensors(scratch.path("a"), peer_tensors(), peer_metadata);
  const SafetensorsFile file = load_safetensors(scratch.path("a"));
  expect_same(file, peer_tensors());
  EXPECT_EQ(file.metadata, peer_metadata);
}

TEST(Safetensors, ReadsWhatTheOfficialPackageWrites) {
  const Scratch scratch;
  const int status = peer("write", scratch.path("a"));
  if (status == peer_missing) GTEST_SKIP() << "the Python package safetensors is not installed";
  ASSERT_EQ(status, 0);
  const SafetensorsFile file = load_safetensors(scratch.path("a"));
  expect_same(file, peer_tensors());
  EXPECT_EQ(file.metadata, peer_metadata);
}

TEST(Safetensors, TheOfficialPackageReadsWhatWeWrite) {
  const Scratch scratch;
  save_safetensors(scratch.path("a"), peer_tensors(), peer_metadata);
  const int status = peer("check", scratch.path("a"));
  if (status == peer_missing) GTEST_SKIP() << "the Python package safetensors is not installed";
  EXPECT_EQ(status, 0);
}

TEST(Safetensors, FilesWithoutTensorsOrMetadataGoBothWays) {
  const Scratch scratch;
  for (const char* what : {"-bare", "-nothing"}) {
    const int status = peer(std::string("write") + what, scratch.path("theirs"));
    if (status == peer_missing) GTEST_SKIP() << "the Python package safetensors is not installed";
    ASSERT_EQ(status, 0);
    const SafetensorsFile file = load_safetensors(scratch.path("theirs"));
    EXPECT_TRUE(file.metadata.empty());
    expect_same(file, what[1] == 'b' ? peer_tensors() : std::map<std::string, at::Tensor>());
    save_safetensors(scratch.path("ours"), file.tensors, {});
    EXPECT_EQ(peer(std::string("check") + what, scratch.path("ours")), 0) << what;
  }
}

TEST(Safetensors, StridedAndDifferentiableTensorsAreWrittenByValue) {
  const Scratch scratch;
  const at::Tensor base = at::arange(24).to(at::kFloat).reshape({4, 6});
  const std::map<std::string, at::Tensor> tensors = {{"transposed", base.t()},
                                                     {"strided", base.slice(1, 1, 6, 2)},
                                                     {"expanded", base.slice(0, 0, 1).expand({3, 6})},
                                                     {"leaf", base.clone().requires_grad_(true)}};
  save_safetensors(scratch.path("a"), tensors, {});
  expect_same(load_safetensors(scratch.path("a")), tensors);
  EXPECT_FALSE(load_safetensors(scratch.path("a")).tensors.at("leaf").requires_grad());
}

TEST(Safetensors, NothingAtAllIsAFile) {
  const Scratch scratch;
  save_safetensors(scratch.path("a"), {}, {});
  EXPECT_EQ(read_file(scratch.path("a")), std::string("\x08\0\0\0\0\0\0\0{}      ", 16));
  EXPECT_TRUE(load_safetensors(scratch.path("a")).tensors.empty());
}

TEST(Safetensors, EveryTensorIsAlignedInTheFile) {
  const Scratch scratch;
  // Names in the opposite order of the element sizes.
  save_safetensors(scratch.path("a"), {{"a", at::zeros({3}, at::kByte)}, {"b", at::ones({3}, at::kDouble)}}, {});
  const std::string bytes = read_file(scratch.path("a"));
  EXPECT_EQ(static_cast<unsigned char>(bytes[0]) % 8, 0);
  EXPECT_NE(bytes.find(R"("b":{"data_offsets":[0,24])"), std::string::npos) << bytes;
}

TEST(Safetensors, WhatCannotBeWrittenIsRefused) {
  const Scratch scratch;
  const std::string path = scratch.path("a");
  const auto refused = [&](const std::map<std::string, at::Tensor>& tensors,
                           const std::map<std::string, std::string>& metadata, const char* part) {
    expect_sentence(refusal([&] { save_safetensors(path, tensors, metadata); }), path, part);
  };
  refused({{"w", at::zeros({2}, at::kComplexDouble)}}, {}, "tensor \"w\" is ComplexDouble");
  refused({{"w", at::Tensor()}}, {}, "tensor \"w\" is undefined");
  refused({{"w", at::empty({2}, at::kMeta)}}, {},
          "tensor \"w\": expected a strided tensor with values, got one on meta");
  refused({{"__metadata__", at::zeros({2})}}, {}, "cannot be named __metadata__");
  refused({{"\xff", at::zeros({2})}}, {}, "not UTF-8");
  refused({}, {{"key", "\xff"}}, "not UTF-8");
  EXPECT_EQ(scratch.count(), 0);
  const std::string nowhere = scratch.path("no/such/folder");
  expect_sentence(refusal([&] { save_safetensors(nowhere, {}, {}); }), nowhere, "cannot be written: No such file");
}

TEST(Safetensors, AFailedWriteLeavesTheOldFile) {
  const Scratch scratch;
  const std::string path = scratch.path("a");
  save_safetensors(path, {{"w", at::ones({4})}}, {});
  const std::string old = read_file(path);

  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 4096;
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string sentence = refusal([&] { save_safetensors(path, {{"w", at::ones({100000})}}, {}); });
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);

  expect_sentence(sentence, path, "cannot be written: File too large");
  EXPECT_EQ(read_file(path), old);
  EXPECT_EQ(scratch.count(), 1);
}

TEST(Safetensors, AWriteReplacesTheOldFile) {
  const Scratch scratch;
  save_safetensors(scratch.path("a"), {{"w", at::ones({4})}}, {});
  save_safetensors(scratch.path("a"), {{"v", at::zeros({2})}}, {});
  expect_same(load_safetensors(scratch.path("a")), {{"v", at::zeros({2})}});
  EXPECT_EQ(scratch.count(), 1);
}

}  // namespace
}  // namespace bie::data::test
