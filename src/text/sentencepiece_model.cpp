// The vocabulary of SentencePiece's .model: a message of Protocol Buffers.
// Source: google/sentencepiece, the numbers of fields in sentencepiece_model.proto.
#include <bit>
#include <limits>

#include "bie/formats/error.h"
#include "bie/text/vocabulary.h"
#include "formats/protobuf_fields.h"

namespace bie::text {
namespace {

using formats::Error;
using formats::in_quotes;
using formats::joined;
using formats::ProtobufField;
using formats::ProtobufFields;
using Kind = Vocabulary::Kind;

constexpr const char* what = "SentencePiece's model";

void read_piece(std::string_view message, Vocabulary* v) {
  std::string name;
  float score = 0;
  std::uint64_t kind = 1;
  ProtobufFields fields(what, message);
  for (ProtobufField field; fields.next(&field);) {
    if (field.number == 1) name = field.bytes;
    if (field.number == 2) score = std::bit_cast<float>(static_cast<std::uint32_t>(field.value));
    if (field.number == 3) kind = field.value;
  }
  // The order of this enum differs from GGUF's in nothing.
  if (kind < 1 || kind > 6)
    throw Error(joined("piece ", v->tokens.size(), ": expected a type from 1 to 6, got ", kind));
  v->tokens.push_back(name);
  v->scores.push_back(score);
  v->kinds.push_back(static_cast<Kind>(kind));
}

struct Trainer {
  std::uint64_t model = 1;  ///< 1: Unigram, 2: BPE, 3: words, 4: characters
  bool suffix = false, byte_fallback = false;
  std::string unknown = "<unk>", bos = "<s>", eos = "</s>", padding = "<pad>";
};

Trainer read_trainer(std::string_view message) {
  Trainer trainer;
  ProtobufFields fields(what, message);
  for (ProtobufField field; fields.next(&field);) {
    switch (field.number) {
      case 3: trainer.model = field.value; break;
      case 24: trainer.suffix = field.value != 0; break;
      case 35: trainer.byte_fallback = field.value != 0; break;
      case 45: trainer.unknown = field.bytes; break;
      case 46: trainer.bos = field.bytes; break;
      case 47: trainer.eos = field.bytes; break;
      case 48: trainer.padding = field.bytes; break;
      default: break;
    }
  }
  return trainer;
}

void read_normalizer(std::string_view message, Vocabulary* v) {
  bool escapes = true;
  ProtobufFields fields(what, message);
  for (ProtobufField field; fields.next(&field);) {
    if (field.number == 2) v->charsmap = field.bytes;
    if (field.number == 3) v->adds_space = field.value != 0;
    if (field.number == 4) v->removes_spaces = field.value != 0;
    if (field.number == 5) escapes = field.value != 0;
  }
  if (!escapes) throw Error("SentencePiece's model: expected spaces as U+2581, got escape_whitespaces = false");
}

}  // namespace

Vocabulary sentencepiece_vocabulary(std::string_view bytes) {
  Vocabulary v;
  v.adds_space = v.removes_spaces = true;
  Trainer trainer;
  ProtobufFields fields(what, bytes);
  for (ProtobufField field; fields.next(&field);) {
    if (field.number == 1) read_piece(field.bytes, &v);
    if (field.number == 2) trainer = read_trainer(field.bytes);
    if (field.number == 3) read_normalizer(field.bytes, &v);
  }
  if (v.tokens.empty()) throw Error("SentencePiece's model: expected pieces, got none");
  if (trainer.model != 1 && trainer.model != 2)
    throw Error(
        joined("SentencePiece's model: expected one of BPE or Unigram, got ", trainer.model == 3   ? "one of words"
                                                                              : trainer.model == 4 ? "one of characters"
                                                                                                   : "another one"));
  if (trainer.suffix)
    throw Error("SentencePiece's model: expected spaces before words, got treat_whitespace_as_suffix");
  v.scheme = trainer.model == 2 ? Vocabulary::Scheme::pieces : Vocabulary::Scheme::unigram;
  for (std::size_t i = 0; i < v.tokens.size(); ++i) {
    const auto token = static_cast<std::int32_t>(i);
    if (v.kinds[i] == Kind::byte && !trainer.byte_fallback) v.kinds[i] = Kind::unused;
    // The library looks for it where spaces are marks already.
    const bool has_space = v.tokens[i].find(' ') != std::string::npos;
    if (v.kinds[i] == Kind::user_defined && trainer.model == 2 && has_space) v.kinds[i] = Kind::unused;
    if (v.kinds[i] == Kind::unknown && !v.unknown) v.unknown = token;
    if (v.kinds[i] != Kind::control) continue;
    if (v.tokens[i] == trainer.bos) v.bos = token;
    if (v.tokens[i] == trainer.eos) v.eos = token;
    if (v.tokens[i] == trainer.padding) v.padding = token;
  }
  if (!v.unknown) throw Error("SentencePiece's model: expected an unknown piece, got none");
  return v;
}

}  // namespace bie::text
