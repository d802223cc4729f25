#include "runtime/text/chat_template.hpp"

#include <algorithm>
#include <utility>

#include "runtime/base/utf8.hpp"
#include "runtime/text/jinja/interpreter.hpp"

namespace mooncaf {

namespace {

using jinja::foreign;
using jinja::from_utf8;
using jinja::value;

constexpr std::size_t most_source_bytes = 1 << 20;

constexpr std::string_view chatml_source =
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message.role + '\\n' + (message.content or '') + '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}";
constexpr std::string_view llama3_source =
    "{{- bos_token }}"
    "{%- for message in messages %}"
    "{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' + (message.content or '') | trim + "
    "'<|eot_id|>' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}";
constexpr std::string_view plain_source = "{{- messages | map(attribute='content') | select | join('\\n') }}";

bool is_role(std::string_view role) {
  return role == "system" || role == "developer" || role == "user" || role == "assistant" || role == "tool";
}

/// Collects the members of a dict that a template sees.
class dict {
 public:
  explicit dict(jinja::heap& memory) : memory_(memory) {}
  dict& set(std::string_view name, value v) {
    made_.items.emplace_back(memory_.keep(from_utf8(name)), v);
    return *this;
  }
  dict& text(std::string_view name, std::string_view said, char32_t mark = foreign) {
    return set(name, memory_.keep(from_utf8(said, mark)));
  }
  value done() { return memory_.keep_map(std::move(made_)); }

