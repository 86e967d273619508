// Finished matrices of a file that is being made, on disk, so that a run that was ended goes on where it was.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bie/formats/gguf.h"

namespace bie::llm {

/// A folder beside the file: a GGUF file of one tensor for each matrix.
class Parts {
 public:
  /// @param run  names the run: parts of another one are not found.
  Parts(const std::string& out, std::string run);

  /// A matrix that is there, of the type and the sizes; its bytes are a map.
  std::optional<formats::GgufTensor> find(const std::string& name, const formats::GgufType& type,
                                          const std::vector<std::int64_t>& sizes) const;
  /// The same of one that must be there. @throws formats::Error naming the file.
  formats::GgufTensor get(const std::string& name, const formats::GgufType& type,
                          const std::vector<std::int64_t>& sizes) const;
  /// Writes a matrix and flushes it to disk.
  /// @throws formats::Error naming the file.
  formats::GgufTensor put(const std::string& name, const formats::GgufType& type,
                          const std::vector<std::int64_t>& sizes, const std::vector<std::uint8_t>& blocks) const;
  /// Takes all parts away, and the folder if nothing else is in it.
  void remove() const;

  const std::string& folder() const { return folder_; }

 private:
  std::string file_of(const std::string& name) const { return folder_ + "/" + name + ".gguf"; }

  std::string folder_, run_;
};

}  // namespace bie::llm
