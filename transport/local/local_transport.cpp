#include "transport/local/local_transport.hpp"

#include <algorithm>
#include <cstring>

#include "transport/copy/stream_copy.hpp"

namespace mooncaf {

local_transport::~local_transport() {
  std::deque<job> rest;
  {
    std::lock_guard lock{mutex_};
    stopping_ = true;
    cancel_running_ = true;
    rest.swap(queue_);
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
  for (auto& j : rest)
    j.on_done({.id = j.what.id,
               .outcome = fail(ec::cancelled, "the data plane stops"),
               .path = transfer_path::local});
}

transport_capabilities local_transport::capabilities(node_id peer) const {
  transport_capabilities c;
  c.usable = peer == node_.options.node;
  c.one_sided_write = true;
  c.one_sided_read = true;
  c.remote_notify = true;
  return c;
}

result<std::vector<std::byte>> local_transport::register_region(region_id) {
  return std::vector<std::byte>{};
}
result<void> local_transport::unregister_region(region_id) { return {}; }

void local_transport::submit(transfer what, completion_handler on_done) {
  const auto id = what.id;
  {
    std::lock_guard lock{mutex_};
    if (!stopping_) {
      queue_.push_back({std::move(what), std::move(on_done)});
      if (!thread_.joinable()) thread_ = std::thread([this] { main(); });
      on_done = nullptr;
    }
  }
  wake_.notify_one();
  if (on_done)
    on_done({.id = id, .outcome = fail(ec::cancelled, "the data plane stops"), .path = transfer_path::local});
}

void local_transport::cancel(transfer_id id) {
  job found;
  {
    std::lock_guard lock{mutex_};
    if (running_ == id) {
      cancel_running_ = true;
      wake_.notify_all();
    }
    const auto it = std::find_if(queue_.begin(), queue_.end(), [&](const job& j) { return j.what.id == id; });
    if (it == queue_.end()) return;
    found = std::move(*it);
    queue_.erase(it);
  }
  found.on_done(
      {.id = id, .outcome = fail(ec::cancelled, "cancelled by its owner"), .path = transfer_path::local});
}

void local_transport::main() {
  std::unique_lock lock{mutex_};
  for (;;) {
    wake_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    job j = std::move(queue_.front());
    queue_.pop_front();
    running_ = j.what.id;
    cancel_running_ = stopping_;
    lock.unlock();
    run(j);
    lock.lock();
    running_ = {};
  }
}

void local_transport::run(job& j) {
  std::uint64_t bytes = 0;
  const auto& t = j.what;
  const bool is_write = t.op == transfer_op::write;
  auto outcome = copy(t, bytes);
  if (is_write && (outcome || outcome.error() == ec::corrupt) &&
      node_.landings.finish(node_.options.node, node_.incarnation, t.id, outcome.has_value()))
    node_.announce({node_.options.node, t.id, t.tag, bytes, outcome.has_value()}, transfer_path::local);
  j.on_done({.id = t.id, .outcome = std::move(outcome), .bytes = bytes, .path = transfer_path::local});
}

result<void> local_transport::copy(const transfer& t, std::uint64_t& bytes) {
  std::uint32_t piece = 0;
  for (const auto& pair : t.slices) {
    if (const auto r = copy_slice(t, pair, piece); !r) return r;
    bytes += pair.local.length;
  }
  node_.stats.update(node_.options.node, transfer_path::local, [&](path_stats& s) { s.slices += piece; });
  return {};
}

// Copies piece by piece, so that cancelling and the deadline take effect in between.
result<void> local_transport::copy_slice(const transfer& t, const slice_pair& pair, std::uint32_t& piece) {
  const auto local = node_.regions.resolve(pair.local);
  const auto remote = node_.regions.resolve(pair.remote);
  if (!local) return fail(local.error());
  if (!remote) return fail(remote.error());
  const bool is_write = t.op == transfer_op::write;
  auto* to = is_write ? *remote : *local;
  const auto* from = is_write ? *local : *remote;
  const bool overlaps = to < from + pair.local.length && from < to + pair.local.length;
  for (std::uint64_t at = 0; at < pair.local.length; at += node_.options.slice_bytes) {
    const auto f = node_.next_fault(transfer_path::local, t.id, piece++);
    {
      std::unique_lock lock{mutex_};
      if (f.what == fault::kind::delay) wake_.wait_for(lock, f.wait, [&] { return cancel_running_; });
      if (cancel_running_) return fail(ec::cancelled, "cancelled by its owner");
    }
    if (clock_type::now() > t.deadline) return fail(ec::timed_out, "the deadline of the transfer passed");
    const auto n = std::min(node_.options.slice_bytes, pair.local.length - at);
    // Overlapping slices cannot be cut: the copy of one piece would change the source of the next.
    if (overlaps) {
      if (to != from && at == 0) std::memmove(to, from, pair.local.length);
      continue;
    }
    // Inside one process there is no link to distrust; a checksum is looked at only where a test spoils the
    // bytes.
    stream_copy(to + at, from + at, n);
    fence_streamed_stores();
    if (f.what != fault::kind::corrupt) continue;
    to[at + n / 2] ^= std::byte{1};
    if (node_.options.checksums && wide_checksum(to + at, n) != wide_checksum(from + at, n))
      return fail(ec::corrupt, "the bytes arrived with a wrong checksum");
  }
  if (pair.expected_checksum && node_.options.checksums && !is_write &&
      wide_checksum(to, pair.local.length) != *pair.expected_checksum)
    return fail(ec::corrupt, "a slice does not have the checksum its owner states");
  return {};
}

}  // namespace mooncaf
