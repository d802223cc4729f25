#include "actors/api_status.hpp"

#include <nlohmann/json.hpp>

namespace mooncaf {

result<std::string> health_of(const std::string& cluster) {
  if (cluster.empty()) return fail(ec::unavailable, "no conductor answers");
  bool prefill = false, decode = false;
  const auto view = nlohmann::json::parse(cluster);
  for (const auto& i : view["instances"]) {
    if (i["state"] != "live") continue;
    prefill = prefill || i["role"] == "prefill";
    decode = decode || i["role"] == "decode";
  }
  if (!prefill) return fail(ec::unavailable, "no live prefill instance");
  if (!decode) return fail(ec::unavailable, "no live decode instance");
  return R"({"status":"ok"})";
}

result<std::string> integrity_of(const std::string& body) {
  if (body.empty()) return fail(ec::unavailable, "no conductor answers");
  const auto cluster = nlohmann::json::parse(body);
  nlohmann::ordered_json counts = {{"requests", cluster["requests_live"]},
                                   {"charges", cluster["counters"]["charged_requests"]},
                                   {"reserved", 0},
                                   {"pinned", 0},
                                   {"private", 0},
                                   {"quarantined", 0},
                                   {"owners", 0}};
  bool consistent = true;
  for (const auto& s : cluster["shards"]) {
    for (const auto* key : {"reserved", "pinned", "private", "quarantined"}) {
      counts[key] = counts[key].get<std::uint64_t>() + s["slots_" + std::string{key}].get<std::uint64_t>();
    }
    counts["owners"] = counts["owners"].get<std::uint64_t>() + s["owners"].get<std::uint64_t>();
    consistent = consistent && s["consistent"].get<bool>();
  }
  bool idle = consistent;
  for (const auto& [key, value] : counts.items()) idle = idle && value == 0;
  counts["consistent"] = consistent;
  counts["idle"] = idle;
  return counts.dump();
}

}  // namespace mooncaf
