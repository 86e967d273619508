// A writer leaves the whole new file or the old one, and nothing of a process that was killed.
#include "bie/formats/replacing_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "tests/support/scratch.h"

namespace bie::formats::test {
namespace {

using bie::test::expect_sentence;
using bie::test::read_file;
using bie::test::refusal;
using bie::test::Scratch;
using bie::test::write_file;

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

void replace(const std::string& path, const std::string& text) {
  ReplacingFile file("file", path);
  file.write(text.data(), static_cast<std::int64_t>(text.size()));
  file.commit();
}

TEST(ReplacingFile, ALinkStaysOne) {
  const Scratch scratch;
  std::filesystem::create_directory(scratch.path("folder"));
  write_file(scratch.path("folder/real"), "old");
  std::filesystem::create_symlink("folder/real", scratch.path("near"));
  std::filesystem::create_symlink(scratch.path("near"), scratch.path("far"));
  replace(scratch.path("far"), "new");
  EXPECT_EQ(read_file(scratch.path("folder/real")), "new");
  std::filesystem::remove(scratch.path("folder/real"));
  replace(scratch.path("far"), "made");
  EXPECT_EQ(read_file(scratch.path("folder/real")), "made");
  for (const char* link : {"near", "far"}) EXPECT_TRUE(std::filesystem::is_symlink(scratch.path(link)));
  EXPECT_EQ(scratch.count(), 3);
}

TEST(ReplacingFile, TheModeIsKept) {
  const Scratch scratch;
  const auto mode = [&](const char* name) {
    struct stat facts {};
    ::stat(scratch.path(name).c_str(), &facts);
    return facts.st_mode & 07777;
  };
  const mode_t before = ::umask(027);
  replace(scratch.path("fresh"), "new");
  EXPECT_EQ(mode("fresh"), 0640u);
  for (const mode_t wanted : {0600, 0644, 0666}) {
    ::chmod(scratch.path("fresh").c_str(), wanted);
    ReplacingFile file("file", scratch.path("fresh"));
    EXPECT_EQ(mode(("fresh.tmp-" + std::to_string(::getpid())).c_str()), wanted) << "private from the first byte on";
    file.commit();
    EXPECT_EQ(mode("fresh"), wanted);
  }
  ::umask(before);
}

TEST(ReplacingFile, AStreamIsWrittenTo) {
  const Scratch scratch;
  const std::string pipe = scratch.path("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  replace(pipe, "bytes");
  char got[8] = "";
  EXPECT_EQ(::read(reader, got, sizeof got), 5);
  EXPECT_STREQ(got, "bytes");
  ::close(reader);
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  EXPECT_EQ(scratch.count(), 1);
}

TEST(ReplacingFile, WhatCannotBeReplacedIsRefused) {
  const Scratch scratch;
  const auto refused = [&](const std::string& path, const char* part) {
    expect_sentence(refusal([&] { destination_of("file", path); }), path, part);
    expect_sentence(refusal([&] { ReplacingFile("file", path); }), path, part);
  };
  refused(scratch.folder(), "expected a file, got a folder");
  refused(scratch.path("none/a"), "cannot be written");
  refused(scratch.path(std::string(250, 'a')), "its name has 250 bytes, at most 240");
  std::filesystem::create_symlink("round", scratch.path("round"));
  refused(scratch.path("round"), "cannot be written");
  std::filesystem::create_symlink("none/a", scratch.path("nowhere"));
  refused(scratch.path("nowhere"), "cannot be written");
  const int gone = ::open(scratch.path("gone").c_str(), O_RDWR | O_CREAT, 0600);
  std::filesystem::remove(scratch.path("gone"));
  refused("/proc/self/fd/" + std::to_string(gone), "a file without a name");
  ::close(gone);
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  scratch.path("socket").copy(name.sun_path, sizeof name.sun_path - 1);
  ASSERT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&name), sizeof name), 0);
  refused(scratch.path("socket"), "expected a file, got a device or a socket");
  ::close(socket);
  if (::geteuid() != 0) {
    write_file(scratch.path("kept"), "old");
    ::chmod(scratch.path("kept").c_str(), 0400);
    refused(scratch.path("kept"), "Permission denied");
  }
}

TEST(ReplacingFile, AnothersFileInAStickyFolderIsRefusedBeforeTheWork) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const Scratch scratch;
  constexpr uid_t another = 65534;
  ASSERT_EQ(::chmod(scratch.folder().c_str(), 01777), 0);
  write_file(scratch.path("kept"), "old");
  ::chmod(scratch.path("kept").c_str(), 0666);
  ASSERT_EQ(::seteuid(another), 0);
  const std::string said = refusal([&] { destination_of("file", scratch.path("kept")); });
  ASSERT_EQ(::seteuid(0), 0);
  expect_sentence(said, scratch.path("kept"), "only the file's owner may replace it");
  ASSERT_EQ(::chown(scratch.path("kept").c_str(), another, static_cast<gid_t>(-1)), 0);
  ASSERT_EQ(::seteuid(another), 0);
  const Destination own = destination_of("file", scratch.path("kept"));
  ASSERT_EQ(::seteuid(0), 0);
  EXPECT_EQ(own.kind, Destination::Kind::file);
}

TEST(ReplacingFile, AnUnfinishedFileIsToldByItsName) {
  EXPECT_TRUE(is_unfinished("epoch3.safetensors.tmp-812"));
  for (const char* name : {"epoch3.safetensors", "a.tmp-", "a.tmp-x", "a.tmp-8x", "a.tmp--8", "a.tmp-99999999999", ""})
    EXPECT_FALSE(is_unfinished(name)) << name;
}

}  // namespace
}  // namespace bie::formats::test
