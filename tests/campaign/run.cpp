// Runs a schedule and looks whether what is promised was kept (actors/FAILURES.md).

#include <algorithm>
#include <set>

#include "tests/campaign/schedule.hpp"

namespace mooncaf::campaign {

namespace {

constexpr duration answer_bound = 60s;  ///< from the end of the last fault to the end of every request
constexpr duration settle_bound = 90s;  ///< … until nothing is held anywhere
constexpr duration look_interval = 1s;

/// What a client got of one answer.
struct answer final : token_sink {
  std::vector<std::int32_t> prompt_tokens, got;
  std::uint32_t wanted = 0;
  int ends = 0;
  std::optional<error> cause;
  bool whole = false;
  bool left = false;

  void prompt(std::span<const std::int32_t>, std::span<const sampled_token>) override {}
  bool token(const sampled_token& t) override {
    got.push_back(t.id);
    return true;
  }
  void finished(finish_reason, const generation_report&) override {
    ++ends;
    whole = true;
  }
  void failed(const error& e, std::chrono::seconds) override {
    ++ends;
    cause = e;
  }
  std::uint64_t wrong_tokens() const {
    auto hash = fold_all(prompt_tokens);
    std::uint64_t wrong = 0;
    for (const auto t : got) {
      wrong += t != token_after(hash);
      hash = fold(hash, t);
    }
    return wrong;
  }
};

/// A failure that a client may be told when workers are lost, or there is no room.
bool documented(ec code) {
  return code == ec::unavailable || code == ec::overloaded || code == ec::out_of_space ||
         code == ec::slo_unreachable || code == ec::invalid_argument;
}

struct client {
  process at = 0;
  client_request_ptr request;
  std::vector<std::shared_ptr<answer>> answers;
};

class execution {
 public:
  explicit execution(const schedule& what) : what_(what), w_(what.seed) {}
  verdict run();

 private:
  void start(std::size_t place, const roles& as);
  void begin(const request_plan& plan);
  void strike(const fault& f);
  void strike_disk(const fault& f);
  void leave(const fault& f);
  void restart_later(std::size_t place, process was, duration wait);
  void check_answers();
  /// What is not as it should be once nothing is under way.
  std::vector<std::string> remains();
  void check_shard(const machine& m, std::vector<std::string>& out);
  bool all_over() const;
  process at(std::size_t place) const { return standing_[place % standing_.size()]; }
  bool up(process p) const { return w_.net.alive(p) && !w_.net.paused(p); }

