// Which types each kind of output holds, and the bytes that they take in it.
#pragma once

#include <cstdint>
#include <vector>

#include "bie/formats/gguf.h"
#include "bie/llm/model_file.h"
#include "bie/llm/quantize.h"

namespace bie::llm {

/// The type whose blocks an output of the format is made of: of GPTQ's that with whole zeros.
const formats::GgufType& type_as_held(ModelFormat format, const formats::GgufType& type);

/// What a format holds in place of a type that it does not, in words; empty where it holds it.
std::string type_not_held(ModelFormat format, const formats::GgufType& type);

/// The types that plans choose from, the smallest first; those of one bit want weights that were trained so.
std::vector<const formats::GgufType*> candidates(ModelFormat format);

/// Bytes of matrices in an output.
class FormatSizes {
 public:
  FormatSizes() = default;
  /// @param model  whose metadata a GGUF file keeps, its alignment among them.
  FormatSizes(const ModelFile& model, ModelFormat format);

  /// At most, of all that a matrix takes.
  std::int64_t bytes_of(const formats::GgufType& type, std::int64_t rows, std::int64_t columns) const;

 private:
  ModelFormat format_ = ModelFormat::gguf;
  std::int64_t alignment_ = 32;
};

}  // namespace bie::llm
