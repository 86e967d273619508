#include "text/json_file.h"

#include "bie/formats/error.h"

namespace bie::text {
namespace {

using formats::Error;
using formats::in_quotes;
using formats::joined;
using nlohmann::json;

/// Receives the events of the library's parser.
class Reader : public nlohmann::json_sax<json> {
 public:
  explicit Reader(TokenizerJson* result) : result_(*result) {}

  bool null() override { return value(nullptr); }
  bool boolean(bool v) override { return value(v); }
  bool number_integer(number_integer_t v) override { return number(v, static_cast<double>(v)); }
  bool number_unsigned(number_unsigned_t v) override {
    if (v > static_cast<number_unsigned_t>(INT64_MAX)) return number(INT64_MAX, static_cast<double>(v));
    return number(static_cast<std::int64_t>(v), static_cast<double>(v));
  }
  bool number_float(number_float_t v, const string_t&) override {
    if (list_ == List::scores && depth_ == list_depth_ + 1 && part_ == 1) {
      result_.scores.emplace_back(std::move(name_), v);
      ++part_;
      return true;
    }
    return list_ == List::none ? value(v) : refuse();
  }
  bool string(string_t& v) override {
    switch (list_) {
      case List::none: return value(std::move(v));
      case List::merges:
        if (depth_ == list_depth_) return merge_line(v);
        if (part_ > 1) return refuse();
        if (part_++ == 0)
          name_ = std::move(v);
        else
          result_.merges.emplace_back(std::move(name_), std::move(v));
        return true;
      case List::scores:
        if (depth_ != list_depth_ + 1 || part_ != 0) return refuse();
        name_ = std::move(v);
        ++part_;
        return true;
      case List::ids: return refuse();
    }
    return refuse();
  }
  bool binary(binary_t&) override { return refuse(); }
  bool start_object(std::size_t) override {
    if (list_ != List::none) return refuse();
    if (const List list = list_here(); list == List::merges || list == List::scores) {
      if (list == List::merges) return refuse();
      list_ = List::ids;
      list_depth_ = ++depth_;
      return true;
    }
    return open(json::object());
  }
  bool key(string_t& v) override {
    if (list_ == List::ids) {
      name_ = std::move(v);
      return true;
    }
    if (!open_.back()->emplace(v, nullptr).second)
      throw Error(joined("expected every key once, got ", in_quotes(v), " twice"));
    key_ = std::move(v);
    return true;
  }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override {
    if (list_ == List::none) {
      list_ = list_here();
      if (list_ == List::none) return open(json::array());
      list_depth_ = ++depth_;
      return true;
    }
    if (list_ == List::ids || depth_ != list_depth_) return refuse();
    ++depth_;
    part_ = 0;
    return true;
  }
  bool end_array() override {
    if (list_ != List::none && depth_ == list_depth_ + 1) {
      --depth_;
      return part_ == 2 || refuse();
    }
    return close();
  }
  bool parse_error(std::size_t at, const std::string&, const nlohmann::detail::exception&) override {
    throw Error(joined("expected JSON, got something else at byte ", at));
  }

 private:
  enum class List { none, ids, scores, merges };
  static constexpr std::size_t deepest = 32;

  bool refuse() const {
    const char* wanted = list_ == List::merges   ? "\"merges\": expected pairs of two tokens"
                         : list_ == List::scores ? "\"vocab\": expected pairs of a token and a score"
                                                 : "\"vocab\": expected numbers of tokens";
    throw Error(joined(wanted, ", got something else"));
  }
  /// The list that begins where a value of the model's "vocab" or "merges" does.
  List list_here() const {
    if (open_.size() != 2 || model_ != open_.back() || !open_.back()->is_object()) return List::none;
    return key_ == "vocab" ? List::scores : key_ == "merges" ? List::merges : List::none;
  }
  json* place(json&& v) {
    if (open_.empty()) {
      result_.rest = std::move(v);
      return &result_.rest;
    }
    json& outer = *open_.back();
    if (outer.is_array()) {
      outer.push_back(std::move(v));
      return &outer.back();
    }
    json& member = outer[key_];
    member = std::move(v);
    return &member;
  }
  bool value(json&& v) {
    if (list_ != List::none) return refuse();
    place(std::move(v));
    return true;
  }
  bool number(std::int64_t v, double as_double) {
    if (list_ == List::none) return value(v);
    if (list_ == List::ids) {
      result_.ids.emplace_back(std::move(name_), v);
      return true;
    }
    if (list_ != List::scores || depth_ != list_depth_ + 1 || part_ != 1) return refuse();
    result_.scores.emplace_back(std::move(name_), as_double);
    ++part_;
    return true;
  }
  bool open(json&& v) {
    if (++depth_ > deepest) throw Error(joined("expected JSON of at most ", deepest, " levels, got more"));
    const bool is_model = open_.size() == 1 && open_.back()->is_object() && key_ == "model";
    open_.push_back(place(std::move(v)));
    if (is_model) model_ = open_.back();
    return true;
  }
  bool close() {
    --depth_;
    if (list_ != List::none)
      list_ = List::none;
    else
      open_.pop_back();
    return true;
  }
  bool merge_line(const std::string& line) {
    const std::size_t space = line.find(' ', 1), at = result_.merges.size();
    if (line.empty() || space == std::string::npos || space + 1 == line.size())
      throw Error(joined("merge ", at, ": expected two tokens, got ", in_quotes(line)));
    result_.merges.emplace_back(line.substr(0, space), line.substr(space + 1));
    return true;
  }

  TokenizerJson& result_;
  std::vector<json*> open_;  ///< objects and lists that are not closed; a list's items stay where they are until then
  const json* model_ = nullptr;
  std::string key_, name_;
  List list_ = List::none;
  std::size_t depth_ = 0, list_depth_ = 0, part_ = 0;
};

}  // namespace

TokenizerJson read_tokenizer_json(std::string_view text) {
  if (text.find('\0') != std::string_view::npos) throw Error("expected JSON, got a zero byte");
  TokenizerJson result;
  Reader reader(&result);
  json::sax_parse(text.begin(), text.end(), &reader);
  if (!result.rest.is_object()) throw Error("expected a JSON object, got something else");
  return result;
}

}  // namespace bie::text
