#include "runtime/engines/generate_events.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "runtime/engines/json_answer.hpp"

namespace mooncaf {

namespace {

using nlohmann::json;

/// The last `count` of a list; empty where it is none, or shorter.
std::span<const json> last_of(const json* list, std::size_t count) {
  if (list == nullptr || !list->is_array() || list->size() < count) return {};
  const auto& all = list->get_ref<const json::array_t&>();
  return std::span{all}.last(count);
}

/// [log-probability, token's id, text]
const json* part_of(const json& of_token, std::size_t n) {
  return of_token.is_array() && of_token.size() >= 2 ? &of_token[n] : nullptr;
}

/// The likeliest first.
void add_likeliest(const json& likeliest, sampled_token& token) {
  if (!likeliest.is_array()) return;
  for (const auto& one : likeliest)
    if (const auto* id = part_of(one, 1))
      if (const auto known = token_id_in(*id)) token.top.emplace_back(*known, logprob_in(*part_of(one, 0)));
  std::ranges::sort(token.top, [](const auto& a, const auto& b) { return a.second > b.second; });
}

void add_probabilities(const json& meta, std::span<sampled_token> tokens) {
  const auto own = last_of(member(meta, "output_token_logprobs"), tokens.size());
  const auto top = last_of(member(meta, "output_top_logprobs"), tokens.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (const auto* p = own.empty() ? nullptr : part_of(own[i], 0)) tokens[i].logprob = logprob_in(*p);
    if (!top.empty()) add_likeliest(top[i], tokens[i]);
  }
}

result<void> add_finish(const json& why, completion_piece& into) {
  const auto* type = member(why, "type");
  if (type == nullptr || !type->is_string()) return {};
  const auto word = type->get<std::string>();
  if (word != "stop" && word != "length") {
    const auto* message = member(why, "message");
    return fail(ec::unavailable,
                "the engine ended the answer: " +
                    (message != nullptr && message->is_string() ? message->get<std::string>() : word));
  }
  into.finish = word == "stop" ? finish_reason::stop : finish_reason::length;
  return {};
}

}  // namespace

result<void> generate_events::take(const json& event, completion_piece& into) {
  const auto* meta = member(event, "meta_info");
  const auto* total = meta != nullptr ? member(*meta, "completion_tokens") : nullptr;
  const auto* ids = member(event, "output_ids");
  if (total == nullptr || !total->is_number_unsigned() || ids == nullptr || !ids->is_array())
    return fail(ec::corrupt, "the engine's answer has an event without output_ids and completion_tokens");
  const auto all = total->get<std::size_t>();
  if (all < heard_ || all - heard_ > ids->size())
    return fail(ec::corrupt, "the engine's answer lacks tokens: " + std::to_string(heard_) + " came, of " +
                                 std::to_string(all));
  const auto first = into.tokens.size();
  for (const auto& id : last_of(ids, all - heard_)) {
    const auto known = token_id_in(id);
    if (!known) return fail(known.error());
    into.tokens.push_back({*known, 0, {}});
  }
  heard_ = all;
  add_probabilities(*meta, std::span{into.tokens}.subspan(first));
  const auto* cached = member(*meta, "cached_tokens");
  if (cached != nullptr && cached->is_number_unsigned()) into.cached_tokens = cached->get<std::uint32_t>();
  const auto* why = member(*meta, "finish_reason");
  return why != nullptr ? add_finish(*why, into) : result<void>{};
}

}  // namespace mooncaf
