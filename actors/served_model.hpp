#pragma once

// The model that a process serves: weights, tokenizer, chat template.

#include <memory>
#include <string>

#include "gpu/device.hpp"
#include "runtime/base/result.hpp"
#include "runtime/model/model.hpp"
#include "runtime/text/chat_template.hpp"
#include "runtime/text/tokenizer.hpp"

namespace mooncaf {

struct served_model {
  std::shared_ptr<const model> net;
  std::shared_ptr<const tokenizer> text;
  std::shared_ptr<const chat_template> chat;  ///< null if the file's is of no known family
};

/// Maps a GGUF file, or makes a model with random weights, for `dev`.
/// @param path      a file, or a dummy's shape (`dummy_shape`).
/// @param template_name  what `chat_template::recognise` takes.
/// @error What the file's reader, `dummy_shape` or the tokenizer says, naming the file or the option.
result<served_model> load_served_model(device& dev, const std::string& path,
                                       const std::string& template_name);

}  // namespace mooncaf
