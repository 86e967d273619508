#include "bie/models/net_description.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "bie/formats/error.h"
#include "bie/formats/mapped_file.h"
#include "data/value_errors.h"
#include "formats/json_text.h"
#include "formats/nearest.h"
#include "layers/named.h"

namespace bie::models {
namespace {

using Json = nlohmann::json;

constexpr layers::Named<LayerSpec::Type> types[] = {
    {LayerSpec::Type::conv, "conv"}, {LayerSpec::Type::linear, "linear"}, {LayerSpec::Type::pool, "pool"}};
constexpr layers::Named<Activation> activations[] = {
    {Activation::none, "none"}, {Activation::relu, "relu"}, {Activation::prelu, "prelu"}};

constexpr std::size_t most_layers = 1000;

/// Characters that tell how many of them the parser has taken.
class Counted {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  Counted(const char* at, const char** furthest) : at_(at), furthest_(furthest) {}
  reference operator*() const { return *at_; }
  Counted& operator++() {
    *furthest_ = ++at_;
    return *this;
  }
  Counted operator++(int) {
    Counted before = *this;
    ++*this;
    return before;
  }
  bool operator==(const Counted& other) const { return at_ == other.at_; }
  bool operator!=(const Counted& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  const char** furthest_;
};

/// Reads the one shape of JSON that a description has, event by event: no tree is built, so neither depth nor width
/// costs anything, and a key met twice is seen.
class Parser : public nlohmann::json_sax<Json> {
 public:
  /// @param what  names the text in sentences, which then have lines too; nothing for a bare array of layers.
  Parser(std::string_view text, std::string what) : what_(std::move(what)), text_(text), at_(text.data()) {
    if (what_.empty()) level_ = Level::root, key_ = "layers";
    // The JSON library takes a zero byte for the end of its input.
    if (text.find('\0') != std::string_view::npos) fail(0, "", "the text holds a zero byte, it is no JSON");
    const char* const end = text.data() + text.size();
    Json::sax_parse(Counted(text.data(), &at_), Counted(end, &at_), this);
    if (!what_.empty() && !has_version_) fail(0, "", "the text has no format_version");
    if (!has_layers_) fail(0, "", "there are no layers");
  }

  std::vector<LayerSpec> take() { return std::move(layers_); }

  bool start_object(std::size_t /*size*/) override {
    if (level_ == Level::start) {
      level_ = Level::root;
    } else if (level_ == Level::list) {
      if (layers_.size() == most_layers) fail_list();
      level_ = Level::layer;
      layer_line_ = line();
      fields_.clear();
    } else {
      scalar(Json::object());
    }
    return true;
  }
  bool end_object() override {
    if (level_ == Level::layer) layers_.push_back(layer());
    level_ = level_ == Level::layer ? Level::list : Level::start;
    return true;
  }
  bool start_array(std::size_t /*size*/) override {
    if (level_ != Level::root || key_ != "layers") return scalar(Json::array());
    level_ = Level::list;
    has_layers_ = true;
    return true;
  }
  bool end_array() override {
    if (layers_.empty()) fail_list();
    level_ = Level::root;
    return true;
  }
  bool key(string_t& name) override {
    key_ = name;
    if (level_ == Level::root) {
      if (name != "layers" && name != "format_version")
        fail(line(), shortened(name), "is no entry of this", meant(name, {"layers", "format_version"}));
      if (name == "layers" ? has_layers_ : has_version_) fail(line(), name, "appears twice");
    } else {
      const bool known = std::find(std::begin(keys), std::end(keys), name) != std::end(keys);
      if (!known)
        fail(line(), place() + "." + shortened(name), "is no entry of this",
             meant(name, {std::begin(keys), std::end(keys)}));
      if (fields_.count(name) > 0) fail(line(), place() + "." + name, "appears twice");
    }
    return true;
  }

  bool null() override { return scalar({}); }
  bool boolean(bool value) override { return scalar(value); }
  bool number_integer(number_integer_t value) override { return scalar(value); }
  bool number_unsigned(number_unsigned_t value) override { return scalar(value); }
  bool number_float(number_float_t value, const string_t& /*text*/) override { return scalar(value); }
  bool string(string_t& value) override { return scalar(value); }
  bool binary(binary_t& /*value*/) override { return scalar({}); }  // JSON text has none
  bool parse_error(std::size_t /*at*/, const std::string& /*token*/, const Json::exception& /*error*/) override {
    fail(1 + std::count(text_.data(), at_, '\n'), "", "this is no JSON");
  }

 private:
  enum class Level { start, root, list, layer };
  struct Field {
    Json value;
    std::int64_t line;
  };
  static constexpr std::string_view keys[] = {"type",    "out",  "kernel", "stride",
                                              "padding", "size", "bits",   "activation"};

  template <class... Parts>
  [[noreturn]] void fail(std::int64_t line, const std::string& place, const Parts&... parts) const {
    const std::string start = what_.empty() ? "" : line == 0 ? what_ + ": " : c10::str(what_, ": line ", line, ": ");
    C10_THROW_ERROR(ValueError, c10::str(start, place.empty() ? "" : place + " ", parts...));
  }
  template <class Expected>
  [[noreturn]] void fail_expected(std::int64_t line, const std::string& place, const Expected& expected,
                                  const Json& got) const {
    fail(line, place + ":", "expected ", expected, ", got ", formats::shown(got));
  }
  [[noreturn]] void fail_list() { fail(line(), "layers", "is no array of 1 to ", most_layers, " layers"); }

