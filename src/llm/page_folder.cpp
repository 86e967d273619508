#include "bie/llm/page_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
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

constexpr std::size_t most_loaded = 256;        // texts whose files wait to be dated
constexpr std::chrono::seconds last_writes{5};  // that a process may spend on at its end

/// The names of the pages of a text's first `length` tokens: steps of FNV-1a over what a head says of the model and
/// the tokens. A name that two texts share is no harm: files name all of their tokens.
std::vector<std::string> names_of(const CacheHead& head, const std::vector<std::int32_t>& tokens, std::int64_t length) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  const auto add = [&hash](std::uint64_t word) { hash = (hash ^ word) * 0x100000001b3U; };
  for (const std::uint32_t word : {head.format, head.law, head.arithmetic, head.cache, head.model}) add(word);
  add(static_cast<std::uint64_t>(head.page_bytes));
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < length; ++i) {
    add(static_cast<std::uint32_t>(tokens[static_cast<std::size_t>(i)]));
    if ((i + 1) % kernels::attention_block != 0) continue;
    char name[17];
    std::snprintf(name, sizeof name, "%016llx", static_cast<unsigned long long>(hash));
    names.push_back(std::string(name) + ending);
  }
  return names;
}

/// Whether names_of() makes such names.
bool is_page(const std::string& name) {
  return name.size() == 16 + std::strlen(ending) && name.find_first_not_of("0123456789abcdef") == 16 &&
         name.substr(16) == ending;
}

}  // namespace

struct PageFolder::Waiting {
  Names names;  ///< its own is the last
  CacheHead head;
  std::vector<std::int32_t> tokens;
  std::vector<std::byte> page;
};

PageFolder::PageFolder(const std::string& folder, std::int64_t most_bytes, Tell tell)
    : folder_(folder), most_bytes_(most_bytes), tell_(std::move(tell)) {
  std::error_code error;
  if (fs::create_directories(folder_, error)) fs::permissions(folder_, fs::perms::owner_all, error);
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
    deadline_ = std::chrono::steady_clock::now() + last_writes;
  }
  changed_.notify_all();
  writer_.join();
}

// The caller of these four holds the mutex, or is alone.

void PageFolder::put(const std::string& name, std::int64_t bytes) {
  forget(name);
  files_[name] = {bytes, ++clock_};
  by_use_[clock_] = name;
  bytes_ += bytes;
}

/// The first page of a text counts as used last, as the others are of use with it alone.
void PageFolder::touch(const Names& names) {
  for (auto name = names.rbegin(); name != names.rend(); ++name)
    if (const auto at = files_.find(*name); at != files_.end()) {
      by_use_.erase(at->second.used);
      at->second.used = ++clock_;
      by_use_[clock_] = *name;
    }
}

bool PageFolder::forget(const std::string& name) {
  const auto at = files_.find(name);
  if (at == files_.end()) return false;
  bytes_ -= at->second.bytes;
  by_use_.erase(at->second.used);
  files_.erase(at);
  return true;
}

/// Names that are forgotten, whose files are to be removed.
PageFolder::Names PageFolder::take_oldest() {
  Names oldest;
  while (bytes_ > most_bytes_ && !by_use_.empty()) {
    oldest.push_back(by_use_.begin()->second);
    forget(oldest.back());
  }
  return oldest;
}

void PageFolder::remove(const Names& names) const {
  for (const std::string& name : names) ::unlink(path_of(name).c_str());
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
    const std::string stem = name.substr(0, name.rfind(".tmp-"));
    if (formats::is_unfinished(name) && is_page(stem)) formats::remove_unfinished(path_of(stem));
    if (!file->is_regular_file(gone) || !is_page(name)) continue;
    const auto bytes = static_cast<std::int64_t>(file->file_size(gone));
    const auto time = file->last_write_time(gone);
    if (!gone && bytes > 0) found.push_back({time, name, bytes});
  }
  if (error) formats::fail_file(kind, folder_, "cannot be read: ", error.message());
  std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) { return a.time < b.time; });
  for (const Found& file : found) put(file.name, file.bytes);
  remove(take_oldest());
}

bool PageFolder::has(const CacheHead& head, const std::vector<std::int32_t>& tokens, std::int64_t length) {
  const std::string name = names_of(head, tokens, length).back();
  const std::lock_guard lock(mutex_);
  const auto at = files_.find(name);
  return at != files_.end() && at->second.bytes > 0;
}

