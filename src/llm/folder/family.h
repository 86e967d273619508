// The families of models that folders of Hugging Face hold: what their configurations call them, and the names of their
// tensors beside GGUF's. Source: the package transformers, `modeling_*.py`.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace bie::llm::folder {

struct Family {
  std::string_view model_type;             ///< of config.json
  std::string_view architecture;           ///< GGUF's
  std::string_view activation;             ///< of the gated unit
  std::string_view other_activation = {};  ///< one that is read as well
  bool has_end_norms = false;              ///< norms behind attention and gated unit; all norms multiply by 1 + w
  bool is_tied = false;                    ///< the head is the embedding where the configuration says nothing
  bool has_windows = false;                ///< `sliding_window` alone says that all layers see one
};

/// Null for a model type that is not read.
const Family* family(std::string_view model_type);
/// "llama, mistral, ..."
std::string_view model_types();

/// "blk.0.attn_q.weight" of "model.layers.0.self_attn.q_proj.weight"; nothing for a name that the family has not.
std::optional<std::string> gguf_name(const Family& family, std::string_view name);
/// The inverse; a name that is not among GGUF's comes back as it is.
std::string folder_name(const Family& family, std::string_view name);

}  // namespace bie::llm::folder
