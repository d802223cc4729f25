#include "runtime/sched/journal/reader.hpp"

namespace mooncaf::journal {

namespace {

/// Of one list: half a billion tokens. A few bytes may stand for many keys that came before.
constexpr std::uint64_t most_keys = 1 << 20;

}  // namespace

result<void> reader::begin(std::string_view kind, const char* complaint) {
  if (bytes_.substr(0, kind.size()) != kind)
    return fail(ec::corrupt, name_ + ": offset 0: this is " + complaint);
  at_ = magic.size();
  end_ = std::min(bytes_.size(), file_header_bytes);
  version_ = static_cast<std::uint32_t>(raw(4));
  if (damaged_) return error_now();
  if (version_ >= oldest_version && version_ <= journal_version) return {};
  return fail(ec::incompatible, name_ + ": offset 8: version " + std::to_string(version_) + ", of " +
                                    (version_ > journal_version ? "a later" : "an earlier") +
                                    " release of mooncaf; this program reads versions " +
                                    std::to_string(oldest_version) + " to " +
                                    std::to_string(journal_version));
}

result<void> reader::begin_worker() {
  if (const auto begun = begin(worker_magic, "no journal of a worker of mooncaf"); !begun) return begun;
  // A process that was killed before its first frame was written has left none.
  if (members_at<origin>(version_, 1) > 0 && next_frame()) get(origin_);
  if (damaged_) return error_now();
  return {};
}

result<reader::options> reader::begin() {
  if (const auto begun = begin(magic, "no journal of mooncaf"); !begun) return fail(begun.error());
  options begun;
  if (!next_frame()) {
    if (gap_) return fail(ec::corrupt, name_ + ": " + to_string(*gap_));
    if (!damaged_) spoil("it ends before its first record");
    return error_now();
  }
  get(origin_);
  get(begun.core);
  get(begun.queue);
  if (damaged_) return error_now();
  return begun;
}

bool reader::next_frame() {
  const auto from = end_;
  if (damaged_ || gap_ || from == bytes_.size()) return false;
  const auto next = frame_at(bytes_, from);
  const bool follows = next && (frame_ ? !frame_->closes && next->number == frame_->number + 1 &&
                                             next->previous == frame_->digest
                                       : next->number == 0);
  if (!follows) {
    gap_ = find_gap(bytes_, from, frame_);
    if (!gap_) torn_ = bytes_.size() - from;
    at_ = end_ = bytes_.size();
    return false;
  }
  frame_ = next;
  at_ = from + frame_header_bytes;
  end_ = next->end();
  if (!next->closes) return true;
  const auto why = below(4);
  if (!damaged_) ending_ = static_cast<ending>(why);
  return next_frame();
}

void reader::spoil(std::string reason) {
  if (damaged_) return;
  damaged_ = error{ec::corrupt, name_ + ": offset " + std::to_string(at_) + ": " + std::move(reason)};
  at_ = end_;
}

std::uint64_t reader::raw(int bytes) {
  if (end_ - at_ < static_cast<std::size_t>(bytes)) {
    spoil("a record ends in the middle");
    return 0;
  }
  std::uint64_t v = 0;
  for (int i = 0; i < bytes; ++i) v |= std::uint64_t{static_cast<unsigned char>(bytes_[at_++])} << 8 * i;
  return v;
}

std::uint64_t reader::varint() {
  std::uint64_t v = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const auto byte = raw(1);
    if (damaged_) return 0;
    v |= (byte & 0x7F) << shift;
    if (byte < 0x80) return v;
  }
  spoil("a number does not end");
  return 0;
}

std::uint64_t reader::below(std::uint64_t limit) {
  const auto v = varint();
  if (v < limit) return v;
  spoil(std::to_string(v) + " where at most " + std::to_string(limit - 1) + " can stand");
  return 0;
}

std::uint64_t reader::count() {
  const auto n = varint();
  if (n <= end_ - at_) return n;
  spoil("a list of " + std::to_string(n) + " does not fit what is left of its frame");
  return 0;
}

void reader::get(time_point& v) {
  std::int64_t n = 0;
  get(n);
  v = {};
  if (n == 0) return;
  // Unsigned: a damaged file may say anything.
  const auto ticks = static_cast<std::uint64_t>(latest_time_.time_since_epoch().count()) +
                     static_cast<std::uint64_t>(n > 0 ? n - 1 : n);
  v = latest_time_ = time_point{duration{static_cast<std::int64_t>(ticks)}};
}

void reader::get(std::string& v) {
  const auto n = count();
  v = bytes_.substr(at_, n);
  at_ += n;
}

void reader::get(request_id& v) {
  std::int64_t n = 0;
  get(n);
  v.value = latest_request_ += static_cast<std::uint64_t>(n);
}

std::uint64_t reader::known() {
  const auto n = below(known_.size() + 1);
  if (n > 0) return known_[n - 1];
  const auto id = raw(8);
  if (!damaged_) known_.push_back(id);
  return id;
}

void reader::get(std::span<const block_key>& keys) {
  keys_.clear();
  const auto n = below(most_keys + 1);
  auto previous = n == 1 ? seen_.latest : block_key{};
  while (keys_.size() < n && !damaged_) {
    for (auto as_before = below(n - keys_.size() + 1); as_before > 0; --as_before) {
      previous = seen_.after(previous);
      keys_.push_back(previous);
    }
    if (keys_.size() == n) break;
    const auto slot = below(seen_keys::slots + 1);
    block_key key;
    if (slot > 0) {
      key = seen_.at(static_cast<std::uint32_t>(slot - 1));
    } else {
      key.high = raw(8);
      key.low = raw(8);
      seen_.remember(key);
    }
    if (damaged_) break;
    if (n > 1) seen_.learn(previous, key);
    keys_.push_back(previous = key);
  }
  if (!keys_.empty()) seen_.latest = keys_.back();
  keys = keys_;
}

void reader::get(block_key& key) {
  std::span<const block_key> one;
  get(one);
  if (one.size() == 1) key = one.front();
  else spoil(std::to_string(one.size()) + " keys where one stands");
}

}  // namespace mooncaf::journal
