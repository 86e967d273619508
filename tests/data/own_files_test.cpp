// Files as users bring them: tables, arrays, images, and what is wrong with them.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <png.h>

#include <filesystem>
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
  return load_samples(path, {image});
}

TEST(Csv, NumbersAndLabels) {
  const Scratch scratch;
  std::string text = "a,b,label\r\n";
  for (int i = 0; i < 10; ++i) text += std::to_string(i) + ", -1.5e1," + std::to_string(i % 2) + "\r\n";
  write_file(scratch.path("t.csv"), text);
  const Dataset data = load_dataset("csv:" + scratch.path("t.csv"));
  EXPECT_TRUE(data.tabular);
  EXPECT_EQ(data.classes, 2);
  EXPECT_EQ(data.name, "t");
  EXPECT_TRUE(data.class_names.empty());
  EXPECT_EQ(data.train_images.sizes(), (std::vector<std::int64_t>{8, 1, 1, 2}));
  // Of each class the fifth row: 8 and 9.
  EXPECT_TRUE(data.test_images.equal(at::tensor({8.0f, -15.0f, 9.0f, -15.0f}).view({2, 1, 1, 2})));
  EXPECT_TRUE(data.test_labels.equal(at::tensor({0, 1}, at::kLong)));
}

TEST(Csv, LabelsMayBeNamesAndStandAnywhere) {
  const Scratch scratch;
  std::string text = "Class;x;y2\n";
  for (int i = 0; i < 6; ++i) text += "\"dog\";1;2\ncat;+3;4\n\n";
  write_file(scratch.path("t.csv"), text);
  const Dataset data = load_dataset("csv:" + scratch.path("t.csv"));
  EXPECT_EQ(data.class_names, (std::vector<std::string>{"cat", "dog"}));
  EXPECT_TRUE(data.train_labels.slice(0, 0, 2).equal(at::tensor({1, 0}, at::kLong)));
  EXPECT_TRUE(data.train_images[1].flatten().equal(at::tensor({3.0f, 4.0f})));
}

TEST(Csv, WithoutAHeaderTheLastColumnIsTheLabel) {
  const Scratch scratch;
  write_file(scratch.path("t.csv"), "1,2,a\n1,2,b\n1,2,a\n1,2,a\n1,2,a\n1,2,a\n");
  EXPECT_EQ(load_dataset("csv:" + scratch.path("t.csv")).class_names, (std::vector<std::string>{"a", "b"}));
}

TEST(Csv, TheFirstLineIsNotLost) {
  const Scratch scratch;
  const std::string path = scratch.path("t.csv"), rows = "1,2,a\n1,2,b\n1,2,a\n1,2,a\n1,2,a\n1,2,a\n";
  const auto rows_with = [&](const std::string& first) {
    write_file(path, first + "\n" + rows);
    const Dataset data = load_dataset("csv:" + path);
    return data.train_images.size(0) + data.test_images.size(0);
  };
  for (const char* first : {"1e-50,2,a", "1e-400,2,b", "-0.00,+1E+2,a", "3,4,a"})
    EXPECT_EQ(rows_with(first), 7) << first;
  for (const char* first : {"x,z,kind", "x,,kind", ",x,kind", "\"\",\"x\",\"kind\"", "0,1,label", "2019,2020,class",
                            "id,2019,target", "NA,?,y"})
    EXPECT_EQ(rows_with(first), 6) << first;
  const auto refused = [&](const std::string& first, const char* part) {
    expect_sentence(refusal([&] { rows_with(first); }), path, part);
  };
  refused(",2,a", "line 1, column 1 is \"\"");
  refused("1,,a", "line 1, column 2 is \"\"");
  for (const char* missing : {"NA", "na", "N/A", "nan", "-inf", "?", "null", "None", "1e400"})
    refused(std::string("1,") + missing + ",a", "line 1, column 2 is ");
  refused("NA,NA,a", "line 1, column 1 is \"NA\"");
  refused("1,apple,a", "line 1, column 2 is \"apple\"");
  refused("a,1,2", "line 1, column 1 is \"a\"");
  refused("1.5,2,y", "line 1 may be names or a row of numbers and its label");
  write_file(path, "1,2,y\n1,2,n\n1,2,y\n" + rows);
  expect_sentence(refusal([&] { load_dataset("csv:" + path); }), path, "line 1 may be names or a row");
}

TEST(Csv, QuotesHoldSeparatorsAndQuotes) {
  const Scratch scratch;
  const std::string path = scratch.path("t.csv");
  std::string text = "\"x, in cm\"; z ;\"class\"\n";
  for (int i = 0; i < 6; ++i) text += "\"1\"; 2 ; \"a;b\"\n3;4;\"say \"\"c\"\"\" \n";
  write_file(path, text);
  const Dataset data = load_dataset("csv:" + path);
  EXPECT_EQ(data.class_names, (std::vector<std::string>{"a;b", "say \"c\""}));
  EXPECT_TRUE(data.train_images[1].flatten().equal(at::tensor({3.0f, 4.0f})));
  for (const char* open : {"1;2;\"a", "1;\"2;a", "1;2;\"a\"\""}) {
    write_file(path, text + open + "\n1;2;\"a;b\"\n");
    expect_sentence(refusal([&] { load_dataset("csv:" + path); }), path, "line 14 has a quote that does not end on it");
  }
}

