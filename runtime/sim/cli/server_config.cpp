#include "runtime/sim/cli/server_config.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "config/declaration.hpp"

namespace mooncaf::sim {

namespace {

/// An option of the server, and that of the simulation which means the same.
struct same {
  const char *section, *key, *argument;
};

constexpr std::array shared{
    same{"scheduler", "policy", "policy"},
    same{"scheduler", "admission", "admission"},
    same{"scheduler", "max_queued", "max-queued"},
    same{"scheduler", "ttft_slo", "slo-ttft"},
    same{"scheduler", "tbt_slo", "slo-tbt"},
    same{"scheduler", "kvcache_balancing_threshold", "threshold"},
    same{"scheduler", "predicted_decode_time", "decode-span"},
    same{"scheduler", "seed", "seed"},
    same{"scheduler", "hot_copy_share", "hot-copy-share"},
    same{"prefill", "instances", "prefill"},
    same{"prefill", "prefetch", "prefetch"},
    same{"prefill", "prefetch_timeout_base", "prefetch-timeout-base"},
    same{"prefill", "prefetch_timeout_per_ki_token", "prefetch-timeout-per-ki-token"},
    same{"prefill", "prefetch_threshold", "prefetch-threshold"},
    same{"decode", "instances", "decode"},
    same{"cache", "eviction", "eviction"},
    same{"cache", "write_policy", "write-policy"},
    same{"model", "device_write_policy", "device-write-policy"},
    same{"cache", "selective_hits", "selective-hits"},
};

constexpr std::string_view modelled = "model:";

std::string config_of(std::span<const std::string> args) {
  constexpr std::string_view name = "--config";
  for (std::size_t i = 0; i < args.size(); ++i) {
    if (args[i] == name && i + 1 < args.size()) return args[i + 1];
    if (args[i].starts_with(std::string{name} + "=")) return args[i].substr(name.size() + 1);
  }
  return {};
}

result<std::string> text_of(const std::string& path) {
  std::ifstream file{path, std::ios::binary};
  std::stringstream text;
  text << file.rdbuf();
  if (!file) return fail(ec::io_error, "cannot read " + path + ": " + std::strerror(errno));
  return text.str();
}

/// Takes the options that have no argument of their own.
void take_rest(const options& server, const std::vector<config::toml_entry>& given,
               simulation_request& request) {
  const auto& device = server.model.device;
  if (device.starts_with(modelled)) request.profile = device.substr(modelled.size());
  request.no_layerwise = server.prefill.kv_transfer == kv_transfer_choice::after_prefill;
  if (server.cluster.mode == serving_mode::coupled) {
    request.options.coupled = coupled_mode::chunked;
    request.options.coupled_chunk = server.prefill.chunk_tokens;
  }
  // Sizes come from the profile, as in the server, unless the file has them and something is computed.
  if (device.starts_with(modelled)) return;
  const auto says = [&](std::string_view section, std::string_view key) {
    return std::ranges::any_of(given, [&](const auto& e) { return e.section == section && e.key == key; });
  };
  if (device == "linked") {
    request.device_link_gb_per_s = static_cast<double>(server.model.link_bytes_per_s) * 1e-9;
    request.device_kv_bytes = server.model.device_kv_bytes;
  }
  if (says("cache", "dram")) request.dram_bytes = server.cache.dram_bytes;
  if (says("cache", "ssd") || says("cache", "ssd_path")) {
    request.ssd_bytes = server.cache.ssd_path.empty() ? 0 : server.cache.ssd_bytes;
  }
  if (says("prefill", "chunk_tokens")) request.chunk_tokens = server.prefill.chunk_tokens;
  if (says("decode", "max_batch")) request.max_batch = server.decode.max_batch;
}

}  // namespace

result<void> begin_with_config(std::span<const std::string> args, simulation_request& request) {
  const auto path = config_of(args);
  if (path.empty()) return {};
  const auto text = text_of(path);
  if (!text) return fail(text.error());
  const auto server = parse_options({}, *text, path);
  if (!server) return fail(server.error());
  auto arguments = simulation_arguments(request);
  for (const auto& [section, key, name] : shared) {
    const auto* option = config::find_key(section, key);
    const auto to = std::ranges::find(arguments, name, &argument::name);
    if (option == nullptr || to == arguments.end())
      return fail(ec::internal, std::string{"no option "} + name);
    if (const auto wrong = to->set(option->show(server->values))) {
      return fail(ec::unsupported, path + ": " + option->toml_name() + ": " + *wrong);
    }
  }
  const auto given = config::parse_toml(*text, path);
  if (!given) return fail(given.error());
  take_rest(server->values, *given, request);
  return {};
}

argument config_argument(std::string& at) {
  return cli::text(
      "config", "FILE.toml",
      "the server's configuration: its instances, policies, SLOs and caches, read before all other options",
      at);
}

}  // namespace mooncaf::sim
