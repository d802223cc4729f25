#pragma once

// The model that a process serves: its identity, and weights, tokenizer and chat template where they are
// needed.

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "config/options.hpp"
#include "gpu/device.hpp"
#include "runtime/base/result.hpp"
#include "runtime/model/layer_range.hpp"
#include "runtime/model/model.hpp"
#include "runtime/model/tensor_part.hpp"
#include "runtime/text/chat_template.hpp"
#include "runtime/text/tokenizer.hpp"

namespace mooncaf {

/// The parts of the model that a process needs; the rest is neither read nor kept.
struct model_needs {
  bool weights = false;     ///< prefill, decode
  bool vocabulary = false;  ///< workers and the gateway
};

/// Stages of a group.
struct stage_share {
  std::uint32_t first = 0;     ///< of them
  std::uint32_t of = 0;        ///< all stages of the group; 0: these are all
  std::uint32_t ranks = 1;     ///< that share the layers of a stage
  std::uint32_t rank = 0;      ///< which of them the devices are, from 1: one of each stage; 0: all
  bool whole_experts = false;  ///< see `tensor_part`

  friend bool operator==(const stage_share&, const stage_share&) = default;
};

/// Which part of a group a process with these options loads.
stage_share share_of(const options& o);

/// The share of a model that each of so many devices has: in order of layers, a stage's ranks one behind the other.
/// @error `ec::invalid_argument` for more stages than layers, and ranks that cannot share them (`check_tensor`)
result<std::vector<std::pair<layer_range, tensor_part>>> parts_of(const model_config& shape,
                                                                  const stage_share& share,
                                                                  std::uint32_t devices);

/// Where a model's files are: at PATH, or as much of them as this host has (`file_slice`).
std::string model_files(const std::string& path);

struct served_model {
  model_identity identity;
  std::vector<std::shared_ptr<const model>> nets;  ///< one for each device; none without `weights`
  std::shared_ptr<const tokenizer> text;           ///< null without `vocabulary`
  std::shared_ptr<const chat_template> chat;       ///< null, too, if the file's is not understood
};

/// Maps a GGUF file or the files of a Hugging Face folder, or makes a model with random weights, as far as it
/// is needed. Without `weights` the mapping is given back: shape, fingerprint and vocabulary stay.
/// @param devices   for the weights: each gets the layers of a stage (`stage_layers`), or a rank's share of them; in order of layers.
/// @param share     which of a group's stages they are.
/// @param path      a file, a folder, or a dummy's shape (`dummy_shape`).
/// @param template_name  as `chat_template::recognise` takes it, or the path of a file with a template.
/// @error As of the file's reader, `dummy_shape` or the tokenizer, naming the file or the option;
///        `ec::invalid_argument` for more stages than layers, and ranks that cannot share them (`check_tensor`).
result<served_model> load_served_model(std::span<device* const> devices, const std::string& path,
                                       const std::string& template_name, const model_needs& needs,
                                       stage_share share = {});

}  // namespace mooncaf
