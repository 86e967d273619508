// Files of a test: a folder of its own, and the sentence a refused file gives.
#pragma once

#if __has_include(<c10/util/Exception.h>)
#include <c10/util/Exception.h>
#endif
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "bie/formats/error.h"

namespace bie::test {

/// A folder that disappears with the object.
class Scratch {
 public:
  Scratch();
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string folder() const { return folder_.string(); }
  /// How many files lie in it.
  int count() const;

 private:
  std::filesystem::path folder_;
};

void write_file(const std::string& path, const std::string& bytes);
std::string read_file(const std::string& path);

/// The sentence of action()'s formats::Error or c10::ValueError; "" if it throws none. Any other exception escapes and
/// fails the test.
template <class F>
std::string refusal(const F& action) {
  try {
    action();
  } catch (const formats::Error& error) {
    return error.what();
#if __has_include(<c10/util/Exception.h>)
  } catch (const c10::ValueError& error) {
    return error.what_without_backtrace();
#endif
  }
  return "";
}

/// `sentence` is one line that names the file and says `part`.
inline void expect_sentence(const std::string& sentence, const std::string& file, const std::string& part) {
  EXPECT_NE(sentence.find(file), std::string::npos) << sentence;
  EXPECT_NE(sentence.find(part), std::string::npos) << "wanted: " << part << "\ngot: " << sentence;
  EXPECT_EQ(sentence.find('\n'), std::string::npos) << sentence;
}

}  // namespace bie::test
