// The files of torch_file_peer.py, written once a process.
#pragma once

#include <cstdlib>
#include <stdexcept>
#include <string>

#include "tests/io/scratch.h"

namespace bie::io::test {

inline const Scratch& torch_files() {
  static const Scratch folder;
  static const int status =
      std::system(("'" BIE_PYTHON "' '" BIE_TORCH_FILE_PEER "' '" + folder.folder() + "'").c_str());
  if (status != 0) throw std::runtime_error("torch_file_peer.py failed");
  return folder;
}

}  // namespace bie::io::test
