// Folders of safetensors and the weight-only layers in them. Values are compared in
// tests/python/weights_folder_test.py.
#include "bie/formats/coded_layers.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "bie/formats/safetensors.h"
#include "tests/support/scratch.h"

namespace bie::formats::test {
namespace {

using bie::test::expect_sentence;
using bie::test::refusal;
using bie::test::Scratch;
using bie::test::write_file;

DenseArray filled(Element element, std::vector<std::int64_t> sizes, int byte = 0) {
  std::int64_t count = 0;
  dense_bytes(element, sizes, &count);
  return {element, std::move(sizes), [count, byte](const std::function<void(const void*)>& take) {
            take(std::string(static_cast<std::size_t>(count), static_cast<char>(byte)).data());
          }};
}

using Arrays = std::map<std::string, DenseArray>;

/// A layer of 64 rows and 32 outputs, 4 bits in groups of 32, all of group 0.
Arrays gptq(const std::string& name) {
  return {{name + ".qweight", filled(Element::i32, {8, 32})},
          {name + ".qzeros", filled(Element::i32, {2, 4})},
          {name + ".scales", filled(Element::f16, {2, 32}, 0x3c)},
          {name + ".bias", filled(Element::f16, {32})}};
}

CodedModel read(const std::string& path) { return coded_layers(load_weights_folder(path)); }

TEST(CodedLayers, AFileAndItsConfigurationMakeALayer) {
  const Scratch scratch;
  save_safetensors(scratch.path("model.safetensors"), gptq("a.b"), {});
  write_file(scratch.path("quantize_config.json"), R"({"bits": 4, "group_size": 32, "checkpoint_format": "gptq_v2"})");
  for (const std::string& path : {scratch.folder(), scratch.path("model.safetensors")}) {
    const CodedModel model = read(path);
    const CodedLayer& layer = model.layers.at("a.b");
    EXPECT_EQ(layer.kind, CodedLayer::Kind::gptq2);
    EXPECT_EQ(layer.bits, 4);
    EXPECT_EQ(layer.group, 32);
    EXPECT_EQ(layer.in_features, 64);
    EXPECT_EQ(layer.out_features, 32);
    EXPECT_EQ(layer.tensors.count("bias"), 0U) << "a bias of zeros is none";
    EXPECT_TRUE(model.rest.empty());
  }
}

TEST(CodedLayers, ShardsAreReadByTheirIndex) {
  const Scratch scratch;
  save_safetensors(scratch.path("x.safetensors"), gptq("a"), {});
  save_safetensors(scratch.path("y.safetensors"),
                   {{"head.weight", filled(Element::f32, {2, 2})}, {"unnamed", filled(Element::f32, {1})}}, {});
  write_file(scratch.path("model.safetensors.index.json"),
             R"({"weight_map": {"a.qweight": "x.safetensors", "a.qzeros": "x.safetensors", "a.scales": "x.safetensors",
                 "head.weight": "y.safetensors"}})");
  const WeightsFolder folder = load_weights_folder(scratch.folder());
  EXPECT_EQ(folder.arrays.size(), 4U) << "the index says which tensors there are";
  EXPECT_EQ(folder.files.at("head.weight"), scratch.path("y.safetensors"));
  EXPECT_EQ(coded_layers(folder).rest.size(), 1U);
  std::filesystem::remove(scratch.path("y.safetensors"));
  expect_sentence(refusal([&] { load_weights_folder(scratch.folder()); }), scratch.folder(),
                  "the shard \"y.safetensors\" of tensor \"head.weight\" is missing");
}

