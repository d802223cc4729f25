#include "config/options.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>
#include <tuple>

#include "config/command_line.hpp"
#include "config/declaration.hpp"
#include "config/defaults.hpp"
#include "config/device_name.hpp"
#include "config/toml.hpp"
#include "config/value.hpp"
#include "runtime/base/host_place.hpp"

namespace mooncaf {

namespace {

using config::declaration;

/// A configuration is a page of text; more is a mistake, such as naming the model file.
constexpr std::size_t config_bytes_max = std::size_t{1} << 20;

std::string_view type_name(config::toml_type type) {
  switch (type) {
    case config::toml_type::string:
      return "a string in quotes";
    case config::toml_type::number:
      return "a number";
    case config::toml_type::boolean:
      return "true or false";
  }
  return "";
}

std::string with_range(const std::string& what, const declaration& d) {
  return d.allowed.empty() ? what : what + "; allowed: " + d.allowed;
}

/// Gathers values from file and command line.
class collector {
 public:
  result<void> read_config(std::string_view text, std::string_view name) {
    const auto entries = config::parse_toml(text, name);
    if (!entries) return fail(entries.error());
    for (const auto& entry : *entries) {
      const std::string where = std::string{name} + ":" + std::to_string(entry.line) + ": ";
      const std::string full = entry.section.empty() ? entry.key : entry.section + "." + entry.key;
      const declaration* d = config::find_key(entry.section, entry.key);
      if (!d) return fail(ec::invalid_argument, where + "unknown key " + full + hint_for_key(entry));
      if (d->type != entry.type)
        return fail(ec::invalid_argument, where + full + " must be " + std::string{type_name(d->type)} +
                                              ", not " + std::string{type_name(entry.type)} +
                                              (d->allowed.empty() ? "" : "; allowed: " + d->allowed));
      if (auto ok = set(*d, entry.value, where + full + ": "); !ok) return ok;
    }
    return {};
  }

  result<void> set(const declaration& d, std::string_view text, const std::string& where) {
    if (const auto wrong = d.set(values, text))
      return fail(ec::invalid_argument, with_range(where + *wrong, d));
    given_.insert(d.name);
    return {};
  }
  bool given(const std::string& name) const { return given_.contains(name); }

  options values = default_options();

 private:
  static std::string hint_for_key(const config::toml_entry& entry) {
    std::vector<std::string> names;
    for (const auto& d : config::declarations()) {
      if (d.key == entry.key || d.name == entry.key) return "; did you mean " + d.toml_name() + "?";
      names.push_back(d.toml_name());
    }
    const std::string near = config::nearest(entry.section + "." + entry.key, names);
    return near.empty() ? "; --help lists the options" : "; did you mean " + near + "?";
  }

