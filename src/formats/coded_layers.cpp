#include "bie/formats/coded_layers.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <string_view>

#include "bie/formats/coded_rows.h"
#include "bie/formats/error.h"
#include "formats/coded_config.h"
#include "formats/gptq_zeros.h"

namespace bie::formats {
namespace {

std::int64_t parts_of(std::int64_t whole, std::int64_t part) { return (whole + part - 1) / part; }

/// Whole bytes of an array are read only where it is dense, as those of safetensors are.
template <class T, class Test>
bool all_of(const Array& array, const Test& test) {
  const T* data = array.data<T>();
  return std::all_of(data, data + array.count(), test);
}

bool is_finite(const Array& array) {
  constexpr auto exponent = [](std::uint16_t bits, std::uint16_t mask) { return (bits & mask) != mask; };
  switch (array.element) {
    case Element::f16: return all_of<std::uint16_t>(array, [&](auto v) { return exponent(v, 0x7c00); });
    case Element::bf16: return all_of<std::uint16_t>(array, [&](auto v) { return exponent(v, 0x7f80); });
    case Element::f32: return all_of<float>(array, [](float v) { return std::isfinite(v); });
    default: return true;
  }
}

/// The tensors of one layer, taken out of the folder's.
class Parts {
 public:
  Parts(const WeightsFolder& folder, std::string name) : folder_(folder), name_(std::move(name)) {}

  const Array* find(const char* key) const {
    const auto found = folder_.arrays.find(name_ + "." + key);
    return found == folder_.arrays.end() ? nullptr : &found->second;
  }
  bool has(const char* key) const { return find(key) != nullptr; }

  template <class... Text>
  [[noreturn]] void fail(const char* key, const Text&... text) const {
    fail_tensor(key, " ", text...);
  }
  /// `text`: what was expected and what was got.
  template <class... Text>
  [[noreturn]] void fail_expected(const char* key, const Text&... text) const {
    fail_tensor(key, ": expected ", text...);
  }

  /// A matrix, or an array of another rank, of one of these elements.
  const Array& need(const char* key, std::size_t rank, std::initializer_list<Element> elements) const {
    const Array* array = find(key);
    if (array == nullptr) fail(key, "is missing");
    const bool fits =
        array->sizes.size() == rank && std::find(elements.begin(), elements.end(), array->element) != elements.end();
    if (!fits)
      fail(key, "is ", formats::name(array->element), " ", listed(array->sizes), ", which is not what a layer has");
    return *array;
  }
  const Array& floats(const char* key, const std::vector<std::int64_t>& sizes) const {
    const Array& array = need(key, sizes.size(), {Element::f16, Element::bf16, Element::f32});
    if (array.sizes != sizes) fail_expected(key, listed(sizes), ", got ", listed(array.sizes));
    if (!is_finite(array)) fail(key, "holds NaN or infinity");
    return array;
  }

  /// The group of every row as int32, of a file that has it as int32 or int64; none where there is no entry.
  std::optional<Array> index() const {
    const Array* const found = find("g_idx");
    if (found == nullptr) return std::nullopt;
    const Array& array = need("g_idx", 1, {Element::i32, Element::i64});
    if (array.count() == 0) return std::nullopt;
    if (array.element == Element::i32) return array;
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(4 * array.count()));
    for (std::int64_t i = 0; i < array.count(); ++i) {
      const std::int64_t wide = array.data<std::int64_t>()[i];
      if (wide < 0 || wide > INT32_MAX) fail("g_idx", "holds the group ", wide);
      const auto group = static_cast<std::int32_t>(wide);
      std::memcpy(bytes.data() + 4 * i, &group, 4);
    }
    return array_of(Element::i32, array.sizes, std::move(bytes));
  }

  const std::string& name() const { return name_; }

 private:
  template <class... Text>
  [[noreturn]] void fail_tensor(const char* key, const Text&... text) const {
    const std::string tensor = name_ + "." + key;
    const auto file = folder_.files.find(tensor);
    fail_file("weights", file == folder_.files.end() ? folder_.path : file->second, "tensor ", in_quotes(tensor),
              text...);
  }

