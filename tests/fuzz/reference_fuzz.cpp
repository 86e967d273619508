// Any bytes as the file of a reference, with the checksums that they would have: one sentence, or a text that a model
// can be compared with.
#include <cmath>
#include <cstring>
#include <string_view>

#include "bie/llm/reference.h"
#include "formats/crc32c.h"
#include "tests/fuzz/fuzz.h"

namespace {

constexpr std::size_t head = 48, checksum_at = 12, kept_at = 32, tokens_at = 40;

void put_checksum(std::string* bytes, std::size_t begin, std::size_t end, std::size_t at) {
  const std::uint32_t sum = bie::formats::crc32c(std::string_view(*bytes).substr(begin, end - begin));
  std::memcpy(bytes->data() + at, &sum, sizeof sum);
}

/// Checksums hide what lies behind them: all that the sizes name are set right.
void put_checksums(std::string* bytes) {
  if (bytes->size() < head) return;
  std::uint64_t kept, tokens;
  std::memcpy(&kept, bytes->data() + kept_at, 8);
  std::memcpy(&tokens, bytes->data() + tokens_at, 8);
  if (kept > bytes->size() || tokens > bytes->size() / 4 || head + 4 * tokens > bytes->size()) return;
  const std::size_t front = head + 4 * tokens, row = 20 + 6 * kept;
  std::memset(bytes->data() + checksum_at, 0, 4);
  put_checksum(bytes, 0, front, checksum_at);
  for (std::size_t at = front; at + row <= bytes->size(); at += row)
    put_checksum(bytes, at, at + row - 4, at + row - 4);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using bie::formats::fuzz::require;
  std::string bytes(reinterpret_cast<const char*>(data), size);
  put_checksums(&bytes);
  try {
    const auto reference = bie::llm::Reference::load(bie::formats::fuzz::file_of(bytes.data(), bytes.size()));
    const bie::llm::ReferenceText& text = reference.text();
    require(4 * text.tokens.size() <= bytes.size() && text.kept <= text.vocabulary);
    if (text.vocabulary > 100'000) return 0;
    const std::vector<float> logits(static_cast<std::size_t>(text.vocabulary), 1.5F);
    const double loss = 2;
    bie::llm::Distance distance;
    reference.compare(text.predictions() - 1, logits.data(), &loss, 1, bie::kernels::serial(), &distance);
    require(!std::isnan(distance.divergence.front()) && distance.divergence.front() >= -1e-6);
    require(reference.losses().size() == text.tokens.size() - 1);
  } catch (const bie::formats::Error&) {  // NOLINT(bugprone-empty-catch): the expected outcome
  }
  return 0;
}