  std::set<std::string> given_;
};

/// The command line before any value is looked at: the file's values come first.
struct server_line {
  struct setting {
    const declaration* option;
    std::string value;
  };
  std::vector<setting> settings;
  std::optional<std::string> config_path;
  bool help = false, version = false, print_config = false;
  cli::help_form form = cli::help_form::text;
  std::string words;  ///< of the command line, for a shell
};

result<server_line> read_line(std::span<const std::string> args) {
  server_line said;
  const auto mark = [](bool& flag) {
    return [&flag](std::string_view) -> std::optional<std::string> {
      flag = true;
      return std::nullopt;
    };
  };
  cli::command_line line;
  line.arguments = {cli::argument{"version", "", "", mark(said.version)},
                    cli::argument{"config", "FILE", "",
                                  [&](std::string_view path) -> std::optional<std::string> {
                                    said.config_path = std::string{path};
                                    return std::nullopt;
                                  }},
                    cli::argument{"print-config", "", "", mark(said.print_config)}};
  for (const auto& d : config::declarations()) {
    const auto keep = [&](std::string_view value) -> std::optional<std::string> {
      said.settings.push_back({&d, std::string{value}});
      return std::nullopt;
    };
    line.arguments.push_back({d.name, d.placeholder, "", keep, d.allowed, d.placeholder.empty()});
  }
  if (!args.empty() && !args[0].starts_with("-")) args = args.subspan(1);  // the caller's subcommand
  const auto read = cli::parse(line, args);
  if (!read) return fail(read.error());
  said.help = *read == cli::parsed::help;
  said.form = line.form;
  if (said.help && said.form == cli::help_form::words) {
    std::ostringstream all;
    cli::print_help(line, all);
    said.words = all.str();
  }
  for (const auto& word : line.words) {
    if (word != "-V")
      return fail(ec::invalid_argument,
                  "unexpected argument \"" + word + "\"; options start with --, see --help");
    said.version = true;
  }
  return said;
}

result<std::string> read_file(const std::string& path) {
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  std::string text(config_bytes_max + 1, '\0');
  if (in) in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!in.is_open() || in.bad())
    return fail(ec::io_error,
                "--config " + path + ": " + (errno != 0 ? std::strerror(errno) : "cannot be read"));
  text.resize(static_cast<std::size_t>(in.gcount()));
  if (text.size() > config_bytes_max)
    return fail(ec::invalid_argument, "--config " + path + ": larger than 1 MiB, so no configuration");
  return text;
}

/// Defaults and checks that depend on more than one option.
result<void> settle(collector& c) {
  options& o = c.values;
  // Only the conductor is looked for at a known port; several other processes may share its host.
  if (!o.cluster.conductor && !c.given("listen")) o.cluster.listen.port = 0;
  if (!o.cluster.conductor && !c.given("metrics-listen")) o.metrics.listen.port = 0;
  if (o.prefill.max_batch_tokens < o.prefill.chunk_tokens) {
    if (c.given("max-batch-tokens"))
      return fail(ec::invalid_argument, "max-batch-tokens: " + std::to_string(o.prefill.max_batch_tokens) +
                                            " is below chunk-tokens, " +
                                            std::to_string(o.prefill.chunk_tokens));
    o.prefill.max_batch_tokens = o.prefill.chunk_tokens;
  }
  if (!o.gateway.api_key.empty() && !o.gateway.api_key_file.empty())
    return fail(ec::invalid_argument, "api-key and api-key-file are both given; choose one");
  return {};
}

result<parsed_options> finish(const server_line& line, collector& c) {
  for (const auto& s : line.settings)
    if (auto ok = c.set(*s.option, s.value, "--" + s.option->name + ": "); !ok) return fail(ok.error());
  if (auto ok = settle(c); !ok) return fail(ok.error());
  parsed_options parsed;
  parsed.values = c.values;
  if (line.print_config) {
    parsed.action = option_action::print_text;
    parsed.text = to_toml(c.values);
  }
  return parsed;
}

/// --help and --version answer whatever else is on the line.
std::optional<parsed_options> answer_at_once(const server_line& line) {
  parsed_options parsed;
  parsed.values = default_options();
  if (line.help) {
    parsed.action = option_action::print_text;
    parsed.text = line.form == cli::help_form::man     ? manual_text()
                  : line.form == cli::help_form::words ? line.words
                                                       : help_text();
    return parsed;
  }
  if (!line.version) return std::nullopt;
  parsed.action = option_action::show_version;
  return parsed;
}

}  // namespace

result<parsed_options> parse_options(std::span<const std::string> args) {
  const auto line = read_line(args);
  if (!line) return fail(line.error());
  if (const auto answer = answer_at_once(*line)) return *answer;
  collector c;
  if (line->config_path) {
    const auto text = read_file(*line->config_path);
    if (!text) return fail(text.error());
    if (auto ok = c.read_config(*text, *line->config_path); !ok) return fail(ok.error());
  }
  return finish(*line, c);
}

