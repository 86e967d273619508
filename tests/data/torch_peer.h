// The files of torch_file_peer.py, written once per process.
#pragma once

#include <cstdlib>
#include <stdexcept>
#include <string>

#include "tests/support/scratch.h"

namespace bie::data::test {

inline const bie::test::Scratch& torch_files() {
  static const bie::test::Scratch folder;
  static const int status =
      std::system(("'" BIE_PYTHON "' '" BIE_TORCH_FILE_PEER "' '" + folder.folder() + "'").c_str());
  if (status != 0) throw std::runtime_error("torch_file_peer.py failed");
  return folder;
}

}  // namespace bie::data::test
