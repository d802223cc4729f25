#include "runtime/ranks/rank_link.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "gpu/device_failure.hpp"
#include "runtime/ranks/notice_transfer.hpp"
#include "runtime/ranks/rank_order.hpp"
#include "transport/net/bytes.hpp"

namespace mooncaf {

namespace {

/// Of items, their blocks and keys, beside tokens and rows: a context of 4 million tokens in blocks of 64.
constexpr std::size_t order_bytes = 2 << 20;

}  // namespace

std::uint64_t rank_link::call_bytes(std::size_t tokens, std::size_t dim) noexcept {
  return order_bytes + tokens * (dim * sizeof(float) + sizeof(std::int32_t));
}

rank_link::rank_link(data_plane& plane, std::shared_ptr<std::atomic<std::uint64_t>> ids,
                     rank_notices& notices, std::span<std::byte> pages, rank_place place, arena out,
                     arena replies)
    : plane_(plane),
      ids_(std::move(ids)),
      notices_(notices),
      pages_(pages),
      place_(std::move(place)),
      out_(std::move(out)),
      replies_(std::move(replies)) {}

result<std::unique_ptr<rank_link>> rank_link::make(data_plane& plane,
                                                   std::shared_ptr<std::atomic<std::uint64_t>> ids,
                                                   rank_notices& notices, std::span<std::byte> pages,
                                                   rank_place place) {
  auto calls = arena::create("mooncaf-calls", place.inbox.length);
  if (!calls) return fail(std::move(calls.error()));
  auto answers = arena::create("mooncaf-answers", place.inbox.length);
  if (!answers) return fail(std::move(answers.error()));
  std::unique_ptr<rank_link> made{new rank_link(plane, std::move(ids), notices, pages, std::move(place),
                                                std::move(*calls), std::move(*answers))};
  auto out = plane.register_region(made->out_.bytes(), made->out_.fd());
  if (!out) return fail(std::move(out.error()));
  made->out_region_ = out->id;
  auto replies = plane.register_region(made->replies_.bytes(), made->replies_.fd());
  if (!replies) return fail(std::move(replies.error()));
  made->replies_region_ = replies->id;
  return made;
}

rank_link::~rank_link() { close(); }

void rank_link::close() {
  const std::lock_guard lock{mutex_};
  if (std::exchange(closed_, true)) return;
  (void)plane_.unregister_region(out_region_);
  (void)plane_.unregister_region(replies_region_);
}

result<void> rank_link::run(const stage_work& work) {
  const std::lock_guard lock{mutex_};
  if (closed_ || (work.cancel != nullptr && work.cancel->load())) return fail(ec::cancelled);
  // The rank reads a prefix out of the pages whenever it likes, so all of it has to be there.
  for (auto layer = place_.layers.first; work.before && layer < place_.layers.end(); ++layer)
    if (auto there = work.before(layer); !there) return there;
  auto outcome = send(work);
  if (outcome) outcome = answer(work);
  if (outcome || outcome.error() != ec::peer_lost) return outcome;
  // A rank that was only cut off may still write into blocks of this pass: these are held until none of it can land.
  while (!plane_.close_peer(place_.node)) {
  }
  throw device_failure("rank " + place_.name + ": " + outcome.error().detail);
}

/// @error `ec::peer_lost` whatever kept it from landing.
result<void> rank_link::write(std::vector<slice_pair> slices, const rank_notices::notice& what) {
  auto sent = send_notice(plane_, *ids_, place_.node, what, std::move(slices));
  if (!sent) return fail(ec::peer_lost, to_string(sent.error()));
  return sent;
}

result<void> rank_link::send(const stage_work& work) {
  const bool embeds = place_.layers.first == 0;
  std::vector<std::byte> head;
  encode(order_of(work.items, pages_.data(), embeds, static_cast<bool>(work.done)), head);
  const auto rows = std::as_bytes(work.from);
  const auto most = std::min<std::uint64_t>(out_.size_bytes(), place_.inbox.length);
  if (head.size() + rows.size() > most)
    return fail(ec::invalid_argument, "a pass of " + std::to_string(head.size() + rows.size()) +
                                          " bytes is more than a rank takes: " + std::to_string(most));
  std::memcpy(out_.base(), head.data(), head.size());
  if (!rows.empty()) std::memcpy(out_.base() + head.size(), rows.data(), rows.size());
  const auto bytes = head.size() + rows.size();
  return write({{{out_region_, 0, bytes}, {place_.inbox.id, 0, bytes}, {}}},
               {rank_notice::call, ++call_, static_cast<std::uint32_t>(bytes)});
}

/// Layers as they are told, and then the outcome: a status, and a text or the rows.
result<void> rank_link::answer(const stage_work& work) {
  for (;;) {
    const auto n = notices_.next(place_.node, rank_notices::stream::calls, peer_look);
    if (!n) {
      if (auto there = write({}, {rank_notice::quiet, call_, 0}); !there) return there;
      continue;
    }
    if (n->call != call_) continue;  // of a call that this link has given up
    if (n->kind == rank_notice::layer) {
      if (work.done && place_.layers.has(n->value)) work.done(n->value);
      continue;
    }
    byte_reader from{replies_.bytes().first(std::min<std::size_t>(n->value, replies_.size_bytes()))};
    // A rank that answers has ended its pass: nothing of it is under way.
    if (const auto status = from.get<std::uint32_t>(); status != 0 || !from.ok()) {
      if (status == static_cast<std::uint32_t>(ec::invalid_argument))
        return fail(ec::invalid_argument, from.get_text());
      throw device_failure("rank " + place_.name + ": " + from.get_text());
    }
    if (place_.part.rank != 0) return {};  // the first one's rows are those of all
    const auto rows = from.take(work.to.size_bytes());
    if (!from.ok()) return fail(ec::peer_lost, "its answer lacks rows");
    if (!rows.empty()) std::memcpy(work.to.data(), rows.data(), rows.size());
    return {};
  }
}

}  // namespace mooncaf
