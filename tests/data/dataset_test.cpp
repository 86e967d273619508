// The embedded digits, MNIST and CIFAR-10 from files made here, the real MNIST where it lies, and specs that are
// refused.
#include "bie/data/dataset.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>

#include "tests/support/scratch.h"

namespace bie::data::test {
namespace {

using bie::test::expect_sentence;
using bie::test::refusal;
using bie::test::Scratch;
using bie::test::write_file;

void expect_images(const at::Tensor& images, const at::Tensor& labels, std::int64_t count, std::int64_t side) {
  EXPECT_EQ(images.scalar_type(), at::kFloat);
  EXPECT_EQ(images.sizes(), (std::vector<std::int64_t>{count, 1, side, side}));
  EXPECT_TRUE(images.is_contiguous());
  EXPECT_EQ(images.min().item<float>(), 0.0f);
  EXPECT_EQ(images.max().item<float>(), 1.0f);
  EXPECT_EQ(labels.scalar_type(), at::kLong);
  EXPECT_EQ(labels.sizes(), (std::vector<std::int64_t>{count}));
  EXPECT_EQ(labels.min().item<std::int64_t>(), 0);
  EXPECT_EQ(labels.max().item<std::int64_t>(), 9);
}

TEST(Dataset, Digits) {
  const Dataset digits = load_dataset("digits");
  EXPECT_EQ(digits.name, "digits");
  EXPECT_EQ(digits.classes, 10);
  expect_images(digits.train_images, digits.train_labels, 1437, 8);
  expect_images(digits.test_images, digits.test_labels, 360, 8);
  // Stratified: a fifth of every class, to the nearest image.
  const at::Tensor train = digits.train_labels.bincount();
  const at::Tensor test = digits.test_labels.bincount();
  EXPECT_LE((test * 5 - (train + test)).abs().max().item<std::int64_t>(), 5);
}

TEST(Dataset, DigitsBelongToTheCaller) {
  load_dataset("digits").train_images.zero_();
  EXPECT_EQ(load_dataset("digits").train_images.max().item<float>(), 1.0f);
}

TEST(Dataset, RealMnist) {
  const char* set = std::getenv("BIE_SHARED");
  const std::string dir = std::string(set != nullptr ? set : BIE_SHARED) + "/data/mnist";
  if (!std::filesystem::exists(dir)) GTEST_SKIP() << "shared/data/mnist is not there; BIE_SHARED names its folder";
  const Dataset mnist = load_dataset("mnist:" + dir);
  EXPECT_EQ(mnist.name, "mnist");
  EXPECT_EQ(mnist.classes, 10);
  expect_images(mnist.train_images, mnist.train_labels, 60000, 28);
  expect_images(mnist.test_images, mnist.test_labels, 10000, 28);
  // Facts of the set in whatever order its images lie: how many of each digit, and the mean brightness.
  EXPECT_TRUE(at::equal(mnist.train_labels.bincount(),
                        at::tensor({5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949}, at::kLong)));
  EXPECT_TRUE(at::equal(mnist.test_labels.bincount(),
                        at::tensor({980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009}, at::kLong)));
  EXPECT_NEAR(mnist.train_images.mean().item<double>(), 0.1307, 5e-5);
}

/// A set of two training images and one test image of 2 x 2.
struct TinyMnist {
  Scratch scratch;
  std::string train_images = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 2, 0, 51, 102, char(255), 1, 2, 3, 4};
  std::string train_labels = {0, 0, 8, 1, 0, 0, 0, 2, 9, 0};
  std::string test_images = {0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 0};
  std::string test_labels = {0, 0, 8, 1, 0, 0, 0, 1, 5};

  Dataset load(const std::string& separator = "-") const {
    write_file(scratch.path("train-images" + separator + "idx3-ubyte"), train_images);
    write_file(scratch.path("train-labels" + separator + "idx1-ubyte"), train_labels);
    write_file(scratch.path("t10k-images" + separator + "idx3-ubyte"), test_images);
    write_file(scratch.path("t10k-labels" + separator + "idx1-ubyte"), test_labels);
    return load_dataset("mnist:" + scratch.folder());
  }
};

TEST(Dataset, MnistUnderBothSpellings) {
  for (const char* separator : {"-", "."}) {
    const Dataset set = TinyMnist().load(separator);
    const at::Tensor wanted = at::tensor({0.0f, 0.2f, 0.4f, 1.0f}).reshape({1, 2, 2});
    EXPECT_TRUE(at::equal(set.train_images[0], wanted)) << separator;
    EXPECT_TRUE(at::equal(set.train_labels, at::tensor({9, 0}, at::kLong))) << separator;
    EXPECT_TRUE(at::equal(set.test_labels, at::tensor({5}, at::kLong))) << separator;
  }
}

TEST(Dataset, MnistFilesThatDisagreeAreRefused) {
  const auto refused = [](const TinyMnist& tiny, const char* part) {
    expect_sentence(refusal([&] { tiny.load(); }), tiny.scratch.folder(), part);
  };
  TinyMnist label;
  label.train_labels.back() = 10;
  refused(label, "holds the label 10, labels are below 10");
  TinyMnist count;
  count.train_labels[7] = 1;
  count.train_labels.pop_back();
  refused(count, "holds 2 images and");
  TinyMnist rank;
  rank.test_labels = rank.test_images;
  refused(rank, "expected labels of rank 1, got sizes");
  TinyMnist swapped;
  swapped.test_images = swapped.test_labels;
  refused(swapped, "expected images of rank 3, got sizes");
  TinyMnist empty;
  empty.test_images = std::string({0, 0, 8, 3, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 2});
  empty.test_labels = std::string({0, 0, 8, 1, 0, 0, 0, 0});
  refused(empty, "which is empty");
  TinyMnist narrow;
  narrow.test_images = std::string({0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0});
  refused(narrow, "test images of [2, 1]");
}

/// A set of one, two, ... five training images and two test images. Byte i of image n is (7 * n + i) % 256; its label
/// n.
struct TinyCifar {
  Scratch scratch;
  std::map<std::string, std::string> files;