  const WeightsFolder& folder_;
  std::string name_;
};

void check_index(const Parts& p, const Array& g_idx, std::int64_t groups) {
  if (!all_of<std::int32_t>(g_idx, [groups](std::int32_t g) { return g >= 0 && g < groups; }))
    p.fail("g_idx", "holds groups outside [0, ", groups - 1, "]");
}

/// The size of a group, which makes so many groups of k rows: as many rows as the first group has, or what the
/// configuration says, or all groups being as equal as can be.
std::int64_t group_of(const Parts& p, std::int64_t k, std::int64_t groups, const Array* g_idx,
                      std::vector<std::int64_t> told) {
  if (g_idx != nullptr && groups > 1)
    told.insert(told.begin(), std::count(g_idx->data<std::int32_t>(), g_idx->data<std::int32_t>() + k, 0));
  if (groups > 0) told.insert(told.end(), {parts_of(k, groups), k / groups});
  for (const std::int64_t size : told) {
    const std::int64_t rows = size == -1 ? k : size;
    if (rows > 0 && parts_of(k, rows) == groups) return rows;
  }
  p.fail("scales", "has ", groups, " groups, which no group size makes of ", k, " rows");
}

/// Sizes of qweight [words, n] and scales [groups, n].
struct Sizes {
  std::int64_t words, n, groups;
};

Sizes sizes_of(const Parts& p, const Array& qweight, const char* scales) {
  const Array& s = p.need(scales, 2, {Element::f16, Element::bf16, Element::f32});
  const Sizes sizes{qweight.sizes[0], qweight.sizes[1], s.sizes[0]};
  if (sizes.words < 1 || sizes.n < 1 || sizes.groups < 1)
    p.fail("qweight", "is ", listed(qweight.sizes), ", which is empty");
  if (s.sizes[1] != sizes.n)
    p.fail("qweight", "is ", listed(qweight.sizes), " and its ", scales, " ", listed(s.sizes),
           ": not GPTQ's, whose columns are outputs in both (AWQ packs outputs); it is not read");
  p.floats(scales, {sizes.groups, sizes.n});
  return sizes;
}

void add_bias(const Parts& p, std::int64_t n, CodedLayer* layer) {
  if (!p.has("bias")) return;
  const Array& bias = p.floats("bias", {n});
  // BITorch Engine's files hold one of zeros where the layer has none.
  const auto* bytes = bias.bytes->data;
  const std::int64_t count = n * size_of(bias.element);
  layer->zero_bias = std::all_of(bytes, bytes + count, [](std::uint8_t b) { return b == 0; });
  if (!layer->zero_bias) layer->tensors["bias"] = bias;
}

// Widths of GPTQ's files. bie's own files state their width, which may be any.
constexpr int gptq_widths[] = {4, 8, 2, 3};
bool is_width(int bits) { return bits >= 1 && bits <= 8 && bits != 7; }

CodedLayer gptq_layer(const Parts& p, const CodedConfig& config) {
  const Array& qweight = p.need("qweight", 2, {Element::i32});
  const Sizes sizes = sizes_of(p, qweight, "scales");
  const Array* const qzeros = p.has("qzeros") ? &p.need("qzeros", 2, {Element::i32}) : nullptr;
  const std::optional<Array> g_idx = p.index();
  CodedLayer layer;
  layer.kind = config.zeros_as_they_are ? CodedLayer::Kind::gptq2 : CodedLayer::Kind::gptq;
  const auto features = [&](int bits) { return g_idx ? g_idx->sizes[0] : sizes.words * 32 / bits; };
  const auto fits = [&](int bits) {
    const std::int64_t k = features(bits);
    return is_width(bits) && k >= 1 && words_for(k, bits) == sizes.words &&
           (qzeros == nullptr || qzeros->sizes == std::vector<std::int64_t>{sizes.groups, words_for(sizes.n, bits)});
  };
  // Where the tensors leave nothing open no pattern is matched, which takes its time.
  const bool clear =
      g_idx && !config.tells_symmetry && std::count_if(std::begin(gptq_widths), std::end(gptq_widths), fits) == 1;
  const Told told = clear ? Told() : config.told(p.name());
  std::vector<int> widths = told.bits;
  widths.insert(widths.end(), std::begin(gptq_widths), std::end(gptq_widths));
  const auto width = std::find_if(widths.begin(), widths.end(), fits);
  if (width != widths.end()) {
    layer.bits = *width;
    layer.in_features = features(*width);
  }
  if (layer.bits == 0)
    p.fail("qweight", "is ", listed(qweight.sizes), ", its scales ", listed({sizes.groups, sizes.n}),
           qzeros != nullptr ? ", its qzeros " + listed(qzeros->sizes) : "",
           g_idx ? ", its g_idx " + listed(g_idx->sizes) : "", ": no weight of 2, 3, 4 or 8 bits");
  layer.out_features = sizes.n;
  layer.group = group_of(p, layer.in_features, sizes.groups, g_idx ? &*g_idx : nullptr, told.groups);
  if (!g_idx && config.act_order) p.fail("g_idx", "is missing, which act-order (desc_act) wants");
  if (g_idx) {
    check_index(p, *g_idx, sizes.groups);
    layer.tensors["g_idx"] = *g_idx;
  }
  const bool is_first_version = layer.kind == CodedLayer::Kind::gptq;
  if (qzeros == nullptr && !told.symmetric.value_or(false))
    p.fail("qzeros", "is missing, and no configuration says that the weight is symmetric (sym)");
  if (qzeros != nullptr && told.symmetric.value_or(false))
    if (const std::string wrong = wrong_symmetry(*qzeros, sizes.n, layer.bits, is_first_version); !wrong.empty())
      p.fail("qzeros", wrong);
  layer.tensors["qweight"] = qweight;
  const int middle = 1 << (layer.bits - 1);
  layer.tensors["qzeros"] =
      qzeros != nullptr ? *qzeros
                        : equal_zeros(sizes.groups, sizes.n, layer.bits, is_first_version ? middle - 1 : middle);
  layer.tensors["scales"] = *p.find("scales");
  add_bias(p, sizes.n, &layer);
  return layer;
}

/// Input features: as many as there are entries of an index, or what the strategy's width makes of the words.
std::int64_t features_of(const Parts& p, const char* index, std::int64_t rows, const CodedConfig& config) {
  if (const Array* array = p.find(index); array != nullptr && array->sizes != std::vector<std::int64_t>{0}) {
    if (array->sizes.size() != 1) p.fail_expected(index, "one axis, got ", listed(array->sizes));
    return array->sizes[0];
  }
  const std::optional<Strategy> strategy = config.strategy_of(p.name());
  const Told told = config.told(p.name());
  const int bits = strategy ? strategy->bits[0] : told.bits.empty() ? 0 : told.bits[0];
  if (bits < 1)
    p.fail("qweight", "has ", rows, " rows of words, and neither ", index,
           " nor a configuration says of how many bits");
  return rows * 32 / bits;
}

CodedLayer permuted_layer(const Parts& p, const CodedConfig& config) {
  const Array& qweight = p.need("qweight", 2, {Element::i32});
  const Array& q_perm = p.need("q_perm", 1, {Element::i16});
  const Sizes sizes = sizes_of(p, qweight, "scales");
  CodedLayer layer;
  layer.kind = p.has("q_groups") ? CodedLayer::Kind::mixed : CodedLayer::Kind::mbwq;
  const std::int64_t k = layer.in_features = q_perm.sizes[0];
  layer.out_features = sizes.n;
  const std::optional<Strategy> strategy = config.strategy_of(p.name());
  if (layer.kind == CodedLayer::Kind::mixed) {
    const Array& q_groups = p.need("q_groups", 1, {Element::i16});
    if (q_groups.sizes[0] != 2 * sizes.groups)
      p.fail_expected("q_groups", listed({2 * sizes.groups}), ", got ", listed(q_groups.sizes));
    if (strategy) {
      const std::vector<std::int64_t> rows = mixed_widths(k, strategy->shares, strategy->groups);
      std::int64_t groups = 0, packed = 0;
      for (std::size_t i = 0; i < rows.size(); ++i) {
        groups += rows[i] / strategy->groups[i];
        packed += rows[i] / 32 * strategy->bits[i];
      }
      if (groups != sizes.groups || packed != sizes.words)
        p.fail("qweight", "has ", sizes.groups, " groups in ", sizes.words,
               " rows of words, quant_strategy.json makes ", groups, " in ", packed);
    }
    layer.tensors["q_groups"] = q_groups;
    layer.group = k;
  } else {
    for (const int bits : {2, 4})
      if (k > 0 && words_for(k, bits) == sizes.words) layer.bits = bits;
    if (layer.bits == 0)
      p.fail("qweight", "has ", sizes.words, " rows of words for ", k, " features: neither 2 nor 4 bits");
    layer.group = group_of(p, k, sizes.groups, nullptr, strategy ? strategy->groups : config.told(p.name()).groups);
  }
  layer.tensors["qweight"] = qweight;
  layer.tensors["q_perm"] = q_perm;
  layer.tensors["scales"] = *p.find("scales");
  layer.tensors["zeros"] = p.floats("zeros", {sizes.groups, sizes.n});
  if (p.has("channel_scale")) layer.tensors["channel_scale"] = p.floats("channel_scale", {1, 1, k});
  add_bias(p, sizes.n, &layer);
  return layer;
}

/// Columns that share a scale of scales, where the parts alone are known: the power of two that makes so many of them
/// (published models have 32), or all parts being as equal as can be.
std::int64_t scale_group_of(std::int64_t n, std::int64_t parts) {
  if (parts < 1) return 0;
  for (std::int64_t size = 1; size <= n; size *= 2)
    if (parts_of(n, size) == parts) return size;
  return parts_of(n, parts);
}

CodedLayer gba_layer(const Parts& p, const CodedConfig& config) {
  const Array& qweight = p.need("qweight", 2, {Element::i32});
  CodedLayer layer;
  layer.kind = CodedLayer::Kind::gba;
  const std::int64_t n = layer.out_features = qweight.sizes[1], rows = qweight.sizes[0];
  const std::int64_t k = layer.in_features = features_of(p, "g_idx", rows, config);
  const Told told = config.told(p.name());
  const std::int64_t whole = k > 0 ? rows * 32 / k : 0;
  if (!told.bits.empty() && k > 0 && words_for(k, told.bits[0]) == rows)
    layer.bits = told.bits[0];
  else if (whole <= 8)
    layer.bits = static_cast<int>(whole);
  if (!is_width(layer.bits) || words_for(k, layer.bits) != rows || n < 1)
    p.fail("qweight", "is ", listed(qweight.sizes), " for ", k, " features: no weight of 1, 2, 3, 4, 5, 6 or 8 bits");
  layer.tensors["qweight"] = qweight;
  layer.whole_zeros = p.has("qzeros") && !p.has("qstatistic");
  const char* const codes = p.has("qstatistic") ? "qstatistic" : p.has("qscales") ? "qscales" : nullptr;
  std::int64_t groups = 0;
  if (codes != nullptr) {
    const Array& statistic = *p.find(codes);
    if (statistic.element != Element::u8 || statistic.sizes.size() < 2)
      p.fail_expected(codes, "bytes a group, got ", name(statistic.element), " ", listed(statistic.sizes));
    groups = statistic.sizes[0];
    const Array& outer = p.need("qscales_scales", 3, {Element::f16, Element::bf16, Element::f32});
    const bool has_parts = statistic.sizes.size() == 3;
    layer.scale_group = has_parts ? statistic.sizes[2] : scale_group_of(n, outer.sizes[1]);
    if (groups < 1 || layer.scale_group < 1) p.fail(codes, "is ", listed(statistic.sizes), ", which is empty");
    const std::int64_t parts = parts_of(n, layer.scale_group);
    const std::vector<std::int64_t> wanted =
        has_parts ? std::vector{groups, parts, layer.scale_group} : std::vector{groups, n};
    if (statistic.sizes != wanted) p.fail_expected(codes, listed(wanted), ", got ", listed(statistic.sizes));
    layer.by_column = outer.sizes == std::vector<std::int64_t>{1, n, 1};
    if (!layer.by_column && outer.sizes != std::vector<std::int64_t>{groups, parts, 1})
      p.fail_expected("qscales_scales", listed({groups, parts, 1}), " or ", listed({1, n, 1}), ", got ",
                      listed(outer.sizes));
    layer.tensors[codes] = statistic;
    for (const char* key : {"qscales_zeros", "qscales_scales"}) layer.tensors[key] = p.floats(key, outer.sizes);
    if (layer.whole_zeros) {
      const Array& qzeros = p.need("qzeros", 2, {Element::i32});
      if (qzeros.sizes != std::vector<std::int64_t>{groups, words_for(n, layer.bits)})
        p.fail_expected("qzeros", listed({groups, words_for(n, layer.bits)}), ", got ", listed(qzeros.sizes));
      layer.tensors["qzeros"] = qzeros;
    }
    if (p.has("qstatistic"))
      for (const char* key : {"qzeros_zeros", "qzeros_scales"}) layer.tensors[key] = p.floats(key, {groups, parts, 1});
  } else {
    groups = sizes_of(p, qweight, "scales").groups;
  }
  // Wide groups are read as they are, though a file may hold both.
  for (const char* key : {"scales", "zeros"})
    if (p.has(key)) layer.tensors[key] = p.floats(key, {groups, n});
  const std::optional<Strategy> strategy = config.strategy_of(p.name());
  const std::optional<Array> g_idx = p.index();
  if (g_idx) {
    check_index(p, *g_idx, groups);
    layer.tensors["g_idx"] = *g_idx;
  }
  layer.group =
      group_of(p, k, groups, g_idx ? &*g_idx : nullptr, strategy ? strategy->groups : config.told(p.name()).groups);
  add_bias(p, n, &layer);
  return layer;
}

CodedLayer table_layer(const Parts& p, const CodedConfig& config) {
  const Array& qweight = p.need("qweight", 2, {Element::i32});
  const Array& scales = p.need("scales", 2, {Element::f16, Element::bf16, Element::f32});
  const Told told = config.told(p.name());
  CodedLayer layer;
  layer.kind = CodedLayer::Kind::table;
  layer.bits = told.bits[0];
  layer.group = told.groups[0];
  layer.out_features = qweight.sizes[0];
  layer.in_features = config.tables.at(p.name());
  if (layer.out_features < 1 || layer.group < 1 || words_for(layer.in_features, layer.bits) != qweight.sizes[1] ||
      parts_of(layer.in_features, layer.group) != scales.sizes[1])
    p.fail("qweight", "is ", listed(qweight.sizes), " and its scales ", listed(scales.sizes), ": no table of ",
           layer.bits, " bits in groups of ", layer.group);
  layer.tensors["qweight"] = qweight;
  for (const char* key : {"scales", "zeros"}) layer.tensors[key] = p.floats(key, scales.sizes);
  return layer;
}

/// Whether a layer has or passes over an entry of this name; `wf` are shifts that BITorch Engine writes.
bool is_layer_key(std::string_view key) {
  constexpr std::string_view keys[] = {"qweight",       "qzeros",         "scales",       "zeros",
                                       "g_idx",         "bias",           "wf",           "q_perm",
                                       "q_groups",      "channel_scale",  "qstatistic",   "qscales",
                                       "qscales_zeros", "qscales_scales", "qzeros_zeros", "qzeros_scales"};
  return std::find(std::begin(keys), std::end(keys), key) != std::end(keys);
}

/// Names that only other formats have; what they are called.
struct Foreign {
  std::string_view part;  ///< of a tensor's name
  std::string_view format;
};
constexpr Foreign foreign_tensors[] = {
    {".q_scale_max", "ExLlamaV2's EXL2"},     {".q_invperm", "ExLlamaV2's EXL2"},
    {".weight_packed", "compressed-tensors"}, {".weight.quant_state.", "bitsandbytes (nf4 or fp4)"},
    {".weight.quant_map", "bitsandbytes"},    {".weight.absmax", "bitsandbytes"},
    {".weight.SCB", "bitsandbytes (int8)"},   {".trellis", "ExLlamaV3's EXL3"},
};

void check_foreign(const WeightsFolder& folder) {
  const auto refuse = [&](const std::string& tensor, const auto&... parts) {
    fail_file("weights", folder.files.count(tensor) > 0 ? folder.files.at(tensor) : folder.path, "tensor ",
              in_quotes(tensor), " is ", parts...);
  };
  constexpr const char* are_read = ", which is not read; GPTQ's, GreenBit's and GGUF files are";
  for (const auto& [tensor, array] : folder.arrays) {
    for (const Foreign& f : foreign_tensors)
      if (tensor.find(f.part) != std::string::npos) refuse(tensor, "of ", f.format, are_read);
    const std::string layer = tensor.substr(0, tensor.rfind('.') + 1);
    if (array.element == Element::u32 && tensor.ends_with(".weight") && folder.arrays.count(layer + "scales") > 0)
      refuse(tensor, "of MLX", are_read);
    const bool is_integer = array.element == Element::i8 || array.element == Element::u8 ||
                            array.element == Element::i16 || array.element == Element::u32 ||
                            array.element == Element::i64;
    if (is_integer && tensor.ends_with(".qweight") && folder.arrays.count(layer + "scales") > 0)
      refuse(tensor, name(array.element), ", words of int32 are expected");
  }
}

}  // namespace

