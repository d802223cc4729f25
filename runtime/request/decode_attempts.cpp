#include "runtime/request/decode_attempts.hpp"

#include <string>
#include <unordered_set>
#include <utility>

namespace mooncaf {

namespace {

constexpr auto early_limit =
    std::chrono::seconds(30);  ///< limit for a finished prefill whose job never comes

using namespace decode_action;
using attempt_action::join;

}  // namespace

decode_attempts::attempt* decode_attempts::find(std::uint64_t owner) {
  const auto i = attempts_.find(owner);
  return i == attempts_.end() ? nullptr : &i->second;
}

// ---- the prompt ----

bool decode_attempts::wants(const attempt_id& id) const {
  return !attempts_.contains(id.owner()) && !cancelled_early_.contains(id.owner());
}

void decode_attempts::take(const work_order& job, bool connected) {
  const auto owner = job.id.owner();
  auto& a = attempts_[owner];
  a.id = job.id;
  a.gateway = job.gateway_node;
  a.prefill = job.placement.prefill_node;
  a.local = a.prefill == self_;
  auto chain = chain_of(job);
  const auto reusable = static_cast<std::uint32_t>(chain.size());
  const auto total = (job.tokens.size() + block_tokens_ - 1) / block_tokens_;
  a.claim = block_claim{job.id, std::move(chain), reusable, static_cast<std::uint32_t>(total)};
  if (lost_) return fail(owner, *lost_, true);
  if (attempts_.size() > limit_) {
    return fail(owner, {ec::overloaded, "decode queue is full (" + std::to_string(limit_) + " requests)"},
                true);
  }
  if (!a.local && !connected) {
    // Its worker's handle would lead through the gateway: no word of its end, no answer that must come.
    return fail(owner, {ec::unavailable, "the node that computes the prompt is not connected"}, true);
  }
  if (!a.local) return void(actions_.emplace_back(pin{owner, a.claim.pin(all_blocks)}));
  a.at = phase::receiving;
  if (auto early = early_.extract(owner)) prefill_finished(early.mapped().first, early.mapped().second);
}

void decode_attempts::pinned(std::uint64_t owner, std::uint32_t turn, const pinned_slots& held) {
  auto* a = find(owner);
  if (a == nullptr || a->over) return;
  if (const auto count = a->claim.pinned(turn, held)) actions_.emplace_back(reserve{owner, *count});
}

void decode_attempts::reserved(std::uint64_t owner, std::span<const slot_index> slots, std::uint64_t fences) {
  auto* a = find(owner);
  if (a == nullptr || a->over) return;
  a->at = phase::receiving;
  a->claim.reserved(slots);
  // From here on the prefill side may write into these slots.
  a->exposed = true;
  a->fences = fences;
  const auto have = a->claim.have();
  actions_.emplace_back(receive{owner, have, {a->claim.slots().begin() + have, a->claim.slots().end()}});
  if (auto early = early_.extract(owner)) prefill_finished(early.mapped().first, early.mapped().second);
}

void decode_attempts::refused(std::uint64_t owner, const error& why) {
  const auto* a = find(owner);
  if (a != nullptr && !a->over) fail(owner, why, true);
}

void decode_attempts::prefill_finished(const prefill_done& message, time_point now) {
  const auto owner = message.id.owner();
  auto* a = find(owner);
  if (a == nullptr) {
    if (!cancelled_early_.contains(owner)) {
      early_[owner] = {message, now};
    } else if (!message.slots.empty()) {
      // Handed over to a request that has been cancelled: its blocks have no other owner any more.
      actions_.emplace_back(release{owner});
    }
    return;
  }
  if (!a->local && a->at == phase::reserving) {
    // Its blocks are not known yet: `reserved` looks for it here.
    early_[owner] = {message, now};
    return;
  }
  a->done = message;
  if (a->local) {
    a->claim.take_over(message.slots, message.checksums);
    complete(*a);
  } else if (a->at == phase::receiving) {
    actions_.emplace_back(expect{owner, message.transfers});
  }
}

void decode_attempts::landed(std::uint64_t owner, bool complete_and_right) {
  auto* a = find(owner);
  if (a == nullptr) return;
  if (!complete_and_right)
    return fail(owner, {ec::corrupt, "a KV slice failed its checksum on arrival"}, true);
  a->exposed = false;
  actions_.emplace_back(confirm{owner});
  const auto have = a->claim.have();
  const auto& sums = a->done->checksums;
  if (have < sums.size()) {
    auto items = a->claim.name(have, std::span{sums}.subspan(have));
    if (!items.empty()) actions_.emplace_back(commit{owner, std::move(items)});
  }
  complete(*a);
}

void decode_attempts::complete(attempt& a) {
  a.at = phase::ready;
  actions_.emplace_back(join{a.claim.owner()});
}

// ---- steps ----

void decode_attempts::step_begun(std::uint64_t owner) { attempts_.at(owner).busy = true; }

bool decode_attempts::step_ended(std::uint64_t owner) {
  auto* a = find(owner);
  if (a == nullptr) return false;
  a->busy = false;
  if (a->over) {
    end(owner);
    return false;
  }
  take_fresh(*a);
  return true;
}

void decode_attempts::grow(std::uint64_t owner) {
  auto& a = attempts_.at(owner);
  if (std::exchange(a.growing, true)) return;
  actions_.emplace_back(reserve{owner, 1});
}

void decode_attempts::grown(std::uint64_t owner, std::span<const slot_index> slots) {
  auto* a = find(owner);
  if (a == nullptr) return;
  a->growing = false;
  if (a->over) return;
  a->fresh.insert(a->fresh.end(), slots.begin(), slots.end());
  take_fresh(*a);
}

bool decode_attempts::not_grown(std::uint64_t owner) {
  auto* a = find(owner);
  if (a == nullptr) return false;
  a->growing = false;
  return !a->over;
}

void decode_attempts::take_fresh(attempt& a) {
  if (a.busy || a.fresh.empty()) return;
  a.claim.reserved(std::exchange(a.fresh, {}));
}

// ---- ends ----

void decode_attempts::cancel(const attempt_id& id, time_point now) {
  const auto owner = id.owner();
  if (const auto* a = find(owner)) {
    // Until the hand-over a local prefill worker owns the blocks; a hand-over that comes later is released on
    // arrival.
    if (a->local && !a->done) cancelled_early_[owner] = now;
    return end(owner);
  }
  cancelled_early_[owner] = now;
  if (const auto early = early_.extract(owner); early && !early.mapped().first.slots.empty())
    actions_.emplace_back(release{owner});
}

void decode_attempts::fail(std::uint64_t owner, error cause, bool retriable) {
  attempt_failed message;
  message.cause = std::move(cause);
  message.retriable = retriable;
  fail(attempts_.at(owner), std::move(message));
}

void decode_attempts::refuse(std::uint64_t owner, error cause, duration retry_after) {
  auto& a = attempts_.at(owner);
  attempt_failed message;
  message.cause = std::move(cause);
  message.retriable = false;
  message.wasted_prefill_tokens = a.done->computed_tokens;
  message.retry_after_ns = retry_after.count();
  fail(a, std::move(message));
}

void decode_attempts::fail(attempt& a, attempt_failed message) {
  message.id = a.id;
  message.lost_device = lost_ && a.busy && !leaving_;
  actions_.emplace_back(std::move(message));
  end(a.claim.owner());
}

void decode_attempts::device_lost(error why) {
  lost_ = std::move(why);
  std::vector<std::uint64_t> owners;
  for (const auto& [owner, a] : attempts_) {
    if (!a.over) owners.push_back(owner);
  }
  for (const auto owner : owners) fail(owner, *lost_, true);
}

void decode_attempts::leave(error why) {
  if (lost_) return;
  leaving_ = true;
  device_lost(std::move(why));
}

void decode_attempts::end(std::uint64_t owner) {
  auto& a = attempts_.at(owner);
  if (!std::exchange(a.over, true)) actions_.emplace_back(withdraw{owner});
  if (a.busy) return;  // the step's end comes back here
  early_.erase(owner);
  // Else the blocks are still the prefill worker's.
  const bool ours = !a.local || a.done;
  if (ours) actions_.emplace_back(release{owner});  // fenced slots go into quarantine
  if (a.exposed) {
    // The prefill side may still write into the slots: they are free once it stopped or its links are down.
    stopping_[owner] = {a.prefill, a.fences};
    actions_.emplace_back(stop_prefill{a.id});
  }
  actions_.emplace_back(forget{owner});
  attempts_.erase(owner);
}

void decode_attempts::prefill_stopped(const attempt_id& id, bool stopped) {
  const auto owner = id.owner();
  const auto whom = stopping_.extract(owner);
  if (!whom) return;
  if (stopped) return fenced(owner);
  // It did not say that it stopped: cut its links instead, however long that takes.
  actions_.emplace_back(fence{owner, whom.mapped().first, whom.mapped().second});
}

void decode_attempts::peer_lost(node_id peer) {
  std::vector<std::uint64_t> orphans, cut_off;
  for (const auto& [owner, a] : attempts_) {
    if (a.gateway == peer) {
      orphans.push_back(owner);
    } else if (a.at != phase::ready && !a.local && a.prefill == peer) {
      cut_off.push_back(owner);
    }
  }
  for (const auto owner : orphans) end(owner);
  for (const auto owner : cut_off)
    fail(owner, {ec::peer_lost, "the node that computes the prompt cannot be reached"}, true);
}

roll_answer decode_attempts::answer_roll(const roll_call& call, time_point now) {
  std::unordered_set<std::uint64_t> live;
  roll_answer out;
  for (const auto& id : call.live) {
    live.insert(id.owner());
    const auto* a = find(id.owner());
    if (a == nullptr) {
      out.unknown.push_back(id);
    } else if (a->at == phase::receiving && !a->over) {
      out.waiting.push_back(id);
    }
  }
  std::vector<attempt_id> orphans;
  for (const auto& [owner, a] : attempts_) {
    if (a.gateway == call.gateway && !a.over && !live.contains(owner)) orphans.push_back(a.id);
  }
  for (const auto& id : orphans) cancel(id, now);
  return out;
}

std::vector<std::uint64_t> decode_attempts::sweep(time_point now) {
  for (auto i = early_.begin(); i != early_.end();) {
    if (now - i->second.second <= early_limit || attempts_.contains(i->first)) {
      ++i;
      continue;
    }
    if (!i->second.first.slots.empty()) actions_.emplace_back(release{i->first});
    i = early_.erase(i);
  }
  std::erase_if(cancelled_early_, [&](const auto& e) { return now - e.second > early_limit; });
  std::vector<std::uint64_t> owners;
  owners.reserve(attempts_.size() + early_.size());
  for (const auto& [owner, a] : attempts_) owners.push_back(owner);
  for (const auto& [owner, handover] : early_) owners.push_back(owner);
  return owners;
}

}  // namespace mooncaf
