#include "bie/formats/csv.h"

#include <csv.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <iterator>
#include <optional>

#include "bie/formats/error.h"
#include "bie/formats/mapped_file.h"
#include "formats/crc32c.h"
#include "formats/foreign_file.h"
#include "formats/json_text.h"
#include "formats/lower.h"

namespace bie::formats {
namespace {

constexpr const char* kind = "CSV file";
constexpr std::int64_t most_columns = (1 << 16) + 1;  // as many features as a model takes, and a label

std::string standard_input() {
  std::string text;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t count = ::read(STDIN_FILENO, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_file(kind, "-", "standard input cannot be read: ", std::strerror(errno));
    if (count == 0) return text;
    text.append(buffer, static_cast<std::size_t>(count));
  }
}

/// The line of the first byte of a text that is not UTF-8; 0 where there is none.
std::int64_t bad_line(std::string_view text, char end) {
  for (std::int64_t number = 1; !text.empty(); ++number) {
    const std::size_t length = std::min(text.find(end), text.size() - 1) + 1;
    const std::string_view line = text.substr(0, length);
    const auto is_high = [](char c) { return static_cast<unsigned char>(c) > 0x7f; };
    if (std::any_of(line.begin(), line.end(), is_high) && !is_utf8(std::string(line))) return number;
    text.remove_prefix(length);
  }
  return 0;
}

void check_text(const std::string& path, std::string_view text, char end) {
  if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff"))
    fail_file(kind, path, "is UTF-16; iconv -f UTF-16 -t UTF-8 makes a file of it that can be read");
  const std::string other = foreign_file(reinterpret_cast<const std::uint8_t*>(text.data()), std::ssize(text));
  if (!other.empty() && other != a_text) fail_file(kind, path, "is ", other, ", no table");
  if (text.find('\0') != std::string_view::npos) fail_file(kind, path, "holds a zero byte, it is no text");
  if (const std::int64_t line = bad_line(text, end); line > 0)
    fail_file(kind, path, "line ", line,
              " is not UTF-8; iconv -f WINDOWS-1252 -t UTF-8 makes a file of it that can be read, if it is Latin text");
}

/// The first separator outside of quotes in a line; a comma where there is none.
char separator_in(std::string_view line) {
  bool quoted = false;
  for (const char c : line) {
    if (c == '"') quoted = !quoted;
    if (!quoted && (c == ',' || c == ';' || c == '\t')) return c;
  }
  return ',';
}

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r\n") == std::string_view::npos; }

std::string_view take_line(std::string_view* text, char end) {
  const std::size_t length = std::min(text->find(end), text->size() - 1) + 1;
  const std::string_view line = text->substr(0, length);
  text->remove_prefix(length);
  return line;
}

/// How often separators stand outside of quotes in a line.
struct Counts {
  std::int64_t of[3] = {};
  bool decimal_commas = true;  ///< each comma stands between digits
  bool open = false;           ///< a quote goes on in the next line
};
constexpr std::string_view separators = ",;\t";

Counts counts_in(std::string_view line) {
  Counts counts;
  const auto is_digit = [&](std::size_t i) { return i < line.size() && line[i] >= '0' && line[i] <= '9'; };
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"') counts.open = !counts.open;
    const std::size_t at = separators.find(line[i]);
    if (counts.open || at == std::string_view::npos) continue;
    ++counts.of[at];
    if (at == 0) counts.decimal_commas &= i > 0 && is_digit(i - 1) && is_digit(i + 1);
  }
  return counts;
}

/// The separator that the first lines have equally often. A comma between digits gives way to a semicolon: it is a
/// decimal comma then. Where no separator is regular it is the first one of the first line.
char separator_of(std::string_view text, char end, char comment) {
  constexpr int most_lines = 30;
  std::vector<Counts> lines;
  std::string_view first;
  while (!text.empty() && static_cast<int>(lines.size()) < most_lines) {
    const std::string_view line = take_line(&text, end);
    if (is_blank(line) || (comment != 0 && line.front() == comment)) continue;
    if (lines.empty()) first = line;
    const Counts counts = counts_in(line);
    if (counts.open) break;
    lines.push_back(counts);
  }
  const char usual = separator_in(first);
  if (lines.empty()) return usual;
  const auto regular = [&](char separator) {
    const std::size_t at = separators.find(separator);
    const std::int64_t wanted = lines.front().of[at];
    return wanted > 0 && std::all_of(lines.begin(), lines.end(), [&](const Counts& c) { return c.of[at] == wanted; });
  };
  const bool decimals = std::all_of(lines.begin(), lines.end(), [](const Counts& c) { return c.decimal_commas; });
  if (regular(usual)) return usual == ',' && decimals && regular(';') ? ';' : usual;
  char other = usual;
  int others = 0;
  for (const char separator : separators)
    if (regular(separator)) {
      other = separator;
      ++others;
    }
  return others == 1 ? other : usual;
}

/// The separator that spreadsheets name in a first line, `sep=;`; nothing in another line.
std::optional<char> named_separator(std::string_view line) {
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.remove_suffix(1);
  if (line.size() == 7 && line.front() == '"' && line.back() == '"') line = line.substr(1, 5);
  if (line.size() != 5 || lower(std::string(line.substr(0, 4))) != "sep=") return std::nullopt;
  return separators.find(line[4]) == std::string_view::npos ? std::nullopt : std::optional(line[4]);
}

/// State that libcsv's callbacks fill in.
struct Filler {
  std::string& text;
  std::vector<std::uint64_t>& ends;
  std::vector<std::int64_t>& lines;
  std::int64_t columns = 0;  // of the first row; 0 before its end
  std::int64_t fields = 0;   // of this row
  std::int64_t line = 0, row_line = 0;
  std::optional<std::string> fault = {};  // libcsv is C: nothing is thrown through it
};

void take_field(void* field, std::size_t size, void* data) {
  auto& f = *static_cast<Filler*>(data);
  if (f.fault || ++f.fields > most_columns) return;
  if (field != nullptr) f.text.append(static_cast<const char*>(field), size);
  f.ends.push_back(f.text.size());
}

void take_row(int /*end*/, void* data) {
  auto& f = *static_cast<Filler*>(data);
  if (f.fault) return;
  if (f.fields > most_columns)
    f.fault = joined("expected at most ", most_columns - 1, " numbers a row, got ", f.fields, " columns");
  else if (f.columns > 0 && f.fields != f.columns)
    f.fault = joined("line ", f.row_line, " has ", f.fields, " columns, the first has ", f.columns);
  f.columns = f.fields;
  f.fields = 0;
  f.lines.push_back(f.row_line);
}

}  // namespace

