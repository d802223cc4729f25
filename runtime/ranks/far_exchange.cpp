#include "runtime/ranks/far_exchange.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "gpu/device_failure.hpp"
#include "runtime/ranks/notice_transfer.hpp"

namespace mooncaf {

far_exchange::far_exchange(data_plane& plane, std::shared_ptr<std::atomic<std::uint64_t>> ids,
                           rank_notices& notices, const tensor_part& part, std::size_t widest_row,
                           arena memory)
    : plane_(plane),
      ids_(std::move(ids)),
      notices_(notices),
      part_(part),
      slot_floats_(slot_for(widest_row, part.of)),
      memory_(std::move(memory)) {}

result<std::shared_ptr<far_exchange>> far_exchange::make(data_plane& plane,
                                                         std::shared_ptr<std::atomic<std::uint64_t>> ids,
                                                         rank_notices& notices, const tensor_part& part,
                                                         std::size_t widest_row) {
  const auto slots = 2 * slot_for(widest_row, part.of) * sizeof(float);
  auto memory = arena::create("mooncaf-exchange", part.of * (sizeof(turn_flag) + slots));
  if (!memory) return fail(std::move(memory.error()));
  std::shared_ptr<far_exchange> made{
      new far_exchange(plane, std::move(ids), notices, part, widest_row, std::move(*memory))};
  auto region = plane.register_region(made->memory_.bytes(), made->memory_.fd());
  if (!region) return fail(std::move(region.error()));
  made->region_ = region->id;
  return made;
}

far_exchange::~far_exchange() { close(); }

// Columns that are on their way are read until they have left, or their peer is gone.
void far_exchange::close() {
  {
    std::unique_lock lock{sends_->mutex};
    sends_->changed.wait(lock, [&] { return sends_->under_way[0] + sends_->under_way[1] == 0; });
  }
  if (const auto region = std::exchange(region_, {}); region != region_id{})
    (void)plane_.unregister_region(region);
}

result<void> far_exchange::meet(std::uint32_t group, std::vector<exchange_peer> others) {
  std::ranges::sort(others, {}, &exchange_peer::rank);
  std::uint32_t next = 0;
  for (const auto& peer : others) {
    if (next == part_.rank) ++next;
    if (peer.rank != next++)
      return fail(ec::invalid_argument, "rank " + std::to_string(part_.rank + 1) + " of " +
                                            std::to_string(part_.of) + " is told of other ranks than those");
    if (peer.slots.length < memory_.size_bytes())
      return fail(ec::invalid_argument,
                  "rank " + std::to_string(peer.rank + 1) + " has less memory for columns than this one");
    notices_.forget(peer.node, rank_notices::stream::exchange);
  }
  if (others.size() + 1 != part_.of)
    return fail(ec::invalid_argument, std::to_string(others.size()) + " other ranks of " +
                                          std::to_string(part_.of - 1) + " are told");
  group_ = group;
  others_.clear();
  for (auto& peer : others) {
    // A rank whose memory is not mapped, for whatever reason, is reached by transfers.
    auto view = plane_.map(peer.node, peer.slots.id);
    others_.push_back({std::move(peer), view.value_or(peer_view{}), {}, false});
  }
  return {};
}

std::size_t far_exchange::by_transfer() const noexcept {
  return static_cast<std::size_t>(
      std::ranges::count_if(others_, [](const other& o) { return !o.direct.value_or(false); }));
}

turn_flag& far_exchange::flag(std::byte* slots, std::uint32_t rank) const noexcept {
  return reinterpret_cast<turn_flag*>(slots)[rank];
}

std::uint64_t far_exchange::offset(std::uint32_t turn, std::uint32_t rank) const noexcept {
  return part_.of * sizeof(turn_flag) +
         (std::uint64_t{turn} * part_.of + rank) * slot_floats_ * sizeof(float);
}

float* far_exchange::slot(std::byte* slots, std::uint32_t turn, std::uint32_t rank) const noexcept {
  return reinterpret_cast<float*>(slots + offset(turn & 1, rank));
}

void far_exchange::swap(std::span<const tensor> parts) {
  const auto empty = [](const tensor& t) { return t.rows * t.cols == 0; };
  if (std::ranges::all_of(parts, empty)) return;  // ranks share no blocks
  const auto turn = ++turn_;
  check();
  send(turn, parts[part_.rank]);
  for (auto& from : others_) {
    await(from, turn);
    unpack(slot(memory_.base(), turn, from.at.rank), parts[from.at.rank]);
  }
}

void far_exchange::send(std::uint32_t turn, tensor own) {
  for (const auto& to : others_) {
    if (!to.direct.value_or(false)) continue;
    pack(own, slot(to.view.bytes.data(), turn, part_.rank));
    flag(to.view.bytes.data(), part_.rank).raise(turn);
  }
  const auto transfers = by_transfer();
  if (transfers == 0) return;
  {
    std::unique_lock lock{sends_->mutex};
    sends_->changed.wait(lock, [&] { return sends_->under_way[turn & 1] == 0; });
    sends_->under_way[turn & 1] = transfers;
  }
  pack(own, slot(memory_.base(), turn, part_.rank));
  for (const auto& to : others_)
    if (!to.direct.value_or(false)) transfer_to(to, turn, own.rows * own.cols * sizeof(float));
}

void far_exchange::transfer_to(const other& to, std::uint32_t turn, std::size_t bytes) {
  const auto from = offset(turn & 1, part_.rank);
  transfer order;
  order.id = transfer_id{ids_->fetch_add(1)};
  order.peer = to.at.node;
  if (bytes != 0) order.slices = {{{region_, from, bytes}, {to.at.slots.id, from, bytes}, {}}};
  const auto kind = to.view.bytes.empty() ? rank_notice::columns : rank_notice::mapped;
  order.tag = rank_notices::tag_of({kind, turn, group_});
  plane_.submit(std::move(order), [on = sends_, turn](const completion& c) {
    {
      const std::lock_guard lock{on->mutex};
      if (!c.outcome && on->problem.empty()) on->problem = to_string(c.outcome.error());
      --on->under_way[turn & 1];
    }
    on->changed.notify_all();
  });
}

/// The columns of a gather may land before those of the one before: connections of a peer do not wait for each other.
void far_exchange::await(other& from, std::uint32_t turn) {
  if (std::exchange(from.early, false)) return;
  do check();
  while (!here(from, turn));
}

/// Looks for a while. @throws device_failure if they cannot come any more.
bool far_exchange::here(other& from, std::uint32_t turn) {
  const auto lost = [&](const std::string& why) {
    throw device_failure("rank " + std::to_string(from.at.rank + 1) + " of the group " + why);
  };
  std::optional<rank_notices::notice> n;
  if (from.direct.value_or(false)) {
    const auto how = flag(memory_.base(), from.at.rank).await(turn, peer_look);
    check();
    if (how == turn_flag::outcome::ended) lost("has ended the pass");
    if (how == turn_flag::outcome::raised) return true;
  } else {
    n = notices_.next(from.at.node, rank_notices::stream::exchange, peer_look);
  }
  if (!n) {
    const auto there = send_notice(plane_, *ids_, from.at.node, {rank_notice::quiet, turn, 0});
    if (!there) lost("is gone: " + to_string(there.error()));
    return false;
  }
  if (n->value != group_) return false;  // of a former group
  if (n->kind == rank_notice::broken) lost("has ended the pass");
  if (!from.direct) from.direct = n->kind == rank_notice::mapped && !from.view.bytes.empty();
  if (n->call == turn) return true;
  if (n->call != turn + 1) lost("computes another pass");
  from.early = true;
  return false;
}

/// @throws device_failure if the exchange has ended.
void far_exchange::check() const {
  if (abandoned_) throw device_failure("the group's exchange has ended");
  const std::lock_guard lock{sends_->mutex};
  if (!sends_->problem.empty()) throw device_failure("columns did not reach a rank: " + sends_->problem);
}

void far_exchange::abandon(const std::string&) {
  if (abandoned_.exchange(true)) return;
  for (const auto& to : others_) {
    flag(memory_.base(), to.at.rank).end();  // of this rank's own wait
    if (!to.view.bytes.empty()) flag(to.view.bytes.data(), part_.rank).end();
    transfer order;
    order.id = transfer_id{ids_->fetch_add(1)};
    order.peer = to.at.node;
    order.tag = rank_notices::tag_of({rank_notice::broken, 0, group_});
    plane_.submit(std::move(order), [](const completion&) {});
  }
}

}  // namespace mooncaf
