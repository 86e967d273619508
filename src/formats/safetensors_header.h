// The JSON header of a safetensors file: its dtypes and a parser that accepts nothing but what the format allows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bie/formats/array.h"
#include "bie/formats/error.h"

namespace bie::formats {

// The limits of the reference implementation, and the most dimensions torch's iterators take.
inline constexpr std::int64_t max_header_bytes = 100'000'000;
inline constexpr std::size_t max_rank = 64;
inline constexpr std::string_view metadata_key = "__metadata__";

struct DtypeName {
  std::string_view name;
  Element element;
};
inline constexpr DtypeName dtypes[] = {
    {"BOOL", Element::boolean},    {"U8", Element::u8},           {"I8", Element::i8},
    {"I16", Element::i16},         {"I32", Element::i32},         {"I64", Element::i64},
    {"F16", Element::f16},         {"BF16", Element::bf16},       {"F32", Element::f32},
    {"F64", Element::f64},         {"U16", Element::u16},         {"U32", Element::u32},
    {"U64", Element::u64},         {"F8_E4M3", Element::f8_e4m3}, {"F8_E5M2", Element::f8_e5m2},
    {"F8_E8M0", Element::f8_e8m0}, {"C64", Element::c64},
};

template <class... Parts>
[[noreturn]] void fail(const std::string& path, const Parts&... parts) {
  fail_file("safetensors file", path, parts...);
}

struct Entry {
  std::string name;
  const DtypeName* dtype = nullptr;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> offsets;
  bool has_shape = false;
  bool has_offsets = false;
};

struct Header {
  std::vector<Entry> entries;
  std::map<std::string, std::string> metadata;
};

/// Accepts the one shape of JSON a header has, event by event: no tree is built, so depth costs nothing, and a key met
/// twice is seen.
class HeaderParser : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderParser(const std::string& path) : path_(path) {}

  Header take() {
    if (state_ != State::done) fail(path_, "the header is not a JSON object");
    return std::move(header_);
  }

  bool start_object(std::size_t /*size*/) override {
    if (state_ == State::start) {
      state_ = State::names;
    } else if (state_ == State::entry_value) {
      state_ = is_metadata_ ? State::metadata_keys : State::fields;
    } else {
      unexpected("an object");
    }
    return true;
  }

  bool key(string_t& text) override {
    if (state_ == State::names) {
      name_ = text;
      is_metadata_ = text == metadata_key;
      if (is_metadata_ ? std::exchange(has_metadata_, true) : !names_.emplace(text, true).second) {
        fail(path_, in_quotes(text), " appears twice");
      }
      if (!is_metadata_) header_.entries.push_back({text, nullptr, {}, {}, false, false});
      state_ = State::entry_value;
    } else if (state_ == State::metadata_keys) {
      metadata_name_ = text;
      if (header_.metadata.count(text) != 0) fail(path_, metadata_key, " has ", in_quotes(text), " twice");
      state_ = State::metadata_value;
    } else {
      field(text);
    }
    return true;
  }

  bool end_object() override {
    if (state_ == State::names) {
      state_ = State::done;
    } else {
      if (state_ == State::fields) finish_entry();
      state_ = State::names;
    }
    return true;
  }

  bool start_array(std::size_t /*size*/) override {
    if (state_ == State::shape_value) {
      state_ = State::shape;
    } else if (state_ == State::offsets_value) {
      state_ = State::offsets;
    } else {
      unexpected("an array");
    }
    return true;
  }

  bool end_array() override {
    if (state_ == State::offsets && entry().offsets.size() != 2) {
      fail(path_, "tensor ", in_quotes(name_), ": expected 2 data_offsets, got ", entry().offsets.size());
    }
    state_ = State::fields;
    return true;
  }

  bool string(string_t& text) override {
    if (state_ == State::metadata_value) {
      header_.metadata.emplace(metadata_name_, text);
      state_ = State::metadata_keys;
    } else if (state_ == State::dtype_value) {
      const auto* found = std::find_if(std::begin(dtypes), std::end(dtypes), [&](auto& d) { return d.name == text; });
      if (found == std::end(dtypes))
        fail(path_, "tensor ", in_quotes(name_), " has the unknown dtype ", in_quotes(text));
      entry().dtype = found;
      state_ = State::fields;
    } else {
      unexpected("a string");
    }
    return true;
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (state_ != State::shape && state_ != State::offsets) unexpected("a number");
    if (value > static_cast<number_unsigned_t>(INT64_MAX)) unexpected("a number over 2^63");
    std::vector<std::int64_t>& list = state_ == State::shape ? entry().shape : entry().offsets;
    if (list.size() == max_rank) fail(path_, "tensor ", in_quotes(name_), " has more than ", max_rank, " sizes");
    list.push_back(static_cast<std::int64_t>(value));
    return true;
  }

  bool null() override { return unexpected("null"); }
  bool boolean(bool /*value*/) override { return unexpected("a boolean"); }
  bool number_integer(number_integer_t /*value*/) override { return unexpected("a negative number"); }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override {
    return unexpected("a number that is no 64-bit integer");
  }
  bool binary(binary_t& /*value*/) override { return unexpected("binary data"); }
  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*e*/) override {
    fail(path_, "the header is not UTF-8 JSON at its byte ", position);
  }

 private:
  enum class State : std::uint8_t {
    start,
    names,
    entry_value,
    fields,
    dtype_value,
    shape_value,
    shape,
    offsets_value,
    offsets,
    metadata_keys,
    metadata_value,
    done
  };

  Entry& entry() { return header_.entries.back(); }

  void field(const std::string& text) {
    bool again = false;
    if (text == "dtype") {
      again = entry().dtype != nullptr;
      state_ = State::dtype_value;
    } else if (text == "shape") {
      again = std::exchange(entry().has_shape, true);
      state_ = State::shape_value;
    } else if (text == "data_offsets") {
      again = std::exchange(entry().has_offsets, true);
      state_ = State::offsets_value;
    } else {
      fail(path_, "tensor ", in_quotes(name_), " has the unknown key ", in_quotes(text));
    }
    if (again) fail(path_, "tensor ", in_quotes(name_), " has ", in_quotes(text), " twice");
  }

  void finish_entry() {
    const char* missing = entry().dtype == nullptr ? "dtype"
                          : !entry().has_shape     ? "shape"
                          : !entry().has_offsets   ? "data_offsets"
                                                   : nullptr;
    if (missing != nullptr) fail(path_, "tensor ", in_quotes(name_), " has no ", missing);
  }

  [[noreturn]] bool unexpected(const char* what) {
    if (state_ == State::start) fail(path_, "the header: expected an object, got ", what);
    fail(path_, "the entry ", in_quotes(name_), " holds ", what, " in the wrong place");
  }

  const std::string& path_;
  Header header_;
  State state_ = State::start;
  std::string name_, metadata_name_;
  std::map<std::string, bool> names_;
  bool is_metadata_ = false, has_metadata_ = false;
};

}  // namespace bie::formats
