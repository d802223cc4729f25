#pragma once
// Every option of a mooncaf process as plain values. Declared once each (config/declarations.cpp), read from
// the command line and from TOML, checked, and put here. No other folder reads configuration.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/host_port.hpp"
#include "runtime/base/instance_range.hpp"
#include "runtime/base/kv_layout.hpp"
#include "runtime/base/log_level.hpp"
#include "runtime/base/result.hpp"
#include "runtime/reasoning/reasoning_form.hpp"
#include "runtime/sched/admission_policy.hpp"
#include "runtime/sched/placement_policy.hpp"
#include "runtime/sched/prefetch_policy.hpp"
#include "runtime/tools/tool_format.hpp"
#include "storage/eviction.hpp"
#include "storage/write_policy.hpp"

namespace mooncaf {

enum class serving_mode : std::uint8_t {
  disaggregated,  ///< prefill and decode on instances of their own
  coupled,        ///< one worker does both: the baseline to compare with
  engines,        ///< engines of another make do both, each behind a process with the role engine
};
/// When KV leaves for a decode node: each layer as soon as it is computed, or everything after the prompt.
enum class kv_transfer_choice : std::uint8_t { layerwise, after_prefill };
enum class log_format_choice : std::uint8_t { text, json };

/// The process as a member of the cluster.
struct cluster_options {
  bool conductor = true;  ///< roles of this process, from `role`
  bool prefill = true;
  bool decode = true;
  bool cache = true;
  bool gateway = true;
  bool engine = false;                    ///< in front of an engine of another make; not of `all`
  bool rank = false;                      ///< nothing of these: a stage of somebody's group, or a share of it
  std::vector<host_port> ranks;           ///< the group's other processes
  std::chrono::nanoseconds ranks_wait{};  ///< for ranks that do not answer yet
  std::vector<host_port> join;      ///< all conductors, oldest first; empty: this process has the only one
  host_port listen;                 ///< control connections
  std::string advertise;            ///< host name or address that others reach us by; empty: that of `listen`
  std::string cluster_secret_file;  ///< empty: that of the user, made at first start
  std::string name;                 ///< for logs, metrics and /cluster; empty: made from host and process id
  serving_mode mode = serving_mode::disaggregated;
  std::chrono::nanoseconds leader_timeout{};  ///< of silence, then another conductor takes over
  std::chrono::nanoseconds
      drain_timeout{};             ///< for what runs, once the process was told to stop; 0: it is ended
  std::uint32_t wire_version = 0;  ///< of messages between processes: the newest that it knows
};

struct model_options {
  std::string path;                  ///< a GGUF file or "dummy:NAME"
  std::string served_model_name;     ///< empty: made from the path
  std::string chat_template;         ///< a file, or auto, chatml, llama3, none
  std::string generation_config;     ///< a file, auto or none: how tokens are drawn where requests do not say
  std::string lora_modules;          ///< "NAME=FOLDER,…"
  std::uint32_t context_length = 0;  ///< tokens; 0: the model's own
  std::uint32_t threads = 0;         ///< 0: one per core
  std::chrono::nanoseconds timings_age{};  ///< measured passes of an earlier start that are not older do
  std::uint32_t pipeline = 1;     ///< stages of this process's instances, each with a part of the layers
  std::uint32_t tensor = 1;       ///< ranks of each stage, which share its layers
  std::uint32_t expert = 1;       ///< … and divide its experts among them, if it is not 1
  std::uint32_t stage = 0;        ///< of a rank: its own, from 1; 0: the only one
  std::uint32_t tensor_rank = 0;  ///< … and which of the stage's ranks it is, from 1; 0: the only one
  mooncaf::kv_dtype kv_dtype = mooncaf::kv_dtype::f16;
  std::uint32_t block_tokens = 0;
  /// auto, host, linked, cuda, or model:PROFILE: computes nothing, takes as long as the profile says
  std::string device;
  double time_scale = 1;  ///< of a modelled device: a second here stands for so many of the profile's
  std::uint64_t device_kv_bytes = 0;  ///< linked, cuda: KV in the device's memory, of all instances
  /// linked, cuda: when KV comes to the host's memory
  write_policy device_write_policy = write_policy::write_through;
  page_order l2_layout = page_order::page_first_direct;  ///< linked, cuda
  std::uint64_t link_bytes_per_s = 0;                    ///< linked: each way
  std::chrono::nanoseconds link_latency{};               ///< linked: of a copy, beyond its bytes
  std::uint32_t copy_engines = 0;                        ///< linked
};

/// The engine of another make that a process with the role engine stands for.
struct engine_options {
  std::optional<host_port> at;  ///< its HTTP server
  std::string model;            ///< its name for the model; empty: the first that it lists
  std::string key_file;         ///< with what it asks for as a bearer token; empty: nothing
  std::string events;           ///< where it publishes news of its cache, as ZeroMQ writes it; empty: nowhere
  std::string replay;           ///< where it tells them again; empty: nowhere
};

struct prefill_options {
  std::uint32_t instances = 0;
  std::uint32_t chunk_tokens = 0;
  std::uint32_t max_batch_tokens = 0;  ///< tokens of several requests' chunks computed together
  std::uint32_t max_queue = 0;         ///< requests waiting per instance
  kv_transfer_choice kv_transfer = kv_transfer_choice::layerwise;
  prefetch_mode prefetch = prefetch_mode::timeout;
  std::chrono::nanoseconds prefetch_timeout_base{};
  std::chrono::nanoseconds prefetch_timeout_per_ki_token{};  ///< for every 1,024 tokens that are loaded
  std::uint32_t prefetch_threshold = 0;                      ///< tokens
};

struct decode_options {
  std::uint32_t instances = 0;
  std::uint32_t max_batch = 0;  ///< requests per step
  std::uint32_t max_queue = 0;  ///< requests waiting per instance
};

struct cache_options {
  std::uint64_t dram_bytes = 0;
  eviction_policy eviction = eviction_policy::lru;
  std::string ssd_path;  ///< empty: no SSD tier
  std::uint64_t ssd_bytes = 0;
  mooncaf::write_policy write_policy = mooncaf::write_policy::write_back;
  std::uint32_t selective_hits = 0;  ///< write_through_selective: written after this many hits
  bool direct_io = true;
  bool ssd_pack = true;                    ///< of both SSDs, as direct_io
  std::chrono::nanoseconds flush_limit{};  ///< of writing memory to SSD before a planned stop
  std::chrono::nanoseconds lease_ttl{};
  double keep_share = 0;         ///< of `dram_bytes`, for prefixes that clients want kept; 0: none are
  double keep_tenant_share = 0;  ///< … of it, for each tenant
};

/// The object store for other engines (storage/objects), as the roles conductor and cache carry it.
struct store_options {
  std::optional<host_port> listen;  ///< conductor: the directory; see `directory_listen`
  std::uint64_t dram_bytes = 0;     ///< cache: mounted in the conductor's store, if it has one; 0: nothing
  std::uint64_t shared_bytes = 0;   ///< cache: beside both, for objects and KV blocks, whichever need it more
  std::string ssd_path;             ///< cache: mounted beside it; empty: none
  std::uint64_t ssd_bytes = 0;
  mooncaf::write_policy write_policy = mooncaf::write_policy::write_back;
  std::uint32_t selective_hits = 0;  ///< write_through_selective: written after this many uses
  std::uint32_t promote_hits = 0;    ///< an object read from SSD stays in memory after this many uses
  std::uint16_t endpoint_port = 0;   ///< cache: of the segment's endpoint for tenants; 0: any free one
  std::string location;              ///< cache: of this host, such as "row2/rack7"; empty: not known
  // conductor: its directory
  std::chrono::nanoseconds lease{};     ///< a look protects an object for so long
  std::chrono::nanoseconds recovery{};  ///< it waits for the first segment that an earlier directory knew
  eviction_policy eviction = eviction_policy::lru;
  double high_watermark = 0, low_watermark = 0;  ///< shares of the memory
  double hot_reads_per_s = 0;                    ///< of an object that gets another replica; 0: none does
  std::uint32_t hot_replicas = 0;                ///< that it has at most
  std::string tenants_file;                      ///< empty: no tenants
  std::string state_folder;                      ///< empty: beside the user's secret
  std::uint32_t shards = 0;                      ///< among which the objects are divided, each with a thread
  std::uint32_t protocol =
      0;  ///< conductor and cache: the newest version of the store's protocol that it knows
};

struct scheduler_options {
  placement_policy policy = placement_policy::kvcache_centric;
  admission_policy admission = admission_policy::queue;
  std::uint32_t max_queued = 0;  ///< requests that wait for a place
  std::chrono::nanoseconds ttft_slo{};
  std::chrono::nanoseconds tbt_slo{};
  double balancing_threshold = 0;               ///< > 1
  std::chrono::nanoseconds predicted_decode{};  ///< t_d of predictive admission
  std::uint64_t seed = 0;
  std::string journal;              ///< file for the conductor's decisions; empty: none
  std::uint64_t journal_limit = 0;  ///< bytes
  double hot_copy_share = 0;   ///< of a node's memory that copies of hot blocks may take; 0: none are made
  bool elastic_roles = false;  ///< nodes with both kinds of worker play one role at a time, by load
  std::chrono::nanoseconds elastic_hold{};  ///< for which one role must have been the fuller one
  std::uint32_t elastic_budget = 0;         ///< changes in an hour; 0: any number
  instance_range scale_prefill, scale_decode, scale_nodes;  ///< within which nodes are asked for, by load
  double target_load = 0;                                   ///< of an instance, that scaling aims at
  std::chrono::nanoseconds down_after{};                    ///< fewer only if no more were needed for so long
  std::chrono::nanoseconds scale_every{};
  std::string
      scale_command;  ///< program and its first arguments, with spaces between them; empty: nobody is told
};

struct transport_options {
  host_port data_listen;
  bool tcp = true;
  bool shm = true;
  std::uint32_t tcp_streams = 0;      ///< per peer
  std::uint64_t tcp_send_buffer = 0;  ///< per connection
  std::uint64_t slice_bytes = 0;
  bool checksums = true;
};

struct rdma_config {
  bool enabled = true;    ///< without a device there is no RDMA path, whatever this says
  std::string devices;    ///< comma-separated, "mlx5_0" or "mlx5_0:1"; empty: all
  std::string gid_index;  ///< of every port; empty: chosen by type and address
  std::uint64_t slice_bytes = 0;
  std::uint32_t queue_depth = 0;   ///< orders under way per queue pair
  std::uint32_t signal_every = 0;  ///< one completion for this many orders
  std::uint32_t max_links = 0;     ///< peers with queue pairs at once
  std::chrono::nanoseconds poll{};
  std::chrono::nanoseconds ack_timeout{};
  std::uint32_t retry_count = 0;
  std::chrono::nanoseconds rail_retry{};
  std::uint32_t traffic_class = 0;
  std::uint32_t service_level = 0;
  std::string topology;  ///< "0=mlx5_0,mlx5_1;1=mlx5_2"; empty: as sysfs tells it
};

/// The form in which a model writes calls of tools, or marks its reasoning before an answer.
template <class Form>
struct form_choice {
  bool automatic = true;     ///< the one that its chat template teaches
  std::optional<Form> form;  ///< else: this one, or none
  friend bool operator==(const form_choice&, const form_choice&) = default;
};

struct gateway_options {
  host_port http;
  std::string http_handover;         ///< socket over which a successor gets `http`'s; empty: none
  std::string api_key;               ///< empty: no key needed
  std::string api_key_file;          ///< its first line is the key; empty: none
  std::string api_keys_file;         ///< several keys, each with a tenant and its limits; empty: none
  std::string tls_certificate_file;  ///< PEM, with the chain behind it; empty: no TLS
  std::string tls_key_file;          ///< PEM
  std::string allowed_origins;       ///< web pages that may use the API: see runtime/api/web_guard.hpp
  std::string allowed_hosts;         ///< names that the server may be asked by: see there
  std::string model_aliases;         ///< more names of the model, with commas; "*": any
  bool parse_special = true;         ///< special tokens in prompts of completions are tokens
  /// The place of tools if the chat template has none for them.
  tool_place tools = tool_place::general;
  form_choice<tool_format> tool_call_parser;
  form_choice<reasoning_form> reasoning_parser;
  std::uint32_t max_connections = 0;
  std::uint32_t max_requests = 0;  ///< running and waiting
  std::uint64_t max_body_bytes = 0;
  std::chrono::nanoseconds request_timeout{};
  bool page = true;  ///< serve the live page at /
};

struct metrics_options {
  bool enabled = true;
  host_port listen;
  mooncaf::log_level log_level = mooncaf::log_level::info;
  log_format_choice log_format = log_format_choice::text;
  std::optional<host_port> otlp;  ///< OpenTelemetry collector that gets a trace of requests
  double otlp_share = 0;          ///< of the requests that bring no trace of their client's
};

/// Everything. A default-constructed one is not the defaults: `default_options()` is.
struct options {
  cluster_options cluster;
  model_options model;
  engine_options engine;
  prefill_options prefill;
  decode_options decode;
  cache_options cache;
  store_options store;
  scheduler_options scheduler;
  transport_options transport;
  rdma_config rdma;
  gateway_options gateway;
  metrics_options metrics;
};

/// The action that the command line asks for.
enum class option_action : std::uint8_t {
  run,           ///< go on
  print_text,    ///< print `parsed_options::text` to standard output and exit 0 (--help, --print-config)
  show_version,  ///< --version: the caller knows the parts of the build
};

struct parsed_options {
  option_action action = option_action::run;
  options values;
  std::string text;  ///< for `print_text`
};

/// The values that hold when nothing is given.
options default_options();

/// Reads options from the command line and, if `--config FILE` is among them, from that file first; the
/// command line wins. A leading subcommand word (an argument before the first one that starts with "-") is
/// the caller's: drop it.
/// @param args  without the program's name.
/// @error `ec::invalid_argument` names the option, the value given, and the range or the choices; for an
/// unknown option or key also the nearest known one. `ec::io_error` if the file cannot be read.
result<parsed_options> parse_options(std::span<const std::string> args);
/// The same for main(): argv[0] is the program.
result<parsed_options> parse_options(int argc, const char* const* argv);

/// As `parse_options`, with the text of the configuration file at hand instead of on disk.
/// @param config_name  stands for the file in error texts.
result<parsed_options> parse_options(std::span<const std::string> args, std::string_view config_text,
                                     std::string_view config_name);

/// Whether there is a model. Without one a process takes part in a cluster for the object store alone.
bool serves_model(const options& values);
/// Place of this process's conductor in the list of all, from 0; nothing if it has none, or is not in the list.
std::optional<std::uint32_t> conductor_place(const cluster_options& values);

/// Where this process's directory of objects listens, if it carries one: a conductor does where it is told
/// to, and without a model, as it would have nothing else to do, beside its control port.
std::optional<host_port> directory_listen(const options& values);

/// Whether the store's watermarks can be kept. @error `ec::invalid_argument` names the option
result<void> check_watermarks(const store_options& values);
/// @error `ec::invalid_argument` where `location` is none.
result<void> check_location(const store_options& values);

/// Demands on a process that is about to serve, on top of `parse_options`: a model for the roles that compute
/// or tokenize, a conductor to join, a cluster secret once others can reach us.
/// @error `ec::invalid_argument` names the option to set.
result<void> check_serving(const options& values);

/// The effective options as TOML that `parse_options` reads back to the same values.
std::string to_toml(const options& values);
/// The commented example file: every option with its meaning, unit, default and range.
std::string example_toml();
/// Help grouped by section, with examples.
std::string help_text();
/// … as a manual page.
std::string manual_text();

}  // namespace mooncaf
