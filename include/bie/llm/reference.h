// A reference keeps what a model found likely in a text, as its best tokens, and tells how far another model is from
// it. Source: docs/spec/language-models.md#against-a-reference.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bie/formats/replacing_file.h"
#include "bie/kernels/parallel.h"

namespace bie::llm {

/// A text as a model read it. It has tokens.size() - 1 predictions.
struct ReferenceText {
  std::int64_t vocabulary = 0;
  std::int64_t window = 0;
  std::int64_t kept = 0;  ///< best tokens of a prediction, up to the vocabulary
  std::vector<std::int32_t> tokens;

  std::int64_t predictions() const { return static_cast<std::int64_t>(tokens.size()) - 1; }
  std::int64_t row_bytes() const;
};

inline constexpr std::int64_t usual_kept = 256;

/// Predictions of a model as files of references have them.
/// @param logits  [rows, vocabulary], without NaN and with a finite largest number in each row.
/// @param losses  minus the log-probability of the right token of each row.
std::string reference_rows(const ReferenceText& text, const float* logits, const double* losses, std::int64_t rows,
                           const kernels::Parallel& parallel);

/// Writes a file of a reference while it is made. The file is there when `commit` has returned.
class ReferenceWriter {
 public:
  /// @throws formats::Error, here and below, one sentence naming the file.
  ReferenceWriter(const std::string& path, const ReferenceText& text);
  /// Rows of `reference_rows`, in the order of the text.
  void write(const std::string& rows) const;
  void commit() { file_.commit(); }

 private:
  formats::ReplacingFile file_;
};

/// Whether a file begins as those of references do.
bool is_reference(const std::string& path);

/// How far a model is from a reference: an element for each prediction.
struct Distance {
  std::vector<double> divergence;    ///< Kullback-Leibler's, of the model from the reference, in nats
  std::vector<double> same_choice;   ///< 1 where the likeliest token is the same one, else 0
  std::vector<double> right_change;  ///< probability of the right token, less the reference's
  std::vector<double> loss_change;   ///< loss, less the reference's
};

class Reference {
 public:
  /// @param rows  of `reference_rows`, all of them.
  Reference(ReferenceText text, std::string rows);
  /// @throws formats::Error, one sentence naming the file: it is damaged, of another kind or version.
  static Reference load(const std::string& path);

  const ReferenceText& text() const { return text_; }
  std::vector<double> losses() const;
  /// Adds predictions [first, first + rows) of a model to a distance.
  /// @param logits, losses  as for `reference_rows`.
  void compare(std::int64_t first, const float* logits, const double* losses, std::int64_t rows,
               const kernels::Parallel& parallel, Distance* to) const;

 private:
  ReferenceText text_;
  std::string rows_;
};

}  // namespace bie::llm
