#pragma once
// A process of a virtual cluster. What decides is the product's: `cluster_core`, `gateway_core`,
// `prefill_core`, `decode_core`, `copy_core`, `fetch_core`, `membership_core`, `peer_fence`, `block_claim`,
// `tiered_store`. What stays in the actors (streams) is a twin of them, as short as possible.

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/base/wire_version.hpp"
#include "runtime/request/cluster_core.hpp"
#include "runtime/request/copy_core.hpp"
#include "runtime/request/decode_core.hpp"
#include "runtime/request/drain_core.hpp"
#include "runtime/request/gateway_core.hpp"
#include "runtime/request/membership_core.hpp"
#include "runtime/request/prefill_core.hpp"
#include "tests/campaign/courier.hpp"
#include "tests/campaign/shard.hpp"
#include "tests/campaign/steady_pace.hpp"

namespace mooncaf::campaign {

inline constexpr std::uint32_t block_tokens = 4;
inline constexpr std::uint32_t layers = 3;  ///< in which prefixes come

inline node_id node_of(process p) { return node_id{p + 1}; }
inline process process_of(node_id node) { return node.value - 1; }
inline worker_id prefill_of(process p) { return worker_id{(p + 1) * 4 + 1}; }
inline worker_id decode_of(process p) { return worker_id{(p + 1) * 4 + 2}; }
inline process process_of(worker_id worker) { return worker.value / 4 - 1; }

/// Hash of tokens, one after the other: what a block holds up to its last token, and the next token.
inline std::uint64_t fold(std::uint64_t hash, std::int32_t token) noexcept {
  return (hash ^ static_cast<std::uint32_t>(token)) * 0x9E3779B97F4A7C15ull + (hash >> 29);
}
inline std::uint64_t fold_all(std::span<const std::int32_t> tokens) noexcept {
  std::uint64_t hash = 1;
  for (const auto t : tokens) hash = fold(hash, t);
  return hash;
}
inline std::int32_t token_after(std::uint64_t hash) noexcept {
  return static_cast<std::int32_t>((hash >> 17) % 30'000);
}

/// Of a slot whose content follows from wrong KV.
inline constexpr std::uint64_t garbage = 0xBAD;

inline std::uint32_t blocks_for(std::size_t tokens) {
  return static_cast<std::uint32_t>((tokens + block_tokens - 1) / block_tokens);
}

/// What block `i` holds when all of `tokens` are in.
inline std::uint64_t content_of(std::span<const std::int32_t> tokens, std::uint32_t i) {
  return fold_all(tokens.first(std::min<std::size_t>(tokens.size(), (i + 1) * block_tokens)));
}

inline token_msg as_token(std::int32_t id) {
  token_msg out;
  out.id = id;
  return out;
}

/// How long prompts take to compute, as calibrated: a millisecond per token.
inline const std::vector<timing_point> prefill_samples{{4, 0, 0.004}, {16, 0, 0.016}, {16, 16, 0.017}};

struct roles {
  bool conductor = false, gateway = false, prefill = false, decode = false;
  std::size_t slots = 0;       ///< of its arena; 0: it has no shard. Without a worker it keeps copies
  std::size_t ssd_blocks = 0;  ///< that its SSD takes; 0: it has none
};

class machine;

/// All that a schedule's processes share.
struct world {
  explicit world(std::uint64_t seed) : luck(seed), net(time, luck) {}
  /// Between actors of a process, where no dice are cast.
  duration hop() const { return steady ? duration{} : duration{10us}; }
  /// How long the steps of a worker take, as calibrated.
  std::span<const timing_point> samples(worker_role role) const {
    if (!steady) return prefill_samples;
    return role == worker_role::prefill ? steady->prefill.samples : steady->decode.samples;
  }
  /// Tokens that the answer has.
  std::uint32_t answer_of(const work_order& job) const {
    return steady ? steady->answers[job.sampling.seed] : job.sampling.max_tokens;
  }
  timeline time;
  dice luck;
  network net;
  std::vector<std::unique_ptr<machine>> machines;  ///< by process
  process conductor = 0;                           ///< the one that is there now, or was last
  conductor_options core;
  admission_queue_options queue;
  kv_layout layout;
  block_key root;
  std::shared_ptr<const steady_pace> steady;  ///< null: the dice decide
  journal::sink journal;                      ///< of the conductor
};

/// actors/node.cpp.
class membership {
 public:
  /// The newest messages that a process reads: every third one is of the release before.
  static std::uint32_t wire_of(process who) { return who % 3 == 1 ? wire::oldest : wire::newest; }

  explicit membership(machine& here);
  void start() { tick(); }
  void drain();
  void lost(process other);
  /// Another node introduces itself. @returns our number for the meeting.
  std::uint64_t greeted(process other, std::uint64_t meeting);
  /// What this node would report: the members that it misses.
  node_report standing() const { return core_.report(); }

 private:
  void tick();
  void report();
  void add_loads(node_report& mine) const;
  void greet(greeting_ticket greeting, process other);
  /// True until the answer, or until it is `too_late` for one.
  std::shared_ptr<bool> limited(std::function<void()> too_late);
  void act();
  void carry_out(const membership_action::dial& order);
  void carry_out(const membership_action::found&) {}
  void carry_out(const membership_action::join& order);
  void carry_out(const membership_action::follow& order);
  void carry_out(const membership_action::meet& order);
  void carry_out(const membership_action::part& order);
  void carry_out(const membership_action::speak&) {}
  void carry_out(const membership_action::complain&) {}
  void carry_out(const membership_action::give_up&) {}

  machine& here_;
  membership_core core_;
  std::optional<process> conductor_;
};

/// A prefill worker around the real core.
class prefill_twin {
 public:
  explicit prefill_twin(machine& here);
  void take(const work_order& job);
  void target(const kv_target& target);
  void cancel(const attempt_id& id, std::function<void(bool stopped)> answer);
  roll_answer answer_roll(const roll_call& call);
  void leave();
  void peer_lost(process peer);
  std::vector<std::uint64_t> sweep();
  std::size_t size() const noexcept { return core_.size(); }
  worker_load load() const { return core_.load(); }

 private:
  /// runtime/compute/prefix_load.cpp.
  struct layers_load {
    std::uint32_t leading = 0;
    bool given_up = false;
    time_point moved;
  };
  /// runtime/compute/kv_stream.cpp.
  struct stream {
    std::optional<kv_target> target;
    std::uint32_t ready = 0;  ///< tokens
    std::uint32_t sent = 0;   ///< blocks
    std::uint32_t transfers = 0;
    std::vector<std::uint64_t> under_way;
    prefill_done message;
    bool finished = false, failed = false, stopped = false, told = false, ended = false, fenced = true;
  };
  struct live {
    work_order job;
    bool right = true;  ///< all that was read was what it should be
    std::shared_ptr<layers_load> load;
    std::shared_ptr<stream> out;
    std::vector<std::function<void(bool)>> waiting;
  };
  void act();
  void carry_out(prefill_action::look& order);
  void carry_out(prefill_action::pin& order);
  void carry_out(const prefill_action::reserve& order);
  void carry_out(prefill_action::fetch& order);
  void carry_out(const prefill_action::remind& order);
  void carry_out(const prefill_action::stop_fetch& order);
  void carry_out(prefill_action::commit& order);
  void carry_out(const prefill_action::found_on_device&) {}
  void carry_out(prefill_action::compute& order);
  void carry_out(const prefill_action::choose_again& order);
  void carry_out(const first_token& message);
  void carry_out(const prefill_action::open_stream& order);
  void carry_out(const prefill_action::aim& order);
  void carry_out(const prefill_action::send& order);
  void carry_out(prefill_action::finish_stream& order);
  void carry_out(const prefill_action::stop_stream& order);
  void carry_out(prefill_action::hand_over& order);
  void carry_out(const prefill_action::stop_decode& order);
  void carry_out(const prefill_action::withdraw&) {}
  void carry_out(const prefill_action::release& order);
  void carry_out(const prefill_action::forget& order);
  void carry_out(attempt_failed& message);
  void step(const std::vector<prefill_part>& parts, duration took);
  void write(live& r, const prefill_part& part);
  static token_msg first_of(const live& r);
  void ready(std::uint64_t owner, std::uint32_t tokens);
  void flow(std::uint64_t owner);
  void settle(std::uint64_t owner, stream& s);

  prefill_twin(machine& here, const prefill_core_options& options);

  machine& here_;
  const std::uint32_t stages_;
  time_point ends_{};  ///< when the latest step does
  prefill_core core_;
  std::map<std::uint64_t, std::shared_ptr<live>> requests_;
};

/// A decode worker around the real core: steps whose time is drawn, and a device that prompts may have to be
/// brought to.
class decode_twin {
 public:
  explicit decode_twin(machine& here);
  void take(const work_order& job);
  void done(const prefill_done& message);
  void cancel(const attempt_id& id);
  roll_answer answer_roll(const roll_call& call);
  void leave();
  void peer_lost(process peer);
  void landed(std::uint64_t owner);
  std::vector<std::uint64_t> sweep();
  std::size_t size() const noexcept { return core_.size(); }
  worker_load load() const { return core_.load(); }

 private:
  struct live {
    work_order job;
    std::vector<std::int32_t> tokens;  ///< prompt and answer; the last one is not in the blocks yet
    bool right = true;
  };
  struct landing {
    std::uint32_t landed = 0;
    std::optional<std::uint32_t> expected;
  };
  void act();
  void carry_out(decode_action::pin& order);
  void carry_out(const decode_action::reserve& order);
  void carry_out(const decode_action::receive& order);
  void carry_out(const decode_action::expect& order);
  void carry_out(const decode_action::confirm& order);
  void carry_out(decode_action::commit& order);
  void carry_out(const decode_action::make_room& order);
  void carry_out(const decode_action::load& order);
  void carry_out(const decode_action::begin& order);
  void carry_out(decode_action::compute& order);
  void carry_out(decode_action::send_tokens& order);
  void carry_out(const decode_action::withdraw& order) { board_.erase(order.owner); }
  void carry_out(const decode_action::release& order);
  void carry_out(const decode_action::stop_prefill& order);
  void carry_out(const decode_action::fence& order);
  void carry_out(const decode_action::forget& order) { requests_.erase(order.owner); }
  void carry_out(attempt_failed& message);
  void check_landed(std::uint64_t owner);
  decode_outcome extend(std::uint64_t owner);

  machine& here_;
  decode_core core_;
  std::map<std::uint64_t, live> requests_;
  std::map<std::uint64_t, landing> board_;
};

/// actors/pool_keeper.cpp.
class keeper_twin {
 public:
  explicit keeper_twin(machine& here);
  copy_core core;
  void act();
  std::uint64_t copied = 0;  ///< blocks

 private:
  void carry_out(copy_action::pin& order);
  void carry_out(const copy_action::reserve& order);
  void carry_out(const copy_action::fetch& order);
  void carry_out(copy_action::commit& order);
  void carry_out(const copy_action::release& order);

  machine& here_;
};

/// actors/gateway.cpp.
class gateway_twin final : public gateway_observer {
 public:
  explicit gateway_twin(machine& here);
  gateway_core core;
  /// Carries out what the core wants done.
  void act();

  void first_token(duration, std::uint32_t, std::uint32_t) override {}
  void token(std::optional<duration>) override {}
  void prefill_wasted(std::uint32_t) override {}
  void attempt_failed(request_id, const error&) override { ++attempts; }
  void over(std::string_view, const std::string&, duration) override {}
  void waiting(std::size_t) override {}
  std::uint64_t attempts = 0;  ///< that failed

 private:
  void carry_out(schedule_job& job);
  void carry_out(const request_event& event);
  void carry_out(const work_order& order);
  void carry_out(const stop_order& order);
  void carry_out(const worker_roll& roll);
  void tick();

  machine& here_;
};

/// actors/conductor.cpp.
class conductor_twin {
 public:
  explicit conductor_twin(machine& here);
  member_card card_of(process who) const;
  cluster_core core;
  void act();
  void ask(const schedule_job& job, std::function<void(const placement_msg&)> answered);
  result<std::vector<node_id>> join(process who);
  std::pair<standing, std::vector<node_id>> report(const node_report& message);

 private:
  machine& here_;
  std::map<schedule_core::ticket, std::function<void(const placement_msg&)>> questions_;
  schedule_core::ticket next_ = 1;
};

class machine {
 public:
  /// @param ssd  of its place; null: none.
  machine(world& w, process self, const roles& what, disk* ssd);
  void start();
  /// Stops as it was told to (actors/process/process.cpp): writes what memory alone holds, tells clients, dies.
  void leave();
  /// The connection with another process broke.
  void lost(process other);
  void local_up(process peer);
  void local_down(process peer);
  void follow(bool conductor);
  /// Told to stop, with so much time for what runs.
  void drain(duration limit);
  void send_snapshot();

  machine& at(process p) { return *w.machines[p]; }
  time_point now() const { return w.time.now(); }
  /// A request that fails when its receiver's connection breaks, or after `limit`.
  void ask(process to, duration limit, std::function<void(std::function<void(network::action)>)> there,
           std::function<void()> failed);

  world& w;
  const process self;
  const roles what;
  membership member;
  courier mail;
  std::unique_ptr<shard> cache;
  std::unique_ptr<prefill_twin> prefill;
  std::unique_ptr<decode_twin> decode;
  std::unique_ptr<keeper_twin> keeper;
  std::unique_ptr<gateway_twin> gateway;
  std::unique_ptr<conductor_twin> conductor;
  bool leaving = false;
  bool closed = false;  ///< its gateway takes no new requests

 private:
  void tick();
  void send_events();
  void go_on_draining();

  struct question {
    process to;
    std::function<void()> failed;
  };
  std::optional<drain_core> drains_;
  std::map<std::uint64_t, question> questions_;
  std::uint64_t next_question_ = 1;
  bool announces_ = false;
};

}  // namespace mooncaf::campaign