std::string_view CsvText::at(std::int64_t row, std::int64_t column) const {
  const auto i = static_cast<std::size_t>(row * columns_ + column);
  const std::uint64_t begin = i == 0 ? 0 : ends_[i - 1];
  return std::string_view(text_).substr(begin, ends_[i] - begin);
}

CsvText load_csv(const std::string& path, const CsvForm& form) {
  std::optional<MappedFile> file;
  std::string read;
  std::string_view text;
  if (path == "-") {
    read = standard_input();
    text = read;
  } else {
    file.emplace(kind, path);
    text = {reinterpret_cast<const char*>(file->data()), static_cast<std::size_t>(file->size())};
  }
  CsvText csv;
  csv.path_ = path;
  csv.checksum_ = crc32c(text);
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // a byte order mark, as spreadsheets write it
  const char end = text.find('\n') == std::string_view::npos ? '\r' : '\n';
  check_text(path, text, end);

  struct Parser {
    csv_parser state{};
    Parser() {
      if (csv_init(&state, CSV_STRICT | CSV_STRICT_FINI) != 0) throw std::bad_alloc();
    }
    Parser(const Parser&) = delete;
    Parser& operator=(const Parser&) = delete;
    ~Parser() { csv_free(&state); }
  } parser;
  Filler filler{csv.text_, csv.ends_, csv.lines_};
  std::string_view rest = text;
  std::optional<char> separator = text.empty() ? std::nullopt : named_separator(take_line(&rest, end));
  if (separator) {
    text = rest;
    ++filler.line;
  } else {
    separator = separator_of(text, end, form.comment);
  }
  csv_set_delim(&parser.state, static_cast<unsigned char>(*separator));
  while (!text.empty() && !filler.fault) {
    const std::string_view line = take_line(&text, end);
    ++filler.line;
    const bool between = parser.state.pstate == 0;  // libcsv's ROW_NOT_BEGUN
    if (between && (is_blank(line) || (form.comment != 0 && line.front() == form.comment))) continue;
    if (between) filler.row_line = filler.line;
    if (csv_parse(&parser.state, line.data(), line.size(), take_field, take_row, &filler) != line.size()) {
      if (csv_error(&parser.state) == CSV_ENOMEM) throw std::bad_alloc();
      filler.fault = joined("line ", filler.line,
                            " has a quote inside of a field, where it is written twice and the "
                            "field stands in quotes");
    }
  }
  if (!filler.fault && csv_fini(&parser.state, take_field, take_row, &filler) != 0)
    filler.fault = joined("line ", filler.row_line, " has a quote that does not end");
  if (filler.fault) fail_file(kind, path, *filler.fault);
  if (csv.lines_.empty()) fail_file(kind, path, "is empty");
  csv.columns_ = filler.columns;
  csv.leave_out_empty_end();
  return csv;
}

