// Any bytes as a picture: one sentence, or the pixels that its header tells of, as they are shown and brought to a size.
#include "bie/formats/picture.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace bie::formats;
  const std::string& path = fuzz::file_of(data, size);
  try {
    const PictureFacts facts = picture_facts(path);
    fuzz::require(facts.height > 0 && facts.width > 0);
    if (facts.height * facts.width > 1 << 20) return 0;  // the time of the fuzzer
    for (const std::int64_t channels : {1, 3}) {
      const Array shown = load_picture(path, channels);
      fuzz::require(shown.sizes == std::vector<std::int64_t>{channels, facts.height, facts.width});
      for (const Fit fit : {Fit::crop, Fit::pad, Fit::stretch})
        fuzz::require(load_picture(path, channels, PictureForm{5, 7, fit}).count() == channels * 35);
    }
  } catch (const Error& error) {
    const std::string sentence = error.what();
    fuzz::require(!sentence.empty() && sentence.find('\n') == std::string::npos);
  }
  return 0;
}
