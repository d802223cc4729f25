#include "tests/actors/worker_world.hpp"

#include <random>

#include "actors/cache_shard.hpp"
#include "actors/device_writer.hpp"
#include "actors/executor.hpp"
#include "actors/messenger.hpp"
#include "gpu/device_failure.hpp"
#include "gpu/host/host_device.hpp"
#include "gpu/linked/linked_device.hpp"
#include "runtime/model/model_runner.hpp"
#include "runtime/sched/link_book.hpp"
#include "runtime/text/byte_alphabet.hpp"

namespace mooncaf::testing {

namespace {

gateway_actor::behavior_type fake_gateway(
    gateway_actor::pointer, std::shared_ptr<std::unordered_map<std::uint64_t, attempt_log>> logs) {
  return {
      [=](first_atom, const first_token& m) {
        auto& log = (*logs)[m.id.owner()];
        CHECK(!log.first);
        log.first = m;
        log.tokens.insert(log.tokens.begin(), m.token.id);
        if (m.finish != finish_reason::none) log.finish = m.finish;
      },
      [=](tokens_atom, const token_batch& batch) {
        for (const auto& run : batch.runs) {
          auto& log = (*logs)[run.id.owner()];
          log.positions.push_back(run.position);
          for (const auto& t : run.tokens) log.tokens.push_back(t.id);
          if (run.finish != finish_reason::none) log.finish = run.finish;
        }
      },
      [=](failed_atom, const attempt_failed& m) { (*logs)[m.id.owner()].failed = m; },
      [](peer_up_atom, const node_info&) {},
      [](peer_down_atom, node_id) {},
      [](follow_atom, const caf::actor&, std::uint64_t) {},
      [](status_atom) { return std::uint64_t{0}; },
      [](submit_atom, const client_request_ptr&) {},
      [](cancel_atom, const client_request_ptr&) {},
      [](cluster_atom, const cluster_query_ptr&) {},
      [](keep_atom, const kept_query_ptr&) {},
      [](tick_atom) {},
  };
}

/// An executor that runs its tasks when the test says so. It answers in a message of its own (one without a
/// task): outside of one CAF has no execution unit to deliver with.
executor_actor::behavior_type held_executor(executor_actor::pointer self, std::shared_ptr<held_tasks> tasks) {
  using answer = caf::typed_response_promise<task_ptr>;
  const auto done = std::make_shared<std::deque<std::function<void()>>>();
  return {
      [=](run_atom, const task_ptr& task) -> caf::result<task_ptr> {
        auto promise = self->make_response_promise<task_ptr>();
        if (!task) {
          for (const auto& deliver : std::exchange(*done, {})) deliver();
          promise.deliver(task);
          return promise;
        }
        tasks->waiting.push_back([=, executor = executor_actor{self}] {
          task->run();
          done->push_back([task, reply = answer{promise}]() mutable { reply.deliver(task); });
          caf::anon_send(executor, run_atom_v, task_ptr{});
        });
        if (tasks->open) tasks->run_all();
        return promise;
      },
  };
}

}  // namespace

void report_queue::put(std::function<void()> report) {
  const std::lock_guard lock{mutex_};
  waiting_.push_back(std::move(report));
}

bool report_queue::drain() {
  std::deque<std::function<void()>> ready;
  {
    const std::lock_guard lock{mutex_};
    ready.swap(waiting_);
  }
  for (const auto& report : ready) report();
  return !ready.empty();
}

worker_world::worker_world(std::uint32_t slots, const std::string& ssd_path, transfer_price ssd_price,
                           prefetch_mode prefetch, bool far)
    : prefetch_(prefetch) {
  hardware_ = host_ = make_host_device({1, false, {}});
  const auto shape = dummy_shape("dummy:layers=2,dim=64,heads=4,kv_heads=2,ffn=96,vocab=199,ctx=256");
  REQUIRE_MESSAGE(shape, to_string(shape.error()));
  auto net = model::dummy(*host_, *shape, 1);
  REQUIRE_MESSAGE(net, to_string(net.error()));
  net_ = host_net_ = *net;
  if (far) {
    auto linked = make_linked_device({});
    REQUIRE_MESSAGE(linked, to_string(linked.error()));
    hardware_ = std::move(*linked);
    net = model::dummy(*hardware_, *shape, 1);
    REQUIRE_MESSAGE(net, to_string(net.error()));
    net_ = *net;
  }
  layout_ = net_->layout(block_tokens, kv_dtype::f16);
  tokenizer_vocab vocab;
  for (unsigned byte = 0; byte < 256; ++byte) {
    vocab.tokens.push_back(byte_alphabet::text(static_cast<std::uint8_t>(byte)));
  }
  auto text = tokenizer::from_vocab(std::move(vocab));
  REQUIRE_MESSAGE(text, to_string(text.error()));
  text_ = *text;
  gateway_ = keep(sys.spawn(fake_gateway, logs));
  make_node(a, 100, slots, ssd_path, ssd_price);
  make_node(b, 200, slots, {}, {});
  introduce(a, b);
  introduce(b, a);
  run();
}

worker_world::~worker_world() {
  for (const auto& root : roots_) stop(root);
  for (auto* n : {&a, &b}) {
    n->context->plane.reset();  // what was under way is reported before it is gone
    n->shard = nullptr;
    n->writer = nullptr;
    n->messenger = nullptr;
    n->prefill = nullptr;
    n->decode = nullptr;
  }
  while (reports->drain()) run();
}

namespace {

/// Computes until its device fails: then all of a pass was computed, and nothing of it can be had.
class failing_pass final : public forward_pass {
 public:
  failing_pass(std::unique_ptr<forward_pass> inner, std::shared_ptr<std::atomic<int>> fails,
               std::shared_ptr<const std::atomic<bool>> whole)
      : inner_(std::move(inner)), fails_(std::move(fails)), whole_(std::move(whole)) {}
  result<void> forward(std::span<const batch_item> items, std::span<float> logits, const layer_done_fn& done,
                       const std::atomic<bool>* cancel, const before_layer_fn& before) override {
    auto computed = inner_->forward(items, logits, done, cancel, before);
    if (*fails_ >= 0 && (*fails_)-- == 0) throw device_failure("the card is no longer there", whole_->load());
    return computed;
  }
  const kv_layout& layout() const noexcept override { return inner_->layout(); }
  std::size_t vocab_size() const noexcept override { return inner_->vocab_size(); }

