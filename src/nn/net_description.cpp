#include "bie/nn/net_description.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "io/mapped_file.h"
#include "nn/named.h"

namespace bie::nn {
namespace {

using Json = nlohmann::json;

constexpr Named<LayerSpec::Type> types[] = {
    {LayerSpec::Type::conv, "conv"}, {LayerSpec::Type::linear, "linear"}, {LayerSpec::Type::pool, "pool"}};
constexpr Named<Activation> activations[] = {
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

/// A JSON text with the line on which each value ends, by its place: "layers[1].kernel".
class Document {
 public:
  Document(std::string_view text, std::string what) : what_(std::move(what)), text_(text), at_(text.data()) {
    const auto listen = [this](int, Json::parse_event_t event, Json&) {
      hear(event);
      return true;
    };
    try {
      const char* const end = text.data() + text.size();
      root_ = Json::parse(Counted(text.data(), &at_), Counted(end, &at_),
                          [&](int depth, Json::parse_event_t event, Json& value) {
                            if (event == Json::parse_event_t::key) key_ = value.get<std::string>();
                            return listen(depth, event, value);
                          });
    } catch (const Json::parse_error& error) {
      TORCH_CHECK_VALUE(false, what_, ": line ", line_at(at_), ": this is no JSON");
    }
  }

  const Json& root() const { return root_; }

  template <class... Parts>
  [[noreturn]] void fail(const std::string& place, const Parts&... parts) const {
    const auto found = lines_.find(place);
    const std::string line = found == lines_.end() ? "" : c10::str("line ", found->second, ": ");
    C10_THROW_ERROR(ValueError, c10::str(what_, ": ", line, place.empty() ? "" : place + " ", parts...));
  }

 private:
  struct Level {
    std::string place;
    std::int64_t index;  ///< of the next element; -1 in an object
  };

  std::int64_t line_at(const char* at) const { return 1 + std::count(text_.data(), at, '\n'); }

  /// The place of a value that begins or stands here.
  std::string place() {
    if (levels_.empty()) return {};
    Level& level = levels_.back();
    if (level.index >= 0) return c10::str(level.place, "[", level.index++, "]");
    return level.place.empty() ? key_ : level.place + "." + key_;
  }

  void hear(Json::parse_event_t event) {
    using Event = Json::parse_event_t;
    // A number is known to end with the character behind it, which may be the end of its line.
    const std::int64_t line = line_at(at_ > text_.data() ? at_ - 1 : at_);
    if (event == Event::object_start || event == Event::array_start) {
      const std::string here = place();
      lines_[here] = line;
      levels_.push_back({here, event == Event::array_start ? 0 : -1});
    } else if (event == Event::object_end || event == Event::array_end) {
      levels_.pop_back();
    } else if (event == Event::value) {
      lines_[place()] = line;
    }
  }

  std::string what_;
  std::string_view text_;
  const char* at_;
  Json root_;
  std::string key_;
  std::vector<Level> levels_;
  std::map<std::string, std::int64_t> lines_;
};

/// One object of the list, entry by entry; what was not asked for is refused at the end.
class Entries {
 public:
  Entries(const Document& document, const Json& object, std::string place)
      : document_(document), object_(object), place_(std::move(place)) {
    if (!object_.is_object()) document_.fail(place_, "is ", object_.type_name(), ", an object is wanted");
  }

  std::int64_t number(const std::string& key, std::int64_t otherwise, std::int64_t least, std::int64_t most) {
    asked_.push_back(key);
    if (!object_.contains(key)) {
      if (otherwise < least) document_.fail(place_, "has no ", key);
      return otherwise;
    }
    const Json& value = object_[key];
    const bool whole =
        value.is_number_integer() && !(value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX);
    if (!whole || value.get<std::int64_t>() < least || value.get<std::int64_t>() > most)
      document_.fail(at(key), "is ", value.dump(), ", ", least, " to ", most, " is wanted");
    return value.get<std::int64_t>();
  }

  template <class E, std::size_t N>
  E word(const std::string& key, const Named<E> (&table)[N], const char* otherwise) {
    asked_.push_back(key);
    if (!object_.contains(key) && otherwise == nullptr) document_.fail(place_, "has no ", key);
    const Json value = object_.value(key, Json(otherwise != nullptr ? otherwise : ""));
    std::string names;
    for (const Named<E>& entry : table) {
      if (value == entry.name) return entry.value;
      names += (names.empty() ? "" : ", ") + std::string(entry.name);
    }
    document_.fail(at(key), "is ", value.dump(), ", one of ", names, " is wanted");
  }

  void check_all_asked() const {
    for (const auto& [key, value] : object_.items())
      if (std::find(asked_.begin(), asked_.end(), key) == asked_.end()) document_.fail(at(key), "is no entry of this");
  }

 private:
  std::string at(const std::string& key) const { return place_.empty() ? key : place_ + "." + key; }

  const Document& document_;
  const Json& object_;
  std::string place_;
  std::vector<std::string> asked_;
};

LayerSpec parse_layer(const Document& document, const Json& object, const std::string& place) {
  Entries entries(document, object, place);
  LayerSpec layer;
  layer.type = entries.word("type", types, nullptr);
  constexpr std::int64_t widest = 1 << 20, sides = 64;
  if (layer.type == LayerSpec::Type::pool) {
    layer.size = entries.number("size", -1, 2, sides);
  } else {
    layer.out = entries.number("out", -1, 1, widest);
    layer.bits = static_cast<int>(entries.number("bits", 0, 0, 32));
    if (layer.bits != 0 && layer.bits != 32 && layer.bits != 8 && layer.bits != 4 && layer.bits != 1)
      document.fail(place + ".bits", "is ", layer.bits, ", 32, 8, 4 or 1 is wanted");
    layer.activation = entries.word("activation", activations, "prelu");
  }
  if (layer.type == LayerSpec::Type::conv) {
    layer.size = entries.number("kernel", -1, 1, sides);
    layer.stride = entries.number("stride", 1, 1, sides);
    layer.padding = entries.number("padding", 0, 0, sides);
  }
  entries.check_all_asked();
  return layer;
}

std::vector<LayerSpec> parse_list(const Document& document, const Json& list, const std::string& place) {
  if (!list.is_array() || list.empty() || list.size() > most_layers)
    document.fail(place, "is no array of 1 to ", most_layers, " layers");
  std::vector<LayerSpec> layers;
  for (std::size_t i = 0; i < list.size(); ++i)
    layers.push_back(parse_layer(document, list[i], c10::str(place, "[", i, "]")));
  return layers;
}

}  // namespace

ModelConfig load_net_description(const std::string& path, ModelConfig config) {
  const io::MappedFile file("net description", path);
  const std::string text(reinterpret_cast<const char*>(file.data()), static_cast<std::size_t>(file.size()));
  const Document document(text, "net description " + path);
  if (!document.root().is_object()) document.fail("", "the text is no JSON object");
  Entries entries(document, document.root(), "");
  entries.number("format_version", -1, 1, 1);
  if (!document.root().contains("layers")) document.fail("", "there are no layers");
  config.arch = "custom";
  config.layers = parse_list(document, document.root()["layers"], "layers");
  for (const auto& [key, value] : document.root().items())
    if (key != "layers" && key != "format_version") document.fail(key, "is no entry of this");
  return config;
}

std::string layers_json(const std::vector<LayerSpec>& layers) {
  Json list = Json::array();
  for (const LayerSpec& layer : layers) {
    Json object = {{"type", name_of(types, layer.type)}};
    if (layer.type == LayerSpec::Type::pool) {
      object["size"] = layer.size;
    } else {
      object.update({{"out", layer.out}, {"bits", layer.bits}, {"activation", name_of(activations, layer.activation)}});
    }
    if (layer.type == LayerSpec::Type::conv)
      object.update({{"kernel", layer.size}, {"stride", layer.stride}, {"padding", layer.padding}});
    list.push_back(std::move(object));
  }
  return list.dump();
}

std::vector<LayerSpec> parse_layers(const std::string& json, const std::string& what) {
  const Document document(json, what);
  return parse_list(document, document.root(), "layers");
}

}  // namespace bie::nn
