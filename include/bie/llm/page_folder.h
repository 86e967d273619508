// A folder of pages, so that what was read once need not be read again by who starts later.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "bie/llm/cache.h"

namespace bie::llm {

struct CacheHead;

/// Each page is a cache file of its own, of docs/spec/language-models.md#cache-files, whose pages before the last have
/// been given back: it names all tokens that decide its bits. A file takes its name when all is in it. Where the folder
/// grows too large, the files go that were used the longest ago; a page counts as used with those behind it. Several
/// models may share a folder, and it may hold other files, which are left alone.
///
/// Belongs to one thread at a time; a thread of its own writes.
class PageFolder {
 public:
  /// Called from any thread with a sentence where a page cannot be written; the folder takes no more pages then.
  using Tell = std::function<void(const std::string&)>;

  /// Makes the folder where it is not there, for this user alone: its files hold texts.
  /// @param most_bytes  of its files.
  /// @throws formats::Error, one sentence naming the folder: it cannot be made, or not be written.
  PageFolder(const std::string& folder, std::int64_t most_bytes, Tell tell);
  /// Writes for a few seconds what still waits.
  ~PageFolder();
  PageFolder(const PageFolder&) = delete;
  PageFolder& operator=(const PageFolder&) = delete;

  /// Whether the folder has the page at the end of a text's first `length` tokens, a multiple of 64.
  bool has(const CacheHead& head, const std::vector<std::int32_t>& tokens, std::int64_t length);
  /// That page; null where its file is damaged, which removes it. @throws std::bad_alloc
  Page load(const CacheHead& head, const std::vector<std::int32_t>& tokens, std::int64_t length,
            const PageCount& count);
  /// Has a copy of a page written, unless the one before it is missing. Where the disk is slower than the model, pages
  /// are left out.
  void save(const CacheHead& head, const std::vector<std::int32_t>& tokens, std::int64_t length, const Page& page);
  /// Waits until all that was to be saved is written, as tests do.
  void flush();

 private:
  struct File {
    std::int64_t bytes;  ///< 0: it is still to be written
    std::uint64_t used;  ///< the larger, the later
  };
  struct Waiting;

  using Names = std::vector<std::string>;

  std::string path_of(const std::string& name) const { return folder_ + "/" + name; }
  void find_files();
  void put(const std::string& name, std::int64_t bytes);
  void touch(const Names& names);
  bool forget(const std::string& name);
  Names take_oldest();
  void write_all();
  /// @returns bytes of its file.
  std::int64_t write(const Waiting& waiting) const;
  void remove(const Names& names) const;
  void date(const Names& names) const;

  std::string folder_;
  std::int64_t most_bytes_, bytes_ = 0;
  Tell tell_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::unordered_map<std::string, File> files_;  ///< by name
  std::map<std::uint64_t, std::string> by_use_;  ///< names
  std::uint64_t clock_ = 0;
  std::list<Waiting> waiting_;
  std::vector<Names> loaded_;  ///< whose files are to be dated
  std::int64_t waiting_bytes_ = 0;
  bool is_over_ = false, has_failed_ = false;
  std::chrono::steady_clock::time_point deadline_;  ///< of what waits when it is over
  std::thread writer_;
};

}  // namespace bie::llm