 private:
  std::unique_ptr<forward_pass> inner_;
  std::shared_ptr<std::atomic<int>> fails_;
  std::shared_ptr<const std::atomic<bool>> whole_;
};

}  // namespace

std::shared_ptr<engine> worker_world::make_engine(const worker_node* where,
                                                  std::shared_ptr<std::atomic<int>> fails) const {
  runner_options options;
  options.max_batch_tokens = 64;
  options.max_logit_rows = 16;
  options.layout = layout_;
  if (where != nullptr) options.device_blocks = where->context->device_blocks;
  auto runner = where != nullptr ? model_runner::make(net_, *hardware_, options)
                                 : model_runner::make(host_net_, *host_, options);
  REQUIRE_MESSAGE(runner, to_string(runner.error()));
  auto made = std::make_shared<engine>();
  made->runner = std::move(*runner);
  if (where != nullptr)
    made->runner =
        std::make_unique<failing_pass>(std::move(made->runner), std::move(fails), where->whole_device_fails);
  return made;
}

void worker_world::make_node(worker_node& n, std::uint64_t id, std::uint32_t slots,
                             const std::string& ssd_path, transfer_price ssd_price) {
  n.id = node_id{id};
  auto& c = *n.context;
  c.id = n.id;
  c.opts = default_options();
  c.opts.prefill.chunk_tokens = 8;
  c.opts.prefill.max_batch_tokens = 32;  // of up to two prompts
  c.opts.prefill.prefetch = prefetch_;
  c.opts.prefill.prefetch_timeout_base = c.opts.prefill.prefetch_timeout_per_ki_token = duration{};
  c.opts.prefill.prefetch_threshold = 0;
  c.opts.decode.max_batch = 4;
  c.hardware = hardware_;
  c.stages = {{hardware_, net_, nullptr}};
  c.shape = net_->config();
  c.text = text_;
  c.grammars = std::make_shared<grammar_cache>(text_);
  c.layout = layout_;
  c.disk_part_layers = 1;
  c.root = net_->fingerprint();
  auto memory = arena::create("mooncaf-test", 4 * MiB);
  REQUIRE(memory);
  c.memory = std::make_shared<arena>(std::move(*memory));
  const auto shape = layout_.pieces();
  auto cut = block_allocator::create(c.memory->bytes().first(shape.bytes_for(slots)), shape);
  REQUIRE(cut);
  data_plane_options plane;
  plane.node = n.id;
  plane.cluster_secret = "the secret of the tests";
  if (&n == &a) plane.faults = &faults_of_a;
  auto started = data_plane::start(
      plane,
      [board = n.board](const landing& l) {
        board->landed(l.tag.request.value, l.verified, piece_of(l.tag));
      },
      [queue = reports](std::function<void()> report) { queue->put(std::move(report)); });
  REQUIRE_MESSAGE(started, to_string(started.error()));
  c.plane = std::move(*started);
  auto region = c.plane->register_region(c.memory->bytes(), c.memory->fd());
  REQUIRE(region);
  c.region = *region;
  c.links = std::make_shared<link_book>();
  c.transfer_ids = std::make_shared<std::atomic<std::uint64_t>>(1);

  tiered_store_options tiers;
  std::shared_ptr<rocksdb_tier> ssd;
  std::vector<ssd_block> found;
  if (!ssd_path.empty()) {
    tiers.ssd = true;
    tiers.ssd_capacity_blocks = 1000;
    tiers.write = write_policy::write_through;
    rocksdb_tier_options o;
    o.path = ssd_path;
    o.block_bytes = layout_.block_bytes();
    o.part_bytes = c.disk_part_layers * layout_.layer_bytes();
    o.capacity_blocks = 1000;
    o.direct_io = false;
    auto opened = rocksdb_tier::open(o, [&](const ssd_block& block) { found.push_back(block); });
    REQUIRE_MESSAGE(opened, to_string(opened.error()));
    ssd = std::move(*opened);
  }
  tiered_store store{std::move(*cut), tiers, c.blocks};
  store.recover(found);

  const auto executor = sys.spawn(executor_behavior);
  n.shard = sys.spawn<cache_shard>(n.context, std::move(store), ssd, executor, ssd_price,
                                   duration{std::chrono::minutes(10)});
  n.messenger = sys.spawn<messenger>(n.context, executor);
  if (!hardware_->info().host_memory) {
    auto kv = device_kv::make(*hardware_, layout_, 64 * layout_.block_bytes(), 128, {false, 0}, c.blocks);
    REQUIRE_MESSAGE(kv, to_string(kv.error()));
    c.device_blocks = std::move(*kv);
    n.writer = sys.spawn<device_writer>(n.context, n.shard, executor);
    roots_.push_back(caf::actor_cast<caf::actor>(n.writer));
  }
  worker_links links{worker_id{id + 1}, n.shard, n.messenger, executor};
  links.health = n.health;
  links.device_lost = [losses = n.losses](const std::string& why) { losses->push_back(why); };
  if (c.device_blocks) {
    links.loads = sys.spawn(held_executor, n.loads);
    roots_.push_back(caf::actor_cast<caf::actor>(links.loads));
  }
  n.prefill = sys.spawn<prefill_worker>(n.context, links, make_engine(&n, n.prefill_fails));
  n.decode = sys.spawn<decode_worker>(n.context, links, make_engine(&n, n.decode_fails), n.board);
  for (const auto& root : {caf::actor_cast<caf::actor>(n.prefill), caf::actor_cast<caf::actor>(n.decode),
                           caf::actor_cast<caf::actor>(n.messenger), caf::actor_cast<caf::actor>(n.shard),
                           caf::actor_cast<caf::actor>(executor)}) {
    roots_.push_back(root);
  }
}

void worker_world::introduce(const worker_node& to, const worker_node& whom) {
  node_info info;
  info.id = whom.id;
  info.data_plane = encode(whom.context->plane->local_announcement());
  info.shard = caf::actor_cast<caf::actor>(whom.shard);
  caf::anon_send(to.messenger, peer_up_atom_v, info);
}

std::vector<std::int32_t> worker_world::prompt(std::size_t tokens, std::uint32_t seed) {
  std::mt19937 random{seed};
  std::vector<std::int32_t> out(tokens);
  for (auto& t : out) t = static_cast<std::int32_t>(random() % 199);
  return out;
}

void worker_world::part(const worker_node& from, const worker_node& whom) {
  caf::anon_send(from.messenger, peer_down_atom_v, whom.id);
  caf::anon_send(from.prefill, peer_down_atom_v, whom.id);
  caf::anon_send(from.decode, peer_down_atom_v, whom.id);
}

generate_job worker_world::job(std::vector<std::int32_t> tokens, const worker_node& where_prefill,
                               const worker_node& where_decode, std::uint32_t max_tokens) {
  generate_job j;
  j.id.request = request_id{next_request_++};
  j.tokens = std::move(tokens);
  j.prompt_tokens = static_cast<std::uint32_t>(j.tokens.size());
  j.root = root_key(net_->fingerprint(), layout_);
  j.keys = block_keys(j.tokens, block_tokens, j.root);
  j.sampling.max_tokens = max_tokens;
  j.sampling.temperature = 0.8f;
  j.sampling.seed = 42;
  j.placement.id = j.id;
  j.placement.prefill_node = where_prefill.id;
  j.placement.decode_node = where_decode.id;
  j.gateway_node = node_id{300};
  j.gateway = caf::actor_cast<caf::actor>(gateway_);
  j.prefill = caf::actor_cast<caf::actor>(where_prefill.prefill);
  j.decode = caf::actor_cast<caf::actor>(where_decode.decode);
  return j;
}

void worker_world::send_job(const generate_job& j) {
  caf::anon_send(caf::actor_cast<decode_worker_actor>(j.decode), job_atom_v, j);
  caf::anon_send(caf::actor_cast<prefill_worker_actor>(j.prefill), job_atom_v, j);
}

void worker_world::cancel(const generate_job& j) {
  caf::anon_send(caf::actor_cast<decode_worker_actor>(j.decode), cancel_atom_v, j.id);
  caf::anon_send(caf::actor_cast<prefill_worker_actor>(j.prefill), cancel_atom_v, j.id);
}

bool worker_world::over(const generate_job& j) {
  const auto& l = log(j);
  return l.finish != finish_reason::none || l.failed;
}

void worker_world::serve(const generate_job& j) {
  send_job(j);
  REQUIRE(until([&] { return over(j); }));
}

bool worker_world::idle(const worker_node& n) {
  const auto s = status(n);
  CHECK(s.consistent);
  return s.slots_reserved + s.slots_pinned + s.slots_private + s.slots_quarantined + s.owners == 0 &&
         n.board->size() == 0;
}

std::vector<std::int32_t> worker_world::reference(const generate_job& j) {
  const auto machine = make_engine();
  const auto blocks = layout_.blocks_for(j.tokens.size() + j.sampling.max_tokens);
  std::vector<std::byte> memory(blocks * layout_.block_bytes() + 64);
  std::vector<std::byte*> at;
  auto* base = memory.data() + (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64) % 64;
  for (std::size_t i = 0; i < blocks; ++i) at.push_back(base + i * layout_.block_bytes());
  const auto fed = static_cast<std::ptrdiff_t>(j.prompt_tokens);
  sampler choose{j.sampling,
                 std::span{j.tokens}.first(j.prompt_tokens),
                 {},
                 net_->config().vocab_size,
                 std::span{j.tokens}.subspan(j.prompt_tokens)};
  std::vector<float> logits(net_->config().vocab_size);
  std::vector<std::int32_t> out(j.tokens.begin() + fed, j.tokens.end());
  auto next = j.tokens;
  std::uint32_t start = 0;
  while (out.size() < j.sampling.max_tokens) {
    const batch_item item{next, start, at, true};
    REQUIRE(machine->runner->forward({&item, 1}, logits));
    start += static_cast<std::uint32_t>(next.size());
    const auto token = choose.next(logits).id;
    choose.accept(token);
    out.push_back(token);
    next = {token};
  }
  return out;
}

}  // namespace mooncaf::testing
