#include "runtime/sim/cluster_files.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "config/declaration.hpp"
#include "config/value.hpp"
#include "runtime/launch/launch_plan.hpp"

namespace mooncaf::sim {

namespace {

constexpr std::string_view profile_file = "machine.toml";

std::string in_units(double seconds) {
  return config::format_duration(std::chrono::nanoseconds{static_cast<std::int64_t>(seconds * 1e9 + 0.5)});
}

/// Whole MiB, and not less than the option's least.
std::string in_mib(double bytes) {
  constexpr double mib = 1 << 20;
  return std::to_string(std::max<std::uint64_t>(static_cast<std::uint64_t>(bytes / mib), 1)) + "MiB";
}

std::string line(const config::declaration& option, const std::string& key, const std::string& value) {
  return key + " = " + (option.type == config::toml_type::string ? config::toml_quoted(value) : value) + "\n";
}

/// Options of all processes, by section. Those at the server's defaults are left out.
class shared_options {
 public:
  void put(const std::string& section, const std::string& key, const std::string& value) {
    const auto* option = config::find_key(section, key);
    if (option->show(usual_) == value) return;
    lines_.emplace_back(section, line(*option, key, value));
  }
  void put(const std::string& section, const std::string& key, std::uint64_t n) {
    put(section, key, std::to_string(n));
  }

  std::string text() const {
    std::string out;
    for (const auto& section : config::sections()) {
      std::string lines;
      if (section.name == "model") lines = "# path = \"/models/M.gguf\"\n";
      for (const auto& [of, written] : lines_)
        if (of == section.name) lines += written;
      if (!lines.empty()) out += "\n[" + section.name + "]\n" + lines;
    }
    return out;
  }

