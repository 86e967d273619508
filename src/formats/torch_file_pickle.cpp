// A pickle machine that knows the operations torch.save writes and a closed list of names, and calls nothing.
// Source: the opcodes of Python's Lib/pickletools.py.
#include <algorithm>
#include <iterator>
#include <utility>

#include "formats/torch_file_parts.h"

namespace bie::formats {
namespace {

using Kind = Value::Kind;

// Enough for 200,000 tensors; a value takes 56 bytes and as little as one in the file.
constexpr std::size_t max_values = 4'000'000;
constexpr int newest_protocol = 5;

enum class Call : std::uint8_t { none, dict, tensor, parameter, parameter_with_state, from_type };

struct Global {
  std::string_view module, name;
  Call call;
  std::optional<Element> element = {};  ///< of a storage class
};
constexpr Global globals[] = {
    {"collections", "OrderedDict", Call::dict},
    {"torch._utils", "_rebuild_tensor_v2", Call::tensor},
    {"torch._utils", "_rebuild_parameter", Call::parameter},
    {"torch._utils", "_rebuild_parameter_with_state", Call::parameter_with_state},
    {"torch._tensor", "_rebuild_from_type_v2", Call::from_type},
    {"torch", "Tensor", Call::none},
    {"torch.nn.parameter", "Parameter", Call::none},
    {"torch", "FloatStorage", Call::none, Element::f32},
    {"torch", "DoubleStorage", Call::none, Element::f64},
    {"torch", "HalfStorage", Call::none, Element::f16},
    {"torch", "BFloat16Storage", Call::none, Element::bf16},
    {"torch", "LongStorage", Call::none, Element::i64},
    {"torch", "IntStorage", Call::none, Element::i32},
    {"torch", "ShortStorage", Call::none, Element::i16},
    {"torch", "CharStorage", Call::none, Element::i8},
    {"torch", "ByteStorage", Call::none, Element::u8},
    {"torch", "BoolStorage", Call::none, Element::boolean},
};

class Machine {
 public:
  Machine(const std::string& path, std::string_view bytes) : path_(path), bytes_(bytes) {}

  Pickle run() {
    while (!step(static_cast<std::uint8_t>(take(1)[0]))) {
    }
    if (stack_.size() != 1 || !marks_.empty() || at_ != bytes_.size()) damaged("ends in the middle");
    pickle_.top = stack_[0];
    return std::move(pickle_);
  }