  static std::string meant(const std::string& name, const std::vector<std::string>& known) {
    const std::string word = formats::nearest(name, known);
    return word.empty() ? word : "; did you mean " + word + "?";
  }

  static std::string shortened(const std::string& name) {
    const std::string quoted = formats::in_quotes(name);
    return quoted.substr(1, quoted.size() - 2);
  }

  /// The line that the parser has reached. A number is known to end with the character behind it, which may be the end
  /// of its line.
  std::int64_t line() {
    const char* const end = at_ > text_.data() ? at_ - 1 : at_;
    line_ += std::count(text_.data() + counted_, end, '\n');
    counted_ = static_cast<std::size_t>(end - text_.data());
    return line_;
  }

  /// Place of the layer that is being read, for error sentences.
  std::string place() const { return c10::str("layers[", layers_.size(), "]"); }

  /// A value that is no object or list of the description.
  bool scalar(const Json& value) {
    switch (level_) {
      case Level::start: fail(0, "", "the text is no JSON object");
      case Level::list: fail_expected(line(), place(), "an object", value);
      case Level::layer: fields_[key_] = {value, line()}; break;
      case Level::root:
        if (key_ == "layers") fail_list();
        if (!formats::is_whole(value, 1, 1)) fail_expected(line(), key_, 1, value);
        has_version_ = true;
    }
    if (value.is_structured()) fail_expected(line(), place() + "." + key_, "one value", value);
    return true;
  }

  std::int64_t number(const char* key, std::int64_t otherwise, std::int64_t least, std::int64_t most) {
    const auto found = fields_.find(key);
    if (found == fields_.end()) {
      if (otherwise < least) fail(layer_line_, place(), "has no ", key);
      return otherwise;
    }
    const auto [value, line] = found->second;
    fields_.erase(found);
    if (!formats::is_whole(value, least, most))
      fail_expected(line, place() + "." + key, c10::str(least, " to ", most), value);
    return value.get<std::int64_t>();
  }

  template <class E, std::size_t N>
  E word(const char* key, const layers::Named<E> (&table)[N], const char* otherwise) {
    const auto found = fields_.find(key);
    if (found == fields_.end() && otherwise == nullptr) fail(layer_line_, place(), "has no ", key);
    const auto [value, line] = found == fields_.end() ? Field{otherwise, 0} : found->second;
    if (found != fields_.end()) fields_.erase(found);
    std::string names;
    for (const layers::Named<E>& entry : table) {
      if (value == entry.name) return entry.value;
      names += (names.empty() ? "" : ", ") + std::string(entry.name);
    }
    fail_expected(line, place() + "." + key, "one of " + names, value);
  }

  /// The layer of the fields, each of which is taken out of them.
  LayerSpec layer() {
    LayerSpec layer;
    layer.type = word("type", types, nullptr);
    constexpr std::int64_t widest = 1 << 20, sides = 64;
    if (layer.type == LayerSpec::Type::pool) {
      layer.size = number("size", -1, 2, sides);
    } else {
      layer.out = number("out", -1, 1, widest);
      const auto bits = fields_.find("bits");
      const std::int64_t bits_line = bits == fields_.end() ? 0 : bits->second.line;
      layer.bits = static_cast<int>(number("bits", 0, 0, 32));
      if (layer.bits != 0 && layer.bits != 32 && layer.bits != 8 && layer.bits != 4 && layer.bits != 1)
        fail_expected(bits_line, place() + ".bits", "32, 8, 4 or 1", layer.bits);
      layer.activation = word("activation", activations, "prelu");
    }
    if (layer.type == LayerSpec::Type::conv) {
      layer.size = number("kernel", -1, 1, sides);
      layer.stride = number("stride", 1, 1, sides);
      layer.padding = number("padding", 0, 0, sides);
    }
    for (const auto& [key, field] : fields_) fail(field.line, place() + "." + key, "is no entry of this");
    return layer;
  }

  std::string what_;
  std::string_view text_;
  const char* at_;           ///< how far the parser has read
  std::size_t counted_ = 0;  ///< characters whose ends of lines are in line_
  std::int64_t line_ = 1, layer_line_ = 0;
  Level level_ = Level::start;
  std::string key_;
  std::map<std::string, Field> fields_;
  std::vector<LayerSpec> layers_;
  bool has_version_ = false, has_layers_ = false;
};

}  // namespace

ModelConfig load_net_description(const std::string& path, ModelConfig config) {
  const auto file =
      data::with_value_errors([&] { return std::make_unique<formats::MappedFile>("net description", path); });
  const std::string_view text(reinterpret_cast<const char*>(file->data()), static_cast<std::size_t>(file->size()));
  config.arch = "custom";
  config.layers = Parser(text, "net description " + path).take();
  return config;
}

std::string layers_json(const std::vector<LayerSpec>& layers) {
  Json list = Json::array();
  for (const LayerSpec& layer : layers) {
    Json object = {{"type", layers::name_of(types, layer.type)}};
    if (layer.type == LayerSpec::Type::pool) {
      object["size"] = layer.size;
    } else {
      object.update(
          {{"out", layer.out}, {"bits", layer.bits}, {"activation", layers::name_of(activations, layer.activation)}});
    }
    if (layer.type == LayerSpec::Type::conv)
      object.update({{"kernel", layer.size}, {"stride", layer.stride}, {"padding", layer.padding}});
    list.push_back(std::move(object));
  }
  return list.dump();
}

std::vector<LayerSpec> parse_layers(const std::string& json) { return Parser(json, "").take(); }

}  // namespace bie::models
