#include "bie/formats/cifar10.h"

#include <memory>

#include "bie/formats/error.h"
#include "bie/formats/mapped_file.h"

namespace bie::formats {

Array load_cifar10_records(const std::string& path) {
  constexpr const char* kind = "CIFAR-10 file";
  constexpr std::int64_t record = 1 + 3 * 32 * 32;
  const auto file = std::make_shared<MappedFile>(kind, path);
  const std::int64_t count = file->size() / record;
  if (count == 0 || file->size() % record != 0)
    fail_file(kind, path, "its ", file->size(), " bytes are not whole records of ", record,
              ", a label and 3 planes of 32x32 each");
  for (std::int64_t i = 0; i < count; ++i)
    if (const int label = file->data()[i * record]; label >= cifar10_classes)
      fail_file(kind, path, "image ", i, " has the label ", label, ", labels are below ", cifar10_classes);
  return {Element::u8, {count, record}, {record, 1}, 0, mapped_bytes(file, 0, file->size(), 1)};
}

}  // namespace bie::formats
