#include "runtime/sim/arrivals.hpp"

#include <algorithm>
#include <cmath>
#include <span>

#include "runtime/sim/trace_keys.hpp"

namespace mooncaf::sim {

result<void> arrivals::begin(trace_source& source) {
  source_ = &source;
  return expect();
}

result<bool> arrivals::comes() {
  if (!source_->follows_answers()) return true;
  expected_ = 0;
  auto more = source_->next(upcoming_);
  if (more && *more) take_keys();
  return more;
}

std::uint32_t arrivals::open() {
  const auto slot = w_.requests.open(count_++);
  auto& r = w_.requests[slot];
  w_.out.peak_live = std::max<std::uint64_t>(w_.out.peak_live, w_.requests.live());
  r.arrival = w_.time.now();
  r.session = source_->session_given();
  r.prompt_tokens = upcoming_.input_tokens;
  r.output_tokens = upcoming_.output_tokens;
  const auto& o = w_.options;
  r.max_tokens = upcoming_.max_tokens > 0 ? upcoming_.max_tokens : o.max_tokens;
  if (upcoming_.priority) {
    r.priority = *upcoming_.priority;
  } else if (o.high_share > 0 || o.low_share > 0) {
    const double draw = priorities_.uniform();
    r.priority = draw < o.high_share ? 0 : draw < o.high_share + o.low_share ? 2 : 1;
  }
  r.share = upcoming_.share;
  r.keys.swap(keys_);
  w_.out.count(r.priority, r.share.owner, {.arrived = 1});
  return slot;
}

result<void> arrivals::expect() {
  if (!source_->follows_answers()) return read_ahead();
  expect_after_answers();
  return {};
}

result<void> arrivals::read_ahead() {
  const auto more = source_->next(upcoming_);
  more_ = more && *more;
  if (!more) return fail(more.error());
  if (!more_) return {};
  take_keys();
  const auto at = from_sec(with_bursts(
      w_.options.disturbances, static_cast<double>(upcoming_.timestamp_ms) * 1e-3 / w_.options.speed));
  w_.time.add(std::max(at, w_.time.now()), event_kind::arrival, 0);
  return {};
}

void arrivals::take_keys() {
  const auto full = std::min<std::size_t>(upcoming_.input_tokens / w_.options.hardware.block_tokens,
                                          upcoming_.hash_ids.size());
  keys_.clear();
  for (const auto id : std::span{upcoming_.hash_ids}.first(full)) keys_.push_back(key_of(id));
  w_.conductor.prefetch(keys_);
}

void arrivals::expect_after_answers() {
  const double due = source_->due_s();
  more_ = more_ && source_->share_given() < 1;
  if (std::isinf(due)) return;
  const auto at = std::max(from_sec(due), w_.time.now());
  if (expected_ > 0 && expected_ <= at) return;
  expected_ = std::max<ticks>(at, 1);
  w_.time.add(expected_, event_kind::arrival, 0);
}

void arrivals::answered(std::uint64_t session) {
  if (!source_->follows_answers()) return;
  source_->answered(session, to_sec(w_.time.now()));
  expect_after_answers();
}

}  // namespace mooncaf::sim
