#include "bie/llm/page_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <new>
#include <system_error>
#include <utility>

#include "bie/formats/error.h"
#include "bie/formats/replacing_file.h"
#include "llm/cache_format.h"

namespace bie::llm {
namespace {

namespace fs = std::filesystem;

constexpr const char* kind = "cache folder";
constexpr const char* ending = ".biekv";
constexpr std::int64_t most_waiting_bytes = 64 << 20;

/// FNV-1a over the tokens and what a head says of the model. A name that two texts share is no harm: files name all
/// of their tokens.
std::string name_of(const CacheHead& head, const std::vector<std::int32_t>& tokens, std::int64_t length) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  const auto add = [&hash](std::uint64_t word) { hash = (hash ^ word) * 0x100000001b3U; };
  for (const std::uint32_t word : {head.format, head.law, head.arithmetic, head.cache, head.model}) add(word);
  add(static_cast<std::uint64_t>(head.page_bytes));
  for (std::int64_t i = 0; i < length; ++i) add(static_cast<std::uint32_t>(tokens[static_cast<std::size_t>(i)]));
  char name[17];
  std::snprintf(name, sizeof name, "%016llx", static_cast<unsigned long long>(hash));
  return std::string(name) + ending;
}

}  // namespace

struct PageFolder::Waiting {
  std::string name;
  CacheHead head;
  std::vector<std::int32_t> tokens;
  std::vector<std::byte> page;
};

PageFolder::PageFolder(const std::string& folder, std::int64_t most_bytes, Tell tell)
    : folder_(folder), most_bytes_(most_bytes), tell_(std::move(tell)) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) formats::fail_file(kind, folder_, "cannot be made: ", error.message());
  if (::access(folder_.c_str(), R_OK | W_OK | X_OK) != 0)
    formats::fail_file(kind, folder_, "cannot be written: ", std::strerror(errno));
  find_files();
  writer_ = std::thread([this] { write_all(); });
}

PageFolder::~PageFolder() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  changed_.notify_all();
  writer_.join();
}

/// Lists what is there, by the time of its last use, and removes what killed processes left.
void PageFolder::find_files() {
  struct Found {
    fs::file_time_type time;
    std::string name;
    std::int64_t bytes;
  };
  std::vector<Found> found;
  std::error_code error;
  for (fs::directory_iterator file(folder_, error), end; !error && file != end; file.increment(error)) {
    std::error_code gone;
    const std::string name = file->path().filename().string();
    if (formats::is_unfinished(name) && name.find(std::string(ending) + ".") != std::string::npos)
      formats::remove_unfinished(path_of(name.substr(0, name.find(ending)) + ending));
    if (!file->is_regular_file(gone) || file->path().extension() != ending) continue;
    const auto bytes = static_cast<std::int64_t>(file->file_size(gone));
    const auto time = file->last_write_time(gone);
    if (!gone && bytes > 0) found.push_back({time, name, bytes});
  }
  if (error) formats::fail_file(kind, folder_, "cannot be read: ", error.message());
  std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) { return a.time < b.time; });
  for (const Found& file : found) {
    files_[file.name] = {file.bytes, ++clock_};
    bytes_ += file.bytes;
  }
  while (bytes_ > most_bytes_ && !files_.empty()) remove_oldest();
}

/// With the mutex held, or before there are threads.
void PageFolder::remove_oldest() {
  const auto oldest = std::min_element(files_.begin(), files_.end(),
                                       [](const auto& a, const auto& b) { return a.second.used < b.second.used; });
  ::unlink(path_of(oldest->first).c_str());
  bytes_ -= oldest->second.bytes;
  files_.erase(oldest);
}

bool PageFolder::has(const CacheHead& head, const std::vector<std::int32_t>& tokens, std::int64_t length) {
  const std::string name = name_of(head, tokens, length);
  const std::lock_guard lock(mutex_);
  const auto at = files_.find(name);
  return at != files_.end() && at->second.bytes > 0;
}

Page PageFolder::load(const CacheHead& head, const std::vector<std::int32_t>& tokens, std::int64_t length,
                      const PageCount& count) {
  const std::string name = name_of(head, tokens, length);
  try {
    const CacheFile file(path_of(name), head);
    const bool is_it = static_cast<std::int64_t>(file.tokens().size()) == length &&
                       std::equal(file.tokens().begin(), file.tokens().end(), tokens.begin()) &&
                       file.given_back() == length / kernels::attention_block - 1;
    if (!is_it) return nullptr;
    Page page = new_page(head.page_bytes, count);
    std::memcpy(page.get(), file.pages(length), static_cast<std::size_t>(head.page_bytes));
    ::utimensat(AT_FDCWD, path_of(name).c_str(), nullptr, 0);
    const std::lock_guard lock(mutex_);
    if (const auto at = files_.find(name); at != files_.end()) at->second.used = ++clock_;
    return page;
  } catch (const formats::Error&) {
    // Another process has removed it, or it is damaged.
    const std::lock_guard lock(mutex_);
    const auto at = files_.find(name);
    if (at == files_.end()) return nullptr;
    ::unlink(path_of(name).c_str());
    bytes_ -= at->second.bytes;
    files_.erase(at);
    return nullptr;
  }
}

void PageFolder::save(const CacheHead& head, const std::vector<std::int32_t>& tokens, std::int64_t length,
                      const Page& page) {
  std::string name = name_of(head, tokens, length);
  {
    const std::lock_guard lock(mutex_);
    if (has_failed_ || waiting_bytes_ + head.page_bytes > std::max(most_waiting_bytes, head.page_bytes) ||
        files_.find(name) != files_.end())
      return;
  }
  Waiting waiting{std::move(name), head, {tokens.begin(), tokens.begin() + length}, {}};
  waiting.page.assign(page.get(), page.get() + head.page_bytes);
  {
    const std::lock_guard lock(mutex_);
    waiting_bytes_ += head.page_bytes;
    files_[waiting.name] = {0, ++clock_};
    waiting_.push_back(std::move(waiting));
  }
  changed_.notify_all();
}

void PageFolder::flush() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return waiting_.empty(); });
}

void PageFolder::write_all() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return is_over_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const Waiting& next = waiting_.front();  // stays while others are put behind it
    lock.unlock();
    std::string trouble;
    std::int64_t bytes = 0;
    try {
      bytes = write(next);
    } catch (const formats::Error& error) {
      trouble = error.what();
    } catch (const std::bad_alloc&) {
      trouble = "the system has no memory to write pages with";
    }
    lock.lock();
    if (bytes == 0) {
      files_.erase(next.name);
    } else {
      files_[next.name] = {bytes, ++clock_};
      bytes_ += bytes;
    }
    while (bytes_ > most_bytes_ && !files_.empty()) remove_oldest();
    waiting_bytes_ -= next.head.page_bytes;
    waiting_.pop_front();
    if (!trouble.empty() && !std::exchange(has_failed_, true)) {
      lock.unlock();
      tell_(trouble + "; no more pages are kept in the folder");
      lock.lock();
    }
    changed_.notify_all();
  }
}

std::int64_t PageFolder::write(const Waiting& waiting) const {
  const std::string path = path_of(waiting.name);
  const auto length = static_cast<std::int64_t>(waiting.tokens.size());
  write_cache_file(path, waiting.head, waiting.tokens, length / kernels::attention_block - 1, {waiting.page.data()});
  struct stat facts {};
  return ::stat(path.c_str(), &facts) == 0 ? facts.st_size : 0;
}

}  // namespace bie::llm