 private:
  /// Runs one operation; true for the last.
  bool step(std::uint8_t opcode) {
    switch (opcode) {
      case 0x80: protocol(); break;
      case 0x95: number(8); break;  // FRAME: a hint for buffered readers
      case '.': return true;

      case 'N': push(Kind::none); break;
      case 0x88: push(Kind::boolean)->integer = 1; break;
      case 0x89: push(Kind::boolean); break;
      case 'K': push(Kind::integer)->integer = static_cast<std::int64_t>(number(1)); break;
      case 'M': push(Kind::integer)->integer = static_cast<std::int64_t>(number(2)); break;
      case 'J': push(Kind::integer)->integer = static_cast<std::int32_t>(number(4)); break;
      case 0x8a: big_integer(number(1)); break;
      case 0x8b: big_integer(number(4)); break;
      case 'G': skip(8); break;
      case 0x8c: push(Kind::text)->text = take(number(1)); break;
      case 'X': push(Kind::text)->text = take(number(4)); break;
      case 0x8d: push(Kind::text)->text = take(number(8)); break;
      case 'C': skip(number(1)); break;
      case 'B': skip(number(4)); break;
      case 0x8e: skip(number(8)); break;
      case 0x96: skip(number(8)); break;

      case '(': marks_.push_back(stack_.size()); break;
      case ')': push(Kind::tuple); break;
      case 't': tuple(mark()); break;
      case 0x85: tuple(above(1)); break;
      case 0x86: tuple(above(2)); break;
      case 0x87: tuple(above(3)); break;
      case ']': push(Kind::list); break;
      case 'a': extend(Kind::list, above(1)); break;
      case 'e': extend(Kind::list, mark()); break;
      case '}': push(Kind::dict); break;
      case 's': extend(Kind::dict, above(2)); break;
      case 'u': extend(Kind::dict, mark()); break;
      case 0x8f: push(Kind::other); break;  // EMPTY_SET
      case 0x90: extend(Kind::other, mark()); break;
      case 0x91:  // FROZENSET
        stack_.resize(mark());
        push(Kind::other);
        break;

      case 'q': remember(number(1)); break;
      case 'r': remember(number(4)); break;
      case 0x94: remember(memo_.size()); break;
      case 'h': recall(number(1)); break;
      case 'j': recall(number(4)); break;

      case 'c': {
        const std::string_view module = line();
        global(module, line());
        break;
      }
      case 0x93: {
        const Value* name = pop(Kind::text, "a name");
        global(pop(Kind::text, "a module")->text, name->text);
        break;
      }
      case 'Q': {
        const Value* id = pop(Kind::tuple, "a storage's id");
        // Also a bound: the items are copied here, and a tuple can be recalled any number of times.
        if (id->items.size() != 5) damaged("names a storage: expected 5 values, got ", id->items.size());
        push(Kind::storage)->items = id->items;
        break;
      }
      case 'R': {
        const Value* arguments = pop(Kind::tuple, "arguments");
        call(*pop(Kind::global, "a function"), *arguments);
        break;
      }
      case 'b':  // BUILD: the attributes of an OrderedDict, its _metadata
        pop();
        if (top()->kind != Kind::dict) damaged("sets attributes of what is no dict");
        break;
      default: damaged("holds the operation ", int{opcode}, ", which torch.save does not write");
    }
    return false;
  }

  template <class... Parts>
  [[noreturn]] void damaged(const Parts&... parts) const {
    refuse(path_, "the pickle ", parts..., " (byte ", at_, ")");
  }

  std::string_view take(std::uint64_t count) {
    if (count > bytes_.size() - at_) damaged("ends in the middle");
    at_ += count;
    return bytes_.substr(at_ - count, count);
  }

  std::uint64_t number(int bytes) {
    const std::string_view text = take(static_cast<std::uint64_t>(bytes));
    std::uint64_t value = 0;
    for (int i = bytes; i-- > 0;) value = value << 8 | static_cast<std::uint8_t>(text[static_cast<std::size_t>(i)]);
    return value;
  }

  std::string_view line() {
    const std::size_t end = bytes_.find('\n', at_);
    if (end == std::string_view::npos) damaged("ends in the middle");
    const std::string_view text = take(end - at_);
    ++at_;
    return text;
  }

  void protocol() {
    const std::uint64_t version = number(1);
    if (at_ != 2 || version > newest_protocol)
      damaged("is of protocol ", version, ", 2 to ", newest_protocol, " are read");
  }

  Value* push(Kind kind) {
    if (pickle_.values.size() == max_values) damaged("holds more than ", max_values, " values");
    Value& value = pickle_.values.emplace_back();
    value.kind = kind;
    stack_.push_back(&value);
    return &value;
  }

  /// A number or a text that nothing here reads.
  void skip(std::uint64_t bytes) {
    take(bytes);
    push(Kind::other);
  }

  void big_integer(std::uint64_t count) {
    const std::string_view text = take(count);
    if (count > 8) {
      push(Kind::other);
      return;
    }
    // Two's complement of as many bytes as were needed.
    std::uint64_t value = count > 0 && (text.back() & 0x80) != 0 ? ~std::uint64_t{0} : 0;
    for (std::size_t i = text.size(); i-- > 0;) value = value << 8 | static_cast<std::uint8_t>(text[i]);
    push(Kind::integer)->integer = static_cast<std::int64_t>(value);
  }

  /// Where the topmost `count` values begin; they lie above the last mark.
  std::size_t above(std::size_t count) const {
    const std::size_t floor = marks_.empty() ? 0 : marks_.back();
    if (stack_.size() - floor < count) damaged("takes more values than there are");
    return stack_.size() - count;
  }

