#include "bie/llm/reference.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <utility>

#include "bie/formats/error.h"
#include "bie/formats/mapped_file.h"
#include "bie/kernels/exact_math.h"
#include "bie/kernels/log_probabilities.h"
#include "formats/crc32c.h"
#include "kernels/arithmetic/float_bits.h"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are copied as files have them");

namespace bie::llm {
namespace {

constexpr const char* kind = "reference";
constexpr std::array<char, 8> magic = {'\x93', 'B', 'I', 'E', 'L', 'P', '\r', '\n'};
constexpr std::uint32_t format_version = 1;

/// The beginning of a file; then come the tokens and the rows.
struct Head {
  std::array<char, 8> magic;
  std::uint32_t format, checksum;  ///< the checksum is of this head with 0 here, and the tokens
  std::int64_t vocabulary, window, kept, tokens;
};
static_assert(sizeof(Head) == 48);

std::string front_of(const ReferenceText& text, std::uint32_t checksum) {
  const Head head{magic,
                  format_version,
                  checksum,
                  text.vocabulary,
                  text.window,
                  text.kept,
                  static_cast<std::int64_t>(text.tokens.size())};
  std::string front(sizeof head + 4 * text.tokens.size(), '\0');
  std::memcpy(front.data(), &head, sizeof head);
  std::memcpy(front.data() + sizeof head, text.tokens.data(), 4 * text.tokens.size());
  return front;
}

/// A prediction: the right token's loss and the logarithm of what is not kept in double, tokens, their
/// log-probabilities in float16, and a checksum.
struct Row {
  double loss = 0, rest = 0;
  std::vector<std::int32_t> ids;
  std::vector<std::uint16_t> logs;

  explicit Row(std::int64_t kept) : ids(static_cast<std::size_t>(kept)), logs(static_cast<std::size_t>(kept)) {}

