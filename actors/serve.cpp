#include "actors/serve.hpp"

#include <unistd.h>

#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>
#include <cstdio>
#include <random>

#include "actors/api_server.hpp"
#include "actors/cache_shard.hpp"
#include "actors/cluster/link.hpp"
#include "actors/cluster/shutdown.hpp"
#include "actors/cluster/system.hpp"
#include "actors/conductor.hpp"
#include "actors/decode_worker.hpp"
#include "actors/executor.hpp"
#include "actors/gateway.hpp"
#include "actors/landing_board.hpp"
#include "actors/log.hpp"
#include "actors/messenger.hpp"
#include "actors/metrics/metrics_endpoint.hpp"
#include "actors/node.hpp"
#include "actors/policy_choices.hpp"
#include "actors/pool_keeper.hpp"
#include "actors/prefill_worker.hpp"
#include "actors/rdma_setup.hpp"
#include "actors/served_model.hpp"
#include "gpu/host/host_device.hpp"
#include "runtime/model/calibration.hpp"
#include "runtime/sched/block_hash.hpp"

namespace mooncaf {

namespace {

constexpr auto stop_limit = std::chrono::seconds(5);

/// One process under construction. Members die in reverse order: the actors' memory outlives the actors.
class process {
 public:
  explicit process(const options& opts) : context_(std::make_shared<node_context>()) {
    context_->opts = opts;
  }

  /// Builds, serves until a stop signal, and takes everything down. @returns the exit status.
  int run();

 private:
  result<void> build();
  void flush();
  shutdown_result stop();
  const options& opts() const { return context_->opts; }
  bool computes() const { return opts().cluster.prefill || opts().cluster.decode; }
  bool holds_blocks() const { return computes() || opts().cluster.cache; }

  result<void> load_model();
  result<void> open_memory();
  result<void> open_data_plane();
  result<tiered_store> open_store();
  result<void> spawn_shard();
  result<void> spawn_workers();
  result<std::shared_ptr<engine>> make_engine(std::uint32_t batch_tokens, std::uint32_t logit_rows,
                                              int priority);
  /// An actor of this process that ends by a failure takes the process along: half a node helps nobody.
  void must_live(const char* what, const caf::actor& handle);
  template <class Actor, class... Args>
  auto spawn_vital(const char* what, Args&&... args) {
    auto handle = system_->spawn<Actor>(std::forward<Args>(args)...);
    must_live(what, caf::actor_cast<caf::actor>(handle));
    return handle;
  }
  void add_worker(worker_role role, caf::actor handle, std::uint32_t capacity,
                  std::vector<timing_sample> samples);
  result<void> join();
  result<void> open_http();
  result<void> open_metrics();
  worker_links next_links();
  executor_actor new_executor();

