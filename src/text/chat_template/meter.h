// What a rendering may spend, and the exception that refuses the rest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "bie/formats/error.h"
#include "bie/text/chat_template.h"

namespace bie::text::chat {

/// What is wrong, without the template's name and line, which whoever runs the template adds.
class Refusal : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

template <class... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  throw Refusal(formats::joined(parts...));
}

/// Counts against the limits. It outlives every value that is charged to it.
class Meter {
 public:
  explicit Meter(const ChatLimits& limits) : limits_(limits) {}
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  void step(std::size_t count = 1) {
    if (count > static_cast<std::uint64_t>(limits_.steps - steps_))
      refuse("expected at most ", limits_.steps, " steps, got more");
    steps_ += static_cast<std::int64_t>(count);
  }
  /// Refuses a text of that many bytes before it is made.
  void check_text(std::size_t bytes) const {
    if (bytes > static_cast<std::uint64_t>(limits_.bytes))
      refuse("expected texts of at most ", limits_.bytes, " bytes, got more");
  }
  void write(std::size_t bytes) {
    check_text(bytes);
    written_ += static_cast<std::int64_t>(bytes);
    if (written_ > limits_.written_bytes)
      refuse("expected at most ", limits_.written_bytes, " bytes of texts in all, got more");
  }
  void hold(std::size_t bytes) {
    live_ += static_cast<std::int64_t>(bytes);
    if (live_ <= limits_.live_bytes) return;
    live_ -= static_cast<std::int64_t>(bytes);
    refuse("expected values of at most ", limits_.live_bytes, " bytes, got more");
  }
  void release(std::size_t bytes) { live_ -= static_cast<std::int64_t>(bytes); }

 private:
  ChatLimits limits_;
  std::int64_t steps_ = 0, written_ = 0, live_ = 0;
};

/// Bytes that a value holds while it lives.
class Charge {
 public:
  Charge() = default;
  Charge(Meter& meter, std::size_t bytes) : meter_(&meter), bytes_(bytes) { meter.hold(bytes); }
  Charge(const Charge&) = delete;
  Charge& operator=(const Charge&) = delete;
  ~Charge() {
    if (meter_ != nullptr) meter_->release(bytes_);
  }

 private:
  Meter* meter_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace bie::text::chat
