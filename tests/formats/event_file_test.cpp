// Event files: framing, order, failures, and what TensorBoard itself reads from them.
#include "bie/formats/event_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <bit>
#include <csignal>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "formats/crc32c.h"
#include "formats/protobuf.h"
#include "tests/support/scratch.h"

namespace bie::formats::test {
namespace {

using bie::test::expect_sentence;
using bie::test::read_file;
using bie::test::refusal;
using bie::test::Scratch;
using bie::test::write_file;

/// Source: RFC 3720, B.4, and the CRC catalogue's check value.
TEST(Crc32c, KnownVectors) {
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62A8AB43u);
  std::string ramp;
  for (char c = 0; c < 32; ++c) ramp += c;
  EXPECT_EQ(crc32c(ramp), 0x46DD794Eu);
  EXPECT_EQ(crc32c(std::string(ramp.rbegin(), ramp.rend())), 0x113FDB5Cu);
}

/// Source: protobuf.dev, "Encoding", whose examples these are, and the layout of IEEE numbers.
TEST(Protobuf, Fields) {
  const auto bytes = [](std::initializer_list<int> values) { return std::string(values.begin(), values.end()); };
  EXPECT_EQ(ProtobufMessage().add_integer(1, 150).bytes(), bytes({0x08, 0x96, 0x01}));
  EXPECT_EQ(ProtobufMessage().add_bytes(2, "testing").bytes(), bytes({0x12, 0x07}) + "testing");
  EXPECT_EQ(ProtobufMessage().add_integer(1, -2).bytes(), bytes({0x08, 0xfe}) + std::string(8, '\xff') + '\1');
  EXPECT_EQ(ProtobufMessage().add_double(1, 1).bytes(), bytes({0x09, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f}));
  EXPECT_EQ(ProtobufMessage().add_float(2, -2).bytes(), bytes({0x15, 0, 0, 0, 0xc0}));
  EXPECT_EQ(ProtobufMessage().add_doubles(16, {0, 0}).bytes(), bytes({0x82, 0x01, 16}) + std::string(16, '\0'));
}

template <class Integer>
Integer number(const std::string& bytes, std::size_t at) {
  Integer value = 0;
  for (std::size_t i = 0; i < sizeof value; ++i)
    value |= static_cast<Integer>(static_cast<std::uint8_t>(bytes.at(at + i))) << 8 * i;
  return value;
}

/// The data of every record; a wrong length or checksum fails the test.
std::vector<std::string> records(const std::string& bytes) {
  const auto expect_crc = [](std::uint32_t masked, const std::string& of) {
    const std::uint32_t rotated = masked - 0xA282EAD8u;
    EXPECT_EQ(std::rotl(rotated, 15), crc32c(of));
  };
  std::vector<std::string> found;
  for (std::size_t at = 0; at < bytes.size();) {
    const auto length = number<std::uint64_t>(bytes, at);
    expect_crc(number<std::uint32_t>(bytes, at + 8), bytes.substr(at, 8));
    found.push_back(bytes.substr(at + 12, length));
    EXPECT_EQ(found.back().size(), length);
    expect_crc(number<std::uint32_t>(bytes, at + 12 + length), found.back());
    at += 16 + length;
  }
  return found;
}

TEST(EventFile, BeginsWithItsVersionAndItsStart) {
  const Scratch scratch;
  const EventFile file(scratch.folder());
  const auto found = records(read_file(file.path()));
  ASSERT_EQ(found.size(), 2u);
  EXPECT_NE(found[0].find("brain.Event:2"), std::string::npos);
  EXPECT_EQ(found[1].substr(9), "\x3a\x02\x08\x01");  // after the time: session_log {status: START}
}

TEST(EventFile, WhatIsAddedWaitsForTheFlush) {
  const Scratch scratch;
  EventFile file(scratch.folder());
  file.add_scalar("loss", 1, 0.5);
  file.add_histogram("weights", 1, {-1, 1, {3, 4}});
  file.add_histogram("none", 1, {});
  EXPECT_EQ(records(read_file(file.path())).size(), 2u);
  file.flush();
  const auto found = records(read_file(file.path()));
  ASSERT_EQ(found.size(), 4u);
  EXPECT_NE(found[2].find("loss"), std::string::npos);
  EXPECT_NE(found[3].find("weights"), std::string::npos);
  file.flush();
  EXPECT_EQ(records(read_file(file.path())).size(), 4u);
}

TEST(EventFile, NamesSortAsTheFilesWereBegun) {
  const Scratch scratch;
  write_file(scratch.path("events.out.tfevents.99999999999999999999"), "");
  write_file(scratch.path("events.out.tfevents.9223372036854775807.x"), "");
  write_file(scratch.path("events.out.tfevents.none"), "");
  std::vector<std::string> paths;
  for (int i = 0; i < 5; ++i) paths.push_back(EventFile(scratch.folder()).path());
  for (std::size_t i = 1; i < paths.size(); ++i) EXPECT_LT(paths[i - 1], paths[i]);
  write_file(scratch.path("events.out.tfevents.4000000000.of-a-clock-that-was-ahead"), "");
  EXPECT_LT(scratch.path("events.out.tfevents.4000000000.of-a-clock-that-was-ahead"),
            EventFile(scratch.folder()).path());
}

TEST(EventFile, AFolderThatCannotBeWrittenIsRefused) {
  const Scratch scratch;
  const std::string nowhere = scratch.path("none");
  expect_sentence(refusal([&] { EventFile file(nowhere); }), nowhere, "cannot be written: No such file");
  write_file(nowhere, "");
  expect_sentence(refusal([&] { EventFile file(nowhere); }), nowhere, "cannot be written: Not a directory");
}

/// Files may grow to `bytes` while it lives, as on a disk that is full.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit small = before_;
    small.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &small);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  void (*handler_)(int);
  rlimit before_{};
};