result<parsed_options> parse_options(int argc, const char* const* argv) {
  const std::vector<std::string> args(argv + std::min(argc, 1), argv + argc);
  return parse_options(args);
}

result<parsed_options> parse_options(std::span<const std::string> args, std::string_view config_text,
                                     std::string_view config_name) {
  const auto line = read_line(args);
  if (!line) return fail(line.error());
  if (const auto answer = answer_at_once(*line)) return *answer;
  collector c;
  if (auto ok = c.read_config(config_text, config_name); !ok) return fail(ok.error());
  return finish(*line, c);
}

bool serves_model(const options& o) { return !o.model.path.empty() || o.model.device.starts_with("model:"); }

std::optional<host_port> directory_listen(const options& o) {
  if (!o.cluster.conductor) return std::nullopt;
  if (o.store.listen) return o.store.listen;
  if (serves_model(o)) return std::nullopt;
  return host_port{o.cluster.listen.host, defaults::store::port};
}

std::optional<std::uint32_t> conductor_place(const cluster_options& c) {
  if (!c.conductor) return std::nullopt;
  if (c.join.empty()) return 0;
  const host_port own{c.advertise.empty() ? c.listen.host : c.advertise, c.listen.port};
  const auto at = std::ranges::find(c.join, own);
  if (at == c.join.end()) return std::nullopt;
  return static_cast<std::uint32_t>(at - c.join.begin());
}

result<void> check_location(const store_options& o) {
  if (is_location(o.location)) return {};
  return fail(ec::invalid_argument,
              "store-location: '" + o.location +
                  "' is not like row2/rack7: parts of up to 64 letters, digits, '-', '_' and "
                  "'.', with '/' between them, the widest first");
}

result<void> check_scaling(const scheduler_options& s, serving_mode mode) {
  const bool both = s.elastic_roles || mode != serving_mode::disaggregated;
  const bool apart = s.scale_prefill.scales() || s.scale_decode.scales();
  if (apart && both)
    return fail(
        ec::invalid_argument,
        "scale-prefill and scale-decode: nodes do both with mode coupled and with elastic-roles; give "
        "--scale-nodes");
  if (s.scale_nodes.scales() && !both)
    return fail(ec::invalid_argument,
                "scale-nodes: nodes that do both are there with mode coupled or elastic-roles alone; give "
                "--scale-prefill and --scale-decode");
  if (!s.scale_command.empty() && s.scale_command.find_first_not_of(" \t") == std::string::npos)
    return fail(ec::invalid_argument, "scale-command: there are blanks alone; give a program");
  if (!s.scale_command.empty() && !apart && !s.scale_nodes.scales())
    return fail(
        ec::invalid_argument,
        "scale-command: it would never be asked; give --scale-prefill, --scale-decode or --scale-nodes");
  return {};
}

/// Memory is shared only where a node keeps objects and blocks, and no device holds its pages fast.
static result<void> check_shared(const options& o) {
  constexpr std::uint64_t least = 4 * MiB;
  const auto& c = o.cluster;
  const auto refused = [](const std::string& why) {
    return fail(ec::invalid_argument, "store-dram-shared: " + why);
  };
  if (o.store.shared_bytes == 0) return {};
  if (o.store.shared_bytes < least)
    return refused("at least 4MiB, since it changes hands 2 MiB at a time; 0B: none");
  if (!serves_model(o) || !c.cache || o.store.dram_bytes == 0)
    return refused(
        "for nodes that keep objects and a model's KV blocks; give --model, the role cache and --store-dram "
        "SIZE");
  if ((c.prefill || c.decode) && (o.model.device == "linked" || config::cuda_ordinal(o.model.device)))
    return refused(
        "a device keeps the pages of memory that it copies from and to, so none could change hands; give "
        "--device cpu, "
        "or share memory on a node of the role cache alone");
  return {};
}

