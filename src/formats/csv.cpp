#include "bie/formats/csv.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>

#include "bie/formats/error.h"
#include "bie/formats/mapped_file.h"

namespace bie::formats {
namespace {

constexpr const char* kind = "CSV file";
constexpr std::int64_t most_columns = 1 << 16;  // as many features as a model takes

std::string_view trimmed(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

/// The length of the quoted text that `text` starts with, quotes included; npos where it has no end, 0 without quotes.
/// A quote within is written twice.
std::size_t quoted_length(std::string_view text) {
  if (!text.starts_with('"')) return 0;
  for (std::size_t end = 1;; end += 2) {
    end = text.find('"', end);
    if (end == std::string_view::npos || end + 1 == text.size() || text[end + 1] != '"')
      return end == std::string_view::npos ? end : end + 1;
  }
}

std::string_view unquoted(std::string_view field) {
  return field.size() >= 2 && quoted_length(field) == field.size() ? field.substr(1, field.size() - 2) : field;
}

/// The fields without the quotes around them; nothing where a quote has no end on its line.
std::optional<std::vector<std::string_view>> fields_of(std::string_view line, char separator) {
  std::vector<std::string_view> fields;
  for (;;) {
    const std::size_t start = std::min(line.find_first_not_of(' '), line.size());
    const std::size_t quoted = quoted_length(line.substr(start));
    if (quoted == std::string_view::npos) return {};
    const std::size_t end = line.find(separator, start + quoted);
    fields.push_back(unquoted(trimmed(line.substr(0, end))));
    if (end == std::string_view::npos) return fields;
    line.remove_prefix(end + 1);
  }
}

std::optional<float> number(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  const char* const end = text.data() + text.size();
  double value = 0;
  auto [rest, error] = std::from_chars(text.data(), end, value);
  // What a double has no exponent for may be too small as well as too large.
  long double wide = value;
  if (error == std::errc::result_out_of_range) {
    const auto again = std::from_chars(text.data(), end, wide);
    rest = again.ptr;
    error = again.ec;
  }
  const auto narrow = static_cast<float>(wide);
  if (error != std::errc() || rest != end || !std::isfinite(narrow)) return {};
  return narrow;
}

/// What stands in the place of a number that is not known.
bool is_missing(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  if (lower.starts_with('-') || lower.starts_with('+')) lower.erase(0, 1);
  constexpr std::string_view words[] = {"", "?", "na", "n/a", "#n/a", "nan", "null", "none", "nil", "inf", "infinity"};
  return std::find(std::begin(words), std::end(words), lower) != std::end(words);
}

bool names_labels(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return lower == "label" || lower == "class" || lower == "target" || lower == "y";
}

/// A label as it is meant: within quotes a quote is written twice.
std::string label_of(std::string_view field) {
  std::string label(field);
  for (std::size_t at = label.find("\"\""); at != std::string::npos; at = label.find("\"\"", at + 1))
    label.erase(at, 1);
  return label;
}

/// Walks the lines that are not blank and counts all of them. They end in LF or CRLF, in a file without LF in CR.
class Lines {
 public:
  explicit Lines(std::string_view text) : rest_(text), end_(text.find('\n') == std::string_view::npos ? '\r' : '\n') {}
  bool next(std::string_view* line) {
    while (!rest_.empty()) {
      const std::size_t end = rest_.find(end_);
      *line = rest_.substr(0, end);
      rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
      ++number_;
      if (!trimmed(*line).empty()) return true;
    }
    return false;
  }
  std::int64_t line_number() const { return number_; }

 private:
  std::string_view rest_;
  char end_;
  std::int64_t number_ = 0;
};

enum class FirstLine { row, header, either };

/// Numbers as the names of columns: 0, 1, 2 or 2019, 2020.
bool count_up(const std::vector<float>& numbers) {
  for (std::size_t i = 0; i < numbers.size(); ++i)
    if (numbers[i] != std::floor(numbers[i]) || (i > 0 && numbers[i] != numbers[i - 1] + 1)) return false;
  return true;
}

/// A header has names where rows have numbers. A row with a number that is missing is a row.
FirstLine first_line(const std::vector<std::string_view>& fields, bool has_labels) {
  std::vector<float> numbers;
  bool word = false, label_name = false;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    label_name = label_name || names_labels(fields[i]);
    if (has_labels && i + 1 == fields.size()) continue;  // without a header this is the label, which may be anything
    if (const std::optional<float> value = number(fields[i]))
      numbers.push_back(*value);
    else
      word = word || !is_missing(fields[i]);
  }
  if (numbers.empty()) return word || label_name ? FirstLine::header : FirstLine::row;
  if (!label_name) return FirstLine::row;
  return count_up(numbers) ? FirstLine::header : FirstLine::either;
}

[[noreturn]] void fail_either(const std::string& path) {
  fail_file(kind, path, "line 1 may be names or a row of numbers and its label: a line of names above it settles that");
}

}  // namespace

CsvTable load_csv(const std::string& path, CsvLabels labels, std::int64_t wanted) {
  const MappedFile file(kind, path);
  std::string_view text(reinterpret_cast<const char*>(file.data()), static_cast<std::size_t>(file.size()));
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // a byte order mark, as spreadsheets write it
  if (text.find('\0') != std::string_view::npos) fail_file(kind, path, "holds a zero byte, it is no text");
  Lines lines(text);
  std::string_view line;
  if (!lines.next(&line)) fail_file(kind, path, "is empty");
  const std::string_view start = trimmed(line);
  const std::size_t mark = start.find_first_of(",;\t", quoted_length(start));
  const char separator = mark == std::string_view::npos ? ',' : start[mark];
  const auto fields_in = [&](std::string_view row) {
    const auto found = fields_of(row, separator);
    if (!found) fail_file(kind, path, "line ", lines.line_number(), " has a quote that does not end on it");
    return *found;
  };
  std::vector<std::string_view> fields = fields_in(line);
  const std::size_t count = fields.size();
  const auto all = static_cast<std::int64_t>(count);

  CsvTable table;
  bool has_labels = labels == CsvLabels::wanted || all == wanted + 1;
  table.columns = all - (has_labels ? 1 : 0);
  if (table.columns < 1 || (wanted > 0 && table.columns != wanted))
    fail_file(kind, path, "has ", all, " columns, ",
              wanted > 0 ? joined(wanted, " are wanted, or one more with labels") : "numbers and a label are wanted");
  if (table.columns > most_columns)
    fail_file(kind, path, "has ", all, " columns, at most ", most_columns, " numbers a row are wanted");
  std::size_t label = count - 1;
  bool more = true;
  const FirstLine first = first_line(fields, has_labels);
  if (first == FirstLine::either) fail_either(path);
  std::string_view name;  // of the column of labels
  if (first == FirstLine::header) {
    for (std::size_t i = count; i-- > 0;)
      if (names_labels(fields[i])) label = i;
    name = fields[label];
    more = lines.next(&line);
  }
  for (; more; more = lines.next(&line)) {
    fields = fields_in(line);
    if (fields.size() != count)
      fail_file(kind, path, "line ", lines.line_number(), " has ", fields.size(), " columns, the first has ", count);
    for (std::size_t i = 0; i < count; ++i) {
      if (has_labels && i == label) {
        if (!name.empty() && fields[i] == name) fail_either(path);
        if (labels == CsvLabels::wanted && fields[i].empty())
          fail_file(kind, path, "line ", lines.line_number(), ", column ", i + 1, " is empty, a label is wanted");
        table.labels.push_back(label_of(fields[i]));
        continue;
      }
      const std::optional<float> value = number(fields[i]);
      if (!value)
        fail_file(kind, path, "line ", lines.line_number(), ", column ", i + 1, " is ", in_quotes(fields[i]),
                  ", a number is wanted");
      table.numbers.push_back(*value);
    }
  }
  if (table.numbers.empty()) fail_file(kind, path, "has a header and no rows");
  return table;
}

}  // namespace bie::formats