TEST(EventFile, AFailedFlushLosesNothing) {
  const Scratch scratch;
  EventFile file(scratch.folder());
  file.add_scalar("first", 1, 1);
  file.flush();
  const std::string before = read_file(file.path());
  file.add_histogram("second", 2, {0, 1, std::vector<std::uint64_t>(1000, 1)});
  std::string sentence;
  {
    const FullDisk full(4096);
    sentence = refusal([&] { file.flush(); });
  }
  expect_sentence(sentence, file.path(), "cannot be written: File too large");
  EXPECT_EQ(read_file(file.path()), before);
  file.add_scalar("third", 3, 3);
  file.flush();
  EXPECT_EQ(records(read_file(file.path())).size(), 5u);
}

TEST(EventFile, OnAFullDiskNoneIsBegun) {
  const Scratch scratch;
  {
    const FullDisk full(0);
    EXPECT_NE(refusal([&] { EventFile file(scratch.folder()); }), "");
  }
  EXPECT_EQ(scratch.count(), 0);
}

/// Two epochs, a third that is cut off as by a kill, and a run that goes on after the second.
TEST(EventFile, TensorBoardReadsARunThatWasResumed) {
  const Scratch scratch;
  std::string killed;
  {
    EventFile file(scratch.folder());
    for (int epoch = 1; epoch <= 3; ++epoch) {
      file.add_scalar("accuracy/test", epoch, 0.25 * epoch);
      file.add_histogram("weights/fc", epoch, {-8.5, 7.5, {1, 0, 5, 2}});
      file.flush();
    }
    file.add_scalar("accuracy/test", 4, std::numeric_limits<double>::quiet_NaN());
    file.flush();
    killed = file.path();
  }
  const std::string bytes = read_file(killed);
  write_file(killed, bytes.substr(0, bytes.size() - 5));
  EventFile file(scratch.folder(), 3);
  file.add_scalar("accuracy/test", 3, 10);
  file.add_scalar("accuracy/test", std::int64_t{1} << 40, -1e-3);
  file.flush();

  const std::string command = "'" BIE_PYTHON "' '" BIE_EVENT_FILE_PEER "' '" + scratch.folder() + "'";
  const int status = std::system(command.c_str());
  constexpr int peer_missing = 77;
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == peer_missing) GTEST_SKIP() << "the Python package tensorboard is not installed";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace bie::formats::test
