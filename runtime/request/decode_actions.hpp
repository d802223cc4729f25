#pragma once
// What a decode worker's core wants done.

#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "runtime/request/claim_actions.hpp"
#include "runtime/request/decode_sequence.hpp"

namespace mooncaf {

/// An answer's share of a step.
struct decode_part {
  std::uint64_t owner = 0;
  std::shared_ptr<const decode_sequence> sequence;  ///< stays as it is until `step_ended`
};

/// The outcome of a part.
struct decode_outcome {
  std::uint64_t owner = 0;
  token_msg token;
  finish_reason finish = finish_reason::none;  ///< whether the answer ends with it
  std::uint32_t first_block = 0;               ///< index of the first of
  std::vector<std::uint64_t> checksums;        ///< … the full blocks that it wrote to memory, ascending
};

namespace decode_action {
using claim_action::commit;
using claim_action::pin;
using claim_action::release;
using claim_action::reserve;
/// Count landings, fence the owner at the shard, and tell the prefill side to write into these slots:
/// `landed` follows.
struct receive {
  std::uint64_t owner = 0;
  std::uint32_t have_blocks = 0;  ///< that are here already
  std::vector<slot_index> slots;  ///< of the blocks behind them
};
/// So many landings make it complete.
struct expect {
  std::uint64_t owner = 0;
  std::uint32_t transfers = 0;
};
/// Tell the shard that no peer writes the owner's slots any more.
struct confirm {
  std::uint64_t owner = 0;
};
/// Take room for its prompt on the device, and pass pieces on to there as they land; or tell `no_room`.
struct make_room {
  std::uint64_t owner = 0;
  std::uint32_t have_blocks = 0;  ///< that may go there at once
  std::vector<slot_index> slots;  ///< of all blocks
};
/// All of its prompt is in memory: tell `loaded` when it is on the device, or cannot be brought there.
struct load {
  std::uint64_t owner = 0;
};
/// It is decoded from now on, behind this token.
struct begin {
  std::uint64_t owner = 0;
  std::int32_t first = -1;
};
/// The free device computes these; tell `step_ended`.
struct compute {
  std::vector<decode_part> parts;
};
/// The tokens that a step chose for the requests of one gateway.
struct send_tokens {
  node_id gateway;
  token_batch tokens;
};
/// It is over: no step begins with it, no landing counts.
struct withdraw {
  std::uint64_t owner = 0;
};
/// Ask the prefill worker to stop; tell `prefill_stopped`.
struct stop_prefill {
  attempt_id id;
};
/// Have the data plane shut this peer out, unless it was fenced more often than so; tell `fenced`.
struct fence {
  std::uint64_t owner = 0;
  node_id peer;
  std::uint64_t fences = 0;
};
/// Nothing is known of it any more; always its last action but `fence` and `confirm`.
struct forget {
  std::uint64_t owner = 0;
};
}  // namespace decode_action

/// Orders to the worker, in order; `attempt_failed` goes to the attempt's gateway.
using decode_actions = std::vector<
    std::variant<decode_action::pin, decode_action::reserve, decode_action::receive, decode_action::expect,
                 decode_action::confirm, decode_action::commit, decode_action::make_room, decode_action::load,
                 decode_action::begin, decode_action::compute, decode_action::send_tokens,
                 decode_action::withdraw, decode_action::release, decode_action::stop_prefill,
                 decode_action::fence, decode_action::forget, attempt_failed>>;

}  // namespace mooncaf
