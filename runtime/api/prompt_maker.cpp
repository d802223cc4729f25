#include "runtime/api/prompt_maker.hpp"

#include <algorithm>
#include <ctime>
#include <span>

#include "runtime/api/chat_messages.hpp"
#include "runtime/api/tools_as_text.hpp"
#include "runtime/log/log.hpp"
#include "runtime/reasoning/reasoning_grammar.hpp"
#include "runtime/text/chat_template.hpp"

namespace mooncaf {

namespace {

tl::unexpected<api_refusal> refuse(ec code, std::string why, std::string_view word = {}) {
  return tl::unexpected(api_refusal{error{code, std::move(why)}, word});
}

constexpr std::string_view too_long = "context_length_exceeded";

/// The form that the options name, or else the one that the chat template teaches.
template <class Form>
std::optional<Form> form_of(const form_choice<Form>& wanted, const chat_template* chat,
                            std::optional<Form> (*taught)(std::string_view) noexcept) {
  if (!wanted.automatic) return wanted.form;
  return chat ? taught(chat->source()) : std::nullopt;
}

/// Whether a system message's text comes to be part of the prompt: some templates refuse one, or drop it.
bool says_system(const chat_template& chat, const tokenizer& text) {
  const std::string order = "Be brief";
  std::vector<chat_message> asked(2);
  asked[0].role = "system", asked[0].content = order;
  asked[1].role = "user", asked[1].content = "Hi";
  const auto prompt = chat.render(asked);
  return prompt && text.decode(*prompt, special_text::show).find(order) != std::string::npos;
}

/// Gives each of these tools that has no description an empty one; whether there was such a one.
bool describe_every_tool(std::string& tools) {
  auto list = body_json::parse(tools, nullptr, false);
  if (!list.is_array()) return false;
  bool changed = false;
  for (auto& tool : list) {
    auto& function = tool["function"];
    if (function.contains("description")) continue;
    function["description"] = "";
    changed = true;
  }
  if (changed) tools = text_of_json(list);
  return changed;
}

}  // namespace

prompt_maker::prompt_maker(std::shared_ptr<const front_context> context) : context_(std::move(context)) {
  const auto& o = context_->opts;
  const auto of_model = context_->shape.context_length;
  context_length_ = o.model.context_length > 0 ? std::min(o.model.context_length, of_model) : of_model;
  // The longest token bounds the text that fits the context, so `may_fit` refuses more before encoding it.
  for (std::int32_t id = 0; id < context_->text->vocab_size(); ++id) {
    longest_piece_ = std::max(longest_piece_, context_->text->piece(id).size());
  }
  calls_ = form_of(o.gateway.tool_call_parser, context_->chat.get(), tool_format_of);
  if (const auto* chat = context_->chat.get();
      chat && chat->source().find("tools") == std::string::npos && o.gateway.tools == tool_place::general) {
    general_tools_ = true;
    calls_ = tool_format::hermes;
    has_system_ = says_system(*chat, *context_->text);
    log_info("tools", {{"form", "general"},
                       {"why", "the chat template has no place for them"},
                       {"instead", "--tools template-only refuses them"}});
  }
  reasoning_ = form_of(o.gateway.reasoning_parser, context_->chat.get(), reasoning_form_of);
  names_.push_back(o.model.served_model_name);
  for (const auto& [name, adapter] : context_->adapters) names_.push_back(name);
  std::string_view rest = o.gateway.model_aliases;
  while (!rest.empty()) {
    const auto end = std::min(rest.find(','), rest.size());
    auto name = rest.substr(0, end);
    while (name.starts_with(' ')) name.remove_prefix(1);
    while (name.ends_with(' ')) name.remove_suffix(1);
    if (name == "*") any_name_ = true;
    if (!name.empty()) names_.emplace_back(name);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
}

api_result<void> prompt_maker::may_fit(std::size_t text_bytes, std::string_view field) const {
  const auto limit = context_length_ * longest_piece_;
  if (text_bytes <= limit) return {};
  return refuse(ec::invalid_argument,
                std::string{field} + ": " + std::to_string(text_bytes) + " bytes are more than the " +
                    std::to_string(context_length_) + " tokens of the context can hold (" +
                    std::to_string(limit) + " bytes)",
                too_long);
}

api_result<void> prompt_maker::check_vocabulary(const std::vector<std::int32_t>& ids,
                                                std::string_view field) const {
  const auto size = context_->text->vocab_size();
  const auto outside = std::ranges::find_if(ids, [&](auto id) { return id >= size; });
  if (outside == ids.end()) return {};
  return refuse(ec::invalid_argument, std::string{field} + ": token id " + std::to_string(*outside) +
                                          " is outside the vocabulary of " + std::to_string(size));
}

api_result<void> prompt_maker::check_model(std::string_view name) const {
  if (name.empty() || any_name_ || std::ranges::find(names_, name) != names_.end()) return {};
  constexpr std::size_t most = 200;
  return refuse(ec::not_found,
                "model: `" + std::string{name.substr(0, most)} + "` does not exist here; served is `" +
                    names_.front() + "`",
                "model_not_found");
}

model_card prompt_maker::card_of(std::string_view name) const {
  const auto& base = context_->opts.model.served_model_name;
  if (context_->adapters.contains(name)) return {std::string{name}, base};
  return {base, {}};
}

std::vector<model_card> prompt_maker::cards() const {
  std::vector<model_card> out{card_of({})};
  for (const auto& [name, adapter] : context_->adapters) out.push_back(card_of(name));
  return out;
}

api_result<std::vector<std::int32_t>> prompt_maker::tokens_of(const prompt_input& prompt,
                                                              const prompt_reading& how,
                                                              std::string_view field,
                                                              bool may_be_long) const {
  if (const auto* text = std::get_if<std::string>(&prompt)) {
    if (const auto fits = may_fit(text->size(), field); !may_be_long && !fits)
      return tl::unexpected(fits.error());
    const auto special = how.parse_special.value_or(context_->opts.gateway.parse_special)
                             ? special_tokens::parse
                             : special_tokens::as_text;
    return how.add_special_tokens ? context_->text->encode_prompt(*text, special)
                                  : context_->text->encode(*text, special);
  }
  const auto& ids = std::get<std::vector<std::int32_t>>(prompt);
  if (const auto known = check_vocabulary(ids, field); !known) return tl::unexpected(known.error());
  return ids;
}

api_result<std::vector<std::int32_t>> prompt_maker::tokens_of(const chat_prompt& conversation,
                                                              bool may_be_long) const {
  const auto& messages = conversation.messages;
  if (!context_->chat) {
    return refuse(ec::unsupported,
                  "this model has no chat template that is understood here; set --chat-template");
  }
  // A message costs a token at least, however empty.
  if (!may_be_long && messages.size() > context_length_) {
    return refuse(ec::invalid_argument,
                  "messages: " + std::to_string(messages.size()) + " are more than the context of " +
                      std::to_string(context_length_) + " tokens can hold",
                  too_long);
  }
  const bool in_words = general_tools_ && speaks_of_tools(conversation);
  if (!in_words && !conversation.tools.empty() &&
      context_->chat->source().find("tools") == std::string::npos) {
    return refuse(ec::invalid_argument,
                  "tools: the model's chat template has no place for them; --chat-template can give it "
                  "another, and --tools general none");
  }
  std::size_t bytes = conversation.tools.size();
  for (const auto& m : messages) {
    bytes += m.content.size();
    for (const auto& c : m.tool_calls) bytes += c.arguments.size();
  }
  if (const auto fits = may_fit(bytes, "messages"); !may_be_long && !fits)
    return tl::unexpected(fits.error());
  return render(in_words ? tools_as_text(conversation, has_system_) : conversation);
}

api_result<std::vector<std::int32_t>> prompt_maker::render(const chat_prompt& conversation) const {
  chat_render_options options;
  options.add_generation_prompt = conversation.add_generation_prompt;
  options.continue_final_message = conversation.continue_final_message;
  options.variables = conversation.variables;
  options.tools = conversation.tools;
  const auto now = std::time(nullptr);
  ::localtime_r(&now, &options.now);
  auto rendered = context_->chat->render(conversation.messages, options);
  if (rendered) return std::move(*rendered);
  // Templates differ in what they take where a message is calls alone: gpt-oss no null, Qwen3 an empty text only.
  auto messages = conversation.messages;
  bool changed = describe_every_tool(options.tools);
  for (const auto bare : {bare_content::absent, bare_content::empty}) {
    for (auto& m : messages) {
      if (m.bare == bare_content::empty || m.bare == bare) continue;
      m.bare = bare;
      changed = true;
    }
    if (!changed) continue;
    if (auto again = context_->chat->render(messages, options)) return std::move(*again);
  }
  return tl::unexpected(api_refusal{rendered.error()});
}

/// A template writes a cut conversation as it writes the whole one up to there, but for the words that end a message.
std::vector<std::pair<std::uint32_t, duration>> prompt_maker::marked(
    const chat_prompt& conversation, std::span<const prefix_mark> marks,
    std::span<const std::int32_t> prompt) const {
  std::vector<std::pair<std::uint32_t, duration>> out;
  for (const auto& mark : marks) {
    auto tokens = prompt.size();
    if (mark.messages < conversation.messages.size() || mark.bytes != std::string::npos) {
      auto cut = conversation;
      cut.add_generation_prompt = cut.continue_final_message = false;
      cut.messages.resize(std::clamp<std::size_t>(mark.messages, 1, cut.messages.size()));
      auto& last = cut.messages.back();
      if (mark.messages == 0) last.content.clear();
      else last.content.resize(std::min(mark.bytes, last.content.size()));
      const auto part = tokens_of(cut);
      if (!part) continue;
      const auto same = std::ranges::mismatch(*part, prompt);
      tokens = static_cast<std::size_t>(same.in2 - prompt.begin());
    }
    out.emplace_back(static_cast<std::uint32_t>(tokens), mark.ttl);
  }
  std::ranges::stable_sort(out, {}, [](const auto& mark) { return mark.first; });
  return out;
}

api_result<std::optional<tool_reading>> prompt_maker::prepare_tools(chat_request& api) const {
  if (api.functions.empty() || !context_->chat) return std::nullopt;
  const auto format = calls_;
  if (!format) {
    return refuse(ec::invalid_argument,
                  "tools: the model's chat template names no form of calls that is known here; "
                  "--tool-call-parser says which the model writes, --chat-template can give it another");
  }
  tool_reading out{*format, api.choice == tool_choice::required, api.parallel_tool_calls, api.functions, {}};
  for (const auto marker : tool_markers(*format)) {
    const auto id = context_->text->find(marker);
    if (id && context_->text->is_special(*id)) out.markers.push_back(*id);
  }
  if (!out.forced) return out;
  if (!api.form_field.empty())
    return refuse(ec::invalid_argument,
                  "tool_choice: asks for a form of the answer, as " + api.form_field + " does; only one may");
  auto grammar = grammar_of_tools(*format, api.functions, out.several);
  if (!grammar) return refuse(ec::invalid_argument, "tools: " + grammar.error().detail);
  api.form_field = "tools";
  api.sampling.grammar = std::move(*grammar);
  return out;
}

std::optional<thought_reading> prompt_maker::prepare_thought(chat_request& api,
                                                             std::span<const std::int32_t> prompt) const {
  if (!reasoning_) return std::nullopt;
  constexpr std::size_t most_marks = 24;  // tokens at the end of a prompt that may hold a mark, or two
  const auto& text = *context_->text;
  const auto end = text.decode(prompt.last(std::min(prompt.size(), most_marks)), special_text::show);
  thought_reading out{*reasoning_, thought_state_of(*reasoning_, end), api.include_reasoning, {}};
  if (!api.sampling.grammar.empty())
    api.sampling.grammar = thought_first(std::move(api.sampling.grammar), out.form, out.state);
  if (!api.separate_reasoning || out.state == thought_state::over) return std::nullopt;
  for (const auto mark : mark_tokens(out.form)) {
    const auto id = text.find(mark);
    if (id && text.is_special(*id)) out.markers.push_back(*id);
  }
  return out;
}

void prompt_maker::truncate(const api_request& api, std::vector<std::int32_t>& prompt) const {
  if (!api.truncate_prompt_tokens) return;
  // Room for the answer that was asked for, or for one token.
  const auto answer = std::clamp<std::size_t>(api.sampling.max_tokens, 1, context_length_ - 1);
  const auto wanted = *api.truncate_prompt_tokens;
  const auto most = wanted > 0 ? static_cast<std::size_t>(wanted) : context_length_ - answer;
  if (prompt.size() > most) prompt.erase(prompt.begin(), prompt.end() - static_cast<std::ptrdiff_t>(most));
}

std::string prompt_maker::echo_of(const std::vector<std::int32_t>& tokens) const {
  const auto& text = *context_->text;
  const bool first = text.add_bos() && !tokens.empty() && tokens.front() == text.bos();
  return text.decode(std::span{tokens}.subspan(first ? 1 : 0), special_text::show);
}

api_result<sampling_params> prompt_maker::complete(const api_request& api, std::size_t prompt_tokens,
                                                   std::string_view field) const {
  auto s = api.sampling;
  const auto limit = context_length_;
  if (prompt_tokens == 0) return refuse(ec::invalid_argument, std::string{field} + ": is empty");
  if (prompt_tokens + 1 > limit) {
    return refuse(ec::invalid_argument,
                  std::string{field} + ": has " + std::to_string(prompt_tokens) +
                      " tokens, the context holds " + std::to_string(limit),
                  too_long);
  }
  const auto room = limit - static_cast<std::uint32_t>(prompt_tokens);
  const bool scores = api.max_tokens_given && s.max_tokens == 0;
  s.max_tokens = scores ? 1 : s.max_tokens == 0 ? room : std::min(s.max_tokens, room);
  if (s.min_tokens > s.max_tokens) {
    return refuse(ec::invalid_argument, "min_tokens: is larger than the " + std::to_string(s.max_tokens) +
                                            " tokens that the answer may have");
  }
  for (const auto& [id, bias] : s.logit_bias) {
    if (const auto known = check_vocabulary({id}, "logit_bias"); !known) return tl::unexpected(known.error());
  }
  if (const auto known = check_vocabulary(s.allowed_token_ids, "allowed_token_ids"); !known)
    return tl::unexpected(known.error());
  for (const auto& word : api.bad_words) {
    // As it comes at the beginning of a text, and within one.
    for (const auto& form : {word, word.starts_with(' ') ? word.substr(1) : " " + word}) {
      auto ids = context_->text->encode(form);
      if (!ids.empty() && std::ranges::find(s.bad_words, ids) == s.bad_words.end())
        s.bad_words.push_back(std::move(ids));
    }
  }
  if (!s.grammar.empty()) {
    if (const auto usable = context_->grammars->find(s.grammar); !usable)
      return refuse(ec::invalid_argument, api.form_field + ": " + usable.error().detail);
  }
  return s;
}

}  // namespace mooncaf