  std::size_t mark() {
    if (marks_.empty()) damaged("takes more values than there are");
    const std::size_t begin = marks_.back();
    marks_.pop_back();
    return begin;
  }

  Value* top() const { return stack_[above(1)]; }

  const Value* pop() {
    const Value* value = top();
    stack_.pop_back();
    return value;
  }

  const Value* pop(Kind kind, const char* what) {
    const Value* value = pop();
    if (value->kind != kind) damaged("is damaged: expected ", what, ", got something else");
    return value;
  }

  void tuple(std::size_t begin) {
    const std::vector<const Value*> items(stack_.begin() + static_cast<std::ptrdiff_t>(begin), stack_.end());
    stack_.resize(begin);
    push(Kind::tuple)->items = items;
  }

  /// Adds the values from `begin` on to the list or dict below them.
  void extend(Kind kind, std::size_t begin) {
    const std::vector<Value*> items(stack_.begin() + static_cast<std::ptrdiff_t>(begin), stack_.end());
    stack_.resize(begin);
    Value* target = top();
    if (target->kind != kind || (kind == Kind::dict && items.size() % 2 != 0)) damaged("adds to what cannot hold it");
    if (kind != Kind::other) target->items.insert(target->items.end(), items.begin(), items.end());
  }

  void remember(std::uint64_t place) {
    // Picklers number their values in order; a gap would let a few bytes ask for gigabytes.
    if (place > memo_.size()) damaged("numbers its values out of order");
    Value* value = top();
    if (place == memo_.size()) memo_.push_back(value);
    memo_[place] = value;
  }

  void recall(std::uint64_t place) {
    if (place >= memo_.size()) damaged("recalls a value it does not have");
    stack_.push_back(memo_[place]);
  }

  void global(std::string_view module, std::string_view name) {
    const auto* found = std::find_if(std::begin(globals), std::end(globals),
                                     [&](const Global& g) { return g.module == module && g.name == name; });
    if (found == std::end(globals)) {
      refuse(path_, "the pickle names ", in_quotes(module), ".", in_quotes(name), ", which is no part of a state dict");
    }
    push(Kind::global)->integer = found - std::begin(globals);
  }

  static Call call_of(const Value& function) { return globals[function.integer].call; }

  void call(const Value& function, const Value& arguments) {
    const std::vector<const Value*>& a = arguments.items;
    switch (call_of(function)) {
      case Call::dict:
        if (!a.empty()) damaged("makes an OrderedDict of arguments");
        push(Kind::dict);
        return;
      case Call::tensor:
        if (a.size() != 6 && a.size() != 7) damaged("makes a tensor: expected 6 or 7 arguments, got ", a.size());
        push(Kind::tensor)->items = a;
        return;
      case Call::parameter: parameter(a, 3); return;
      case Call::parameter_with_state: parameter(a, 4); return;
      case Call::from_type:
        // (function, class, arguments, attributes): a tensor with attributes of its user's.
        if (a.size() != 4 || a[0]->kind != Kind::global || a[1]->kind != Kind::global || a[2]->kind != Kind::tuple ||
            call_of(*a[0]) == Call::from_type || call_of(*a[1]) != Call::none) {
          damaged("rebuilds a tensor of a class from the wrong arguments");
        }
        call(*a[0], *a[2]);
        return;
      case Call::none: damaged("calls a class");
    }
  }

  void parameter(const std::vector<const Value*>& arguments, std::size_t count) {
    if (arguments.size() != count || arguments[0]->kind != Kind::tensor) damaged("makes a parameter of no tensor");
    push(Kind::tensor)->items = arguments[0]->items;
  }

  const std::string& path_;
  const std::string_view bytes_;
  Pickle pickle_;
  std::size_t at_ = 0;
  std::vector<Value*> stack_, memo_;
  std::vector<std::size_t> marks_;
};

}  // namespace

Pickle read_pickle(const std::string& path, std::string_view bytes) { return Machine(path, bytes).run(); }

std::optional<Element> storage_element(const Value& global) {
  return global.kind == Kind::global ? globals[global.integer].element : std::nullopt;
}

}  // namespace bie::formats
