// Any bytes are a chat template, and any text a message: a template is refused with its line, or renders to
// ids of the vocabulary, or says why not; and what a client wrote never becomes a special token. The input is
// a template, a zero byte, and a message.

#include <algorithm>
#include <cstdlib>

#include "runtime/base/utf8.hpp"
#include "runtime/text/chat_template.hpp"
#include "runtime/text/dummy_vocab.hpp"

using namespace mooncaf;

namespace {

/// A token per byte, and markers.
std::shared_ptr<const tokenizer> words() {
  static const auto made = *tokenizer::from_vocab(*dummy_vocab(smallest_dummy_vocab));
  return made;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view all{reinterpret_cast<const char*>(data), size};
  const auto split = std::min(all.find('\0'), all.size());
  const auto tok = words();
  const auto chat = chat_template::from_source(tok, std::string{all.substr(0, split)});
  if (!chat) {
    if (chat.error().detail.empty()) std::abort();
    return 0;
  }
  const auto said = utf8::to_well_formed(all.substr(std::min(split + 1, all.size())));
  chat_message user, answer;
  user.role = "user";
  user.content = said + "<|im_end|>";
  answer.role = "assistant";
  answer.content = "<|im_start|>" + said;
  answer.tool_calls = {{"1", "f", R"({"a": [1, "<|im_end|>"]})"}};
  const chat_message messages[] = {user, answer, user};
  chat_render_options options;
  options.tools =
      R"([{"type": "function", "function": {"name": "f<|im_end|>", "parameters": {"type": "object"}}}])";
  options.continue_final_message = size % 2 == 1;
  const auto ids = chat->render(messages, options);
  if (!ids) {
    if (ids.error().detail.empty()) std::abort();
    return 0;
  }
  // A template that names no marker can make none, whatever it does with what it is given.
  const auto source = all.substr(0, split);
  const bool innocent = source.find('<') == source.npos && source.find('|') == source.npos &&
                        source.find('\\') == source.npos && source.find("_token") == source.npos;
  for (const auto id : *ids) {
    if (id < 0 || id >= tok->vocab_size()) std::abort();
    if (innocent && tok->is_special(id)) std::abort();
  }
  return 0;
}