std::vector<std::int64_t> mixed_widths(std::int64_t k, const std::vector<double>& shares,
                                       const std::vector<std::int64_t>& groups) {
  std::vector<std::int64_t> rows;
  std::int64_t left = k;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const bool last = i + 1 == shares.size();
    const auto whole = static_cast<std::int64_t>(static_cast<double>(k) * shares[i]);
    rows.push_back(last ? left : std::max<std::int64_t>(1, whole / groups[i]) * groups[i]);
    left -= rows.back();
  }
  return rows;
}

CodedModel coded_layers(const WeightsFolder& folder) {
  const CodedConfig config(folder);
  check_foreign(folder);
  CodedModel model;
  constexpr std::string_view end = ".qweight";
  for (const auto& [tensor, array] : folder.arrays) {
    if (!tensor.ends_with(end) || array.element != Element::i32) continue;
    const std::string layer_name = tensor.substr(0, tensor.size() - end.size());
    const Parts parts(folder, layer_name);
    const bool gba = parts.has("qstatistic") || parts.has("qscales") || parts.has("zeros");
    model.layers.emplace(layer_name, config.tables.count(layer_name) > 0 ? table_layer(parts, config)
                                     : parts.has("q_perm")               ? permuted_layer(parts, config)
                                     : gba                               ? gba_layer(parts, config)
                                                                         : gptq_layer(parts, config));
  }
  for (const auto& [tensor, array] : folder.arrays) {
    const std::size_t dot = tensor.rfind('.');
    const bool of_layer = dot != std::string::npos && model.layers.count(tensor.substr(0, dot)) > 0;
    if (!of_layer || !is_layer_key(tensor.substr(dot + 1))) model.rest.emplace(tensor, array);
  }
  return model;
}

}  // namespace bie::formats