 private:
  options usual_ = default_options();
  std::vector<std::pair<std::string, std::string>> lines_;
};

void add_scheduler(shared_options& c, const simulation_options& o) {
  c.put("scheduler", "policy", std::string{to_string(o.policy)});
  c.put("scheduler", "admission", std::string{to_string(o.admission)});
  c.put("scheduler", "max_queued", o.max_queued);
  c.put("scheduler", "ttft_slo", in_units(o.ttft_slo_s));
  c.put("scheduler", "tbt_slo", in_units(o.tbt_slo_s));
  // The server wants a number above 1; never is a million times.
  constexpr double barely = 1.000001, never = 1e6;
  c.put("scheduler", "kvcache_balancing_threshold",
        config::format_real(std::min(std::max(o.balancing_threshold, barely), never)));
  c.put("scheduler", "predicted_decode_time", in_units(o.decode_span_s));
  c.put("scheduler", "seed", o.seed);
  c.put("scheduler", "hot_copy_share", config::format_real(o.hot_copy_share));
}

void add_workers(shared_options& c, const simulation_options& o, bool coupled) {
  const auto chunk = coupled ? o.coupled_chunk : o.hardware.chunk_tokens;
  if (coupled) c.put("cluster", "mode", "coupled");
  c.put("model", "block_tokens", o.hardware.block_tokens);
  c.put("prefill", "chunk_tokens", chunk);
  c.put("prefill", "max_batch_tokens", chunk);
  c.put("prefill", "kv_transfer", o.layerwise ? "layerwise" : "after_prefill");
  c.put("prefill", "prefetch", std::string{to_string(o.prefetch.mode)});
  c.put("prefill", "prefetch_timeout_base", in_units(to_seconds(o.prefetch.base)));
  c.put("prefill", "prefetch_timeout_per_ki_token", in_units(to_seconds(o.prefetch.per_1024_tokens)));
  c.put("prefill", "prefetch_threshold", o.prefetch.threshold_tokens);
  c.put("decode", "max_batch", coupled ? o.hardware.max_batch : o.decode_profile().max_batch);
  c.put("cache", "eviction", std::string{to_string(o.eviction)});
  c.put("cache", "write_policy", std::string{to_string(o.write)});
  c.put("cache", "selective_hits", o.selective_hits);
}

/// A host's line for an option, which is spelled as on the command line there.
std::string of_host(const std::string& section, const std::string& key, const std::string& value) {
  const auto& option = *config::find_key(section, key);
  auto name = option.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return line(option, name, value);
}

/// A machine that prefills, alone or as one of two things that it does.
std::string prefill_lines(const simulation_options& o, double tokens, const std::string& folder) {
  const auto token = static_cast<double>(o.hardware.kv_bytes_per_token);
  auto out = of_host("cache", "dram", in_mib(tokens * token));
  if (o.hardware.ssd_tokens == 0) return out;
  return out + of_host("cache", "ssd_path", folder + "/ssd") +
         of_host("cache", "ssd", in_mib(static_cast<double>(o.hardware.ssd_tokens) * token));
}

/// A pipeline group, whose machines stand in the file as the devices of one.
std::string group_lines(const simulation_options& o) {
  return o.pipeline == 1 ? std::string{} : of_host("model", "pipeline", std::to_string(o.pipeline));
}

std::string decode_lines(const simulation_options& o) {
  const auto& machine = o.decode_profile();
  return of_host("cache", "dram",
                 in_mib(static_cast<double>(machine.device_kv_tokens) *
                        static_cast<double>(machine.kv_bytes_per_token)));
}

/// The front, which conducts and talks to clients, and a host per machine; one machine alone is both.
std::string host_sections(const plan_cluster& cluster, const simulation_options& o,
                          const std::string& folder) {
  constexpr std::string_view here = "address = \"127.0.0.1\"\n", leads = "conductor = 1\ngateway = 1\n";
  const bool alone = cluster.coupled() && cluster.machines() == 1;
  std::string out;
  if (!alone) out += "\n[front]\n" + std::string{here} + std::string{leads};
  std::uint32_t number = 0;
  const auto add = [&](const std::string& part, const std::string& lines) {
    out += "\n[machine-" + std::to_string(number++) + "]\n" + std::string{here} + part + " = 1\n" + lines;
  };
  if (cluster.coupled()) {
    const auto tokens = static_cast<double>(o.hardware.dram_tokens + o.hardware.device_kv_tokens);
    for (std::uint32_t i = 0; i < cluster.machines(); ++i)
      add(alone ? std::string{leads} + "coupled" : "coupled", prefill_lines(o, tokens, folder));
    return out;
  }
  for (std::uint32_t i = 0; i < cluster.prefill; ++i)
    add("prefill",
        group_lines(o) + prefill_lines(o, static_cast<double>(o.hardware.dram_tokens) * o.pipeline, folder));
  for (std::uint32_t i = 0; i < cluster.decode; ++i) add("decode", decode_lines(o));
  return out;
}

constexpr std::string_view beginning =
    R"(# The planned cluster, started by `mooncaf up` with this file. As it stands it is a rehearsal on this machine: the
# devices are modelled, so nothing is computed, ten times as fast as planned. To have the cluster itself: give each
# host its address (and ssh = "USER@HOST" if that is another), the model its path in place of device and time_scale,
# and an SSD tier the folder of its disk.
)";

std::string cluster_text(const plan_cluster& cluster, const simulation_options& o,
                         const std::string& folder) {
  shared_options shared;
  shared.put("model", "device", "model:" + std::string{profile_file});
  shared.put("model", "time_scale", "10");
  add_workers(shared, o, cluster.coupled());
  add_scheduler(shared, o);
  return std::string{beginning} + shared.text() + host_sections(cluster, o, folder);
}

result<void> check(const plan_cluster& c) {
  const auto no = [](std::string why) { return fail(ec::unsupported, std::move(why)); };
  if (c.admission == admission_policy::early_running)
    return no("the server has no admission early_running; it has early");
  return {};
}

}  // namespace

result<std::vector<cluster_file>> cluster_files(const plan_problem& problem, const plan_cluster& cluster,
                                                const std::string& folder) {
  if (const auto can = check(cluster); !can) return fail(can.error());
  const auto o = options_of(problem, cluster);
  std::vector<cluster_file> files{{"cluster.toml", cluster_text(cluster, o, folder)},
                                  {std::string{profile_file}, to_toml(o.hardware)}};
  const auto refuse = [](const error& why) {
    return fail(ec::invalid_argument, "the server cannot run this plan: " + why.detail);
  };
  const auto spec = launch::read_cluster(files[0].text, files[0].name);
  if (!spec) return refuse(spec.error());
  const auto plan = launch::plan_launch(*spec, "planned", folder);
  if (!plan) return refuse(plan.error());
  return files;
}

result<void> write_files(const std::vector<cluster_file>& files, const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (failed) return fail(ec::io_error, "cannot make the folder " + folder + ": " + failed.message());
  for (const auto& f : files) {
    const auto path = fs::path{folder} / f.name;
    std::ofstream out{path, std::ios::binary};
    out << f.text;
    out.close();
    if (!out) return fail(ec::io_error, "cannot write " + path.string() + ": " + std::strerror(errno));
  }
  return {};
}

}  // namespace mooncaf::sim
