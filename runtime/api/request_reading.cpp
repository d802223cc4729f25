#include "runtime/api/request_reading.hpp"

#include <cmath>
#include <limits>

#include "runtime/api/answer_form.hpp"

namespace mooncaf {

namespace {

using json = body_json;
using reader = body_reader;

// These are kept small: every answer to every prompt copies them, and every token is checked against them.
constexpr std::size_t stop_limit = 16;
constexpr std::size_t stop_bytes_limit = 4096;
constexpr std::size_t stop_ids_limit = 1024;
constexpr std::size_t bias_limit = 4096;
constexpr std::size_t salt_bytes_limit = 1024;
constexpr std::size_t allowed_ids_limit = 16'384;
constexpr std::size_t bad_words_limit = 1024;
constexpr std::size_t prompts_limit = 1024;

void read_bias(reader& in, sampling_params& out) {
  const auto* v = in.find("logit_bias");
  if (!v) return;
  if (!v->is_object()) return in.complain("logit_bias", "must be an object of token id to number");
  if (v->size() > bias_limit)
    return in.complain("logit_bias", "takes at most " + std::to_string(bias_limit) + " tokens");
  for (const auto& [key, value] : v->items()) {
    char* end = nullptr;
    const auto id = std::strtol(key.c_str(), &end, 10);
    if (key.empty() || *end != 0 || id < 0 || id > std::numeric_limits<std::int32_t>::max()) {
      return in.complain("logit_bias", "'" + shortened(key) + "' is no token id");
    }
    if (!value.is_number() || std::abs(value.get<double>()) > 100) {
      return in.complain("logit_bias", "values must lie in [-100, 100]");
    }
    out.logit_bias.emplace_back(static_cast<std::int32_t>(id), value.get<float>());
  }
}

/// Which tokens may come at all.
void read_vocabulary(reader& in, api_request& out) {
  if (const auto* ids = in.find("allowed_token_ids")) {
    const auto list = ids->is_array() ? token_list(*ids) : std::nullopt;
    if (!list) return in.complain("allowed_token_ids", "must be a list of token ids");
    if (list->size() > allowed_ids_limit)
      return in.complain("allowed_token_ids", "takes at most " + std::to_string(allowed_ids_limit) + " ids");
    out.sampling.allowed_token_ids = *list;
  }
  const auto* words = in.find("bad_words");
  if (!words) return;
  if (!words->is_array() || words->size() > bad_words_limit)
    return in.complain("bad_words",
                       "must be a list of at most " + std::to_string(bad_words_limit) + " strings");
  for (const auto& w : *words) {
    const bool fits = w.is_string() && !w.get_ref<const std::string&>().empty() &&
                      w.get_ref<const std::string&>().size() <= stop_bytes_limit;
    if (!fits)
      return in.complain("bad_words",
                         "must be strings of 1 to " + std::to_string(stop_bytes_limit) + " bytes");
    out.bad_words.push_back(w.get<std::string>());
  }
}

}  // namespace

void read_stop(body_reader& in, const char* name, sampling_params& out) {
  const auto* v = in.find(name);
  if (!v) return;
  const auto list = v->is_array() ? *v : json::array({*v});
  if (list.size() > stop_limit)
    return in.complain(name, "takes at most " + std::to_string(stop_limit) + " strings");
  for (const auto& e : list) {
    if (!e.is_string()) return in.complain(name, "must be a string or a list of strings");
    const auto& text = e.get_ref<const std::string&>();
    if (text.size() > stop_bytes_limit) {
      return in.complain(name, "takes strings of at most " + std::to_string(stop_bytes_limit) + " bytes");
    }
    if (!text.empty()) out.stop.push_back(text);
  }
}

void begin_with(const generation_defaults& defaults, sampling_params& out) {
  out.temperature = defaults.temperature;
  out.top_k = defaults.top_k;
  out.top_p = defaults.top_p;
  out.min_p = defaults.min_p;
  out.repetition_penalty = defaults.repetition_penalty;
}

void read_sampling(body_reader& in, api_request& out) {
  auto& s = out.sampling;
  in.string("model", out.model);
  in.number("temperature", s.temperature, 0, 2);
  in.number("top_p", s.top_p, 1e-9, 1);
  in.number("top_k", s.top_k, -1, std::numeric_limits<std::int32_t>::max());
  in.number("min_p", s.min_p, 0, 1);
  in.number("repetition_penalty", s.repetition_penalty, 1e-6, 10);
  in.number("presence_penalty", s.presence_penalty, -2, 2);
  in.number("frequency_penalty", s.frequency_penalty, -2, 2);
  if (const auto* seed = in.find("seed")) {
    if (seed->is_number_integer()) {
      s.seed = static_cast<std::uint64_t>(seed->get<std::int64_t>());
      out.seed_given = true;
    } else {
      in.complain("seed", "must be an integer");
    }
  }
}

void read_service(body_reader& in, api_request& out) {
  if (in.find("priority")) in.number("priority", out.priority.emplace(1), 0, 2);
  // A user that is no string changes nothing.
  if (const auto* user = in.find("user"); user != nullptr && user->is_string())
    out.user = user->get<std::string>();
  in.string("cache_salt", out.cache_salt);
  if (out.cache_salt.size() > salt_bytes_limit) {
    in.complain("cache_salt", "takes at most " + std::to_string(salt_bytes_limit) + " bytes");
  }
  std::string retention;
  in.string("prompt_cache_retention", retention);
  if (retention == "24h") out.keep.push_back({.ttl = std::chrono::hours(24)});
  else if (retention == "in_memory" || retention == "in-memory")
    out.keep.push_back({.ttl = std::chrono::minutes(10)});
  else if (!retention.empty()) in.complain("prompt_cache_retention", "must be in_memory or 24h");
  in.number("ttft_slo_ms", out.ttft_slo_ms, 1, 1 << 30);
  in.number("tbt_slo_ms", out.tbt_slo_ms, 1, 1 << 30);
  if (in.find("truncate_prompt_tokens"))
    in.number("truncate_prompt_tokens", out.truncate_prompt_tokens.emplace(-1), -1, 1 << 30);
  if (out.truncate_prompt_tokens == 0)
    in.complain("truncate_prompt_tokens", "must be -1 or at least 1, got 0");
}

/// The fields that completions and chats share, beside `read_sampling` and `read_service`.
void read_common(body_reader& in, api_request& out, std::uint32_t least_tokens) {
  auto& s = out.sampling;
  read_sampling(in, out);
  read_service(in, out);
  s.max_tokens = 0;
  in.number("max_tokens", s.max_tokens, least_tokens, 1 << 30);
  in.number("max_completion_tokens", s.max_tokens, least_tokens, 1 << 30);
  out.max_tokens_given = in.find("max_tokens") || in.find("max_completion_tokens");
  in.number("min_tokens", s.min_tokens, 0, 1 << 30);
  in.boolean("ignore_eos", s.ignore_eos);
  read_stop(in, "stop", s);
  if (const auto* ids = in.find("stop_token_ids")) {
    const auto list = ids->is_array() ? token_list(*ids) : std::nullopt;
    if (list && list->size() <= stop_ids_limit) {
      s.stop_token_ids = *list;
    } else if (list) {
      in.complain("stop_token_ids", "takes at most " + std::to_string(stop_ids_limit) + " ids");
    } else {
      in.complain("stop_token_ids", "must be a list of token ids");
    }
  }
  read_bias(in, s);
  read_vocabulary(in, out);
  read_form(in, out);
  in.number("n", out.n, 1, 128);
  in.boolean("stream", out.stream);
  if (const auto* options = in.find("stream_options")) {
    if (options->is_object()) {
      reader inner{*options};
      inner.boolean("include_usage", out.include_usage);
      if (inner.problem()) in.complain("stream_options", inner.problem()->detail);
    } else {
      in.complain("stream_options", "must be an object");
    }
  }
  in.boolean("include_stop_str_in_output", out.include_stop);
  in.boolean("return_token_ids", out.return_token_ids);
  in.boolean("return_tokens_as_token_ids", out.tokens_as_ids);
  in.number("prompt_logprobs", out.prompt_logprobs, 0, 20);
  s.prompt_logprobs = out.prompt_logprobs;
}

std::vector<prompt_input> read_prompts(body_reader& in, const char* name) {
  std::vector<prompt_input> out;
  const auto* v = in.find(name);
  constexpr auto shape = "must be a string, a list of strings, a list of token ids, or a list of such lists";
  if (!v) return in.complain(name, "is required"), out;
  if (v->is_string()) {
    out.emplace_back(v->get<std::string>());
  } else if (v->is_array() && !v->empty() && v->front().is_number()) {
    const auto list = token_list(*v);
    if (!list) return in.complain(name, shape), out;
    out.emplace_back(*list);
  } else if (v->is_array() && !v->empty() && v->size() <= prompts_limit) {
    for (const auto& e : *v) {
      if (e.is_string()) {
        out.emplace_back(e.get<std::string>());
        continue;
      }
      const auto list = e.is_array() && !e.empty() ? token_list(e) : std::nullopt;
      if (!list) return in.complain(name, shape), out;
      out.emplace_back(*list);
    }
  } else if (v->is_array() && v->size() > prompts_limit) {
    in.complain(name, "takes at most " + std::to_string(prompts_limit) + " prompts");
  } else {
    in.complain(name, shape);
  }
  return out;
}

}  // namespace mooncaf
