#pragma once
// One-sided transfers of a virtual process, and which peers may make them: around the real `fetch_core` and
// `peer_fence`, a twin of actors/messenger.cpp and of the data plane.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "runtime/request/fetch_core.hpp"
#include "runtime/sched/peer_fence.hpp"
#include "tests/campaign/network.hpp"

namespace mooncaf::campaign {

class machine;

class courier {
 public:
  explicit courier(machine& here);
  void up(process peer);
  void down(process peer);
  void fence(process peer, std::uint64_t fences, std::function<void()> answered);
  std::uint64_t fences_of(process peer) const;
  bool reaches(process peer) const;
  const std::vector<node_id>& fenced() const noexcept { return peers_.fenced(); }

  /// A write: `land` happens at the other end, or never; `ended` here, with whether it landed and whether it
  /// can still land.
  using ended_fn = std::function<void(bool landed, bool fenced)>;
  std::uint64_t write(process to, std::function<void()> land, ended_fn ended);
  void cancel(std::uint64_t write);
  /// Hears of a fetch by layers while it goes on.
  struct layer_watch {
    std::function<void(std::uint32_t leading)> landed;
    std::function<void()> gave_up;
  };
  using fetched_fn = std::function<void(const remote_blocks&)>;
  /// @param watch  null: the blocks come in runs.
  void fetch(const fetch_plan& plan, fetched_fn answered, std::shared_ptr<layer_watch> watch = {});
  /// The fetch of this attempt ends now, with what arrived.
  void stop(const attempt_id& id);

  std::uint64_t reads = 0;   ///< pieces that arrived
  std::uint64_t beside = 0;  ///< … from another node than the source of their fetch

 private:
  struct transfer {
    process to;
    ended_fn ended;
    std::shared_ptr<bool> dropped;
  };
  struct fetching {
    node_id source;
    fetched_fn answered;
    std::shared_ptr<layer_watch> watch;
    std::vector<bool> in;  ///< layers
  };
  struct reading {
    fetch_action::read what;
    std::uint64_t session = 0;  ///< how often the sender had been shut out
    time_point began;
    bool cancelled = false;
  };

  void act();
  void carry_out(const peer_action::admit& order);
  void carry_out(const peer_action::part& order);
  void carry_out(const peer_action::remove& order);
  void carry_out(const peer_action::close& order);
  void carry_out(const peer_action::close_later& order);
  void carry_out(const peer_action::fenced& order);
  void carry_out(fetch_action::pin& order);
  void carry_out(const fetch_action::release& order);
  void carry_out(fetch_action::read& order);
  void carry_out(const fetch_action::cancel& order);
  void carry_out(const fetch_action::give_up& order);
  void carry_out(fetch_action::verify& order);
  void carry_out(fetch_action::answer& order);

  void arrive(std::uint64_t id, process to, std::uint64_t session, std::function<void()> land,
              std::shared_ptr<bool> dropped);
  void end(std::uint64_t id, bool landed, bool fenced);
  void read_arrives(std::uint64_t id);
  /// Copies the bytes of a read here. @returns whether they are what they should be, where that is known.
  bool copy(const fetch_action::read& what);
  void end_read(std::uint64_t id, const error& failure);

  machine& here_;
  peer_fence peers_;
  fetch_core fetches_;
  std::map<process, bool> admitted_;                       ///< we may begin transfers with them
  std::map<process, bool> open_to_;                        ///< they may begin writes to us
  std::map<process, std::uint64_t> closed_;                ///< how often they were shut out
  std::map<std::uint64_t, std::function<void()>> fences_;  ///< by ticket
  std::map<std::uint64_t, transfer> under_way_;
  std::map<fetch_ticket, fetching> fetching_;
  std::map<std::uint64_t, reading> reading_;
  std::uint64_t next_ = 1;  ///< write, fence or fetch
};

}  // namespace mooncaf::campaign
