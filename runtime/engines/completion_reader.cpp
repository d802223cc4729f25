#include "runtime/engines/completion_reader.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "runtime/engines/json_answer.hpp"

namespace mooncaf {

namespace {

using nlohmann::json;

constexpr std::size_t longest_line = 16 << 20;  // the first one has the ids of the prompt, too
constexpr std::size_t shown_of_refusal = 300;

/// "token_id:17", as `return_tokens_as_token_ids` has it; -1: it is not.
std::int32_t id_in(std::string_view text) {
  constexpr std::string_view prefix = "token_id:";
  if (!text.starts_with(prefix)) return -1;
  text.remove_prefix(prefix.size());
  std::int32_t id = -1;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), id);
  return failed == std::errc{} && end == text.data() + text.size() ? id : -1;
}

/// The likeliest first.
void add_top(const json& of_token, sampled_token& token) {
  if (!of_token.is_object()) return;
  for (const auto& [name, value] : of_token.items())
    if (const auto id = id_in(name); id >= 0) token.top.emplace_back(id, logprob_in(value));
  std::ranges::sort(token.top, [](const auto& a, const auto& b) { return a.second > b.second; });
}

/// Log-probabilities of the tokens that are there already, in their order.
void add_logprobs(const json& logprobs, std::vector<sampled_token>& tokens) {
  const auto list = [&](const char* name) -> const json* {
    const auto i = logprobs.find(name);
    return i != logprobs.end() && i->is_array() && i->size() == tokens.size() ? &*i : nullptr;
  };
  const auto* own = list("token_logprobs");
  const auto* top = list("top_logprobs");
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (own != nullptr) tokens[i].logprob = logprob_in((*own)[i]);
    if (top != nullptr) add_top((*top)[i], tokens[i]);
  }
}

result<void> add_tokens(const json& choice, completion_piece& into) {
  const auto ids = choice.find("token_ids");
  if (ids == choice.end() || !ids->is_array()) return {};
  std::vector<sampled_token> tokens;
  for (const auto& id : *ids) {
    const auto known = token_id_in(id);
    if (!known) return fail(known.error());
    tokens.push_back({*known, 0, {}});
  }
  if (const auto probable = choice.find("logprobs"); probable != choice.end() && probable->is_object())
    add_logprobs(*probable, tokens);
  into.tokens.insert(into.tokens.end(), tokens.begin(), tokens.end());
  return {};
}

std::string message_in(const json& body) {
  for (const auto* at : {member(body, "error"), &body}) {
    if (at == nullptr) continue;
    for (const auto* name : {"message", "detail"})
      if (const auto* text = member(*at, name); text != nullptr && text->is_string())
        return text->get<std::string>();
  }
  return {};
}

void add_usage(const json& body, completion_piece& into) {
  const auto* usage = member(body, "usage");
  const auto* details = usage != nullptr ? member(*usage, "prompt_tokens_details") : nullptr;
  const auto* cached = details != nullptr ? member(*details, "cached_tokens") : nullptr;
  if (cached != nullptr && cached->is_number_unsigned()) into.cached_tokens = cached->get<std::uint32_t>();
}

}  // namespace

result<void> completion_reader::event(std::string_view data, completion_piece& into) {
  if (data == "[DONE]") {
    into.over = true;
    return {};
  }
  const auto body = json::parse(data, nullptr, false);
  if (!body.is_object()) return fail(ec::corrupt, "the engine's answer has an event that is no JSON object");
  if (member(body, "error") != nullptr)
    return fail(ec::unavailable, "the engine gave up: " + message_in(body));
  if (make_ == engine_make::sglang) return events_.take(body, into);
  add_usage(body, into);
  const auto* choices = member(body, "choices");
  if (choices == nullptr || !choices->is_array() || choices->empty()) return {};
  const auto& choice = (*choices)[0];
  if (!choice.is_object())
    return fail(ec::corrupt, "the engine's answer has a choice that is no JSON object");
  if (auto added = add_tokens(choice, into); !added) return added;
  if (const auto* why = member(choice, "finish_reason"); why != nullptr && why->is_string()) {
    const auto word = why->get<std::string>();
    if (word != "stop" && word != "length")
      return fail(ec::unavailable, "the engine ended the answer: " + word);
    into.finish = word == "stop" ? finish_reason::stop : finish_reason::length;
  }
  return {};
}

result<completion_piece> completion_reader::take(std::string_view bytes) {
  completion_piece out;
  while (!bytes.empty()) {
    const auto end = bytes.find('\n');
    line_ += bytes.substr(0, end);
    if (line_.size() > longest_line)
      return fail(ec::corrupt,
                  "the engine's answer has a line of more than " + std::to_string(longest_line) + " bytes");
    if (end == std::string_view::npos) break;
    bytes.remove_prefix(end + 1);
    std::string_view line = line_;
    if (line.ends_with('\r')) line.remove_suffix(1);
    constexpr std::string_view prefix = "data:";
    if (line.starts_with(prefix)) {
      line.remove_prefix(prefix.size());
      while (line.starts_with(' ')) line.remove_prefix(1);
      if (auto read = event(line, out); !read) return fail(read.error());
    }
    line_.clear();
  }
  return out;
}

std::string refusal_in(std::string_view body) {
  if (const auto parsed = json::parse(body, nullptr, false); parsed.is_object())
    if (auto message = message_in(parsed); !message.empty()) return message.substr(0, shown_of_refusal);
  return std::string{body.substr(0, shown_of_refusal)};
}

}  // namespace mooncaf