TEST(Csv, LinesMayEndInCarriageReturnsAlone) {
  const Scratch scratch;
  write_file(scratch.path("t.csv"), "x,label\r1,0\r2,1\r3,0\r\r4,0\r5,0\r6,0");
  const Dataset data = load_dataset("csv:" + scratch.path("t.csv"));
  EXPECT_EQ(data.train_images.size(0) + data.test_images.size(0), 6);
  write_file(scratch.path("u.csv"), "x,label\r1,0\rapple,1\r");
  expect_sentence(refusal([&] { load_dataset("csv:" + scratch.path("u.csv")); }), "u.csv", "line 3, column 1");
}

TEST(Csv, LabelsAreText) {
  const Scratch scratch;
  const std::string path = scratch.path("t.csv");
  write_file(path, "1,2,gr\xfcn\n1,2,a\n1,2,a\n1,2,a\n1,2,a\n1,2,a\n");
  expect_sentence(refusal([&] { load_dataset("csv:" + path); }), path, "is not UTF-8");
  std::string many;
  for (int i = 0; i < 20000; ++i) many += "1,name" + std::to_string(i) + "\n";
  write_file(path, many);
  expect_sentence(refusal([&] { load_dataset("csv:" + path); }), path,
                  "has 20000 different labels, at most 10000 are wanted");
}

TEST(Csv, WhatIsNoTableIsRefused) {
  const Scratch scratch;
  const std::string path = scratch.path("t.csv");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "is empty"},
      {"\n \r\n", "is empty"},
      {std::string(200000, ',') + "\n", "has 200001 columns, at most 65536 numbers a row are wanted"},
      {"a,b,label\n", "has a header and no rows"},
      {"1,2,0\n1,apple,0\n", "line 2, column 2 is \"apple\", a number is wanted"},
      {"a,label\n1,0\n\nnan,0\n", "line 4, column 1 is \"nan\""},
      {"1,2,0\n1,2\n", "line 2 has 2 columns, the first has 3"},
      {"1\n2\n", "1 columns, numbers and a label are wanted"},
      {"1,-1\n2,0\n", "has the label -1"},
      {"1,10000\n2,0\n", "has the label 10000"},
      {std::string("1,0\n\0,1\n", 8), "zero byte"},
      {"1,0\n2,1\n", "no class has five"},
  };
  for (const auto& [text, part] : cases) {
    write_file(path, text);
    expect_sentence(refusal([&] { load_dataset("csv:" + path); }), path, part);
  }
  expect_sentence(refusal([&] { load_dataset("csv:" + scratch.path("none")); }), scratch.path("none"),
                  "cannot be opened");
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
  const at::Tensor fifth = bytes({2, 3, 1}, 4).permute({2, 0, 1}).to(at::kFloat).div(255);
  EXPECT_TRUE(data.test_images[1].equal(fifth));
  EXPECT_FALSE(data.tabular);
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
  expect(dir, "holds 1 class folders, at least 2");
  std::filesystem::create_directories(dir + "/b");
  expect(dir + "/b", "holds no .png file");
  write_file(dir + "/b/1.png", "this is text, not an image");
  expect(dir + "/b/1.png", "cannot be read: ");
  write_png(dir + "/b/1.png", bytes({3, 2, 1}));
  expect(dir + "/b/1.png", "is 3x2, ");
  write_png(dir + "/b/1.png", bytes({2, 3, 1}));
  expect(dir, "no class has five");
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
  EXPECT_EQ(load_samples(path, {grey, true, 16}).max().item<float>(), 1);
  EXPECT_EQ(load_samples(path, {grey, false}).max().item<float>(), 16) << "a model of any numbers";
  write_file(path, npy("|u1", "(2, 3)", as_bytes(at::full({6}, 16, at::kByte))));
  EXPECT_EQ(load_samples(path, {grey, true, 16}).min().item<float>(), 1);
  EXPECT_EQ(load_samples(path, {grey, false}).min().item<float>(), 16);
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
  expect("hello, this is text\n", "2 columns, 6 are wanted");
  expect("1,2,3\n", "3 columns, 6 are wanted, or one more with labels");
  expect("a,b,c,d,e,f\n1,1,1,1,1,1\n0,y,1,1,1,1\n", "line 3, column 2 is \"y\"");
  expect("0,0,0,x,0,0\n1,1,1,1,1,1\n", "line 1, column 4 is \"x\"");
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
