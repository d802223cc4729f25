#pragma once
// The facts about the served model that the HTTP front of a process knows.

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "config/options.hpp"
#include "runtime/grammar/grammar_cache.hpp"
#include "runtime/model/generation_defaults.hpp"
#include "runtime/model/model.hpp"
#include "runtime/text/tokenizer.hpp"

namespace mooncaf {

class chat_template;
class lora_adapter;

/// Immutable after start, or thread-safe by itself.
struct front_context {
  options opts;
  std::shared_ptr<const tokenizer> text;  ///< null where nothing is computed and no client is served
  std::shared_ptr<const chat_template> chat;
  std::shared_ptr<grammar_cache> grammars;  ///< of `text`; null without it
  /// By name; the same in every process, without weights where nothing is computed.
  std::map<std::string, std::shared_ptr<const lora_adapter>, std::less<>> adapters;
  generation_defaults defaults;  ///< where requests do not say
  model_config shape;            ///< of the served model, in every process
};

}  // namespace mooncaf