TEST(CodedLayers, PatternsOfDynamicSayWhatTensorsLeaveOpen) {
  const Scratch scratch;
  Arrays arrays = gptq("a.up");
  for (const auto& [key, array] : gptq("a.down")) arrays.emplace(key, array);
  arrays["a.up.qweight"] = filled(Element::i32, {12, 32});  // 96 rows: two groups of 64, or of 50
  arrays["a.down.qweight"] = filled(Element::i32, {12, 32});
  save_safetensors(scratch.path("model.safetensors"), arrays, {});
  write_file(
      scratch.path("quantize_config.json"),
      R"({"bits": 4, "group_size": 64, "dynamic": {"-:.*up": {"group_size": 48}, "-:(": {}, "+:a\\.(x|up)$": {"group_size": 50}}})");
  const CodedModel model = read(scratch.folder());
  EXPECT_EQ(model.layers.at("a.up").group, 50);
  EXPECT_EQ(model.layers.at("a.down").group, 64);
}

TEST(CodedLayers, APatternThatCostsExponentialTimeElsewhereEndsAtOnce) {
  const Scratch scratch;
  save_safetensors(scratch.path("model.safetensors"), gptq(std::string(200, 'a')), {});
  write_file(scratch.path("quantize_config.json"), R"({"bits": 4, "dynamic": {"(a*)*b": {"bits": 8}, "(a|a)*c": {}}})");
  EXPECT_EQ(read(scratch.folder()).layers.size(), 1U);
  write_file(scratch.path("quantize_config.json"), R"({"dynamic": {"(a": {"bits": 8}}})");
  expect_sentence(refusal([&] { read(scratch.folder()); }), scratch.folder(), "dynamic has the pattern \"(a\", which");
}

TEST(CodedLayers, PatternsOfManyRepetitionsAreASentence) {
  const Scratch scratch;
  save_safetensors(scratch.path("model.safetensors"), gptq("layer"), {});
  std::string many;
  for (int i = 0; i < 200; ++i) many += (i > 0 ? ", \"" : "\"") + std::to_string(i) + "[a-z]{999}\": {\"bits\": 8}";
  for (const std::string& patterns : {std::string(R"("((x{99}){99}){99}": {"bits": 8})"), many,
                                      std::string(R"("y{99999999999999999999}": {"bits": 8})")}) {
    write_file(scratch.path("quantize_config.json"), "{\"bits\": 4, \"dynamic\": {" + patterns + "}}");
    expect_sentence(refusal([&] { read(scratch.folder()); }), scratch.folder(), "repeats more than can be matched");
  }
  write_file(scratch.path("quantize_config.json"), R"({"bits": 4, "dynamic": {"l[a-z]{1,9}$": {"group_size": 50}}})");
  EXPECT_EQ(read(scratch.folder()).layers.at("layer").group, 50);
}

TEST(CodedLayers, MorePatternsAndLayersThanCanBeMatchedAreASentence) {
  const Scratch scratch;
  Arrays arrays;
  for (int i = 0; i < 600; ++i) arrays.merge(gptq("layer" + std::to_string(i)));
  save_safetensors(scratch.path("model.safetensors"), arrays, {});
  std::string patterns;
  for (int i = 0; i < 1000; ++i)
    patterns += (i > 0 ? ", \"" : "\"") + std::to_string(i) + "(x|y)*" + std::string(85, 'z') + "\": {\"bits\": 8}";
  write_file(scratch.path("quantize_config.json"), "{\"dynamic\": {" + patterns + "}}");
  expect_sentence(refusal([&] { read(scratch.folder()); }), scratch.folder(), "more patterns than can be matched");
}

TEST(CodedLayers, WidthsOfMixedRowsAreThoseOfTheStrategy) {
  EXPECT_EQ(mixed_widths(4096, {0.75, 0.25}, {32, 32}), (std::vector<std::int64_t>{3072, 1024}));
  EXPECT_EQ(mixed_widths(100, {0.1, 0.9}, {32, 32}), (std::vector<std::int64_t>{32, 68})) << "one group at least";
  EXPECT_EQ(mixed_widths(640, {0.33, 0.33, 0.34}, {64, 32, 32}), (std::vector<std::int64_t>{192, 192, 256}));
}

struct Hostile {
  const char* name;
  std::string file, text;  ///< beside a good layer "a"
  const char* part;
};

std::vector<Hostile> hostile_files() {
  const std::string index = "x.safetensors.index.json", config = "quantize_config.json";
  return {
      {"index_no_json", index, "{", "is no JSON that can be read"},
      {"index_zero_byte", index, std::string("{}\0", 3), "is no JSON that can be read"},
      {"index_deep", index, R"({"weight_map":)" + std::string(100000, '['), "is no JSON that can be read"},
      {"index_twice", index, R"({"weight_map":{"a":"b","a":"c"}})", "is no JSON that can be read"},
      {"index_array", index, "[]", "has no object \"weight_map\""},
      {"index_of_itself", index, R"({"weight_map":{"a.qweight":"x.safetensors.index.json"}})",
       "\"a.qweight\": expected the name of a safetensors file, got"},
      {"index_outside", index, R"({"weight_map":{"a.qweight":"../x.safetensors"}})",
       "\"a.qweight\": expected the name of a safetensors file, got \"../x"},
      {"index_lacks", index, R"({"weight_map":{"b":"model.safetensors"}})", "has no tensor \"b\""},
      {"config_no_json", config, "x", "quantize_config.json: is no JSON object that can be read"},
      {"config_awq", config, R"({"quant_method":"awq"})", "is of AWQ"},
      {"config_marlin", config, R"({"checkpoint_format":"marlin"})", "\"marlin\""},
      {"act_order_without_index", config, R"({"desc_act":true})", "\"a.g_idx\" is missing"},
      {"strategy", "quant_strategy.json", R"({"measurement":{"b":{"l":{"bits":[]}}}})", "\"b.l\" has no bits"},
  };
}

class CodedLayersHostile : public testing::TestWithParam<Hostile> {};

TEST_P(CodedLayersHostile, IsRefusedInOneSentence) {
  const Scratch scratch;
  save_safetensors(scratch.path("model.safetensors"), gptq("a"), {});
  write_file(scratch.path(GetParam().file), GetParam().text);
  expect_sentence(refusal([&] { read(scratch.folder()); }), scratch.folder(), GetParam().part);
}

INSTANTIATE_TEST_SUITE_P(Files, CodedLayersHostile, testing::ValuesIn(hostile_files()),
                         [](const auto& file) { return file.param.name; });

TEST(CodedLayers, TensorsThatDoNotFitEachOtherAreNamed) {
  const auto sentence = [](const std::string& key, const DenseArray& array) {
    const Scratch scratch;
    Arrays arrays = gptq("a");
    arrays[key] = array;
    save_safetensors(scratch.path("model.safetensors"), arrays, {});
    const std::string said = refusal([&] { read(scratch.folder()); });
    EXPECT_NE(said.find(scratch.path("model.safetensors")), std::string::npos) << said;
    return said;
  };
  const auto says = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  says(sentence("a.scales", filled(Element::f16, {2, 32}, 0x7f)), "\"a.scales\" holds NaN or infinity");
  says(sentence("a.scales", filled(Element::f32, {2, 32}, 0xff)), "\"a.scales\" holds NaN or infinity");
  says(sentence("a.scales", filled(Element::f16, {2, 31})), "AWQ packs outputs");
  says(sentence("a.qzeros", filled(Element::i32, {2, 5})), "no weight of 2, 3, 4 or 8 bits");
  says(sentence("a.g_idx", filled(Element::i32, {64}, 1)), "\"a.g_idx\" holds groups outside [0, 1]");
  says(sentence("a.bias", filled(Element::f16, {33})), "\"a.bias\": expected [32], got [33]");
  says(sentence("a.weight_packed", filled(Element::i32, {1})), "is of compressed-tensors");
}

TEST(CodedLayers, AFileThatContradictsItsSymmetryIsRefused) {
  // Every code of a word of zeros is 7 or 8: version 1 reads them as 8 and 9, version 2 as they are.
  const auto said = [](int byte, const char* config) {
    const Scratch scratch;
    Arrays arrays = gptq("a");
    arrays["a.qzeros"] = filled(Element::i32, {2, 4}, byte);
    save_safetensors(scratch.path("model.safetensors"), arrays, {});
    write_file(scratch.path("quantize_config.json"), config);
    return refusal([&] { read(scratch.folder()); });
  };
  const char *const first = R"({"bits": 4, "sym": true})",
                    *const second = R"({"bits": 4, "sym": true, "checkpoint_format": "gptq_v2"})";
  EXPECT_EQ(said(0x77, first), "");
  EXPECT_EQ(said(0x88, second), "");
  EXPECT_NE(said(0x88, first).find("holds 8 everywhere, which version 1 of the format reads as the zero point 9"),
            std::string::npos)
      << said(0x88, first);
  EXPECT_NE(said(0x77, second).find("is of checkpoint_format \"gptq\" or not symmetric"), std::string::npos);
  EXPECT_EQ(said(0x88, R"({"bits": 4, "sym": false})"), "") << "a file that says nothing of the kind";
  EXPECT_EQ(said(0x88, R"({"bits": 4, "sym": true, "dynamic": {"a": {"sym": false}}})"), "");
  EXPECT_NE(said(0x88, R"({"bits": 4, "dynamic": {"a": {"sym": true}}})"), "");
}

TEST(CodedLayers, ASymmetricFileNeedsNoZeros) {
  for (const int bits : {2, 3, 4, 8}) {
    const Scratch scratch;
    Arrays arrays = gptq("a");
    arrays.erase("a.qzeros");
    arrays["a.qweight"] = filled(Element::i32, {2 * bits, 33});
    arrays["a.scales"] = filled(Element::f16, {2, 33}, 0x3c);
    arrays.erase("a.bias");
    save_safetensors(scratch.path("model.safetensors"), arrays, {});
    const std::string config = "{\"bits\": " + std::to_string(bits) + ", \"group_size\": 32";
    write_file(scratch.path("quantize_config.json"), config + "}");
    expect_sentence(refusal([&] { read(scratch.folder()); }), scratch.folder(),
                    "\"a.qzeros\" is missing, and no configuration says");
    write_file(scratch.path("quantize_config.json"), config + ", \"sym\": true}");
    const CodedLayer layer = read(scratch.folder()).layers.at("a");
    EXPECT_EQ(layer.kind, CodedLayer::Kind::gptq);
    EXPECT_EQ(layer.bits, bits);
    const Array& zeros = layer.tensors.at("qzeros");
    EXPECT_EQ(zeros.sizes, (std::vector<std::int64_t>{2, (33 * bits + 31) / 32}));
    for (int row = 0; row < 2; ++row)
      for (int i = 0; i < 33; ++i) {
        int code = 0;  // bit by bit, the least first
        for (int bit = 0; bit < bits; ++bit) {
          const int at = i * bits + bit;
          code |= (zeros.data<std::uint32_t>()[row * zeros.sizes[1] + at / 32] >> at % 32 & 1) << bit;
        }
        ASSERT_EQ(code + 1, 1 << (bits - 1)) << bits << " bits, column " << i;
      }
  }
}

TEST(CodedLayers, IndicesAndWordsOfOtherWidthsAreReadOrNamed) {
  const auto model = [](const char* key, const DenseArray& array, const std::string& erased = "") {
    const Scratch scratch;
    Arrays arrays = gptq("a");
    arrays.erase(erased);
    arrays[key] = array;
    save_safetensors(scratch.path("model.safetensors"), arrays, {});
    return read(scratch.folder());
  };
  EXPECT_EQ(model("a.g_idx", filled(Element::i32, {0})).layers.at("a").tensors.count("g_idx"), 0U);
  const Array index = model("a.g_idx", filled(Element::i64, {64})).layers.at("a").tensors.at("g_idx");
  EXPECT_EQ(index.element, Element::i32);
  EXPECT_EQ(index.count(), 64);
  EXPECT_NE(refusal([&] { model("a.g_idx", filled(Element::i64, {64}, 1)); }).find("\"a.g_idx\" holds the group"),
            std::string::npos);
  for (const Element element : {Element::i8, Element::u8, Element::i16, Element::u32, Element::i64})
    EXPECT_NE(refusal([&] {
                model("a.qweight", filled(element, {8, 32}));
              }).find("words of int32 are expected"),
              std::string::npos);
  EXPECT_NE(refusal([&] {
              model("a.weight", filled(Element::u32, {8, 32}), "a.qweight");
            }).find("is of MLX"),
            std::string::npos);
}

TEST(CodedLayers, TensorsOfEveryWholeByteAreListed) {
  const Scratch scratch;
  Arrays arrays;
  for (const Element element :
       {Element::u16, Element::u32, Element::u64, Element::f8_e4m3, Element::f8_e5m2, Element::f8_e8m0, Element::c64})
    arrays[std::string(name(element))] = filled(element, {3, 5}, 1);
  save_safetensors(scratch.path("model.safetensors"), arrays, {});
  const CodedModel model = read(scratch.folder());
  EXPECT_EQ(model.rest.size(), arrays.size());
  for (const auto& [key, array] : model.rest) EXPECT_EQ(name(array.element), key);
}

}  // namespace
}  // namespace bie::formats::test
