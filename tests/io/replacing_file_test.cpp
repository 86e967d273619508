// What a writer leaves behind: the whole file or the old one, and nothing of a process that was killed.
#include "io/replacing_file.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "tests/io/scratch.h"

namespace bie::io::test {
namespace {

/// The id of a process that has ended.
pid_t dead_process() {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  return child;
}

TEST(ReplacingFile, TakesItsNameAtTheCommit) {
  const Scratch scratch;
  write_file(scratch.path("a"), "old");
  {
    ReplacingFile file("file", scratch.path("a"));
    file.write("new", 3);
    EXPECT_EQ(read_file(scratch.path("a")), "old");
    EXPECT_EQ(scratch.count(), 2);
    file.commit();
  }
  EXPECT_EQ(read_file(scratch.path("a")), "new");
  EXPECT_EQ(scratch.count(), 1);
}

TEST(ReplacingFile, LeavesNoTraceWithoutACommit) {
  const Scratch scratch;
  write_file(scratch.path("a"), "old");
  { ReplacingFile("file", scratch.path("a")).write("new", 3); }
  EXPECT_EQ(read_file(scratch.path("a")), "old");
  EXPECT_EQ(scratch.count(), 1);
}

TEST(ReplacingFile, RemovesWhatAKilledWriterLeft) {
  const Scratch scratch;
  const std::string dead = ".tmp-" + std::to_string(dead_process());
  const std::string alive = ".tmp-" + std::to_string(getppid());
  const std::string kept[] = {"a" + alive, "b" + dead, "a" + dead + "x", "a.tmp-", "a.tmp-0" + dead.substr(5), "aa"};
  for (const std::string& name : kept) write_file(scratch.path(name), "");
  write_file(scratch.path("a" + dead), "half");
  ReplacingFile("file", scratch.path("a")).commit();
  EXPECT_FALSE(std::filesystem::exists(scratch.path("a" + dead)));
  for (const std::string& name : kept) EXPECT_TRUE(std::filesystem::exists(scratch.path(name))) << name;
  EXPECT_EQ(scratch.count(), 7);
}

TEST(ReplacingFile, RemovesALeftoverInTheWorkingFolder) {
  const Scratch scratch;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(scratch.folder());
  write_file("a.tmp-" + std::to_string(dead_process()), "half");
  ReplacingFile("file", "a").commit();
  std::filesystem::current_path(before);
  EXPECT_EQ(scratch.count(), 1);
}

TEST(ReplacingFile, AnUnfinishedFileIsToldByItsName) {
  EXPECT_TRUE(is_unfinished("epoch3.safetensors.tmp-812"));
  for (const char* name : {"epoch3.safetensors", "a.tmp-", "a.tmp-x", "a.tmp-8x", "a.tmp--8", "a.tmp-99999999999", ""})
    EXPECT_FALSE(is_unfinished(name)) << name;
}

}  // namespace
}  // namespace bie::io::test
