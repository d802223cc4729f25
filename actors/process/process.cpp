#include "actors/process/process.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <caf/event_based_actor.hpp>
#include <caf/send.hpp>
#include <cstdio>
#include <new>
#include <random>
#include <sstream>
#include <system_error>
#include <thread>

#include "actors/cluster/wire.hpp"
#include "actors/conductor.hpp"
#include "actors/executor.hpp"
#include "actors/gateway.hpp"
#include "actors/process/journal_file.hpp"
#include "actors/process/model_extras.hpp"
#include "actors/process/preflight.hpp"
#include "actors/process/scale_hook.hpp"
#include "actors/process/serve.hpp"
#include "actors/process/shadow_player.hpp"
#include "actors/process/terminate_guard.hpp"
#include "config/device_name.hpp"
#include "config/value.hpp"
#include "gpu/cuda/cuda_device.hpp"
#include "gpu/device_failure.hpp"
#include "gpu/host/host_device.hpp"
#include "gpu/linked/linked_device.hpp"
#include "runtime/api/cluster_view.hpp"
#include "runtime/base/block_parts.hpp"
#include "runtime/loading/served_model.hpp"
#include "runtime/log/log.hpp"
#include "runtime/sched/block_hash.hpp"

namespace mooncaf {

namespace {

constexpr auto stop_limit = std::chrono::seconds(5);
constexpr auto told_limit = std::chrono::seconds(2);  ///< for clients to take the news

/// CAF's constructor starts threads, and waits for ever if it is torn down after the first of them. So it
/// runs where no handler catches its exceptions: then nothing is torn down, and `terminate_guard` tells the
/// reason.
std::unique_ptr<caf::actor_system> start_actor_system(caf::actor_system_config& config) {
  std::unique_ptr<caf::actor_system> system;
  std::thread([&] { system = std::make_unique<caf::actor_system>(config); }).join();
  return system;
}

/// The device of one of `parts` here, stages and their ranks: the GPUs from the one that `--device` names on, or equal shares of the
/// processor.
result<std::shared_ptr<device>> open_device(const model_options& m, std::uint32_t part, std::uint32_t parts) {
  const auto threads = m.threads != 0 ? m.threads : usable_cores();
  const host_device_options host{std::max(1u, threads / parts), false, {}};
  const auto gpu = config::cuda_ordinal(m.device);
  if (!gpu && m.device != "linked") return std::shared_ptr<device>{make_host_device(host)};
  auto made = gpu ? make_cuda_device({*gpu + part, m.threads, m.copy_engines})
                  : make_linked_device({host, {m.link_bytes_per_s, m.link_latency}, m.copy_engines});
  if (!made) return fail(made.error());
  return std::shared_ptr<device>{std::move(*made)};
}

}  // namespace

process::process(const options& opts) : context_(std::make_shared<node_context>()) { context_->opts = opts; }

/// Each role loads only its part: the weights of a large model take minutes and most of the memory.
result<void> process::load_model() {
  const auto& m = opts().model;
  if (modelled_) {
    if (auto none = load_adapters(nullptr, {}, opts()); !none) return fail(none.error());
    return adopt(serve_modelled(*modelled_), sim::modelled_layout(*modelled_));
  }
  const auto& c = opts().cluster;
  const bool weights = computes() || c.rank;
  const bool alone = c.rank || !c.ranks.empty();  // one device, the others of the group are elsewhere
  const std::uint32_t here = !weights ? 0 : alone ? 1 : m.pipeline * m.tensor;
  std::vector<device*> devices;
  for (std::uint32_t part = 0; part < here; ++part) {
    auto made = open_device(m, part, here);
    if (!made) return fail(made.error());
    devices.push_back(made->get());
    context_->stages.push_back({std::move(*made), nullptr, nullptr});
  }
  if (weights) context_->hardware = context_->stages.front().hardware;
  auto loaded = load_served_model(devices, m.path, m.chat_template,
                                  {weights, computes() || c.gateway || c.engine}, share_of(opts()));
  if (!loaded) return fail(loaded.error());
  for (std::size_t i = 0; i < loaded->nets.size(); ++i) context_->stages[i].net = std::move(loaded->nets[i]);
  if (const auto own = loaded->identity.config.context_length; m.context_length > own) {
    return fail(ec::invalid_argument, "context-length: " + std::to_string(m.context_length) +
                                          " tokens are more than the " + std::to_string(own) +
                                          " that the model was trained for; 0 takes all of them");
  }
  auto adapters = load_adapters(context_->hardware.get(), loaded->identity.config, opts());
  if (!adapters) return fail(adapters.error());
  context_->adapters = std::move(*adapters);
  auto defaults = defaults_of_model(model_files(m.path), m.generation_config);
  if (!defaults) return fail(defaults.error());
  context_->defaults = *defaults;
  auto layout = layout_of(loaded->identity.config, m.block_tokens, m.kv_dtype);
  layout.pages = m.l2_layout;
  return adopt(std::move(*loaded), layout);
}

result<void> process::adopt(served_model&& loaded, const kv_layout& layout) {
  context_->text = std::move(loaded.text);
  context_->chat = std::move(loaded.chat);
  if (context_->text) context_->grammars = std::make_shared<grammar_cache>(context_->text);
  context_->shape = std::move(loaded.identity.config);
  context_->layout = layout;
  const bool by_layer = layout.pages == page_order::page_first_direct;
  const auto part = by_layer ? layers_per_part(layout.layer_bytes(), layout.n_layers) : layout.n_layers;
  context_->disk_part_layers = part < layout.n_layers ? part : 0;
  context_->root = loaded.identity.fingerprint;
  return {};
}

std::string process::model_text() const {
  return serves_model(opts()) ? opts().model.served_model_name : "no model";
}

std::string process::layout_text() const {
  if (!serves_model(opts())) return "the object store alone";
  return to_string(context_->layout) + adapters_text(*context_);
}

void process::must_live(const char* what, const caf::actor& handle) {
  handle->attach_functor([what](const caf::error& reason) {
    if (!reason || reason == caf::exit_reason::user_shutdown) return;
    const auto why = from_caf(reason);
    log_error("actor failed; ending the process, so that others take over",
              {{"actor", what}, {"reason", to_string(why)}});
    leave_now(static_cast<int>(exit_code_of(why, exit_code::actor_failed)));
  });
}

result<void> process::open_link() {
  auto opened = cluster_link::open(*system_, key_ring{secret_, "control plane v1"});
  if (!opened) return fail(opened.error());
  link_ = std::move(*opened);
  return {};
}

/// The node is published last, when all that its introduction names is there.
result<void> process::join() {
  const auto& c = opts().cluster;
  info_.id = context_->id;
  info_.name = context_->name;
  info_.fingerprint = cluster_identity(*context_);
  info_.model = model_text();
  info_.layout = layout_text();
  info_.wire = wire::known();
  for (const auto& [has, role] : {std::pair{c.conductor, "conductor"},
                                  {c.prefill, "prefill"},
                                  {c.decode, "decode"},
                                  {c.cache, "cache"},
                                  {c.gateway, "gateway"},
                                  {c.engine, "engine"}}) {
    if (has) info_.roles += (info_.roles.empty() ? "" : ",") + std::string{role};
  }
  if (context_->plane) info_.data_plane = encode(context_->plane->local_announcement());
  if (local_.shard) info_.shard = caf::actor_cast<caf::actor>(local_.shard);
  if (local_.engine)
    info_.shard = caf::actor_cast<caf::actor>(local_.engine);  // it tells of blocks as a shard does
  if (local_.conductor) info_.conductor = caf::actor_cast<caf::actor>(local_.conductor);
  info_.host = c.advertise.empty() ? c.listen.host : c.advertise;
  const auto dial = [this](const std::string& host, std::uint16_t port) {
    return link_->dial<node_actor>(host, port);
  };
  const auto place = conductor_place(c);
  if (place) info_.seat = *place + 1;
  // Its predecessor at this place may have promised somebody not to obey anybody else.
  leadership_voter voter{c.leader_timeout, place ? clock_type::now() + c.leader_timeout : time_point{},
                         objects_->last()};
  const auto root = spawn_vital<node>("node", context_, local_, std::make_shared<node_info>(info_),
                                      conductor_seats{c.join, place}, std::move(voter), dial, new_executor(),
                                      [this](const node_info& found) { directory_found(found); });
  info_.node = caf::actor_cast<caf::actor>(root);
  roots_.push_back(info_.node);
  const auto published = link_->publish(root, c.listen.host, c.listen.port);
  if (!published) return fail(published.error());
  log_info("control", {{"at", to_string(host_port{info_.host, *published})}});
  caf::anon_send(root, listen_atom_v, *published);
  return c.cache && opts().store.dram_bytes > 0 ? mount_segment(*published) : result<void>{};
}

result<void> process::open_http() {
  api_backends backends;
  backends.cluster = [gateway = local_.gateway](std::function<void(const result<cluster_status>&)> then) {
    caf::anon_send(gateway, cluster_atom_v, std::make_shared<cluster_query>(cluster_query{std::move(then)}));
  };
  backends.metrics = [this] { return context_->meters->text() + objects_->metrics_text(); };
  auto started = api_server::start(context_, local_.gateway, std::move(backends));
  if (!started) return fail(started.error());
  http_ = std::move(*started);
  log_info("http", {{"at", to_string(host_port{opts().gateway.http.host, http_->port()})}});
  return {};
}

result<void> process::open_metrics() {
  const auto& m = opts().metrics;
  if (!m.enabled) return {};
  const auto& handover = opts().gateway.http_handover;
  auto started = serve_metrics(
      m.listen.host, m.listen.port,
      [meters = context_->meters, objects = objects_] { return meters->text() + objects->metrics_text(); },
      handover.empty() ? std::string{} : handover + ".metrics", metrics_port_.list);
  if (!started) return fail(started.error());
  metrics_port_.server = std::move(*started);
  const auto port = metrics_port_.server->port();
  log_info("metrics", {{"at", to_string(host_port{m.listen.host, port})}});
  const bool everywhere = m.listen.host == "0.0.0.0" || m.listen.host == "::";
  const auto& c = opts().cluster;
  const auto& named = c.advertise.empty() ? c.listen.host : c.advertise;
  local_.metrics_at = to_string(host_port{everywhere ? named : m.listen.host, port});
  return {};
}

/// Has the conductor's process list what Prometheus scrapes, until the actors end.
void process::list_targets() {
  if (!local_.conductor) return;
  metrics_port_.list->follow([this](scrape_list::answer then) {
    system_->spawn([conductor = local_.conductor, then = std::move(then)](caf::event_based_actor* self) {
      self->request(conductor, told_limit, status_atom_v)
          .then([then](const cluster_status& status) { then(scrape_targets(status)); },
                [then](const caf::error& why) { then(fail(from_caf(why))); });
    });
  });
}

void process::introduce() {
  ::umask(077);  // its files hold the text of requests: for their owner alone
  auto& c = context_->opts.cluster;
  std::random_device random;
  context_->id = node_id{(std::uint64_t{random()} << 32 | random()) | 1};
  context_->name = c.name.empty() ? "node-" + std::to_string(::getpid()) : c.name;
  // Several processes of one host share the default: processes that join take any free port.
  if (!c.join.empty() && !c.conductor && c.listen == default_options().cluster.listen) c.listen.port = 0;
  configure_log(opts().metrics.log_level, opts().metrics.log_format == log_format_choice::json,
                context_->name);
  auto& served = context_->opts.model.served_model_name;
  if (served.empty()) served = opts().model.path.substr(opts().model.path.rfind('/') + 1);
}

result<void> process::take_profile() {
  auto profile = modelled_by(opts().model);
  if (!profile) return fail(profile.error());
  modelled_ = std::move(*profile);
  if (!modelled_) return {};
  follow_profile(context_->opts, *modelled_);
  auto& served = context_->opts.model.served_model_name;
  if (served.empty()) served = modelled_->name;
  return {};
}

result<void> process::open_secret() {
  auto secret = secret_file::open(opts().cluster.cluster_secret_file, [](const error& why) {
    log_warn("secret", {{"problem", why.detail}, {"meaning", "the one that was read before stays"}});
  });
  if (!secret) return fail(secret.error());
  secret_ = std::move(*secret);
  return {};
}

result<void> process::check() {
  std::vector<std::string> warnings;
  const auto refused = check_before_loading(opts(), warnings);
  for (const auto& warning : warnings) log_warn("start", {{"problem", warning}});
  return refused ? step(refused->code, fail(refused->what)) : result<void>{};
}

result<void> process::step(exit_code code, result<void> outcome) {
  if (!outcome) refused_ = exit_code_of(outcome.error(), code);
  return outcome;
}

result<void> process::spawn_conductor() {
  conductor_setup setup;
  const auto& s = opts().scheduler;
  setup.core.policy = s.policy;
  setup.core.admission = s.admission;
  setup.queue = {s.max_queued, s.ttft_slo};
  setup.core.ttft_slo = s.ttft_slo;
  setup.core.tbt_slo = s.tbt_slo;
  const auto mode = opts().cluster.mode;
  setup.core.coupled = mode != serving_mode::disaggregated;
  if (mode == serving_mode::engines)
    setup.core.transfer.bytes_per_s = 1;  // KV leaves no engine: a fetch never pays
  setup.core.balancing_threshold = s.balancing_threshold;
  setup.core.decode_span = s.predicted_decode;
  setup.core.block_tokens = opts().model.block_tokens;
  setup.core.bytes_per_token = context_->layout.bytes_per_token();
  setup.core.seed = s.seed;
  // A modelled cluster's times that are no options go as fast as all else there.
  for (auto* t : {&setup.core.demand_memory, &setup.core.prefill_store, &setup.queue.least_memory})
    *t = from_seconds(to_seconds(*t) / opts().model.time_scale);
  setup.core.hot_copy_share = s.hot_copy_share;
  setup.core.shadow = shadow_at(opts().model.time_scale);
  if (s.admission == admission_policy::adaptive) setup.player = new_executor();
  setup.play = [context = context_](const shadow_question& q) {
    auto played = play_beside(q, context->ends);
    for (const auto& p : played.rules)
      context->meters->set(series::played_share, static_cast<double>(p.met) / static_cast<double>(p.judged),
                           {text_of(p.rule)});
    return played;
  };
  setup.core.elastic = {s.elastic_roles, s.elastic_hold, s.elastic_budget};
  setup.core.scale = {s.scale_prefill, s.scale_decode, s.scale_nodes,
                      s.target_load,   s.down_after,   s.scale_every};
  if (!s.scale_command.empty()) {
    if (auto there = scale_hook::check(s.scale_command); !there) return there;
    setup.scale = [hook = std::make_shared<scale_hook>(s.scale_command),
                   meters = context_->meters](const std::string& counts) {
      std::istringstream words{counts};  // "prefill=3 decode=2"
      std::string part;
      for (double count = 0; std::getline(words >> std::ws, part, '=') && words >> count;)
        meters->set(series::wanted_nodes, count, {part});
      hook->tell(counts);
    };
  }
  const auto& c = opts().cluster;
  const auto conductors = static_cast<std::uint32_t>(std::max<std::size_t>(c.join.size(), 1));
  setup.lead = leadership_core{context_->id, conductor_place(c).value_or(0), conductors, c.leader_timeout,
                               objects_->last()};
  setup.right = [objects = objects_](const lead_right& right) { objects->lead(right); };
  setup.fingerprint = cluster_identity(*context_);
  setup.model = model_text();
  setup.layout = layout_text();
  if (!s.journal.empty()) {
    auto opened = open_journal(s.journal, s.journal_limit);
    if (!opened) return fail(opened.error());
    setup.journal = std::move(*opened);
  }
  local_.conductor = spawn_vital<conductor>("conductor", std::move(setup));
  return {};
}

/// In the order of cost: whatever can be refused without the model is refused before it is loaded, and the
/// addresses of metrics and the directory are taken early, so that a second process on them fails at once.
result<void> process::build() {
  const auto& c = opts().cluster;
  if (auto done = step(exit_code::options, take_profile()); !done) return done;
  if (auto done = check(); !done) return done;
  if (auto done = step(exit_code::files, open_secret()); !done) return done;
  context_->transfer_ids = std::make_shared<std::atomic<std::uint64_t>>(1);
  context_->meters = std::make_shared<metrics>(opts().model.served_model_name);
  if (const auto& m = opts().metrics; c.gateway && m.otlp)
    context_->traces = std::make_shared<trace_exporter>(
        *m.otlp, trace_source{context_->name, opts().model.served_model_name}, m.otlp_share);
  if (auto done = step(exit_code::address, open_directory()); !done) return done;
  if (auto done = step(exit_code::address, open_metrics()); !done) return done;
  if (serves_model(opts())) {
    log_info("loading", {{"model", modelled_ ? opts().model.device : opts().model.path}});
    if (auto done = step(exit_code::model, load_model()); !done) return done;
  }
  for (const auto& stage : context_->stages)
    log_info("device", {{"name", stage.hardware->info().name}, {"layers", to_string(stage.net->part())}});
  if (holds_blocks())
    if (auto done = step(exit_code::resources, open_memory()); !done) return done;
  if (holds_blocks() || c.rank) {
    if (auto done = step(exit_code::address, open_data_plane()); !done) return done;
    if (auto done = step(exit_code::options, check_shared_memory()); !done) return done;
  }
  config_.add_message_types<caf::id_block::mooncaf>();
  config_.know(opts().cluster.wire_version);
  system_ = start_actor_system(config_);
  if (auto done = step(exit_code::address, open_link()); !done) return done;
  if (c.rank) return step(exit_code::address, serve_leader());
  if (auto done = step(exit_code::address, find_ranks()); !done) return done;
  if (c.conductor) {
    if (auto done = step(exit_code::files, spawn_conductor()); !done) return done;
  }
  if (holds_blocks()) {
    if (auto done = step(exit_code::files, spawn_shard()); !done) return done;
  }
  if (auto done = step(exit_code::resources, spawn_workers()); !done) return done;
  if (c.engine)
    if (auto done = step(exit_code::address, spawn_engine()); !done) return done;
  if (c.gateway) local_.gateway = spawn_vital<gateway>("gateway", context_);
  if (auto done = step(exit_code::address, join()); !done) return done;
  return c.gateway ? step(exit_code::address, open_http()) : result<void>{};
}

result<void> process::build_with_what_there_is() {
  try {
    return build();
  } catch (const std::bad_alloc&) {
    return step(exit_code::resources, out_of_resources("memory"));
  } catch (const std::system_error& e) {  // thrown by std::thread
    return step(exit_code::resources, out_of_resources(e.what()));
  } catch (const device_failure& f) {
    return step(exit_code::failed, fail(ec::unavailable, std::string{"device: "} + f.what()));
  }
}

int process::run() {
  terminate_guard guard;
  introduce();
  auto built = [this] {
    const stop_at_once until_ready{"was not ready yet"};
    return build_with_what_there_is();
  }();
  if (!built) {
    std::fprintf(stderr, "mooncaf: %s\n", to_string(built.error()).c_str());
    // CAF counts a thread of its own before it starts it, and would wait for one that could not be started.
    if (refused_ == exit_code::resources) leave_now(static_cast<int>(refused_));
  } else {
    guard.started();
    list_targets();
    log_info("ready", {{"roles", info_.roles}});
    log_info("stopping", {{"signal", std::to_string(wait_for_stop())}});
    // All that a rank has lies with its leader, too, who takes its end for a failed device however it comes.
    if (opts().cluster.rank) leave_now(static_cast<int>(exit_code::stopped));
  }
  const stop_at_once now_told{"was stopping"};
  if (built) {
    drain();
    flush();
  }
  if (http_) http_->stop(told_limit);
  http_.reset();
  const auto status = static_cast<int>(built ? exit_code::stopped : refused_);
  if (!system_) return status;
  const auto outcome = stop();
  if (outcome == shutdown_result::stuck) {
    log_error("stop", {{"problem", "an actor did not end in time"}});
    leave_now(built ? static_cast<int>(exit_code::stuck) : status);
  }
  // It asks the shard how memory is divided; and the server of the metrics holds it, too.
  if (objects_) objects_->unmount();
  objects_.reset();
  link_.reset();
  group_.close();
  // Here, and not where the last transfer's callback lets go of it: that would be a thread of its own.
  context_->plane.reset();
  // CAF waits for every thread that has ever sent a message to end: those of this server ask for `/targets`.
  metrics_port_.server.reset();
  system_.reset();
  return status;
}

shutdown_result process::stop() {
  context_->ends = true;
  group_.expect_end();
  metrics_port_.list->follow(nullptr);
  // Gateways first: clients are told before the workers of their requests go.
  const auto add = [this](const auto& handle) {
    if (handle) roots_.push_back(caf::actor_cast<caf::actor>(handle));
  };
  add(local_.gateway);
  for (const auto& w : local_.prefill) add(w);
  for (const auto& w : local_.decode) add(w);
  add(local_.engine);
  add(local_.writer);
  add(local_.keeper);
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

int serve(const options& opts) {
  process p{opts};
  return p.run();
}

}  // namespace mooncaf