 private:
  jinja::heap& memory_;
  jinja::map_data made_;
};

/// Whether a template asks if a message's content is none, as DeepSeek's older ones do to find calls without
/// text.
bool asks_for_none(std::string_view source) {
  constexpr std::string_view word = "content";
  for (auto at = source.find(word); at != source.npos; at = source.find(word, at + 1)) {
    if (at > 0 && source[at - 1] == '_') continue;  // reasoning_content
    auto rest = source.substr(at + word.size());
    rest.remove_prefix(std::min(rest.find_first_not_of("'\"]"), rest.size()));
    if (rest.starts_with(" is none") || rest.starts_with(" is not none")) return true;
  }
  return false;
}

/// Templates see arguments as the object that they are; text that is no object stays text.
value arguments_value(jinja::heap& memory, const std::string& said) {
  if (said.find_first_not_of(" \t\r\n") != std::string::npos) {
    try {
      const auto v = jinja::from_json(memory, said);
      if (v.is(jinja::kind::map)) return v;
    } catch (const jinja::template_error&) {
    }
  }
  return memory.keep(from_utf8(said, foreign));
}

/// `said` up to the end of `last`, the message that goes on, as transformers cuts it.
result<jinja::text> cut_behind(jinja::text said, const std::string& last) {
  const auto whole = from_utf8(last);
  const jinja::text_view content = whole, trimmed = jinja::strip(content, nullptr, true, true);
  const auto at = said.rfind(trimmed);
  if (at == jinja::text::npos) {
    return fail(ec::invalid_argument,
                "continue_final_message: the template does not say the last message as it is");
  }
  const auto right = jinja::strip(content, nullptr, true, false);
  const bool with_space = jinja::text_view{said}.substr(at, right.size()) == right;
  said.resize(at + (with_space ? right.size() : trimmed.size()));
  return said;
}

/// The parts of `bytes` that the template wrote, as [begin, end).
std::vector<std::pair<std::size_t, std::size_t>> own_parts(const jinja::text& said, std::string& bytes) {
  std::vector<std::pair<std::size_t, std::size_t>> own;
  bool inside = false;
  for (const char32_t c : said) {
    const bool is_own = !(c & foreign);
    if (is_own && !inside) own.emplace_back(bytes.size(), 0);
    if (!is_own && inside) own.back().second = bytes.size();
    inside = is_own;
    utf8::append(bytes, jinja::bare(c));
  }
  if (inside) own.back().second = bytes.size();
  return own;
}

}  // namespace

std::string builtin_chat_template(std::string_view name, bool bos) {
  if (name == "chatml") return std::string{chatml_source};
  if (name == "llama3") return std::string{llama3_source};
  if (name == "none") return (bos ? "{{- bos_token }}" : "") + std::string{plain_source};
  return {};
}

/// Every refusal names --chat-template, as the file of the model itself cannot be mended by its user.
result<chat_template> chat_template::recognise(std::shared_ptr<const tokenizer> tok,
                                               std::string_view wanted) {
  if (wanted == "auto") {
    if (tok->chat_template_text().empty()) {
      return fail(
          ec::unsupported,
          "the model file has no chat template; choose one with --chat-template: a file, or chatml, llama3 "
          "or none");
    }
    auto source = tok->chat_template_text();
    auto made = from_source(std::move(tok), std::move(source));
    if (!made) {
      return fail(ec::unsupported,
                  "the model file's chat template is not understood (" + made.error().detail +
                      "); choose another with --chat-template: a file, or chatml, llama3 or none");
    }
    return made;
  }
  auto source = builtin_chat_template(wanted, tok->add_bos());
  if (source.empty())
    return fail(ec::invalid_argument,
                "chat template \"" + std::string{wanted} + "\" is not one of auto, chatml, llama3, none");
  for (const std::string_view marker :
       {"<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}) {
    if (source.find(marker) != std::string::npos && !tok->find(marker)) {
      return fail(ec::unsupported, "the vocabulary has no " + std::string{marker} + ", which chat template " +
                                       std::string{wanted} + " needs; choose another with --chat-template");
    }
  }
  return from_source(std::move(tok), std::move(source));
}

result<chat_template> chat_template::from_source(std::shared_ptr<const tokenizer> tok, std::string source) {
  if (source.size() > most_source_bytes)
    return fail(ec::unsupported,
                "a chat template of " + std::to_string(source.size()) + " bytes is too long");
  chat_template made;
  if (!utf8::is_well_formed(source)) source = utf8::to_well_formed(source);
  try {
    made.program_ = std::make_shared<const jinja::block>(jinja::parse(source));
  } catch (const jinja::template_error& e) {
    return fail(ec::unsupported, e.what);
  }
  made.tokenizer_ = std::move(tok);
  made.source_ = std::move(source);
  made.asks_for_none_ = asks_for_none(made.source_);
  return made;
}

value chat_template::message_value(jinja::heap& memory, const chat_message& m) const {
  dict out{memory};
  // Roles are ours (`is_role`), so they may be part of a marker: "<|" + role + "|>".
  const bool as_system = m.role == "developer" && source_.find("developer") == std::string::npos;
  out.text("role", as_system ? "system" : m.role, 0);
  const bool none = m.bare == bare_content::null || (m.bare == bare_content::unsaid && asks_for_none_);
  if (!m.content.empty() || m.bare == bare_content::empty) out.text("content", m.content);
  else if (none) out.set("content", value::none());
  if (!m.name.empty()) out.text("name", m.name);
  if (!m.reasoning_content.empty()) out.text("reasoning_content", m.reasoning_content);
  if (!m.tool_call_id.empty()) out.text("tool_call_id", m.tool_call_id);
  if (!m.tool_calls.empty()) {
    std::vector<value> calls;
    for (const auto& c : m.tool_calls) {
      const auto function =
          dict{memory}.text("name", c.name).set("arguments", arguments_value(memory, c.arguments)).done();
      calls.push_back(
          dict{memory}.text("type", "function").text("id", c.id).set("function", function).done());
    }
    out.set("tool_calls", memory.keep_list(std::move(calls)));
  }
  return out.done();
}

result<jinja::text> chat_template::render_text(std::span<const chat_message> messages,
                                               const chat_render_options& options) const {
  jinja::heap memory;
  jinja::interpreter in{memory, options.now};
  try {
    // Names that are defined after the client's stand: a client cannot replace them.
    in.define("documents", value::none());
    if (!options.variables.empty()) {
      const auto given = jinja::from_json(memory, options.variables);
      for (const auto& [name, v] : given.map->items) in.define(memory.keep_name(*name.string), v);
    }
    std::vector<value> all;
    for (const auto& m : messages) all.push_back(message_value(memory, m));
    in.define("messages", memory.keep_list(std::move(all)));
    in.define("tools", options.tools.empty() ? value::none() : jinja::from_json(memory, options.tools));
    in.define("add_generation_prompt",
              value::of(options.add_generation_prompt && !options.continue_final_message));
    for (const auto& [name, id] :
         {std::pair{"bos_token", tokenizer_->bos()}, {"eos_token", tokenizer_->eos()}}) {
      if (id >= 0) in.define(name, memory.keep(from_utf8(tokenizer_->piece(id))));
    }
    return in.run(*program_);
  } catch (const jinja::template_error& e) {
    return fail(ec::invalid_argument, "messages: the chat template says: " + e.what);
  }
}

result<std::vector<std::int32_t>> chat_template::render(std::span<const chat_message> messages,
                                                        const chat_render_options& options) const {
  if (messages.empty()) return fail(ec::invalid_argument, "messages is empty; a chat needs at least one");
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (!is_role(messages[i].role))
      return fail(ec::invalid_argument, "messages[" + std::to_string(i) + "].role is \"" + messages[i].role +
                                            "\"; it must be system, developer, user, assistant or tool");
  }
  auto said = render_text(messages, options);
  if (said && options.continue_final_message) said = cut_behind(std::move(*said), messages.back().content);
  if (!said) return fail(said.error());
  std::string bytes;
  const auto own = own_parts(*said, bytes);
  return tokenizer_->encode_composed(bytes, own);
}

}  // namespace mooncaf
