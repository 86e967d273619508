#include "bie/formats/event_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "bie/formats/error.h"
#include "formats/crc32c.h"
#include "formats/protobuf.h"

namespace bie::formats {
namespace {

constexpr char kind[] = "event file";
constexpr std::string_view name_start = "events.out.tfevents.";

// Field numbers. Source: tensorboard/compat/proto/event.proto and summary.proto of TensorBoard 2.21.
namespace event {
constexpr int wall_time = 1, step = 2, file_version = 3, summary = 5, session_log = 7;
}
namespace session_log {
constexpr int status = 1, start = 1;  // the latter a value of SessionStatus
}
namespace summary {
constexpr int value = 1, tag = 1, simple_value = 2, histo = 5;  // but for the first of Summary.Value
}
namespace histogram {
constexpr int min = 1, max = 2, num = 3, sum = 4, sum_squares = 5, bucket_limit = 6, bucket = 7;
}

/// Length, its checksum, data, its checksum. Source: tensorflow/core/lib/io/record_writer.h.
std::string record(const std::string& data) {
  const auto masked_crc = [](const std::string& bytes) {
    const std::uint32_t crc = crc32c(bytes);
    return little_endian((crc >> 15 | crc << 17) + 0xA282EAD8u);
  };
  const std::string length = little_endian(static_cast<std::uint64_t>(data.size()));
  return length + masked_crc(length) + data + masked_crc(data);
}

ProtobufMessage event_of(std::int64_t step) {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  ProtobufMessage message;
  message.add_double(event::wall_time, now.count());
  if (step != 0) message.add_integer(event::step, step);
  return message;
}

std::string summary_record(std::int64_t step, const ProtobufMessage& value) {
  ProtobufMessage summary;
  summary.add_bytes(summary::value, value.bytes());
  return record(event_of(step).add_bytes(event::summary, summary.bytes()).bytes());
}

/// Seconds in the name of an event file; 0 for any other name. More than ten digits would not sort as numbers do.
std::int64_t seconds_in(std::string_view name) {
  if (!name.starts_with(name_start)) return 0;
  name.remove_prefix(name_start.size());
  std::int64_t seconds = 0;
  std::from_chars(name.data(), name.data() + name.size(), seconds);
  return seconds < 9'999'999'999 ? seconds : 0;
}

/// Now, or a second after the youngest event file of the folder: TensorBoard reads files in the order of their names.
std::int64_t next_seconds(const std::string& folder) {
  std::int64_t seconds =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  std::error_code error;
  std::filesystem::directory_iterator file(folder, error);
  for (; !error && file != std::filesystem::directory_iterator(); file.increment(error))
    seconds = std::max(seconds, seconds_in(file->path().filename().string()) + 1);
  return seconds;
}

}  // namespace

EventFile::EventFile(const std::string& folder, std::int64_t first_step) {
  // If two writers start in the same second, one finds the name taken and uses the next second.
  for (std::int64_t seconds = next_seconds(folder); fd_ < 0; ++seconds) {
    path_ = (std::filesystem::path(folder) / (std::string(name_start) + std::to_string(seconds) + ".bie")).string();
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd_ < 0 && errno != EEXIST) fail_file(kind, path_, "cannot be written: ", std::strerror(errno));
  }
  waiting_ = record(event_of(0).add_bytes(event::file_version, "brain.Event:2").bytes());
  // In the first file too: TensorBoard takes the second start that it meets for a restart, and forgets from there on.
  ProtobufMessage start;
  start.add_integer(session_log::status, session_log::start);
  waiting_ += record(event_of(first_step).add_bytes(event::session_log, start.bytes()).bytes());
  try {
    flush();
  } catch (...) {
    ::close(fd_);
    ::unlink(path_.c_str());
    throw;
  }
}

EventFile::~EventFile() { ::close(fd_); }

void EventFile::add_scalar(const std::string& tag, std::int64_t step, double value) {
  ProtobufMessage message;
  message.add_bytes(summary::tag, tag).add_float(summary::simple_value, static_cast<float>(value));
  waiting_ += summary_record(step, message);
}

void EventFile::add_histogram(const std::string& tag, std::int64_t step, const BinnedValues& values) {
  if (values.counts.empty()) return;
  const double width = (values.high - values.low) / static_cast<double>(values.counts.size());
  std::vector<double> limits, counts;
  double num = 0, sum = 0, sum_squares = 0;
  for (std::size_t i = 0; i < values.counts.size(); ++i) {
    const auto count = static_cast<double>(values.counts[i]);
    const double middle = values.low + (static_cast<double>(i) + 0.5) * width;
    limits.push_back(values.low + static_cast<double>(i + 1) * width);
    counts.push_back(count);
    num += count;
    sum += count * middle;
    sum_squares += count * middle * middle;
  }
  ProtobufMessage bins;
  bins.add_double(histogram::min, values.low).add_double(histogram::max, values.high);
  bins.add_double(histogram::num, num).add_double(histogram::sum, sum);
  bins.add_double(histogram::sum_squares, sum_squares);
  bins.add_doubles(histogram::bucket_limit, limits).add_doubles(histogram::bucket, counts);
  ProtobufMessage message;
  message.add_bytes(summary::tag, tag).add_bytes(summary::histo, bins.bytes());
  waiting_ += summary_record(step, message);
}

void EventFile::flush() {
  for (std::size_t done = 0; done < waiting_.size();) {
    const ssize_t count = ::write(fd_, waiting_.data() + done, waiting_.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      const int reason = errno;
      // Half a record would hide all that follow it.
      if (::ftruncate(fd_, written_) == 0) ::lseek(fd_, written_, SEEK_SET);
      fail_file(kind, path_, "cannot be written: ", std::strerror(reason));
    }
    done += static_cast<std::size_t>(count);
  }
  written_ += static_cast<std::int64_t>(waiting_.size());
  waiting_.clear();
}

}  // namespace bie::formats
