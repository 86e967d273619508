// Tables as text, by RFC 4180.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace bie::formats {

struct CsvForm {
  char comment = 0;  ///< lines that begin with it are left out; 0: none are
};

/// How a table writes numbers and missing values.
struct NumberForm {
  char decimal = '.';
  char thousands = 0;  ///< between groups of three digits; 0: digits stand side by side
  /// Words in the place of a value that is not known, in any case; where not given, the usual ones (csv_is_missing). A
  /// blank field always stands for such a value.
  std::optional<std::vector<std::string>> missing = {};
};

/// The fields of a file, in rows of one length. Quotes around fields and spaces outside of them are taken off.
class CsvText {
 public:
  std::int64_t rows() const { return static_cast<std::int64_t>(lines_.size()); }
  std::int64_t columns() const { return columns_; }
  std::string_view at(std::int64_t row, std::int64_t column) const;
  /// Where a row begins in the file, from 1 on.
  std::int64_t line(std::int64_t row) const { return lines_[static_cast<std::size_t>(row)]; }
  const std::string& path() const { return path_; }
  std::uint32_t checksum() const { return checksum_; }  ///< CRC-32C of the file's bytes
  /// Whether each line ended in a separator: the empty column behind it is not among the columns.
  bool trailing_separator() const { return trailing_separator_; }

 private:
  friend CsvText load_csv(const std::string& path, const CsvForm& form);
  void leave_out_empty_end();
  std::string path_, text_;
  std::vector<std::uint64_t> ends_;  // in text_, of each field
  std::vector<std::int64_t> lines_;
  std::int64_t columns_ = 0;
  std::uint32_t checksum_ = 0;
  bool trailing_separator_ = false;
};

/// Fields are separated by commas, semicolons or tabs: by the one that a first line `sep=;` names, else by the one that
/// the first lines have equally often, else by the one that comes first. A field in double quotes may
/// hold separators, line breaks, and a quote where it is written twice. Lines end in LF, CRLF, or CR in a file without
/// LF; blank ones are left out, as is a byte order mark.
/// @param path  "-" is standard input.
/// @throws Error, one sentence naming the file and the line: for text that is not UTF-8, a quote that has no end or
/// stands inside of a field, rows of different lengths, more than 65,537 columns.
CsvText load_csv(const std::string& path, const CsvForm& form = {});

/// A decimal number; nothing for other text, and for what a float cannot hold.
bool csv_number(std::string_view text, double* number, const NumberForm& form = {});
/// Whether a field stands for a value that is not known: it is blank, or one of the form's words, which are usually ?,
/// NA, n/a, #n/a, nan, null, none, nil, inf and infinity, with a sign or without.
bool csv_is_missing(std::string_view text, const NumberForm& form = {});
/// Whether a label is missing: blank, or a word that a user named. The usual words may name classes.
bool csv_is_missing_label(std::string_view text, const NumberForm& form = {});

/// A text as a field: in quotes where it holds a separator, a quote or a line break.
std::string csv_field(std::string_view text);

}  // namespace bie::formats
