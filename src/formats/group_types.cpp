#include "bie/formats/group_types.h"

#include <string>
#include <vector>

#include "bie/formats/error.h"
#include "formats/group_blocks.h"

namespace bie::formats {
namespace {

constexpr std::uint32_t no_number = 0xffffffff;  // GGUF has none for these

constexpr bool has_whole_zeros(int bits) { return bits == 2 || bits == 3 || bits == 4 || bits == 8; }

/// All types, whose names stand beside them.
struct Types {
  std::vector<std::string> names;
  std::vector<GgufType> types;

  Types() {
    for (const int bits : {1, 2, 3, 4, 5, 6, 8})
      for (std::int64_t group = group_step; group <= most_group; group += group_step)
        for (const bool is_whole : {false, true})
          if (!is_whole || has_whole_zeros(bits)) add(bits, group, is_whole);
    for (std::size_t i = 0; i < types.size(); ++i) types[i].name = names[i];
  }

  void add(int bits, std::int64_t group, bool is_whole) {
    names.push_back(joined("W", bits, "G", group, is_whole ? "Z" : ""));
    types.push_back({no_number, "", group, group_head_bytes + group * bits / 8, GgufType::Kind::codes, Element::u8,
                     bits, group, 0, is_whole ? Element::f32 : Element::f16});
  }
};

const std::vector<GgufType>& all() {
  static const Types types;
  return types.types;
}

}  // namespace

const GgufType* group_type(std::string_view name) {
  for (const GgufType& type : all())
    if (type.name == name) return &type;
  return nullptr;
}

const GgufType* group_type_with(const GgufType& type, GroupZero zero) {
  std::string name(type.name);
  if (name.back() == 'Z') name.pop_back();
  return group_type(zero == GroupZero::whole ? joined(name, "Z") : name);
}

bool is_group_type(const GgufType& type) { return type.id == no_number; }

GroupZero zero_of(const GgufType& type) { return type.name.back() == 'Z' ? GroupZero::whole : GroupZero::real; }

}  // namespace bie::formats
