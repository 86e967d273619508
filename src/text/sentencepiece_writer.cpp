// SentencePiece's .model: a message of Protocol Buffers.
// Source: google/sentencepiece, the numbers of fields in sentencepiece_model.proto; ModelInterface::InitializePieces.
#include "text/sentencepiece_writer.h"

#include <unordered_set>

#include "bie/formats/error.h"
#include "formats/json_text.h"
#include "formats/protobuf.h"
#include "text/sentence_pieces.h"

namespace bie::text {
namespace {

using formats::Error;
using formats::in_quotes;
using formats::joined;
using formats::ProtobufMessage;
using Kind = Vocabulary::Kind;

std::string byte_name(char byte) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  const auto value = static_cast<unsigned char>(byte);
  return {'<', '0', 'x', digits[value / 16], digits[value % 16], '>'};
}

void check_names(const std::vector<std::string>& names) {
  std::unordered_set<std::string_view> known;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i].empty()) throw Error(joined("token ", i, ": expected a name, got none"));
    if (!formats::is_utf8(names[i]))
      throw Error(joined("token ", i, ": expected a name in UTF-8, got ", in_quotes(names[i])));
    if (!known.insert(names[i]).second)
      throw Error(joined("expected every token once, got ", in_quotes(names[i]), " twice"));
  }
}

/// The library reads all bytes or none.
void check_bytes(const Vocabulary& v) {
  std::size_t bytes = 0;
  for (const Kind kind : v.kinds) bytes += kind == Kind::byte ? 1 : 0;
  if (bytes != 0 && bytes != 256) throw Error(joined("expected tokens of all 256 bytes or of none, got ", bytes));
}

/// Where the normalizer changes spaces it looks for user-defined tokens before spaces are marks, and BPE does behind
/// it.
void check_spaces(const Vocabulary& v) {
  if (v.charsmap.empty() && !v.removes_spaces) return;
  for (std::size_t i = 0; i < v.tokens.size(); ++i)
    if (v.kinds[i] == Kind::user_defined && v.tokens[i].find(' ') != std::string::npos)
      throw Error(joined("token ", i, ": expected a user-defined token without spaces, got ", in_quotes(v.tokens[i])));
}

std::string trainer(const Vocabulary& v, const std::vector<std::string>& names, std::size_t unknown) {
  const auto name_of = [&](const std::optional<std::int32_t>& token) {
    return token ? names[static_cast<std::size_t>(*token)] : std::string();
  };
  bool has_bytes = false;
  for (const Kind kind : v.kinds) has_bytes = has_bytes || kind == Kind::byte;
  constexpr int model_of_bpe = 2;
  return ProtobufMessage()
      .add_integer(3, model_of_bpe)
      .add_integer(4, static_cast<std::int64_t>(names.size()))
      .add_integer(35, has_bytes ? 1 : 0)
      .add_integer(40, static_cast<std::int64_t>(unknown))
      .add_integer(41, v.bos.value_or(-1))
      .add_integer(42, v.eos.value_or(-1))
      .add_integer(43, v.padding.value_or(-1))
      .add_bytes(44, names[unknown])  // an unknown token decodes to its name
      .add_bytes(45, names[unknown])
      .add_bytes(46, name_of(v.bos))
      .add_bytes(47, name_of(v.eos))
      .add_bytes(48, name_of(v.padding))
      .bytes();
}

std::string normalizer(const Vocabulary& v) {
  return ProtobufMessage()
      .add_bytes(1, v.charsmap.empty() ? "identity" : "user_defined")
      .add_bytes(2, v.charsmap)
      .add_integer(3, v.adds_space ? 1 : 0)
      .add_integer(4, v.removes_spaces ? 1 : 0)
      .add_integer(5, 1)  // spaces are U+2581
      .bytes();
}

}  // namespace

std::size_t unknown_piece(const Vocabulary& v) {
  for (std::size_t i = 0; i < v.kinds.size(); ++i)
    if (v.kinds[i] == Kind::unknown) return i;
  if (!v.unknown) throw Error("expected an unknown token, got none");
  return static_cast<std::size_t>(*v.unknown);
}

std::vector<std::string> sentencepiece_names(const Vocabulary& v) {
  std::vector<std::string> names = v.tokens;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (v.kinds[i] == Kind::byte) names[i] = byte_name(SentencePieces::byte_of(names[i]));
    if (v.kinds[i] == Kind::user_defined) names[i] = with_marks(names[i]);
  }
  return names;
}

std::string sentencepiece_model(const Vocabulary& v, const std::vector<std::string>& names) {
  check_names(names);
  check_bytes(v);
  check_spaces(v);
  const std::size_t unknown = unknown_piece(v);
  ProtobufMessage model;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const bool is_second_unknown = v.kinds[i] == Kind::unknown && i != unknown;
    const Kind kind = i == unknown ? Kind::unknown : is_second_unknown ? Kind::unused : v.kinds[i];
    model.add_bytes(1, ProtobufMessage()
                           .add_bytes(1, names[i])
                           .add_float(2, static_cast<float>(v.scores[i]))
                           .add_integer(3, static_cast<int>(kind))
                           .bytes());
  }
  return model.add_bytes(2, trainer(v, names, unknown)).add_bytes(3, normalizer(v)).bytes();
}

}  // namespace bie::text