Page PageFolder::load(const CacheHead& head, const std::vector<std::int32_t>& tokens, std::int64_t length,
                      const PageCount& count) {
  const Names names = names_of(head, tokens, length);
  const std::string path = path_of(names.back());
  try {
    const CacheFile file(path, head);
    const bool is_it = static_cast<std::int64_t>(file.tokens().size()) == length &&
                       std::equal(file.tokens().begin(), file.tokens().end(), tokens.begin()) &&
                       file.given_back() == length / kernels::attention_block - 1;
    if (!is_it) return nullptr;
    Page page = new_page(head.page_bytes, count);
    std::memcpy(page.get(), file.pages(length), static_cast<std::size_t>(head.page_bytes));
    {
      const std::lock_guard lock(mutex_);
      touch(names);
      // A text comes page by page: the last one stands for all.
      const bool goes_on = !loaded_.empty() && names.size() > 1 && loaded_.back().back() == names[names.size() - 2];
      if (goes_on)
        loaded_.back() = names;
      else if (loaded_.size() < most_loaded)
        loaded_.push_back(names);
    }
    changed_.notify_all();
    return page;
  } catch (const formats::Error&) {
    // Another process has removed it, or it is damaged.
    {
      const std::lock_guard lock(mutex_);
      if (!forget(names.back())) return nullptr;
    }
    ::unlink(path.c_str());
    return nullptr;
  }
}

void PageFolder::save(const CacheHead& head, const std::vector<std::int32_t>& tokens, std::int64_t length,
                      const Page& page) {
  Waiting waiting{names_of(head, tokens, length), head, {tokens.begin(), tokens.begin() + length}, {}};
  const Names& names = waiting.names;
  {
    const std::lock_guard lock(mutex_);
    touch(names);
    // Without the page before it nobody would find it.
    const bool is_alone = names.size() > 1 && files_.find(names[names.size() - 2]) == files_.end();
    if (has_failed_ || is_alone || waiting_bytes_ + head.page_bytes > std::max(most_waiting_bytes, head.page_bytes) ||
        files_.find(names.back()) != files_.end())
      return;
  }
  waiting.page.assign(page.get(), page.get() + head.page_bytes);
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(waiting));
    put(waiting_.back().names.back(), 0);
    touch(waiting_.back().names);
    waiting_bytes_ += head.page_bytes;
  }
  changed_.notify_all();
}

void PageFolder::flush() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return waiting_.empty(); });
}

/// Tells the server that starts next what touch() says, by times that differ.
void PageFolder::date(const Names& names) const {
  for (auto name = names.rbegin(); name != names.rend(); ++name) {
    timespec times[2] = {{0, UTIME_OMIT}, {}};
    ::clock_gettime(CLOCK_REALTIME, &times[1]);
    ::utimensat(AT_FDCWD, path_of(*name).c_str(), times, 0);
  }
}

void PageFolder::write_all() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return is_over_ || !waiting_.empty() || !loaded_.empty(); });
    if (const std::vector<Names> loaded = std::exchange(loaded_, {}); !loaded.empty()) {
      lock.unlock();
      for (const Names& names : loaded) date(names);
      lock.lock();
      continue;
    }
    if (waiting_.empty() || (is_over_ && std::chrono::steady_clock::now() > deadline_)) return;
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
    const std::string& name = next.names.back();
    if (bytes == 0) {
      forget(name);
    } else {
      put(name, bytes);
      touch(next.names);
    }
    const Names oldest = take_oldest();
    waiting_bytes_ -= next.head.page_bytes;
    waiting_.pop_front();
    const bool is_news = !trouble.empty() && !std::exchange(has_failed_, true);
    lock.unlock();
    remove(oldest);
    if (is_news) tell_(trouble + "; no more pages are kept in the folder");
    lock.lock();
    changed_.notify_all();
  }
}

std::int64_t PageFolder::write(const Waiting& waiting) const {
  const std::string path = path_of(waiting.names.back());
  const auto length = static_cast<std::int64_t>(waiting.tokens.size());
  write_cache_file(path, waiting.head, waiting.tokens, length / kernels::attention_block - 1, {waiting.page.data()});
  date(waiting.names);
  struct stat facts {};
  return ::stat(path.c_str(), &facts) == 0 ? facts.st_size : 0;
}

}  // namespace bie::llm
