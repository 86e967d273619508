#include "bie/formats/torch_file.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <utility>

#include "bie/formats/mapped_file.h"
#include "formats/torch_file_parts.h"

namespace bie::formats {
namespace {

using Kind = Value::Kind;

constexpr std::int64_t max_pickle_bytes = std::int64_t{64} << 20;
constexpr std::size_t max_rank = 64;  // of torch's iterators
// torch aligns every storage to 64 bytes; 8 serves all our dtypes.
constexpr std::int64_t alignment = 8;
constexpr std::string_view zip_begin = "PK\3\4";
// The number that opened a file of torch.save before it wrote zip files.
constexpr std::string_view legacy_begin = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";
constexpr const char* state_dict_keys[] = {"state_dict", "model", "model_state_dict"};

class TorchFile {
 public:
  explicit TorchFile(const std::string& path) : path_(path), file_(std::make_shared<MappedFile>("torch file", path)) {
    if (begins_with(legacy_begin)) {
      refuse(path_, "is in the format of torch.save before PyTorch 1.6: load it with torch and save it again");
    }
    if (!begins_with(zip_begin)) refuse(path_, "does not begin as a zip file does, torch.save did not write it");
    directory_ = read_zip_directory(path_, file_->data(), file_->size());
    folder_ = directory_.first.substr(0, directory_.first.find('/') + 1);
    if (const ZipEntry* order = find("byteorder"); order != nullptr && text_of(*order) != "little") {
      refuse(path_, "the entry byteorder holds ", in_quotes(text_of(*order)), ", only little-endian files are read");
    }
  }

  /// A copy: what was checked is what is used, whatever another process does to the file.
  std::string pickle() const {
    const ZipEntry* entry = find("data.pkl");
    if (entry == nullptr) refuse(path_, "has no entry ", in_quotes(folder_ + "data.pkl"));
    if (entry->size > max_pickle_bytes) {
      refuse(path_, "has a pickle of ", entry->size, " bytes, the limit is ", max_pickle_bytes);
    }
    return text_of(*entry);
  }

  Array array(std::string_view name, const Value& recipe) {
    const std::vector<const Value*>& a = recipe.items;
    if (a[0]->kind != Kind::storage || a[1]->kind != Kind::integer || a[1]->integer < 0) {
      wrong(name, "has no storage and offset");
    }
    if (a.size() == 7 && a[6]->kind != Kind::none && (a[6]->kind != Kind::dict || !a[6]->items.empty())) {
      wrong(name, "is a conjugate or negative view: save a clone of it");
    }
    std::vector<std::int64_t> sizes = integers(name, "sizes", *a[2]);
    std::vector<std::int64_t> strides = integers(name, "strides", *a[3]);
    if (sizes.size() != strides.size()) wrong(name, "has ", sizes.size(), " sizes and ", strides.size(), " strides");
    const Storage storage = storage_of(name, *a[0]);
    const std::int64_t count = check_extent(name, sizes, strides, a[1]->integer, storage.count);
    if (count == 0) return array_of(storage.element, std::move(sizes), {});
    return {storage.element, std::move(sizes), std::move(strides), a[1]->integer, bytes_of(name, storage)};
  }

 private:
  struct Storage {
    std::string key;
    const ZipEntry* entry;
    Element element;
    std::int64_t count;
  };

  template <class... Parts>
  [[noreturn]] void wrong(std::string_view name, const Parts&... parts) const {
    refuse(path_, "tensor ", in_quotes(name), " ", parts...);
  }

  bool begins_with(std::string_view text) const {
    return file_->size() >= static_cast<std::int64_t>(text.size()) &&
           std::memcmp(file_->data(), text.data(), text.size()) == 0;
  }

  const ZipEntry* find(std::string_view name) const {
    const auto found = directory_.entries.find(folder_ + std::string(name));
    return found == directory_.entries.end() ? nullptr : &found->second;
  }

  std::string text_of(const ZipEntry& entry) const {
    return {reinterpret_cast<const char*>(file_->data()) + entry.begin, static_cast<std::size_t>(entry.size)};
  }

  std::vector<std::int64_t> integers(std::string_view name, const char* what, const Value& value) const {
    if (value.kind != Kind::tuple) wrong(name, "has ", what, " that are no tuple");
    if (value.items.size() > max_rank) wrong(name, "has more than ", max_rank, " ", what);
    std::vector<std::int64_t> list;
    for (const Value* item : value.items) {
      if (item->kind != Kind::integer || item->integer < 0) wrong(name, "has ", what, " that are not all sizes");
      list.push_back(item->integer);
    }
    return list;
  }