result<void> check_watermarks(const store_options& o) {
  if (o.low_watermark <= o.high_watermark) return {};
  return fail(ec::invalid_argument,
              "store-low-watermark: objects are evicted from the high watermark down to the low one, and " +
                  config::format_real(o.low_watermark) + " is above " +
                  config::format_real(o.high_watermark));
}

/// What a pipeline group does not do.
result<void> check_pipeline(const options& o) {
  const auto& m = o.model;
  const bool ranks = !o.cluster.ranks.empty();
  if (m.stage != 0 || m.tensor_rank != 0)
    return fail(ec::invalid_argument, std::string{m.stage != 0 ? "stage" : "tensor-rank"} +
                                          ": a rank's number; give --role rank, or leave it out");
  if (m.pipeline == 1 && !ranks) return {};
  const auto refused = [&](const std::string& why) {
    return fail(ec::invalid_argument, (ranks ? "ranks: " : "pipeline: ") + why);
  };
  if (ranks && m.pipeline > 1)
    return refused("they are all of the group but this process; leave out --pipeline");
  if (ranks && !o.cluster.prefill && !o.cluster.decode)
    return refused("they compute for the roles prefill and decode, of which this process has none");
  if (ranks && m.device.starts_with("model:"))
    return refused("a modelled group is one process; give --pipeline instead");
  if (o.cluster.decode && m.device.starts_with("model:"))
    return refused(
        "a modelled decode instance is one machine; leave decode out of --roles, and give it a process of "
        "its own");
  if (o.cluster.mode == serving_mode::coupled)
    return refused("a coupled instance computes one step at a time; give --mode disaggregated");
  if (!m.lora_modules.empty()) return refused("its stages take no adapters; leave out --lora-modules");
  if (m.device_write_policy != write_policy::write_through)
    return refused("a block lies on several devices, so none stays there; leave out --device-write-policy");
  if (m.l2_layout != page_order::page_first_direct)
    return refused("its stages write blocks layer by layer; leave out --l2-layout");
  return {};
}

/// What a tensor group does not do.
result<void> check_tensor_group(const options& o) {
  const auto& m = o.model;
  if (m.expert != 1 && m.expert != m.tensor)
    return fail(ec::invalid_argument,
                "expert: the ranks that divide experts are those of a stage; give 1, or " +
                    std::to_string(m.tensor) + " as --tensor");
  if (m.tensor == 1) return {};
  const auto refused = [](const std::string& why) { return fail(ec::invalid_argument, "tensor: " + why); };
  if (m.device.starts_with("model:"))
    return refused("a modelled device is a machine with all of its GPUs; leave out --device");
  if (m.device != "auto" && m.device != "host") {
    if (!o.cluster.ranks.empty())
      return refused("ranks in other processes compute in the host's memory; leave out --device");
    if (m.device_write_policy != write_policy::write_through)
      return refused("a block lies on several devices, so none stays there; leave out --device-write-policy");
    if (m.l2_layout != page_order::page_first_direct)
      return refused("its ranks write their heads of blocks layer by layer; leave out --l2-layout");
  }
  if (!m.lora_modules.empty()) return refused("its ranks take no adapters; leave out --lora-modules");
  if (const auto all = o.cluster.ranks.size() + 1; all > 1 && all % m.tensor != 0)
    return refused(std::to_string(all) + " processes, of --ranks and this one, are no stages of " +
                   std::to_string(m.tensor) + " ranks");
  return {};
}