  std::shared_ptr<node_context> context_;
  std::optional<cluster_secret> secret_;
  cluster_config config_;
  std::unique_ptr<caf::actor_system> system_;
  std::optional<cluster_link> link_;
  std::shared_ptr<landing_board> board_ = std::make_shared<landing_board>();
  std::shared_ptr<rocksdb_tier> ssd_;
  local_actors local_;
  node_info info_;
  std::vector<caf::actor> roots_;
  std::vector<executor_actor> executors_;
  executor_actor coupled_;
  std::unique_ptr<api_server> http_;
  std::unique_ptr<http_server> metrics_port_;
};

result<void> process::load_model() {
  const auto& m = opts().model;
  context_->hardware = make_host_device({m.threads, false, {}});
  auto loaded = load_served_model(*context_->hardware, m.path, m.chat_template);
  if (!loaded) return fail(loaded.error());
  context_->net = std::move(loaded->net);
  context_->text = std::move(loaded->text);
  context_->chat = std::move(loaded->chat);
  context_->layout = context_->net->layout(m.block_tokens, as_dtype(m.kv_dtype));
  context_->root = context_->net->fingerprint();
  return {};
}

result<void> process::open_memory() {
  auto memory = arena::create("mooncaf-kv", opts().cache.dram_bytes);
  if (!memory) return fail(memory.error());
  context_->memory = std::make_shared<arena>(std::move(*memory));
  return {};
}

result<void> process::open_data_plane() {
  data_plane_options options;
  options.node = context_->id;
  // Without a secret nodes share a host, and the network is loopback: the secret is then no secret.
  options.cluster_secret = "mooncaf on loopback without a secret";
  if (secret_) {
    const auto key = secret_->derive("data plane v1");
    options.cluster_secret.assign(reinterpret_cast<const char*>(key.data()), key.size());
  }
  const auto& t = opts().transport;
  options.tcp = t.tcp;
  options.shm = t.shm;
  options.listen_host = t.data_listen.host;
  options.data_port = t.data_listen.port;
  options.advertised_host = opts().cluster.advertise;
  options.tcp_streams = t.tcp_streams;
  options.tcp_send_buffer = t.tcp_send_buffer;
  options.slice_bytes = t.slice_bytes;
  options.checksums = t.checksums;
  auto rdma = as_rdma_options(opts());
  if (!rdma) return fail(rdma.error());
  options.rdma = std::move(*rdma);
  auto plane = data_plane::start(
      options, [board = board_](const landing& l) { board->landed(l.tag.request.value, l.verified); });
  if (!plane) return fail(plane.error());
  context_->plane = std::move(*plane);
  for (const auto& note : context_->plane->rdma_notes()) log_info("rdma", {{"message", note}});
  auto region = context_->plane->register_region(context_->memory->bytes(), context_->memory->fd());
  if (!region) return fail(region.error());
  context_->region = *region;
  return {};
}

result<tiered_store> process::open_store() {
  const auto& c = opts().cache;
  const auto block = context_->layout.block_bytes();
  auto slots = block_allocator::create(context_->memory->bytes(), block);
  if (!slots) return fail(slots.error());
  context_->slot_stride = slots->stride_bytes();
  tiered_store_options options;
  options.dram.eviction.policy = as_policy(c.eviction);
  options.ssd_eviction.policy = as_policy(c.eviction);
  options.write = as_policy(c.write_policy);
  options.selective_hits = c.selective_hits;
  std::vector<stored_block> found;
  if (!c.ssd_path.empty()) {
    options.ssd = true;
    options.ssd_capacity_blocks = c.ssd_bytes / block;
    rocksdb_tier_options ssd;
    ssd.path = c.ssd_path;
    ssd.block_bytes = block;
    ssd.fingerprint = root_key(context_->root, context_->layout);
    ssd.capacity_blocks = options.ssd_capacity_blocks;
    ssd.direct_io = c.direct_io;
    ssd.log = [](std::string_view line) { log_info("ssd", {{"message", line}}); };
    auto tier = rocksdb_tier::open(std::move(ssd), [&](const stored_block& b) { found.push_back(b); });
    if (!tier) return fail(tier.error());
    ssd_ = std::move(*tier);
    log_info("ssd", {{"path", c.ssd_path}, {"blocks found", std::to_string(found.size())}});
  }
  tiered_store store{std::move(*slots), options};
  store.recover(found);
  return store;
}

result<void> process::spawn_shard() {
  auto store = open_store();
  if (!store) return fail(store.error());
  local_.shard = spawn_vital<cache_shard>("cache shard", context_, std::move(*store), ssd_, new_executor(),
                                          duration{opts().cache.lease_ttl});
  local_.messenger = spawn_vital<messenger>("messenger", context_, new_executor());
  if (!computes()) {
    // Where nothing is computed, blocks come from others.
    local_.keeper = spawn_vital<pool_keeper>("pool keeper", context_, local_.shard, local_.messenger);
    info_.keeper = caf::actor_cast<caf::actor>(local_.keeper);
  }
  return {};
}

result<std::shared_ptr<engine>> process::make_engine(std::uint32_t batch_tokens, std::uint32_t logit_rows,
                                                     int priority) {
  runner_options options;
  options.max_batch_tokens = batch_tokens;
  options.max_logit_rows = logit_rows;
  options.layout = context_->layout;
  options.priority = priority;
  auto runner = model_runner::make(context_->net, *context_->hardware, options);
  if (!runner) return fail(runner.error());
  auto made = std::make_shared<engine>();
  made->runner = std::move(*runner);
  return made;
}

executor_actor process::new_executor() {
  executors_.push_back(spawn_executor(*system_));
  return executors_.back();
}

worker_links process::next_links() {
  worker_links links;
  links.id = worker_id{context_->id.value + 1 + info_.workers.size()};
  links.shard = local_.shard;
  links.messenger = local_.messenger;
  // Coupled: one thread computes for both roles, so a decode step waits for the prefill step before it.
  const bool coupled = opts().cluster.mode == serving_mode::coupled;
  links.executor = coupled && !info_.workers.empty() ? coupled_ : new_executor();
  if (coupled) coupled_ = links.executor;
  return links;
}

void process::must_live(const char* what, const caf::actor& handle) {
  handle->attach_functor([what](const caf::error& reason) {
    if (!reason || reason == caf::exit_reason::user_shutdown) return;
    log_error("actor failed; ending the process, so that others take over",
              {{"actor", what}, {"reason", caf::to_string(reason)}});
    std::_Exit(70);
  });
}

void process::add_worker(worker_role role, caf::actor handle, std::uint32_t capacity,
                         std::vector<timing_sample> samples) {
  worker_info w;
  w.id = worker_id{context_->id.value + 1 + info_.workers.size()};
  w.role = role;
  w.handle = std::move(handle);
  w.capacity = capacity;
  w.samples = std::move(samples);
  info_.workers.push_back(std::move(w));
}

result<void> process::spawn_workers() {
  const auto& o = opts();
  std::vector<timing_sample> samples;
  if (o.cluster.prefill) {
    const auto budget = o.prefill.max_batch_tokens;
    for (std::uint32_t i = 0; i < o.prefill.instances; ++i) {
      auto machine = make_engine(budget, prefill_worker::requests_per_step(budget), 1);
      if (!machine) return fail(machine.error());
      if (i == 0) {
        auto measured = calibrate_prefill(*(*machine)->runner, budget);
        if (!measured) return fail(measured.error());
        samples = std::move(*measured);
      }
      const auto links = next_links();
      auto worker = spawn_vital<prefill_worker>("prefill worker", context_, links, *machine);
      add_worker(worker_role::prefill, caf::actor_cast<caf::actor>(worker), budget, samples);
      local_.prefill.push_back(std::move(worker));
    }
  }
  if (o.cluster.decode) {
    for (std::uint32_t i = 0; i < o.decode.instances; ++i) {
      auto machine = make_engine(o.decode.max_batch, o.decode.max_batch, 0);
      if (!machine) return fail(machine.error());
      if (i == 0) {
        auto measured = calibrate_decode(*(*machine)->runner, o.decode.max_batch);
        if (!measured) return fail(measured.error());
        samples = std::move(*measured);
      }
      const auto links = next_links();
      auto worker = spawn_vital<decode_worker>("decode worker", context_, links, *machine, board_);
      add_worker(worker_role::decode, caf::actor_cast<caf::actor>(worker), o.decode.max_batch, samples);
      local_.decode.push_back(std::move(worker));
    }
  }
  return {};
}

result<void> process::join() {
  const auto& c = opts().cluster;
  auto opened = cluster_link::open(*system_, secret_);
  if (!opened) return fail(opened.error());
  link_ = std::move(*opened);
  info_.id = context_->id;
  info_.name = context_->name;
  info_.fingerprint = root_key(context_->root, context_->layout);
  info_.model = opts().model.served_model_name;
  info_.layout = to_string(context_->layout);
  for (const auto& [has, role] : {std::pair{c.conductor, "conductor"},
                                  {c.prefill, "prefill"},
                                  {c.decode, "decode"},
                                  {c.cache, "cache"},
                                  {c.gateway, "gateway"}}) {
    if (has) info_.roles += (info_.roles.empty() ? "" : ",") + std::string{role};
  }
  if (context_->plane) info_.data_plane = encode(context_->plane->local_announcement());
  if (local_.shard) info_.shard = caf::actor_cast<caf::actor>(local_.shard);
  if (local_.conductor) info_.conductor = caf::actor_cast<caf::actor>(local_.conductor);
  info_.host = c.advertise.empty() ? c.listen.host : c.advertise;
  const auto dial = [this](const std::string& host, std::uint16_t port) {
    return link_->dial<node_actor>(host, port);
  };
  const auto root = spawn_vital<node>("node", context_, local_, info_, c.join, dial, new_executor());
  roots_.push_back(caf::actor_cast<caf::actor>(root));
  // Several processes of one host share the default: those that join take whatever port is free.
  const bool any_port = c.join && c.listen == default_options().cluster.listen;
  const auto published = link_->publish(root, c.listen.host, any_port ? 0 : c.listen.port);
  if (!published) return fail(published.error());
  log_info("control", {{"at", to_string(host_port{info_.host, *published})}});
  caf::anon_send(root, listen_atom_v, *published);
  return {};
}

result<void> process::open_http() {
  api_backends backends;
  backends.cluster = [gateway = local_.gateway](std::function<void(std::string)> then) {
    caf::anon_send(gateway, cluster_atom_v, std::make_shared<cluster_query>(cluster_query{std::move(then)}));
  };
  backends.metrics = [this] { return context_->meters->text(); };
  auto started = api_server::start(context_, local_.gateway, std::move(backends));
  if (!started) return fail(started.error());
  http_ = std::move(*started);
  log_info("http", {{"at", to_string(host_port{opts().gateway.http.host, http_->port()})}});
  return {};
}

result<void> process::open_metrics() {
  const auto& m = opts().metrics;
  if (!m.enabled) return {};
  auto started = serve_metrics(m.listen.host, m.listen.port, context_->meters);
  if (!started) return fail(started.error());
  metrics_port_ = std::move(*started);
  log_info("metrics", {{"at", to_string(host_port{m.listen.host, metrics_port_->port()})}});
  return {};
}

result<void> process::build() {
  auto& c = context_->opts.cluster;
  std::random_device random;
  context_->id = node_id{(std::uint64_t{random()} << 32 | random()) | 1};
  context_->name = c.name.empty() ? "node-" + std::to_string(::getpid()) : c.name;
  configure_log(static_cast<log_level>(opts().metrics.log_level),
                opts().metrics.log_format == log_format_choice::json, context_->name);
  auto& served = context_->opts.model.served_model_name;
  if (served.empty()) served = opts().model.path.substr(opts().model.path.rfind('/') + 1);
  if (!c.cluster_secret_file.empty()) {
    auto secret = cluster_secret::from_file(c.cluster_secret_file);
    if (!secret) return fail(secret.error());
    secret_ = std::move(*secret);
  }
  context_->transfer_ids = std::make_shared<std::atomic<std::uint64_t>>(1);
  context_->meters = std::make_shared<metrics>(served);
  if (auto opened = open_metrics(); !opened) return opened;
  log_info("loading", {{"model", opts().model.path}});
  if (auto loaded = load_model(); !loaded) return loaded;
  log_info("device", {{"name", context_->hardware->info().name}});
  if (holds_blocks()) {
    if (auto opened = open_memory(); !opened) return opened;
    if (auto opened = open_data_plane(); !opened) return opened;
  }
  config_.add_message_types<caf::id_block::mooncaf>();
  system_ = std::make_unique<caf::actor_system>(config_);
  if (c.conductor) {
    conductor_setup setup;
    const auto& s = opts().scheduler;
    setup.core.policy = as_policy(s.policy);
    setup.core.admission = as_policy(s.admission);
    setup.core.ttft_slo = s.ttft_slo;
    setup.core.tbt_slo = s.tbt_slo;
    setup.core.balancing_threshold = s.balancing_threshold;
    setup.core.decode_span = s.predicted_decode;
    setup.core.block_tokens = opts().model.block_tokens;
    setup.core.bytes_per_token = context_->layout.bytes_per_token();
    setup.core.seed = s.seed;
    setup.fingerprint = root_key(context_->root, context_->layout);
    setup.model = served;
    setup.layout = to_string(context_->layout);
    local_.conductor = spawn_vital<conductor>("conductor", std::move(setup));
  }
  if (holds_blocks()) {
    if (auto spawned = spawn_shard(); !spawned) return spawned;
  }
  if (auto spawned = spawn_workers(); !spawned) return spawned;
  if (c.gateway) local_.gateway = spawn_vital<gateway>("gateway", context_);
  if (auto joined = join(); !joined) return joined;
  return c.gateway ? open_http() : result<void>{};
}

int process::run() {
  const auto built = build();
  if (!built) {
    std::fprintf(stderr, "mooncaf: %s\n", to_string(built.error()).c_str());
  } else {
    log_info("ready", {{"roles", info_.roles}});
    log_info("stopping", {{"signal", std::to_string(wait_for_stop())}});
    flush();
  }
  http_.reset();
  if (!system_) return 1;
  const auto outcome = stop();
  if (outcome == shutdown_result::stuck) {
    log_error("stop", {{"problem", "an actor did not end in time"}});
    leave_now(3);
  }
  link_.reset();
  // Here, and not where the last transfer's callback lets go of it: that would be a thread of its own.
  context_->plane.reset();
  system_.reset();
  return built ? 0 : 1;
}

// While everything still runs: clients whose requests are under way lose nothing by it.
void process::flush() {
  const auto limit = opts().cache.flush_limit;
  if (!ssd_ || limit <= duration::zero()) return;
  caf::scoped_actor self{*system_};
  self->request(local_.shard, limit, flush_atom_v)
      .receive(
          [](std::uint64_t blocks) {
            log_info("ssd", {{"blocks flushed", std::to_string(blocks)}});
          },
          [](const caf::error&) {
            log_info("ssd", {{"message", "the flush was cut short by flush-limit"}});
          });
}

shutdown_result process::stop() {
  // Gateways first: clients are told before the workers of their requests go.
  const auto add = [this](const auto& handle) {
    if (handle) roots_.push_back(caf::actor_cast<caf::actor>(handle));
  };
  add(local_.gateway);
  for (const auto& w : local_.prefill) add(w);
  for (const auto& w : local_.decode) add(w);
  add(local_.messenger);
  add(local_.shard);
  add(local_.conductor);
  for (const auto& e : executors_) add(e);
  executors_.clear();
  coupled_ = nullptr;
  local_ = {};
  info_ = {};
  if (link_) link_->close();
  return stop_actors(*system_, std::move(roots_), stop_limit);
}

}  // namespace

int serve(const options& opts) {
  process p{opts};
  return p.run();
}

}  // namespace mooncaf