  /// A storage's id: ("storage", class, key, location, count of elements).
  Storage storage_of(std::string_view name, const Value& storage) const {
    const std::vector<const Value*>& id = storage.items;
    if (id[0]->text != "storage" || id[2]->kind != Kind::text || id[4]->kind != Kind::integer) {
      wrong(name, "has a storage without its key and size");
    }
    const std::optional<Element> element = storage_element(*id[1]);
    if (!element) wrong(name, "has a storage of no dtype");
    const std::string key(id[2]->text);
    const ZipEntry* entry = find("data/" + key);
    if (entry == nullptr) wrong(name, "has its values in the entry ", in_quotes("data/" + key), ", which is missing");
    const std::int64_t count = id[4]->integer;
    if (count < 0 || count > entry->size / size_of(*element)) {
      wrong(name, "wants a storage of ", count, " ", formats::name(*element), ", the entry ", in_quotes("data/" + key),
            " has ", entry->size, " bytes");
    }
    return {key, entry, *element, count};
  }

  /// The number of elements, once they are known to lie in a storage of `available` elements and no more than that.
  std::int64_t check_extent(std::string_view name, const std::vector<std::int64_t>& sizes,
                            const std::vector<std::int64_t>& strides, std::int64_t offset,
                            std::int64_t available) const {
    std::int64_t count = 1;
    std::int64_t last = offset;
    bool overflow = false;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      // Sizes of zero are counted as one, so that the strides of an empty tensor cannot overflow either.
      const std::int64_t size = std::max<std::int64_t>(sizes[i], 1);
      std::int64_t reach = 0;
      overflow |= __builtin_mul_overflow(count, size, &count);
      overflow |= __builtin_mul_overflow(size - 1, strides[i], &reach);
      overflow |= __builtin_add_overflow(last, reach, &last);
    }
    std::int64_t bytes = 0;
    if (overflow || __builtin_mul_overflow(count, std::int64_t{8}, &bytes)) {
      wrong(name, "has sizes ", listed(sizes), " and strides ", listed(strides), ", which overflow");
    }
    if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) return 0;
    if (last >= available) {
      wrong(name, "has offset ", offset, ", sizes ", listed(sizes), " and strides ", listed(strides),
            ", its storage has ", available, " elements");
    }
    // An expanded tensor costs nothing here and gigabytes where it is copied.
    if (count > available) {
      wrong(name, "has ", count, " elements in a storage of ", available, ": save a contiguous copy of it");
    }
    return count;
  }

  std::shared_ptr<const Bytes> bytes_of(std::string_view name, const Storage& storage) {
    auto found = storages_.find(storage.key);
    if (found == storages_.end()) {
      found = storages_.emplace(storage.key, mapped_bytes(file_, storage.entry->begin, storage.entry->size, alignment))
                  .first;
    }
    if (storage.element == Element::boolean && bools_.count(storage.key) == 0) {
      if (!are_bools(found->second->data, storage.entry->size)) {
        wrong(name, "is bool and its storage holds a byte that is neither 0 nor 1");
      }
      bools_.insert(storage.key);
    }
    return found->second;
  }

  const std::string& path_;
  std::shared_ptr<MappedFile> file_;
  ZipDirectory directory_;
  std::string folder_;
  std::map<std::string, std::shared_ptr<const Bytes>> storages_;
  std::set<std::string> bools_;
};

/// The dict of the tensors: the outermost one, or the one it holds under a usual name.
const Value& find_state_dict(const std::string& path, const Value& top) {
  if (top.kind == Kind::tensor) refuse(path, "expected a state dict, got one tensor");
  if (top.kind != Kind::dict) refuse(path, "expected a state dict, got no dict");
  const std::vector<const Value*>& items = top.items;
  for (const char* key : state_dict_keys) {
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
      if (items[i]->kind == Kind::text && items[i]->text == key && items[i + 1]->kind == Kind::dict)
        return *items[i + 1];
    }
  }
  bool any = items.empty();
  for (std::size_t i = 1; i < items.size(); i += 2) any |= items[i]->kind == Kind::tensor;
  if (!any) refuse(path, "holds a dict without tensors and without a dict named state_dict, model or model_state_dict");
  return top;
}

}  // namespace

std::map<std::string, Array> load_torch_state_dict(const std::string& path) {
  TorchFile file(path);
  const std::string bytes = file.pickle();
  const Pickle pickle = read_pickle(path, bytes);
  const std::vector<const Value*>& items = find_state_dict(path, *pickle.top).items;
  std::map<std::string, Array> arrays;
  for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
    const Value& key = *items[i];
    if (items[i + 1]->kind != Kind::tensor) continue;
    if (key.kind != Kind::text) refuse(path, "has a tensor whose key is no string");
    if (!arrays.emplace(key.text, file.array(key.text, *items[i + 1])).second) {
      refuse(path, "tensor ", in_quotes(key.text), " appears twice");
    }
  }
  return arrays;
}

}  // namespace bie::formats