  const schedule& what_;
  world w_;
  std::vector<process> standing_;             ///< by place
  std::vector<std::unique_ptr<disk>> disks_;  ///< by place; they outlive processes
  std::set<std::size_t> away_;                ///< places that were left for ever
  std::vector<client> clients_;
  std::set<block_key> known_;  ///< blocks that some shard held
  verdict out_;
};

void execution::start(std::size_t place, const roles& as) {
  const auto p = w_.net.start();
  if (as.conductor) w_.conductor = p;
  if (place == disks_.size()) disks_.push_back(std::make_unique<disk>());
  auto& ssd = *disks_[place];
  ssd.capacity = as.ssd_blocks;
  ssd.policy = what_.writes;
  w_.machines.push_back(std::make_unique<machine>(w_, p, as, as.ssd_blocks > 0 ? &ssd : nullptr));
  if (place < standing_.size()) {
    standing_[place] = p;
  } else {
    standing_.push_back(p);
  }
  w_.machines.back()->start();
}

void execution::begin(const request_plan& plan) {
  std::vector<process> gateways;
  for (const auto p : standing_) {
    if (w_.machines[p]->gateway && !w_.machines[p]->closed && w_.net.alive(p)) gateways.push_back(p);
  }
  if (gateways.empty()) return;  // connection refused
  client c;
  c.at = gateways[plan.gateway % gateways.size()];
  c.request = std::make_shared<client_request>();
  c.request->arrived = w_.time.now();
  for (std::uint32_t i = 0; i < plan.answers; ++i) {
    auto sink = std::make_shared<answer>();
    sink->prompt_tokens = plan.prompt;
    sink->wanted = plan.tokens;
    generation g;
    g.prompt = plan.prompt;
    g.sampling.max_tokens = plan.tokens;
    g.share = {plan.tokens % 3, 1 + plan.tokens % 2};
    g.sink = sink;
    c.answers.push_back(std::move(sink));
    c.request->generations.push_back(std::move(g));
  }
  out_.requests += plan.answers;
  auto& m = *w_.machines[c.at];
  w_.net.in(c.at, 0ns, [&m, request = c.request] {
    m.gateway->core.submit(request, m.now());
    m.gateway->act();
  });
  if (plan.leaves > 0ns) {
    const auto answers = c.answers;
    w_.net.in(c.at, plan.leaves, [&m, request = c.request, answers] {
      for (const auto& a : answers) a->left = a->ends == 0;
      m.gateway->core.client_gone(request, m.now());
      m.gateway->act();
    });
  }
  clients_.push_back(std::move(c));
}

void execution::strike(const fault& f) {
  const auto p = at(f.place), q = at(f.other);
  ++out_.faults;
  switch (f.what) {
    case fault_kind::cut:
    case fault_kind::cut_one_way:
      if (p == q) return;
      w_.net.cut(p, q, true, f.what == fault_kind::cut);
      w_.time.after(f.length, [this, p, q] { w_.net.heal(p, q); });
      return;
    case fault_kind::slow:
      if (p == q) return;
      w_.net.slow(p, q, 300ms);
      w_.time.after(f.length, [this, p, q] { w_.net.slow(p, q, {}); });
      return;
    case fault_kind::pause:
      if (!up(p)) return;
      w_.net.pause(p);
      w_.time.after(f.length, [this, p] {
        if (w_.net.paused(p)) w_.net.resume(p);
      });
      return;
    case fault_kind::kill: {
      if (!w_.net.alive(p) || w_.net.size() >= network::most) return;
      const auto place = f.place % standing_.size();
      away_.erase(place);
      w_.net.kill(p);
      return restart_later(place, p, f.length);
    }
    case fault_kind::swallow:
      w_.net.swallow(30);
      w_.time.after(f.length, [this] { w_.net.swallow(0); });
      return;
    case fault_kind::leave:
    case fault_kind::drain:
      return leave(f);
    case fault_kind::disk_fails:
    case fault_kind::disk_slow:
    case fault_kind::disk_rots:
      return strike_disk(f);
    case fault_kind::join:
      if (w_.net.size() >= network::most) return;
      start(standing_.size(), {.prefill = true, .decode = f.length > 4s, .slots = 24});
      return;
  }
}

void execution::leave(const fault& f) {
  const auto place = f.place % standing_.size();
  const auto p = standing_[place];
  if (!up(p) || w_.machines[p]->leaving || w_.net.size() >= network::most) return;
  const bool returns = f.other % 2 == 0 || w_.machines[p]->what.conductor;
  if (!returns) away_.insert(place);
  // Long enough for what runs, most often.
  const auto limit = f.what == fault_kind::leave ? duration{} : f.length < 1s ? 100ms : 8s;
  w_.net.in(p, 0ns, [m = w_.machines[p].get(), limit] { m->drain(limit); });
  if (returns) restart_later(place, p, f.length);
}

void execution::restart_later(std::size_t place, process was, duration wait) {
  w_.time.after(wait, [this, place, was] {
    if (standing_[place] != was || w_.net.size() >= network::most) return;
    if (w_.net.alive(was)) return restart_later(place, was, 100ms);  // it still writes
    start(place, w_.machines[was]->what);
  });
}

void execution::strike_disk(const fault& f) {
  auto* ssd = disks_[f.place % standing_.size()].get();
  switch (f.what) {
    case fault_kind::disk_fails:
      ssd->refuses = true;
      w_.time.after(f.length, [ssd] { ssd->refuses = false; });
      return;
    case fault_kind::disk_slow:
      ssd->extra = 50ms;
      w_.time.after(f.length, [ssd] { ssd->extra = {}; });
      return;
    default:
      for (auto& [key, block] : ssd->blocks) block.content += w_.luck.chance(30);
  }
}

bool execution::all_over() const {
  return std::ranges::all_of(clients_, [&](const client& c) {
    return !w_.net.alive(c.at) ||
           std::ranges::all_of(c.answers, [](const auto& a) { return a->ends > 0 || a->left; });
  });
}

void execution::check_answers() {
  for (const auto& c : clients_) {
    for (const auto& a : c.answers) {
      out_.tokens += a->got.size();
      const auto wrong = a->wrong_tokens();
      out_.wrong_tokens += wrong;
      if (wrong > 0) out_.broken.push_back("a client got wrong tokens");
      if (a->ends > 1) out_.broken.push_back("an answer ended twice");
      if (a->whole) {
        ++out_.finished;
        if (a->got.size() != a->wanted) out_.broken.push_back("a finished answer is too short or too long");
      } else if (a->cause) {
        ++out_.failed;
        if (!documented(a->cause->code)) out_.broken.push_back("a client was told: " + to_string(*a->cause));
      } else if (a->left) {
        ++out_.left;
      } else if (!w_.net.alive(c.at)) {
        ++out_.lost_with_gateway;
      } else {
        ++out_.hangs;
        out_.broken.push_back("an answer never ended");
      }
    }
  }
}

void execution::check_shard(const machine& m, std::vector<std::string>& out) {
  const auto node = "node " + std::to_string(m.self);
  const auto counts = m.cache->store().integrity();
  const auto none = [&](std::size_t count, const char* what) {
    if (count > 0) out.push_back(node + ": " + std::to_string(count) + " " + what);
  };
  none(counts.reserved, "slots reserved");
  none(counts.pinned, "blocks pinned");
  none(counts.private_, "slots private");
  none(counts.quarantined, "slots in quarantine");
  none(counts.owners, "owners");
  std::string why;
  if (!m.cache->store().consistent(&why)) out.push_back(node + ": " + why);
  const auto& core = w_.machines[w_.conductor]->conductor->core.scheduler();
  const auto index = core.cluster().index_of(node_of(m.self));
  if (!index) return;
  std::set<block_key> held;
  for (const auto& e : m.cache->store().snapshot().blocks) held.insert(e.name.key);
  known_.insert(held.begin(), held.end());
  for (const auto& key : known_) {
    const bool said = core.index().matched_blocks(*index, {&key, 1}) == 1;
    if (said != held.contains(key))
      out.push_back(node + (said ? ": the index has a block that is gone" : ": the index lacks a block"));
  }
}

std::vector<std::string> execution::remains() {
  std::vector<std::string> out;
  const auto& core = w_.machines[w_.conductor]->conductor->core;
  if (const auto n = core.scheduler().charged_requests(); n > 0)
    out.push_back(std::to_string(n) + " requests charged");
  if (core.queue().size() > 0) out.push_back("requests in the queue");
  if (core.questions().askers() > 0) out.push_back("questions at the conductor");
  if (!core.scheduler().broken().empty()) out.push_back("the conductor takes links for broken");
  auto read_by_all = wire::newest;
  for (const auto p : standing_)
    if (w_.net.alive(p)) read_by_all = std::min(read_by_all, membership::wire_of(p));
  for (const auto p : standing_) {
    const auto& m = *w_.machines[p];
    if (!w_.net.alive(p)) continue;
    const auto node = "node " + std::to_string(p);
    if (m.leaving) out.push_back(node + " never leaves");
    if (!core.is_member(node_of(p))) out.push_back(node + " is no member");
    if (!m.member.standing().unreachable.empty()) out.push_back(node + " misses a member");
    if (away_.empty() && m.member.standing().speaks != read_by_all)
      out.push_back(node + " sends messages of a release that is not its oldest peer's");
    if (m.gateway && m.gateway->core.size() > 0) out.push_back(node + ": requests at the gateway");
    if (m.prefill && m.prefill->size() > 0) out.push_back(node + ": requests at prefill");
    if (m.decode && m.decode->size() > 0) out.push_back(node + ": requests at decode");
    if (!m.mail.fenced().empty()) out.push_back(node + " shuts a peer out");
    if (m.cache) check_shard(m, out);
  }
  for (std::size_t i = 0; i < standing_.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const auto a = standing_[i], b = standing_[j];
      if (away_.contains(i) || away_.contains(j)) continue;
      if (!w_.net.connected(a, b) || !w_.net.connected(b, a)) out.push_back("a pair of nodes is apart");
    }
  }
  return out;
}

verdict execution::run() {
  w_.net.on_lost = [this](process here, process other) { w_.machines[here]->lost(other); };
  w_.core.block_tokens = block_tokens;
  // Large enough that fetches are shared among holders, over links that are as much faster.
  constexpr double large = MiB;
  w_.core.bytes_per_token = MiB;
  w_.core.transfer = {.bytes_per_s = 2e8 * large, .ssd_bytes_per_s = 1e8 * large};
  w_.core.hot_copy_share = 0.3;
  w_.core.tbt_slo = std::chrono::milliseconds(100);
  w_.core.balancing_threshold = 4;
  w_.core.decode_span = std::chrono::seconds(20);
  w_.core.admission = what_.queues ? admission_policy::queue : admission_policy::none;
  w_.layout = {.n_layers = 1, .n_kv_heads = 1, .head_dim = 8, .block_tokens = block_tokens};
  w_.root = hash_text128("campaign");
  const auto zero = w_.time.now();
  for (const auto& place : what_.places) start(standing_.size(), place);
  auto quiet = zero + 300ms;
  for (const auto& r : what_.requests) {
    w_.time.at(zero + r.when, [this, &r] { begin(r); });
    quiet = std::max(quiet, zero + r.when);
  }
  for (const auto& f : what_.faults) {
    w_.time.at(zero + f.when, [this, &f] { strike(f); });
    quiet = std::max(quiet, zero + f.when + f.length);
  }
  w_.time.run_until(quiet);
  while (!all_over() && w_.time.now() < quiet + answer_bound)
    w_.time.run_until(w_.time.now() + look_interval);
  check_answers();
  for (const auto& m : w_.machines) {
    out_.attempts_failed += m->gateway ? m->gateway->attempts : 0;
    out_.fetched += m->mail.reads;
    out_.fetched_beside += m->mail.beside;
    if (!m->cache) continue;
    out_.written += m->cache->store().ssd_stats().writes;
    out_.read_back += m->cache->store().ssd_stats().promotions;
    out_.copied += m->keeper->copied;
  }
  auto left = remains();
  while (!left.empty() && w_.time.now() < quiet + settle_bound) {
    w_.time.run_until(w_.time.now() + look_interval);
    left = remains();
  }
  out_.leaks = left.size();
  out_.settled = w_.time.now() - quiet;
  out_.broken.insert(out_.broken.end(), left.begin(), left.end());
  out_.events = w_.time.events();
  return out_;
}

}  // namespace

verdict run(const schedule& what) { return execution{what}.run(); }

}  // namespace mooncaf::campaign
