#include "llm/cache_format.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string_view>

#include "bie/formats/error.h"
#include "bie/formats/mapped_file.h"
#include "bie/formats/replacing_file.h"
#include "formats/crc32c.h"
#include "llm/architectures.h"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are copied as files have them");

namespace bie::llm {
namespace {

constexpr const char* kind = "cache file";
constexpr char magic[8] = {'\x93', 'B', 'I', 'E', 'K', 'V', '\r', '\n'};
constexpr std::uint32_t format_version = 1;
constexpr std::uint32_t law_version = 1;  // of docs/spec/language-models.md: a change of any bit of a page is a new one
static_assert(sizeof(CacheHead) == 56);

std::uint32_t checksum_of(const void* bytes, std::int64_t count) {
  return formats::crc32c({static_cast<const char*>(bytes), static_cast<std::size_t>(count)});
}

/// A checksum that tells models apart: over each tensor's name, type, sizes and 16 pieces of 4 kB at even distances,
/// and over the numbers of the configuration that the law reads.
std::uint32_t fingerprint(const Model& model) {
  constexpr std::int64_t piece = 4096, pieces = 16;
  std::string sums;
  const auto add = [&](const std::string& words, const formats::Bytes& bytes) {
    sums += words;
    for (std::int64_t i = 0; i < pieces; ++i) {
      const std::int64_t at = std::max<std::int64_t>(0, bytes.size - piece) * i / (pieces - 1);
      sums += formats::joined(" ", checksum_of(bytes.data + at, std::min(piece, bytes.size - at)));
    }
    formats::let_go(bytes);
  };
  for (const formats::GgufTensor& t : model.file().gguf.tensors)
    add(formats::joined(t.name, " ", t.type->name, formats::listed(t.sizes)), *t.bytes);
  for (const auto& [name, layer] : model.file().codes)
    for (const auto& [key, array] : layer.tensors)
      add(formats::joined(name, ".", key, " ", formats::name(array.element), formats::listed(array.sizes)),
          *array.bytes);
  for (const auto& [name, layer] : model.file().ternary)
    add(formats::joined(name, " ", layer.scale, formats::listed(layer.codes.sizes)), *layer.codes.bytes);
  const Config& c = model.config();
  sums += formats::joined(c.architecture->name, " ", c.context, " ", checksum_of(&c.eps, 4), " ",
                          checksum_of(&c.scale, 4), " ", c.score_cap, " ", static_cast<int>(c.activation));
  for (const Rotation& r : c.rotations)
    sums += formats::joined(" ", checksum_of(&r.size, 4), " ", checksum_of(r.frequencies.data(), 8 * c.pairs()));
  for (const LayerConfig& layer : c.per_layer) sums += formats::joined(" ", layer.window);
  return formats::crc32c(sums);
}

std::int64_t pages_of(std::int64_t tokens) {
  return (tokens + kernels::attention_block - 1) / kernels::attention_block;
}

std::int64_t pages_at(const CacheHead& head) {
  const std::int64_t end =
      static_cast<std::int64_t>(sizeof(CacheHead)) + 4 * head.tokens + 4 * (pages_of(head.tokens) - head.given_back);
  return (end + 63) / 64 * 64;
}

std::string described(const CacheHead& head) {
  const bool known = head.cache <= static_cast<std::uint32_t>(CacheKind::f32);
  return formats::joined("arithmetic ", head.arithmetic == 0 ? "exact" : "int8", " with keys and values of ",
                         known ? name(static_cast<CacheKind>(head.cache)) : "another kind");
}

}  // namespace

CacheHead cache_head(const Model& model, CacheKind cache) {
  CacheHead head{};
  std::memcpy(head.magic, magic, sizeof magic);
  head.format = format_version;
  head.law = law_version;
  head.arithmetic = static_cast<std::uint32_t>(model.arithmetic());
  head.cache = static_cast<std::uint32_t>(possible_kind(model.config(), cache));
  head.model = fingerprint(model);
  head.page_bytes = Sequence::page_bytes(model.config(), cache);
  return head;
}

template <class... Parts>
void CacheFile::fail(const Parts&... parts) const {
  formats::fail_file(kind, path_, parts...);
}
void CacheFile::fail_damaged() const { fail("it is damaged: expected its checksums, got other bytes"); }

CacheFile::CacheFile(const std::string& path, const CacheHead& wanted) : path_(path), file_(kind, path) {
  if (file_.size() < static_cast<std::int64_t>(sizeof(CacheHead)) ||
      std::memcmp(file_.data(), magic, sizeof magic) != 0)
    fail("expected the pages of a text, got another file");
  std::memcpy(&head_, file_.data(), sizeof head_);
  if (head_.format != wanted.format || head_.law != wanted.law)
    fail("expected version ", wanted.format, ".", wanted.law, ", got ", head_.format, ".", head_.law);
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  if (head_.tokens < 0 || head_.tokens > most || head_.given_back < 0 || head_.given_back > pages_of(head_.tokens) ||
      pages_at(head_) > file_.size())
    fail_damaged();
  std::string checked(reinterpret_cast<const char*>(file_.data()), static_cast<std::size_t>(pages_at(head_)));
  std::memset(checked.data() + offsetof(CacheHead, checksum), 0, sizeof head_.checksum);
  if (formats::crc32c(checked) != head_.checksum) fail_damaged();
  if (head_.model != wanted.model) fail("expected pages of this model, got those of another");
  if (head_.arithmetic != wanted.arithmetic || head_.cache != wanted.cache)
    fail("expected ", described(wanted), ", got ", described(head_));
  const std::int64_t held = pages_of(head_.tokens) - head_.given_back;
  if (head_.page_bytes != wanted.page_bytes || file_.size() != pages_at(head_) + held * head_.page_bytes)
    fail_damaged();
  tokens_.resize(static_cast<std::size_t>(head_.tokens));
  std::memcpy(tokens_.data(), file_.data() + sizeof(CacheHead), 4 * tokens_.size());
}

const std::byte* CacheFile::pages(std::int64_t tokens) const {
  const std::uint8_t* const sums = file_.data() + sizeof(CacheHead) + 4 * tokens_.size();
  const std::uint8_t* const pages = file_.data() + pages_at(head_);
  for (std::int64_t p = 0; p < pages_of(tokens) - head_.given_back; ++p) {
    std::uint32_t sum;
    std::memcpy(&sum, sums + 4 * p, 4);
    if (checksum_of(pages + p * head_.page_bytes, head_.page_bytes) != sum) fail_damaged();
  }
  return reinterpret_cast<const std::byte*>(pages);
}

void write_cache_file(const std::string& path, CacheHead head, const std::vector<std::int32_t>& tokens,
                      std::int64_t given_back, const std::vector<const std::byte*>& pages) {
  head.tokens = static_cast<std::int64_t>(tokens.size());
  head.given_back = given_back;
  std::string front(static_cast<std::size_t>(pages_at(head)), '\0');
  std::memcpy(front.data() + sizeof head, tokens.data(), 4 * tokens.size());
  char* sums = front.data() + sizeof head + 4 * tokens.size();
  for (const std::byte* const page : pages) {
    const std::uint32_t sum = checksum_of(page, head.page_bytes);
    std::memcpy(sums, &sum, sizeof sum);
    sums += sizeof sum;
  }
  std::memcpy(front.data(), &head, sizeof head);
  head.checksum = formats::crc32c(front);
  std::memcpy(front.data(), &head, sizeof head);
  formats::ReplacingFile file(kind, path);
  file.write(front.data(), static_cast<std::int64_t>(front.size()));
  for (const std::byte* const page : pages) file.write(page, head.page_bytes);
  file.commit();
}

}  // namespace bie::llm
