#pragma once
// The actors of one process, with the messages that go to all of them.

#include <caf/typed_event_based_actor.hpp>
#include <caf/typed_response_promise.hpp>
#include <string>
#include <vector>

#include "actors/interfaces.hpp"

namespace mooncaf {

/// Empty handles for roles that the process does not have.
struct local_actors {
  conductor_actor conductor;
  cache_shard_actor shard;
  messenger_actor messenger;
  pool_keeper_actor keeper;
  device_writer_actor writer;  ///< null where the device computes in memory, or all is written through
  gateway_actor gateway;
  std::vector<prefill_worker_actor> prefill;
  std::vector<decode_worker_actor> decode;
  engine_worker_actor engine;
  std::string metrics_at;          ///< HOST:PORT where the process is scraped; empty: nowhere
  std::vector<rank_status> ranks;  ///< all stages of its group; empty: it is none

  void peer_up(const node_info& peer) const;
  void peer_down(node_id peer) const;
  /// They ask this conductor from now on; empty: none. @param term  of the leader.
  void follow(const conductor_actor& now, std::uint64_t term) const;
  /// Blocks are announced to this conductor, too.
  void announce_to(const conductor_actor& to) const;
  /// This process obeys another conductor than its own.
  void heard(const lead_claim& claim) const;

  /// Answers the message that `asker` handles with a report: the part that it has `begun`, and the status of
  /// each of them. An actor that does not answer in time is left out.
  caf::result<node_report> report(node_actor::base& asker, node_report begun) const;
};

}  // namespace mooncaf
