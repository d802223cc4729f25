#include "runtime/sched/journal/encoder.hpp"

#include <utility>

namespace mooncaf::journal {

origin this_program() { return {MOONCAF_VERSION}; }

encoder::encoder(std::string_view kind, sink out, const origin& from) : out_(std::move(out)) {
  frame_ = kind;
  put_raw(journal_version, 4);
  if (const auto became = out_(std::exchange(frame_, {}), false); became != written::whole) end_with(became);
  put(from);
}

encoder::encoder(const conductor_options& core, const admission_queue_options& queue, sink out,
                 const origin& from)
    : encoder(magic, std::move(out), from) {
  put(core);
  put(queue);
}

/// The closing frame follows the last one that was written whole.
void encoder::end_with(written refused) {
  open_ = false;
  out_(frames_.last(refused == written::no_room ? ending::full : ending::failed), true);
}

void encoder::flush() {
  if (frame_.empty() || !open_) return;
  const auto payload = std::exchange(frame_, {});
  auto then = frames_;
  const auto became = out_(then.next(payload, std::exchange(records_, 0)), false);
  if (became != written::whole) return end_with(became);
  frames_ = then;
}

void encoder::close() {
  flush();
  if (std::exchange(open_, false)) out_(frames_.last(ending::closed), true);
}

void encoder::put_raw(std::uint64_t v, int bytes) {
  for (int i = 0; i < bytes; ++i) frame_ += static_cast<char>(v >> 8 * i & 0xFF);
}

void encoder::put(std::uint64_t v) {
  for (; v >= 0x80; v >>= 7) frame_ += static_cast<char>(v | 0x80);
  frame_ += static_cast<char>(v);
}

void encoder::put(double v) { put_raw(std::bit_cast<std::uint64_t>(v), 8); }

void encoder::put(time_point v) {
  // Many times are "none": told apart, so that they do not cost the difference of hours.
  const bool none = v == time_point{};
  put(none ? std::int64_t{0} : (v - latest_time_).count() + ((v - latest_time_).count() >= 0 ? 1 : 0));
  if (!none) latest_time_ = v;
}

void encoder::put(const std::string& v) {
  put(static_cast<std::uint64_t>(v.size()));
  frame_ += v;
}

void encoder::put(request_id v) {
  put(static_cast<std::int64_t>(v.value - latest_request_));
  latest_request_ = v.value;
}

/// 0: an id that was not seen before follows; else its number in the order of appearance, from 1.
void encoder::put_known(std::uint64_t id) {
  const auto [at, fresh] = known_.try_emplace(id, known_.size() + 1);
  if (!fresh) return put(at->second);
  put(std::uint64_t{0});
  put_raw(id, 8);
}

/// The number of keys; then in turn: how many come as they did the last time, and one that does not, by its
/// place among seen keys (plus one) or in full.
void encoder::put(std::span<const block_key> keys) {
  put(static_cast<std::uint64_t>(keys.size()));
  // A list of one goes on where the last list ended: shards announce block by block.
  auto previous = keys.size() == 1 ? keys_.latest : block_key{};
  std::size_t i = 0;
  while (i < keys.size()) {
    std::uint64_t as_before = 0;
    for (; i < keys.size() && keys_.after(previous) == keys[i] && keys[i] != block_key{}; ++i, ++as_before)
      previous = keys[i];
    put(as_before);
    if (i == keys.size()) break;
    const auto slot = keys_.find(keys[i]);
    put(slot == seen_keys::nowhere ? std::uint64_t{0} : std::uint64_t{slot} + 1);
    if (slot == seen_keys::nowhere) {
      put_raw(keys[i].high, 8);
      put_raw(keys[i].low, 8);
      keys_.remember(keys[i]);
    }
    if (keys.size() > 1) keys_.learn(previous, keys[i]);
    previous = keys[i++];
  }
  if (!keys.empty()) keys_.latest = keys.back();
}

}  // namespace mooncaf::journal
