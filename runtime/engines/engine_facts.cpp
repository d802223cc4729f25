#include "runtime/engines/engine_facts.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>

namespace mooncaf {

namespace {

using nlohmann::json;

/// The number in `name="…"` of a series; 0: there is none.
std::uint64_t label_of(std::string_view line, std::string_view name) {
  const auto quoted = std::string{name} + "=\"";
  auto at = line.find(quoted);
  // Others end in the same words.
  while (at != std::string_view::npos && at > 0 && line[at - 1] != '{' && line[at - 1] != ',')
    at = line.find(quoted, at + 1);
  if (at == std::string_view::npos) return 0;
  at += quoted.size();
  std::uint64_t value = 0;
  std::from_chars(line.data() + at, line.data() + line.size(), value);
  return value;
}

/// Of all series of these names; empty: there is none, or one has a value beyond belief.
std::optional<double> sum_of(std::string_view metrics, std::span<const std::string_view> names) {
  constexpr double most = 1e15;
  double all = 0;
  bool told = false;
  while (!metrics.empty()) {
    const auto line = metrics.substr(0, metrics.find('\n'));
    metrics.remove_prefix(std::min(line.size() + 1, metrics.size()));
    if (std::ranges::find(names, line.substr(0, line.find_first_of("{ "))) == names.end()) continue;
    // A label's text may have any sign, but the value stands behind the last brace.
    const auto value = line.substr(line.find_last_of("} ") + 1);
    double one = 0;
    const auto [end, code] = std::from_chars(value.data(), value.data() + value.size(), one);
    if (code != std::errc{} || end == value.data() || !(one >= 0 && one <= most)) return std::nullopt;
    all += one, told = true;
  }
  return told ? std::optional{all} : std::nullopt;
}

}  // namespace

result<engine_facts> read_models(std::string_view body, std::string_view wanted) {
  const auto parsed = json::parse(body, nullptr, false);
  if (!parsed.is_object() || !parsed.contains("data") || !parsed["data"].is_array())
    return fail(ec::corrupt, "GET /v1/models: the answer is no list of models");
  std::string names;
  for (const auto& model : parsed["data"]) {
    if (!model.is_object() || !model.contains("id") || !model["id"].is_string()) continue;
    const auto name = model["id"].get<std::string>();
    if (!wanted.empty() && name != wanted) {
      names += (names.empty() ? "" : ", ") + name;
      continue;
    }
    engine_facts out{name};
    const auto owner = model.find("owned_by");
    if (owner != model.end() && *owner == "sglang") out.make = engine_make::sglang;
    const auto length = model.find("max_model_len");
    if (length != model.end() && length->is_number_unsigned() &&
        length->get<std::uint64_t>() <= std::numeric_limits<std::uint32_t>::max())
      out.context_tokens = length->get<std::uint32_t>();
    return out;
  }
  if (wanted.empty()) return fail(ec::not_found, "GET /v1/models: the engine serves no model");
  return fail(ec::not_found, "GET /v1/models: the engine serves no '" + std::string{wanted} + "'; it has " +
                                 (names.empty() ? "none" : names));
}

std::optional<std::uint32_t> requests_in(std::string_view metrics) {
  constexpr std::array<std::string_view, 4> series{"vllm:num_requests_running", "vllm:num_requests_waiting",
                                                   "sglang:num_running_reqs", "sglang:num_queue_reqs"};
  const auto all = sum_of(metrics, series);
  if (!all || *all > 1e6) return std::nullopt;
  return static_cast<std::uint32_t>(*all);
}

std::uint64_t cache_tokens_in(std::string_view metrics) {
  constexpr std::string_view series = "vllm:cache_config_info{";
  constexpr std::array<std::string_view, 1> of_sglang{"sglang:max_total_num_tokens"};
  std::uint64_t all = 0;
  for (std::size_t at = metrics.find(series); at != std::string_view::npos;
       at = metrics.find(series, at + 1)) {
    const auto line = metrics.substr(at, metrics.find('\n', at) - at);
    const auto blocks = label_of(line, "num_gpu_blocks"), size = label_of(line, "block_size");
    if (size != 0 && blocks <= std::numeric_limits<std::uint32_t>::max() && size <= 1 << 20)
      all += blocks * size;
  }
  return all != 0 ? all : static_cast<std::uint64_t>(sum_of(metrics, of_sglang).value_or(0));
}

}  // namespace mooncaf