  TinyCifar() {
    int n = 0;
    for (const int i : {1, 2, 3, 4, 5})
      for (int j = 0; j < i; ++j) files["data_batch_" + std::to_string(i) + ".bin"] += record(n++);
    files["test_batch.bin"] = record(3) + record(9);
  }
  static std::string record(int n) {
    std::string bytes(1, static_cast<char>(n % 10));
    for (int i = 0; i < 3072; ++i) bytes += static_cast<char>(7 * n + i);
    return bytes;
  }
  Dataset load() const {
    for (const auto& [name, bytes] : files) write_file(scratch.path(name), bytes);
    return load_dataset("cifar10:" + scratch.folder());
  }
};

TEST(Dataset, CifarIsItsFilesInOrder) {
  const Dataset set = TinyCifar().load();
  EXPECT_EQ(set.name, "cifar10");
  EXPECT_EQ(set.classes, 10);
  EXPECT_EQ(set.train_images.sizes(), (std::vector<std::int64_t>{15, 3, 32, 32}));
  EXPECT_TRUE(set.train_images.is_contiguous());
  EXPECT_EQ(set.train_images.scalar_type(), at::kFloat);
  EXPECT_TRUE(at::equal(set.train_labels, at::arange(15).remainder(10)));
  EXPECT_TRUE(at::equal(set.test_labels, at::tensor({3, 9}, at::kLong)));
  const at::Tensor bytes = (7 * at::arange(15).view({15, 1}) + at::arange(3072)).remainder(256);
  EXPECT_TRUE(at::equal(set.train_images.flatten(1), bytes.to(at::kFloat).div(255)));
  EXPECT_TRUE(at::equal(set.test_images, set.train_images.index_select(0, at::tensor({3, 9}))));
}

TEST(Dataset, CifarFilesThatAreNotWholeAreNamed) {
  for (const auto& [name, good] : TinyCifar().files)
    for (const std::string& bad : {std::string(), good.substr(0, 1), good.substr(0, good.size() - 1), good + '\0',
                                   good + good.substr(0, 3072)}) {
      TinyCifar tiny;
      tiny.files[name] = bad;
      expect_sentence(refusal([&] { tiny.load(); }), tiny.scratch.path(name),
                      std::to_string(bad.size()) + " bytes are not whole records of 3073");
    }
}

TEST(Dataset, CifarLabelsAreClasses) {
  for (const int label : {10, 127, 255}) {
    TinyCifar tiny;
    tiny.files["data_batch_4.bin"][2 * 3073] = static_cast<char>(label);
    expect_sentence(refusal([&] { tiny.load(); }), tiny.scratch.path("data_batch_4.bin"),
                    "image 2 has the label " + std::to_string(label) + ", labels are below 10");
  }
}

TEST(Dataset, CifarFilesThatCannotBeReadAreNamed) {
  for (const auto& [name, good] : TinyCifar().files) {
    TinyCifar tiny;
    tiny.files.erase(name);
    expect_sentence(refusal([&] { tiny.load(); }), tiny.scratch.path(name), "cannot be opened: No such file");
    std::filesystem::create_directory(tiny.scratch.path(name));
    expect_sentence(refusal([&] { tiny.load(); }), tiny.scratch.path(name), "is not a regular file");
  }
}

TEST(Dataset, AMissingFileIsNamed) {
  const Scratch scratch;
  expect_sentence(refusal([&] { load_dataset("mnist:" + scratch.folder()); }), scratch.folder(),
                  "has no file train-images-idx3-ubyte");
}

TEST(Dataset, AnUnknownSpecListsTheForms) {
  for (const char* spec : {"", "cifar", "cifar10", "cifar10:", "Digits", "mnist", "mnist:", "digits "}) {
    expect_sentence(refusal([&] { load_dataset(spec); }), "data set \"",
                    "is unknown; the forms are digits, mnist:DIR, cifar10:DIR, csv:FILE and images:DIR");
  }
}

}  // namespace
}  // namespace bie::data::test
