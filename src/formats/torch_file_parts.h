// The two layers of a torch.save file under the tensors: the zip directory and the pickle.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bie/formats/array.h"
#include "bie/formats/error.h"

namespace bie::formats {

template <class... Parts>
[[noreturn]] void refuse(const std::string& path, const Parts&... parts) {
  fail_file("torch file", path, parts...);
}

struct ZipEntry {
  std::int64_t begin, size;  ///< of its bytes in the file
};

struct ZipDirectory {
  std::map<std::string, ZipEntry, std::less<>> entries;
  std::string first;  ///< the name of the first entry: all names begin with the same folder
};

/// The directory of a zip file, zip64 included. Entries are stored as they are, lie inside the file and do not overlap.
/// @throws Error, one sentence naming the file and the entry.
ZipDirectory read_zip_directory(const std::string& path, const std::uint8_t* data, std::int64_t size);

/// A pickled value. A tensor is the recipe of one: the arguments of torch._utils._rebuild_tensor_v2.
struct Value {
  enum class Kind : std::uint8_t { none, boolean, integer, text, tuple, list, dict, global, storage, tensor, other };
  Kind kind = Kind::none;
  std::int64_t integer = 0;         ///< of an integer or boolean; of a global, its place in the table of globals
  std::string_view text;            ///< inside the pickle's bytes
  std::vector<const Value*> items;  ///< of a dict key, value, key, value; of a storage its persistent id
};

struct Pickle {
  std::deque<Value> values;
  const Value* top = nullptr;
};

/// Runs a pickle of protocol 2 to 5; `bytes` must outlive the values. These may hold themselves, so nothing may follow
/// them without a bound.
/// @throws Error, one sentence naming the file.
Pickle read_pickle(const std::string& path, std::string_view bytes);

/// The element of a global like torch.FloatStorage; none of any other.
std::optional<Element> storage_element(const Value& global);

}  // namespace bie::formats
