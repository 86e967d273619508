// The bytes of a cache file. Source: docs/spec/language-models.md#cache-files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "bie/formats/mapped_file.h"
#include "bie/llm/cache.h"
#include "bie/llm/model.h"

namespace bie::llm {

/// The beginning of a file; then come the tokens, a checksum for each page, zeros to 64 bytes, and the pages.
struct CacheHead {
  char magic[8];
  std::uint32_t format, law, arithmetic, cache;
  std::uint32_t model, checksum;  ///< of the model's file; of this head with 0 here, the tokens and the checksums
  std::int64_t tokens, given_back, page_bytes;
};

/// The head of a file of a model's pages, without a text. It takes milliseconds.
CacheHead cache_head(const Model& model, CacheKind kind);

/// A file whose head, tokens and checksums are whole, and which belongs to this model.
class CacheFile {
 public:
  /// @param wanted  from cache_head().
  /// @throws formats::Error, one sentence naming the file.
  CacheFile(const std::string& path, const CacheHead& wanted);

  const std::vector<std::int32_t>& tokens() const { return tokens_; }
  std::int64_t given_back() const { return head_.given_back; }
  /// The pages of the first tokens, whose checksums are checked. @throws formats::Error
  const std::byte* pages(std::int64_t tokens) const;

 private:
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const;
  [[noreturn]] void fail_damaged() const;

  std::string path_;
  formats::MappedFile file_;
  CacheHead head_{};
  std::vector<std::int32_t> tokens_;
};

/// Writes a file in one step.
/// @param head    from cache_head().
/// @param pages   of the text but for `given_back` at its beginning.
/// @throws formats::Error, one sentence naming the file, which is as it was.
void write_cache_file(const std::string& path, CacheHead head, const std::vector<std::int32_t>& tokens,
                      std::int64_t given_back, const std::vector<const std::byte*>& pages);

}  // namespace bie::llm