void CsvText::leave_out_empty_end() {
  if (columns_ < 3) return;
  for (std::int64_t row = 0; row < rows(); ++row)
    if (!at(row, columns_ - 1).empty()) return;
  std::vector<std::uint64_t> ends;  // an empty field has no bytes, so that the others stay where they are
  ends.reserve(ends_.size());
  for (std::size_t i = 0; i < ends_.size(); ++i)
    if (static_cast<std::int64_t>(i + 1) % columns_ != 0) ends.push_back(ends_[i]);
  ends_ = std::move(ends);
  --columns_;
  trailing_separator_ = true;
}

namespace {

/// A number that is written with a decimal comma or with groups of three digits, as from_chars reads it; nothing where
/// the text is no such number.
std::optional<std::string> plainly_written(std::string_view text, const NumberForm& form) {
  std::string plain;
  bool grouped = false, whole = true;  // whole: no decimal sign, no exponent so far
  std::size_t digits = 0;              // of the group
  for (const char c : text) {
    if (whole && form.thousands != 0 && c == form.thousands) {
      if (grouped ? digits != 3 : digits < 1 || digits > 3) return std::nullopt;
      grouped = true;
      digits = 0;
      continue;
    }
    if (c >= '0' && c <= '9') {
      ++digits;
    } else if (c != '-' && c != '+') {
      if (whole && grouped && digits != 3) return std::nullopt;
      whole = false;
      if (c == '.' && form.decimal != '.') return std::nullopt;
    }
    plain += c == form.decimal ? '.' : c;
  }
  if (whole && grouped && digits != 3) return std::nullopt;
  return plain;
}

bool is_word(std::string_view text, const std::vector<std::string>& words) {
  const std::string word = lower(std::string(text));
  return std::any_of(words.begin(), words.end(), [&](const std::string& w) { return lower(w) == word; });
}

}  // namespace

bool csv_number(std::string_view text, double* number, const NumberForm& form) {
  std::optional<std::string> plain;
  if (form.decimal != '.' || form.thousands != 0) {
    plain = plainly_written(text, form);
    if (!plain) return false;
    text = *plain;
  }
  if (text.starts_with('+')) text.remove_prefix(1);
  const char* const end = text.data() + text.size();
  double value = 0;
  auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc::result_out_of_range && rest == end) {
    // Out of range of double may mean too small as well as too large; a long double tells which.
    long double wide = 0;
    error = std::from_chars(text.data(), end, wide).ec;
    value = static_cast<double>(wide);
  }
  if (error != std::errc() || rest != end || !std::isfinite(static_cast<float>(value))) return false;
  *number = value;
  return true;
}

bool csv_is_missing(std::string_view text, const NumberForm& form) {
  if (is_blank(text)) return true;
  if (form.missing) return is_word(text, *form.missing);
  std::string word = lower(std::string(text));
  if (word.starts_with('-') || word.starts_with('+')) word.erase(0, 1);
  constexpr std::string_view words[] = {"?", "na", "n/a", "#n/a", "nan", "null", "none", "nil", "inf", "infinity"};
  return std::find(std::begin(words), std::end(words), word) != std::end(words);
}

bool csv_is_missing_label(std::string_view text, const NumberForm& form) {
  return is_blank(text) || (form.missing && is_word(text, *form.missing));
}

std::string csv_field(std::string_view text) {
  if (text.find_first_of(",;\t\"\r\n") == std::string_view::npos) return std::string(text);
  std::string field = "\"";
  for (const char c : text) field += c == '"' ? "\"\"" : std::string(1, c);
  return field + "\"";
}

}  // namespace bie::formats
