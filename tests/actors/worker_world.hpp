#pragma once
// Real workers, shards and messengers of two nodes in one deterministic actor system, with a tiny dummy model
// on the host device and real data planes between the nodes. What the data planes' threads report waits in a
// queue until the test takes it, so that no actor moves behind the test's back.

#include <doctest/doctest.h>

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "actors/decode_worker.hpp"
#include "actors/prefill_worker.hpp"
#include "runtime/sched/transfer_price.hpp"
#include "tests/support/actor_fixture.hpp"

namespace mooncaf::testing {

/// What the data planes have to say, until somebody listens.
class report_queue {
 public:
  void put(std::function<void()> report);
  /// Runs all that waits. @returns whether there was something.
  bool drain();

 private:
  std::mutex mutex_;
  std::deque<std::function<void()>> waiting_;
};

/// Faults of one node's outgoing slices; none at first.
class switchable_faults final : public fault_injector {
 public:
  fault before_slice(transfer_path, transfer_id, std::uint32_t) override { return {kind.load(), {}}; }
  std::atomic<fault::kind> kind{fault::kind::none};
};

/// Everything that a gateway was told about one attempt.
struct attempt_log {
  std::optional<first_token> first;
  std::vector<std::int32_t> tokens;
  std::vector<std::uint32_t> positions;
  finish_reason finish = finish_reason::none;
  std::optional<attempt_failed> failed;
};

/// Tasks of an executor that run only when the test says so, in their order.
struct held_tasks {
  bool open = true;  ///< they run at once
  std::deque<std::function<void()>> waiting;

  void run_all() {
    for (; !waiting.empty(); waiting.pop_front()) waiting.front()();
  }
};

struct worker_node {
  node_id id;
  std::shared_ptr<node_context> context = std::make_shared<node_context>();
  std::shared_ptr<landing_board> board = std::make_shared<landing_board>();
  cache_shard_actor shard;
  device_writer_actor writer;  ///< of a far device
  messenger_actor messenger;
  prefill_worker_actor prefill;
  decode_worker_actor decode;
  /// The device fails with the pass behind so many others, after its last layer, for this worker or for both;
  /// less than 0: it works. `losses` has each worker's.
  std::shared_ptr<std::atomic<int>> prefill_fails = std::make_shared<std::atomic<int>>(-1);
  std::shared_ptr<std::atomic<int>> decode_fails = std::make_shared<std::atomic<int>>(-1);
  std::shared_ptr<std::atomic<bool>> whole_device_fails = std::make_shared<std::atomic<bool>>(false);
  /// What brings prompts to a far device, beside decode's steps.
  std::shared_ptr<held_tasks> loads = std::make_shared<held_tasks>();
  std::shared_ptr<device_health> health = std::make_shared<device_health>();
  std::shared_ptr<std::vector<std::string>> losses = std::make_shared<std::vector<std::string>>();
};

class worker_world : public actor_fixture<caf::id_block::mooncaf> {
 public:
  static constexpr std::uint32_t block_tokens = 4;

  /// @param ssd_path   of node a's SSD tier, written through; empty: none. What it holds is found again.
  /// @param ssd_price  of reading it, as a probe at the start would say.
  /// @param prefetch   how long prompts wait for their prefix; with `timeout`: not at all.
  /// @param far        each node's device has a memory of its own, which alone keeps what its prefill and
  ///                   decode make until it has to leave or is wanted elsewhere.
  explicit worker_world(std::uint32_t slots = 64, const std::string& ssd_path = {},
                        transfer_price ssd_price = {}, prefetch_mode prefetch = prefetch_mode::wait_complete,
                        bool far = false);
  ~worker_world();

  /// A job for `where_decode`, whose prompt is computed by `where_prefill`. Every job is a request of its
  /// own.
  generate_job job(std::vector<std::int32_t> prompt, const worker_node& where_prefill,
                   const worker_node& where_decode, std::uint32_t max_tokens = 10);
  /// Gives a job to both workers, as a gateway does. Nothing runs yet.
  void send_job(const generate_job& j);
  void cancel(const generate_job& j);
  void serve(const generate_job& j);  ///< sends it and waits until it is over
  bool over(const generate_job& j);

  /// Runs actors and reports until something is so.
  template <class Condition>
  bool until(Condition holds) {
    return eventually([&] {
      run();
      while (reports->drain()) run();
      return holds();
    });
  }
  shard_status status(const worker_node& n) { return ask<shard_status>(n.shard, status_atom_v).value(); }
  /// Nothing of any request is left at this node, but what is published.
  bool idle(const worker_node& n);
  bool all_idle() { return idle(a) && idle(b); }
  /// `whom` is back (or new) in the eyes of `to`; and gone.
  void introduce(const worker_node& to, const worker_node& whom);
  void part(const worker_node& from, const worker_node& whom);

  /// What the model itself answers, without any actor.
  std::vector<std::int32_t> reference(const generate_job& j);
  static std::vector<std::int32_t> prompt(std::size_t tokens, std::uint32_t seed = 1);

  attempt_log& log(const generate_job& j) { return (*logs)[j.id.owner()]; }

  std::shared_ptr<report_queue> reports = std::make_shared<report_queue>();
  std::shared_ptr<std::unordered_map<std::uint64_t, attempt_log>> logs =
      std::make_shared<std::unordered_map<std::uint64_t, attempt_log>>();
  switchable_faults faults_of_a;
  worker_node a, b;

 private:
  void make_node(worker_node& n, std::uint64_t id, std::uint32_t slots, const std::string& ssd_path,
                 transfer_price ssd_price);
  std::shared_ptr<engine> make_engine(const worker_node* where = nullptr,
                                      std::shared_ptr<std::atomic<int>> fails = {}) const;

  prefetch_mode prefetch_;
  std::shared_ptr<device> host_, hardware_;
  std::shared_ptr<const model> host_net_;  ///< what computes the reference
  std::shared_ptr<const model> net_;
  std::shared_ptr<const tokenizer> text_;
  kv_layout layout_;
  gateway_actor gateway_;
  std::vector<caf::actor> roots_;
  std::uint64_t next_request_ = 1;
};

}  // namespace mooncaf::testing
