// Every status has a phrase of its own that fits inside a sentence.
#include "bie/kernels/status.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace bie::kernels::test {
namespace {

TEST(Status, EveryPhraseIsDistinctAndFitsInASentence) {
  const Status all[] = {Status::ok,         Status::bad_shape,  Status::bad_dtype,     Status::bad_scale,
                        Status::not_finite, Status::too_deep,   Status::out_of_memory, Status::bad_environment,
                        Status::no_device,  Status::old_driver, Status::launch_failed, Status::device_error};
  std::set<std::string> seen;
  for (const Status status : all) {
    const std::string phrase = describe(status);
    EXPECT_NE(phrase, "unknown status");
    EXPECT_NE(phrase.back(), '.') << phrase;
    EXPECT_TRUE(seen.insert(phrase).second) << phrase;
  }
}

}  // namespace
}  // namespace bie::kernels::test