  template <class Bytes, class Copy>
  static void each_part(Row& row, Bytes* bytes, const Copy& copy) {
    const auto next = [&](void* part, std::size_t size) {
      copy(part, bytes, size);
      bytes += size;
    };
    next(&row.loss, sizeof row.loss);
    next(&row.rest, sizeof row.rest);
    next(row.ids.data(), 4 * row.ids.size());
    next(row.logs.data(), 2 * row.logs.size());
  }
  void write(char* to) {
    each_part(*this, to, [](const void* part, char* bytes, std::size_t size) { std::memcpy(bytes, part, size); });
  }
  void read(const char* from) {
    each_part(*this, from, [](void* part, const char* bytes, std::size_t size) { std::memcpy(part, bytes, size); });
  }
};

std::int64_t content_bytes(std::int64_t kept) { return 16 + 6 * kept; }

/// e^x of a logarithm of a share; not its own size for a file that lies.
double exp_or_zero(double x) { return x < -700 ? 0 : kernels::exact_exp(std::min(x, 1.0)); }

/// Whether a checked row holds what one can: a hostile file has checksums too.
bool is_prediction(const Row& row, std::int64_t vocabulary) {
  double sum = exp_or_zero(row.rest);
  for (const std::uint16_t log : row.logs) sum += exp_or_zero(static_cast<double>(kernels::float_from_f16(log)));
  constexpr double rounding = 0.1;  // of float16, more than it can be
  std::vector<std::int32_t> ids = row.ids;
  std::sort(ids.begin(), ids.end());
  return row.loss >= -rounding && std::abs(sum - 1) <= rounding && ids.front() >= 0 && ids.back() < vocabulary &&
         std::adjacent_find(ids.begin(), ids.end()) == ids.end();
}

}  // namespace

std::int64_t ReferenceText::row_bytes() const { return content_bytes(kept) + 4; }

std::string reference_rows(const ReferenceText& text, const float* logits, const double* losses, std::int64_t rows,
                           const kernels::Parallel& parallel) {
  const std::int64_t k = text.kept;
  std::vector<std::int32_t> ids(static_cast<std::size_t>(rows * k));
  std::vector<double> logs(ids.size()), rest(static_cast<std::size_t>(rows));
  kernels::best_log_probabilities(logits, rows, text.vocabulary, k, ids.data(), logs.data(), rest.data(), parallel);
  std::string bytes(static_cast<std::size_t>(rows * text.row_bytes()), '\0');
  Row row(k);
  for (std::int64_t i = 0; i < rows; ++i) {
    char* const to = bytes.data() + i * text.row_bytes();
    row.loss = losses[i];
    row.rest = rest[static_cast<std::size_t>(i)];
    std::copy_n(ids.begin() + i * k, k, row.ids.begin());
    std::transform(logs.begin() + i * k, logs.begin() + (i + 1) * k, row.logs.begin(),
                   [](double log) { return kernels::f16_from_float(static_cast<float>(log)); });
    row.write(to);
    const std::uint32_t sum = formats::crc32c({to, static_cast<std::size_t>(content_bytes(k))});
    std::memcpy(to + content_bytes(k), &sum, 4);
  }
  return bytes;
}

ReferenceWriter::ReferenceWriter(const std::string& path, const ReferenceText& text) : file_(kind, path) {
  const std::string front = front_of(text, formats::crc32c(front_of(text, 0)));
  file_.write(front.data(), std::ssize(front));
}

void ReferenceWriter::write(const std::string& rows) const { file_.write(rows.data(), std::ssize(rows)); }

bool is_reference(const std::string& path) {
  std::array<char, magic.size()> begin{};
  return std::ifstream(path, std::ios::binary).read(begin.data(), begin.size()).good() && begin == magic;
}

Reference::Reference(ReferenceText text, std::string rows) : text_(std::move(text)), rows_(std::move(rows)) {}

Reference Reference::load(const std::string& path) {
  const formats::MappedFile file(kind, path);
  const auto fail = [&](const auto&... parts) { formats::fail_file(kind, path, parts...); };
  const auto fail_damaged = [&] { fail("it is damaged: expected its checksums, got other bytes"); };
  const auto* const bytes = reinterpret_cast<const char*>(file.data());
  Head head{};
  if (file.size() < static_cast<std::int64_t>(sizeof head)) fail("expected a file of --save-logits, got another one");
  std::memcpy(&head, bytes, sizeof head);
  if (head.magic != magic) fail("expected a file of --save-logits, got another one");
  if (head.format != format_version) fail("expected version ", format_version, ", got ", head.format);
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  const auto within = [](std::int64_t value, std::int64_t least, std::int64_t last) {
    return value >= least && value <= last;
  };
  if (!within(head.vocabulary, 1, most) || !within(head.window, 1, most) || !within(head.kept, 1, head.vocabulary) ||
      !within(head.tokens, 2, file.size() / 4))
    fail_damaged();
  ReferenceText text{head.vocabulary, head.window, head.kept, {}};
  const std::int64_t rows_at = static_cast<std::int64_t>(sizeof head) + 4 * head.tokens;
  if (file.size() - rows_at != (head.tokens - 1) * text.row_bytes()) fail_damaged();
  text.tokens.resize(static_cast<std::size_t>(head.tokens));
  std::memcpy(text.tokens.data(), bytes + sizeof head, 4 * text.tokens.size());
  if (formats::crc32c(front_of(text, 0)) != head.checksum) fail_damaged();

  Row row(text.kept);
  for (std::int64_t i = 0; i < text.predictions(); ++i) {
    const char* const from = bytes + rows_at + i * text.row_bytes();
    std::uint32_t sum;
    std::memcpy(&sum, from + content_bytes(text.kept), 4);
    if (formats::crc32c({from, static_cast<std::size_t>(content_bytes(text.kept))}) != sum) fail_damaged();
    row.read(from);
    if (!is_prediction(row, text.vocabulary))
      fail("expected the log-probabilities of tokens below ", text.vocabulary, ", got others at prediction ", i);
  }
  return {std::move(text), std::string(bytes + rows_at, static_cast<std::size_t>(file.size() - rows_at))};
}

std::vector<double> Reference::losses() const {
  std::vector<double> losses(static_cast<std::size_t>(text_.predictions()));
  for (std::size_t i = 0; i < losses.size(); ++i)
    std::memcpy(&losses[i], rows_.data() + i * static_cast<std::size_t>(text_.row_bytes()), sizeof losses[i]);
  return losses;
}

void Reference::compare(std::int64_t first, const float* logits, const double* losses, std::int64_t rows,
                        const kernels::Parallel& parallel, Distance* to) const {
  const std::int64_t k = text_.kept;
  std::vector<std::int32_t> ids(static_cast<std::size_t>(rows * k));
  std::vector<double> logs(ids.size()), rest(static_cast<std::size_t>(rows)), found(rest.size());
  Row row(k);
  for (std::int64_t i = 0; i < rows; ++i) {
    row.read(rows_.data() + (first + i) * text_.row_bytes());
    std::copy(row.ids.begin(), row.ids.end(), ids.begin() + i * k);
    std::transform(row.logs.begin(), row.logs.end(), logs.begin() + i * k,
                   [](std::uint16_t log) { return static_cast<double>(kernels::float_from_f16(log)); });
    rest[static_cast<std::size_t>(i)] = row.rest;
    const float* const x = logits + i * text_.vocabulary;
    to->same_choice.push_back(std::max_element(x, x + text_.vocabulary) - x == row.ids[0] ? 1 : 0);
    to->right_change.push_back(exp_or_zero(-losses[i]) - exp_or_zero(-row.loss));
    to->loss_change.push_back(losses[i] - row.loss);
  }
  kernels::divergences(logits, rows, text_.vocabulary, k, ids.data(), logs.data(), rest.data(), found.data(), parallel);
  to->divergence.insert(to->divergence.end(), found.begin(), found.end());
}

}  // namespace bie::llm
