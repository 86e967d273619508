// The families of models that folders of Hugging Face hold: what their configurations call them, and the names of their
// tensors beside GGUF's. Source: the package transformers, `modeling_*.py`.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace bie::llm::folder {

/// A part of a block in both languages.
struct PartName {
  std::string_view gguf, folder;
};

struct Family {
  std::string_view model_type;             ///< of config.json
  std::string_view whole_model_type = {};  ///< of a model with pictures, whose `text_config` describes this part of it
  std::string_view class_name;             ///< the first of `architectures`
  bool is_told_by_class = false;           ///< the class tells the family by itself
  std::string_view architecture;           ///< GGUF's
  std::string_view activation;             ///< of the gated unit
  std::string_view other_activation = {};  ///< one that is read as well
  bool has_end_norms = false;              ///< norms behind attention and gated unit; all norms multiply by 1 + w
  bool is_tied = false;                    ///< the head is the embedding where the configuration says nothing
  bool has_windows = false;                ///< `sliding_window` alone says that all layers see one
  std::span<const PartName> norms;         ///< of a block, beside the first; their names differ between families
  std::string_view defaults = "{}";        ///< what a configuration means that does not say it, as JSON
};

/// Null for a model that is not read. `model_type` may be that of a model with pictures.
const Family* family(std::string_view model_type, std::string_view class_name);
/// The family that a folder of GGUF's architecture belongs to; null for an architecture without one.
/// @param has_windows  layers see a window, which tells mistral from llama.
const Family* family_of(std::string_view architecture, bool has_windows);
/// "llama, mistral, ..."
std::string_view model_types();

/// A tensor's name without what a model with pictures puts before it: "model.layers.0..." of
/// "language_model.model.layers.0..." and of "model.language_model.layers.0...".
std::string text_name(const Family& family, std::string_view name);
/// Whether a tensor belongs to the part of a model that sees pictures.
bool sees_pictures(const Family& family, std::string_view name);

/// "blk.0.attn_q.weight" of "model.layers.0.self_attn.q_proj.weight"; nothing for a name that the family has not.
std::optional<std::string> gguf_name(const Family& family, std::string_view name);
/// The inverse; a name that is not among GGUF's comes back as it is.
std::string folder_name(const Family& family, std::string_view name);

}  // namespace bie::llm::folder