/// Engines of another make compute everything, or nothing.
result<void> check_engine(const options& o) {
  const auto& c = o.cluster;
  const auto& e = o.engine;
  const auto refused = [](const std::string& what) { return fail(ec::invalid_argument, what); };
  const bool engines = c.mode == serving_mode::engines;
  if (!c.engine &&
      (e.at || !e.events.empty() || !e.replay.empty() || !e.model.empty() || !e.key_file.empty()))
    return refused("engine-at: it is for a process with the role engine; give --role engine");
  if (c.engine && !engines)
    return refused("role: an engine is one of a cluster of engines; give --mode engines, to all processes");
  if (!engines) return {};
  if (c.prefill || c.decode)
    return refused(
        "mode: the engines compute; give --role conductor,gateway here, and --role engine for each of them");
  if (c.cache && serves_model(o))
    return refused("mode: KV stays with the engines, so no cache can take it; leave the role cache out");
  if (!c.engine) return {};
  if (!e.at)
    return refused("engine-at: needed for the role engine; give --engine-at HOST:PORT of its HTTP server");
  if (!serves_model(o))
    return refused(
        "model: needed for the role engine, for its vocabulary; give --model, the same as the gateways'");
  const auto is_address = [](const std::string& text) {
    return text.empty() || text.starts_with("tcp://") || text.starts_with("ipc://");
  };
  if (!is_address(e.events))
    return refused("engine-events: '" + e.events + "' is no address; give tcp://HOST:PORT or ipc://FILE");
  if (!is_address(e.replay))
    return refused("engine-replay: '" + e.replay + "' is no address; give tcp://HOST:PORT or ipc://FILE");
  if (!e.replay.empty() && e.events.empty())
    return refused("engine-replay: it is asked for news that were missed; give --engine-events, too");
  return {};
}

/// A stage of a group, or a share of one, in another process.
result<void> check_rank(const options& o) {
  const auto& m = o.model;
  const auto refused = [](const std::string& what) { return fail(ec::invalid_argument, what); };
  if (m.path.empty())
    return refused("model: needed for the role rank; give --model, the same as the leader's");
  if (m.pipeline * m.tensor < 2)
    return refused("role: a rank is one of several; give --pipeline or --tensor, as its leader's group has");
  const auto one_of = [](std::uint32_t number, std::uint32_t all) {
    return all == 1 ? number <= 1 : number >= 1 && number <= all;
  };
  if (!one_of(m.stage, m.pipeline))
    return refused("stage: a rank has one of the stages 1 to " + std::to_string(m.pipeline) +
                   " of --pipeline " + std::to_string(m.pipeline) + "; give --stage");
  if (!one_of(m.tensor_rank, m.tensor))
    return refused("tensor-rank: a rank is one of the ranks 1 to " + std::to_string(m.tensor) +
                   " of --tensor " + std::to_string(m.tensor) + "; give --tensor-rank");
  if (std::max(m.stage, 1u) == m.pipeline && m.tensor_rank <= 1)
    return refused(m.tensor == 1 ? "stage: the last is the leader's; give one before it"
                                 : "tensor-rank: the first of the last stage is the leader; give another");
  if (m.device != "auto" && m.device != "host")
    return refused("device: a rank computes in the host's memory; leave out --device");
  if (!m.lora_modules.empty()) return refused("lora-modules: ranks take no adapters; leave them out");
  if (!o.cluster.ranks.empty()) return refused("ranks: a rank has none; its leader names all of them");
  return {};
}

