// Pages that outlive a scheduler: what is served with them is what generate() writes alone, whatever befalls the
// folder.
#include "bie/llm/page_folder.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "bie/formats/error.h"
#include "tests/llm/scheduled.h"

namespace bie::llm::test {
namespace {

namespace fs = std::filesystem;
using bie::test::Scratch;

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void write(const fs::path& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

std::vector<fs::path> pages_in(const std::string& folder) {
  std::vector<fs::path> pages;
  for (const auto& file : fs::directory_iterator(folder))
    if (file.path().extension() == ".biekv") pages.push_back(file.path());
  return pages;
}

std::int64_t bytes_in(const std::string& folder) {
  std::int64_t bytes = 0;
  for (const fs::path& page : pages_in(folder)) bytes += static_cast<std::int64_t>(fs::file_size(page));
  return bytes;
}

class PageFolderTest : public SchedulerTest {
 protected:
  PageFolderTest() : path_(scratch_.path("pages")) {
    request_.prompt = tokens(rng_, 200);  // three pages and some
    request_.tokens = 20;
    request_.sampler.biases = {never_ends};
    request_.likeliest = 2;
  }

  std::shared_ptr<PageFolder> folder(std::int64_t bytes = 1 << 30) {
    return std::make_shared<PageFolder>(path_, bytes,
                                        [this](const std::string& sentence) { told_.push_back(sentence); });
  }

  /// Serves the request once from a fresh cache; the answer must be that of generate() alone.
  SchedulerCounts serve(const std::shared_ptr<PageFolder>& folder, std::int64_t pages = 100) const {
    const auto scheduled = scheduler(pages, 256, 256, 1, folder);
    Served served;
    scheduled->submit(request_, into(served));
    run(*scheduled);
    const Answer wanted = alone(request_);
    EXPECT_EQ(served.tokens, wanted.tokens);
    EXPECT_EQ(served.likeliest, wanted.logprobs);
    const SchedulerCounts counts = scheduled->counts();
    EXPECT_EQ(counts.pages, counts.kept_pages);
    EXPECT_LE(counts.pages, pages);
    return counts;
  }

  kernels::test::ReplayableRng rng_;
  Scratch scratch_;
  std::string path_;
  Request request_;
  std::vector<std::string> told_;
};

TEST_F(PageFolderTest, WhoStartsLaterReadsNoPageAgain) {
  EXPECT_EQ(serve(folder()).loaded, 0);
  EXPECT_EQ(pages_in(path_).size(), 3u);
  EXPECT_EQ(fs::status(path_).permissions(), fs::perms::owner_all) << "its files hold texts";
  const SchedulerCounts counts = serve(folder());
  EXPECT_EQ(counts.loaded, 3);
  EXPECT_EQ(counts.cached, 192);
  EXPECT_EQ(counts.read, 8);
  EXPECT_TRUE(told_.empty());
}

TEST_F(PageFolderTest, PagesThatTheCacheGaveBackComeFromTheFolder) {
  const auto shared = folder();
  const auto scheduled = scheduler(5, 256, 256, 1, shared);
  Request other = request_;
  other.prompt = tokens(rng_, 250);
  for (int i = 0; i < 4; ++i) {
    const Request& next = i % 2 == 0 ? request_ : other;
    Served served;
    scheduled->submit(next, into(served));
    run(*scheduled);
    shared->flush();
    EXPECT_EQ(served.tokens, alone(next).tokens);
    EXPECT_EQ(served.cached, i < 2 ? 0 : 192);
    EXPECT_LE(scheduled->counts().pages, 5);
  }
  EXPECT_GT(scheduled->counts().loaded, 3);
}

TEST_F(PageFolderTest, AnotherTextModelOrArithmeticTakesNone) {
  serve(folder());
  request_.prompt[0] = (request_.prompt[0] + 1) % 38;
  EXPECT_EQ(serve(folder()).loaded, 0);
  const std::string path = scratch_.path("other.gguf");
  save_small_model(path, 3);
  model_ = std::make_shared<const Model>(path, Arithmetic::int8, kernels::serial());
  EXPECT_EQ(serve(folder()).loaded, 0);
  model_ = std::make_shared<const Model>(path, Arithmetic::exact, kernels::serial());
  EXPECT_EQ(serve(folder()).loaded, 0);
}

TEST_F(PageFolderTest, DamagedFilesAreReadAgain) {
  serve(folder());
  const fs::path page = pages_in(path_).front();
  const std::string whole = bytes_of(page);
  std::vector<std::string> damaged = {"", "x", whole.substr(0, 56), whole.substr(0, whole.size() - 1), whole + "x"};
  for (std::size_t at = 0; at < whole.size(); at += at < 64 ? 1 : whole.size() / 23) {
    damaged.push_back(whole);
    damaged.back()[at] = static_cast<char>(damaged.back()[at] ^ 0x10);
  }
  for (const std::string& bytes : damaged) {
    fs::remove(page);
    write(page, bytes);
    EXPECT_LT(serve(folder()).loaded, 3);
    EXPECT_TRUE(bytes_of(page) == whole) << "a file of " << bytes.size() << " bytes is not written anew";
  }
}

TEST_F(PageFolderTest, FilesThatVanishAreReadAgain) {
  serve(folder());
  const auto shared = folder();
  for (const fs::path& page : pages_in(path_)) fs::remove(page);
  EXPECT_EQ(serve(shared).loaded, 0);
}

TEST_F(PageFolderTest, TheOldestFilesGoFirst) {
  serve(folder());
  const std::int64_t bytes = bytes_in(path_);
  Request first = request_;
  request_.prompt = tokens(rng_, 200);
  serve(folder(bytes * 4 / 3));  // four pages
  EXPECT_LE(bytes_in(path_), bytes * 4 / 3);
  EXPECT_EQ(serve(folder()).loaded, 3) << "the last text is whole";
  std::swap(request_, first);
  EXPECT_EQ(serve(folder()).loaded, 1)
      << "the last pages of the other one were the oldest, as they are of no use alone";
  folder(0);
  EXPECT_TRUE(pages_in(path_).empty());
}

TEST_F(PageFolderTest, ABeginningThatOthersSharedLastIsKept) {
  Request first = request_;
  serve(folder());
  const std::int64_t bytes = bytes_in(path_);
  const std::vector<std::int32_t> own = tokens(rng_, 136);
  serve(folder());  // of the text before, so that it is used
  request_.prompt = tokens(rng_, 200);
  serve(folder());
  request_.prompt.assign(first.prompt.begin(), first.prompt.begin() + 64);
  request_.prompt.insert(request_.prompt.end(), own.begin(), own.end());
  serve(folder(bytes * 5 / 3));  // five of eight pages
  EXPECT_EQ(serve(folder()).loaded, 3);
  request_ = first;
  EXPECT_GE(serve(folder()).loaded, 1);
}

TEST_F(PageFolderTest, OtherFilesStayAndUnfinishedOnesOfTheDeadGo) {
  folder();
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ASSERT_GT(child, 0);
  int status = 0;
  ::waitpid(child, &status, 0);
  const auto place = [this](const std::string& name) { return fs::path(path_) / name; };
  const std::string dead = "0123456789abcdef.biekv.tmp-" + std::to_string(child);
  const std::string alive = "0123456789abcdef.biekv.tmp-" + std::to_string(::getpid());
  for (const std::string& name :
       {dead, alive, std::string("notes.txt"), "other.tmp-" + std::to_string(child), std::string("story.biekv")})
    write(place(name), "text");
  fs::create_directory(place("folder.biekv"));
  serve(folder(0));
  EXPECT_FALSE(fs::exists(place(dead)));
  for (const std::string& name : {alive, std::string("notes.txt"), "other.tmp-" + std::to_string(child),
                                  std::string("folder.biekv"), std::string("story.biekv")})
    EXPECT_TRUE(fs::exists(place(name))) << name;
}

TEST_F(PageFolderTest, AFolderThatCannotBeIsTold) {
  write(scratch_.path("file"), "text");
  path_ = scratch_.path("file");
  EXPECT_THROW(folder(), formats::Error);
  path_ = scratch_.path("file") + "/below";
  EXPECT_THROW(folder(), formats::Error);
}

TEST_F(PageFolderTest, ADiskThatTakesNothingIsToldOnce) {
  const auto shared = folder();
  struct sigaction ignores {
  }, before{};
  ignores.sa_handler = SIG_IGN;
  ::sigaction(SIGXFSZ, &ignores, &before);
  rlimit limit{};
  ::getrlimit(RLIMIT_FSIZE, &limit);
  const rlimit small{100, limit.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  serve(shared);
  shared->flush();
  ::setrlimit(RLIMIT_FSIZE, &limit);
  ::sigaction(SIGXFSZ, &before, nullptr);
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_NE(told_[0].find("cannot be written"), std::string::npos) << told_[0];
  EXPECT_TRUE(fs::is_empty(path_));
}

}  // namespace
}  // namespace bie::llm::test
