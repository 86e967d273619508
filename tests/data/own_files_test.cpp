// Files as users bring them: tables, arrays, images, and what is wrong with them.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <png.h>

#include <cmath>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "bie/data/dataset.h"
#include "bie/data/samples.h"
#include "tests/support/scratch.h"

namespace bie::data::test {
namespace {

using bie::test::expect_sentence;
using bie::test::read_file;
using bie::test::refusal;
using bie::test::Scratch;
using bie::test::write_file;

/// A PNG of bytes [height, width, channels].
void write_png(const std::string& path, const at::Tensor& pixels) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.height = static_cast<png_uint_32>(pixels.size(0));
  image.width = static_cast<png_uint_32>(pixels.size(1));
  image.format = pixels.size(2) == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  ASSERT_NE(png_image_write_to_file(&image, path.c_str(), 0, pixels.contiguous().data_ptr(), 0, nullptr), 0);
}

at::Tensor bytes(at::IntArrayRef sizes, std::uint64_t seed = 1) {
  at::manual_seed(seed);
  return at::randint(0, 256, sizes, at::kByte);
}

std::string npy(const std::string& descr, const std::string& shape, const std::string& data,
                const std::string& order = "False") {
  std::string header = "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }\n";
  std::string text("\x93NUMPY\x01\x00", 8);
  text += static_cast<char>(header.size());
  text += '\0';
  return text + header + data;
}

std::string as_bytes(const at::Tensor& tensor) {
  return {static_cast<const char*>(tensor.contiguous().data_ptr()), tensor.nbytes()};
}

const std::vector<std::int64_t> grey = {1, 2, 3}, table = {1, 1, 3};

at::Tensor samples(const std::string& path, const std::vector<std::int64_t>& image = grey) {
  return load_samples(path, {image}).images;
}

TEST(Csv, NumbersAndLabels) {
  const Scratch scratch;
  std::string text = "a,b,label\r\n";
  for (int i = 0; i < 10; ++i) text += std::to_string(i) + ", -1.5e1," + std::to_string(i % 2 + 1) + "\r\n";
  write_file(scratch.path("t.csv"), text);
  DataOptions options;
  options.table.split.kind = formats::SplitKind::order;
  const Dataset data = load_dataset("csv:" + scratch.path("t.csv"), options);
  ASSERT_TRUE(data.table.has_value());
  EXPECT_EQ(data.classes, 2);
  EXPECT_EQ(data.name, "t");
  EXPECT_EQ(data.class_names, (std::vector<std::string>{"1", "2"}));
  EXPECT_EQ(data.train_images.sizes(), (std::vector<std::int64_t>{8, 1, 1, 2}));
  // The fifth row of each class: 8 and 9, beside 0 to 7. A column of equal numbers says nothing.
  const double deviation = std::sqrt(5.25);
  EXPECT_TRUE(data.test_images.allclose(
      at::tensor({4.5 / deviation, 0.0, 5.5 / deviation, 0.0}).to(at::kFloat).view({2, 1, 1, 2})));
  EXPECT_TRUE(data.test_labels.equal(at::tensor({0, 1}, at::kLong)));
}

TEST(Csv, ATableOfItsOwnIsTestedWith) {
  const Scratch scratch;
  const std::string train = scratch.path("train.csv"), test = scratch.path("test.csv");
  write_file(train, "x,z,kind\n1,2,a\n3,4,b\n5,6,a\n");
  write_file(test, "kind,z,x\nb,20,10\n");
  DataOptions options;
  options.test_file = test;
  const Dataset data = load_dataset("csv:" + train, options);
  EXPECT_EQ(data.train_images.size(0), 3);
  const double deviation = std::sqrt(8.0 / 3);
  EXPECT_TRUE(data.test_images.flatten().allclose(at::tensor({7 / deviation, 16 / deviation}).to(at::kFloat)))
      << "by their names";
  EXPECT_TRUE(data.test_labels.equal(at::tensor({1}, at::kLong)));
}

TEST(Csv, AModelIsAskedAboutAllRowsOfAnotherTable) {
  const Scratch scratch;
  const std::string own = scratch.path("own.csv"), other = scratch.path("other.csv");
  std::string rows;
  for (int i = 0; i < 10; ++i) rows += std::to_string(i) + "," + std::to_string(i % 2 + 1) + "\n";
  write_file(own, "x,label\n" + rows);
  write_file(other, "x,label\n" + rows + "7,2.0\n");
  const Dataset trained = load_dataset("csv:" + own);
  DataOptions options;
  options.form = trained.table;
  options.classes = trained.class_names;
  const Dataset again = load_dataset("csv:" + own, options), whole = load_dataset("csv:" + other, options);
  EXPECT_TRUE(again.test_images.equal(trained.test_images));
  EXPECT_EQ(whole.test_images.size(0), 11);
  EXPECT_EQ(whole.test_labels[10].item<std::int64_t>(), 1) << "2.0 is 2";
  write_file(other, "x,label\n1,3\n");
  expect_sentence(refusal([&] { load_dataset("csv:" + other, options); }), other,
                  "row 1 has the label \"3\", which is not among the 2 classes");
}

TEST(Csv, ARegressionLearnsItsUnit) {
  const Scratch scratch;
  const std::string path = scratch.path("t.csv");
  std::string text = "x,price\n";
  for (int i = 0; i < 10; ++i) text += std::to_string(i) + "," + std::to_string(100 + 10 * i) + "\n";
  write_file(path, text);
  DataOptions options;
  options.table.regression = true;
  options.table.split.kind = formats::SplitKind::order;
  const Dataset data = load_dataset("csv:" + path, options);
  EXPECT_EQ(data.classes, 1);
  EXPECT_TRUE(data.class_names.empty());
  EXPECT_NEAR(data.table->mean, 140, 1e-12) << "of the training rows: all but 140 and 190";
  EXPECT_NEAR(data.table->scale, 10 * std::sqrt(7.5), 1e-12);
  EXPECT_TRUE(data.test_labels.allclose(at::tensor({0.0, 5 / std::sqrt(7.5)}).view({2, 1}).to(at::kFloat), 1e-5, 1e-6));
}

TEST(Csv, ASortedFileIsSplitAtRandomWithinItsClasses) {
  const Scratch scratch;
  std::string text = "x,label\n";
  for (int i = 0; i < 200; ++i) text += std::to_string(i / 4) + (i < 100 ? ".5,a\n" : ".5,b\n");
  write_file(scratch.path("t.csv"), text);
  DataOptions options;
  options.validation = true;
  const Dataset data = load_dataset("csv:" + scratch.path("t.csv"), options);
  EXPECT_EQ(data.test_labels.sum().item<std::int64_t>(), 20) << "20 of each class";
  EXPECT_EQ(data.validation_labels.sum().item<std::int64_t>(), 8);
  const at::Tensor gaps = data.test_images.flatten().diff();
  EXPECT_GT(gaps.max().item<float>() - gaps.min().item<float>(), 0.1) << "not at equal distances";
  options.table.split.seed = 1;
  EXPECT_FALSE(load_dataset("csv:" + scratch.path("t.csv"), options).test_images.equal(data.test_images));
  DataOptions asked;
  asked.form = data.table;
  asked.classes = data.class_names;
  EXPECT_TRUE(load_dataset("csv:" + scratch.path("t.csv"), asked).test_images.equal(data.test_images))
      << "the model knows its test rows";
}

TEST(Csv, GroupsAreInOnePartOnly) {
  const Scratch scratch;
  std::string text = "patient,x,label\n";
  for (int i = 0; i < 100; ++i)
    text += "p" + std::to_string(i / 5) + "," + std::to_string(i / 5) + ".5," + std::to_string(i % 2) + "\n";
  write_file(scratch.path("t.csv"), text);
  DataOptions options;
  options.table.split = {formats::SplitKind::group, 0, "patient"};
  options.validation = true;
  const Dataset data = load_dataset("csv:" + scratch.path("t.csv"), options);
  EXPECT_EQ(data.table->left_out, std::vector<std::string>{"patient"});
  const auto values = [](const at::Tensor& images) {
    const at::Tensor flat = images.flatten();
    return std::set<float>(flat.const_data_ptr<float>(), flat.const_data_ptr<float>() + flat.numel());
  };
  std::set<float> all;
  for (const at::Tensor& part : {data.train_images, data.validation_images, data.test_images}) {
    const std::set<float> own = values(part);
    EXPECT_EQ(part.size(0), 5 * static_cast<std::int64_t>(own.size()));
    all.insert(own.begin(), own.end());
  }
  EXPECT_EQ(values(data.train_images).size() + values(data.validation_images).size() + values(data.test_images).size(),
            all.size());
}

TEST(Csv, OptionsOfTablesAreForTables) {
  DataOptions options;
  options.table.label = "x";
  expect_sentence(refusal([&] { load_dataset("digits", options); }), "digits", "is no table");
}

TEST(ImageFolder, ClassesAreFolders) {
  const Scratch scratch;
  for (const char* name : {"b", "a"})
    for (int i = 0; i < 5; ++i)
      write_png(scratch.path("set/" + std::string(name) + "/" + std::to_string(i) + ".PNG"),
                bytes({2, 3, 1}, static_cast<std::uint64_t>(i)));
  write_file(scratch.path("set/a/readme.txt"), "no image");
  const Dataset data = load_dataset("images:" + scratch.path("set"));
  EXPECT_EQ(data.name, "set");
  EXPECT_EQ(data.class_names, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(data.train_images.sizes(), (std::vector<std::int64_t>{8, 1, 2, 3}));
  EXPECT_TRUE(data.test_labels.equal(at::tensor({0, 1}, at::kLong)));
  const at::Tensor fifth = bytes({2, 3, 1}, 4).permute({2, 0, 1});
  EXPECT_TRUE(data.test_images[1].equal(fifth));
  EXPECT_TRUE(pixels(data.test_images[1]).equal(fifth.to(at::kFloat).div(255)));
  EXPECT_FALSE(data.table.has_value());
}

TEST(ImageFolder, OneColouredImageMakesAllOfThemColoured) {
  const Scratch scratch;
  for (int i = 0; i < 5; ++i) write_png(scratch.path("a/" + std::to_string(i) + ".png"), bytes({2, 3, 1}));
  for (int i = 0; i < 5; ++i) write_png(scratch.path("b/" + std::to_string(i) + ".png"), bytes({2, 3, 3}));
  const Dataset data = load_dataset("images:" + scratch.folder() + "/");
  EXPECT_EQ(data.train_images.size(1), 3);
  EXPECT_TRUE(data.train_images[0][0].equal(data.train_images[0][2])) << "a grey one";
  EXPECT_FALSE(data.train_images[4][0].equal(data.train_images[4][2]));
}

TEST(ImageFolder, TrainAndTestMayBeApart) {
  const Scratch scratch;
  for (const char* part : {"train", "test"})
    for (const char* name : {"x", "y"})
      write_png(scratch.path(std::string(part) + "/" + name + "/1.png"), bytes({2, 3, 1}));
  const Dataset data = load_dataset("images:" + scratch.folder());
  EXPECT_EQ(data.train_images.size(0), 2);
  EXPECT_EQ(data.test_images.size(0), 2);
  std::filesystem::rename(scratch.path("test/x"), scratch.path("test/z"));
  expect_sentence(refusal([&] { load_dataset("images:" + scratch.folder()); }), scratch.folder(), "same classes");
}

TEST(ImageFolder, WhatIsNoneIsRefused) {
  const Scratch scratch;
  const std::string dir = scratch.path("set"), spec = "images:" + dir;
  const auto expect = [&](const std::string& file, const std::string& part) {
    expect_sentence(refusal([&] { load_dataset(spec); }), file, part);
  };
  expect(dir, "No such file");
  write_png(dir + "/a/1.png", bytes({2, 3, 1}));
  expect(dir, "expected at least 2 class folders, got 1");
  std::filesystem::create_directories(dir + "/b");
  expect(dir + "/b", "holds no .png, .jpg, .jpeg or .webp file");
  write_file(dir + "/b/1.png", "this is text, not an image");
  expect(dir + "/b/1.png", "cannot be read: ");
  write_png(dir + "/b/1.png", bytes({2, 3, 1}));
  expect(dir, "no class has enough rows");
  write_png(dir + "/b/2.png", bytes({40, 40, 1}));
  const std::string whole = read_file(dir + "/b/2.png");
  for (int i = 1; i <= 5; ++i) write_png(dir + "/a/" + std::to_string(i) + ".png", bytes({40, 40, 1}));
  write_file(dir + "/b/2.png", whole.substr(0, whole.size() / 2));
  std::filesystem::remove(dir + "/b/1.png");
  expect(dir + "/b/2.png", "cannot be read: ");
}

TEST(Samples, EveryFormIsReadByItsFirstBytes) {
  const Scratch scratch;
  const std::string path = scratch.path("f");
  const at::Tensor pixels = bytes({2, 3, 1});
  const at::Tensor wanted = pixels.view({1, 1, 2, 3}).to(at::kFloat).div(255);
  write_png(path, pixels);
  EXPECT_TRUE(samples(path).equal(wanted));
  for (const char* shape : {"(2, 3)", "(1, 2, 3)", "(1, 1, 2, 3)", "(6,)", "(1, 6)"}) {
    write_file(path, npy("|u1", shape, as_bytes(pixels)));
    EXPECT_TRUE(samples(path).equal(wanted)) << shape;
    write_file(path, npy("<f4", shape, as_bytes(wanted)));
    EXPECT_TRUE(samples(path).equal(wanted)) << shape;
  }
  write_file(path, npy("<f8", "(2, 2, 3)", as_bytes(at::cat({wanted, wanted}).to(at::kDouble))));
  EXPECT_TRUE(samples(path).equal(at::cat({wanted, wanted})));
  write_file(path, std::string("\0\0\x08\x03\0\0\0\x01\0\0\0\x02\0\0\0\x03", 16) + as_bytes(pixels));
  EXPECT_TRUE(samples(path).equal(wanted));
  write_file(path, "0,0.25,0.5,0.75,1,0\n");
  EXPECT_TRUE(samples(path).flatten().equal(at::tensor({0.0f, 0.25f, 0.5f, 0.75f, 1.0f, 0.0f})));
  write_file(path, "label,a,b,c,d,e,f\nseven,0,0.25,0.5,0.75,1,0\n");
  EXPECT_EQ(samples(path).numel(), 6) << "the label is left out";
}

TEST(Samples, WhiteIsWhatValuesAreDividedBy) {
  const Scratch scratch;
  const std::string path = scratch.path("f");
  write_file(path, "0,4,8,12,16,0\n");
  expect_sentence(refusal([&] { samples(path); }), path, "holds the value 16, the model takes 0 to 1");
  EXPECT_EQ(load_samples(path, {grey, formats::InputRange::unit, 16}).images.max().item<float>(), 1);
  EXPECT_EQ(load_samples(path, {grey, formats::InputRange::any}).images.max().item<float>(), 16);
  EXPECT_EQ(load_samples(path, {grey, formats::InputRange::bytes}).images.max().item<float>(), 16);
  EXPECT_EQ(load_samples(path, {grey, formats::InputRange::bytes, 16}).images.max().item<float>(), 255);
  write_file(path, npy("|u1", "(2, 3)", as_bytes(at::full({6}, 16, at::kByte))));
  EXPECT_EQ(load_samples(path, {grey, formats::InputRange::unit, 16}).images.min().item<float>(), 1);
  EXPECT_EQ(load_samples(path, {grey, formats::InputRange::unit}).images.min().item<float>(), 16.0f / 255);
  EXPECT_EQ(load_samples(path, {grey, formats::InputRange::any}).images.min().item<float>(), 16.0f / 255);
  EXPECT_EQ(load_samples(path, {grey, formats::InputRange::any, 1}).images.min().item<float>(), 16);
  EXPECT_EQ(load_samples(path, {grey, formats::InputRange::bytes}).images.min().item<float>(), 16);
  EXPECT_EQ(load_samples(path, {grey, formats::InputRange::numbers}).images.min().item<float>(), 16);
}

TEST(Samples, WhatDoesNotFitIsRefused) {
  const Scratch scratch;
  const std::string path = scratch.path("f");
  const auto expect = [&](const std::string& content, const std::string& part) {
    write_file(path, content);
    expect_sentence(refusal([&] { samples(path); }), path, part);
  };
  const std::string six = as_bytes(bytes({6}));
  expect("", "is empty");
  expect("hello, this is text\n", "expected 6 columns, or one more with labels, got 2");
  expect("1,2,3\n", "expected 6 columns, or one more with labels, got 3");
  expect("a,b,c,d,e,f\n1,1,1,1,1,1\n0,y,1,1,1,1\n", "line 3, column 2: expected a number, got \"y\"");
  expect("0,0,0,x,0,0\n1,1,1,1,1,1\n", "line 1, column 4: expected a number, got \"x\"");
  expect(npy("|u1", "(3, 2)", six), "holds values of sizes [3, 2], the model takes images of [1, 2, 3]");
  expect(npy("|u1", "(2, 3)", six + "x"), "holds 7 bytes of data, its shape [2, 3] takes 6");
  expect(npy("|u1", "(2, 3)", six.substr(1)), "holds 5 bytes");
  expect(npy("|u1", "(0, 2, 3)", ""), "holds no images");
  expect(npy(">f4", "(2, 3)", six + six + six + six), "\">f4\", which is not read");
  expect(npy("|O", "(2, 3)", six), "which is not read");
  expect(npy("|u1", "(2, 3)", six, "True"), "Fortran order");
  expect(npy("|u1", "(-2, 3)", six), "no shape that can be read");
  expect(npy("|u1", "2, 3", six), "no shape that can be read");
  expect(npy("<f8", "(4611686018427387904, 2, 3)", six), "more than there can be");
  expect(npy("|u1", "(2, 3)", six).substr(0, 20), "ends inside its header");
  expect(npy("|u1", "(2, 3)", six).substr(0, 9), "does not begin with an NPY header");
  expect(npy("<f4", "(2, 3)", as_bytes(at::full({6}, std::nanf("")))), "NaN or infinity");
  expect(npy("<f4", "(2, 3)", as_bytes(at::full({6}, -0.5f))), "holds the value -0.5");
  expect(std::string("\0\0\x08\x03\0\0\0\x01\0\0\0\x02\0\0\0\x04\0\0\0\0\0\0\0\0", 24), "[1, 2, 4]");
  write_png(path, bytes({3, 2, 1}));
  expect_sentence(refusal([&] { samples(path); }), path, "is 3x2, the model takes images of [1, 2, 3]");
  expect_sentence(refusal([&] { samples(scratch.folder()); }), scratch.folder(), "is a folder");
  expect_sentence(refusal([&] { samples(scratch.path("none")); }), scratch.path("none"), "cannot be opened");
  write_file(path, "0.5,0.5,0.5\n");
  EXPECT_EQ(samples(path, table).numel(), 3);
}

}  // namespace
}  // namespace bie::data::test