result<void> check_serving(const options& o) {
  const auto& c = o.cluster;
  if (c.rank) return check_rank(o);
  const bool modelled = o.model.device.starts_with("model:");
  if (!modelled && o.model.time_scale != 1)
    return fail(ec::invalid_argument,
                "time-scale: only a modelled device's time can be scaled; give --device "
                "model:PROFILE");
  const auto& usual = default_options().model;
  const bool linked = o.model.device == "linked";
  if (!linked && !config::cuda_ordinal(o.model.device) && o.model.device_kv_bytes != usual.device_kv_bytes)
    return fail(ec::invalid_argument,
                "device-kv: only a device with memory of its own has it; give "
                "--device cuda, or --device linked");
  if (!linked && !config::cuda_ordinal(o.model.device) &&
      o.model.device_write_policy != usual.device_write_policy)
    return fail(ec::invalid_argument,
                "device-write-policy: a device that computes in the host's "
                "memory has nothing to write there; give "
                "--device cuda, or --device linked");
  // A process that stores blocks or names them has to know how they lie, too.
  if ((c.prefill || c.decode) && !linked && !config::cuda_ordinal(o.model.device) &&
      o.model.l2_layout != usual.l2_layout)
    return fail(ec::invalid_argument,
                "l2-layout: a device that computes in the host's memory has KV in its own order there; give "
                "--device cuda, or --device linked");
  const auto of_link = [](const model_options& m) {
    return std::tuple{m.link_bytes_per_s, m.link_latency, m.copy_engines};
  };
  if (!linked && of_link(o.model) != of_link(usual))
    return fail(ec::invalid_argument,
                "link-bandwidth, link-latency and copy-engines: only a linked device has them; give "
                "--device linked");
  if (!serves_model(o) && (c.prefill || c.decode || c.gateway))
    return fail(ec::invalid_argument,
                "model: needed for the roles prefill, decode and gateway; give --model FILE.gguf or --model "
                "dummy:NAME");
  if (o.scheduler.elastic_roles && c.mode != serving_mode::disaggregated)
    return fail(ec::invalid_argument,
                "elastic-roles: a coupled node has both roles at once; give --mode disaggregated");
  if (const auto fit = check_engine(o); !fit) return fit;
  if (const auto fit = check_pipeline(o); !fit) return fit;
  if (const auto fit = check_tensor_group(o); !fit) return fit;
  if (const auto fit = check_scaling(o.scheduler, c.mode); !fit) return fit;
  if (!c.conductor && c.join.empty())
    return fail(ec::invalid_argument,
                "join: needed without the role conductor; give --join HOST:PORT of the conductor");
  if (c.conductor && !c.join.empty() && !conductor_place(c))
    return fail(ec::invalid_argument,
                "join: a process with a conductor names all conductors, and its own address (advertise, else "
                "listen) is not among them");
  if (!serves_model(o) && !c.conductor && o.store.dram_bytes == 0)
    return fail(ec::invalid_argument,
                "store-dram: without a model a cache holds objects alone, and mounts none as it is; give "
                "--store-dram "
                "SIZE, or --model");
  if (const auto fit = check_shared(o); !fit) return fit;
  if (!o.store.ssd_path.empty() && (!c.cache || o.store.dram_bytes == 0))
    return fail(ec::invalid_argument,
                "store-ssd-path: an SSD is mounted beside memory; give --store-dram SIZE and the role cache");
  if (!o.store.ssd_path.empty() && o.store.ssd_path == o.cache.ssd_path)
    return fail(ec::invalid_argument,
                "store-ssd-path: objects and KV blocks need a folder each; ssd-path has this one");
  if (o.store.listen && !c.conductor)
    return fail(ec::invalid_argument,
                "store-listen: the conductor carries the directory; a cache finds it through join");
  if (const auto fit = check_watermarks(o.store); !fit) return fit;
  if (const auto fit = check_location(o.store); !fit) return fit;
  const auto directory = directory_listen(o);
  const bool alone = config::is_loopback(c.listen.host) &&
                     (!directory || config::is_loopback(directory->host)) &&
                     config::is_loopback(o.transport.data_listen.host) &&
                     std::ranges::all_of(c.join, [](const auto& at) { return config::is_loopback(at.host); });
  if (!alone && c.cluster_secret_file.empty())
    return fail(
        ec::invalid_argument,
        "cluster-secret-file: needed once listen, data-listen, store-listen or join is not a loopback "
        "address; all processes of the cluster share the file's secret");
  if (!c.join.empty() && !o.transport.tcp && !o.transport.shm && !o.rdma.enabled)
    return fail(ec::invalid_argument,
                "tcp, shm and rdma are all off, so no KV could reach another process; leave one on");
  return {};
}

}  // namespace mooncaf
