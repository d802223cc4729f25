#include "storage/objects/table/shard_commons.hpp"

#include <numeric>
#include <utility>

namespace mooncaf {

// ---- a group ----------------------------------------------------------------------------------------------

bool shared_group::lease(time_point until, times_left known) noexcept {
  const auto ns = static_cast<std::uint64_t>(until.time_since_epoch().count());
  const auto units = (ns >> unit_bits) + 1;
  auto word = word_.load();
  for (;;) {
    if (!(left_in(word) == known)) return false;
    if (word >> (2 * count_bits) >= units) return true;
    if (word_.compare_exchange_weak(word, word_of(units, known))) return true;
  }
}

shared_group::outcome shared_group::give_up(bool soft, times_left& known, time_point now) noexcept {
  auto word = word_.load();
  const auto next = [](std::uint16_t n) { return static_cast<std::uint16_t>((n + 1u) & count_mask); };
  for (;;) {
    if (!(left_in(word) == known)) return outcome::known_too_little;
    if (until_in(word) > now) return outcome::leased;
    const times_left after{next(known.plain), soft ? next(known.soft) : known.soft};
    if (!word_.compare_exchange_weak(word, word_of(word >> (2 * count_bits), after))) continue;
    known = after;
    return outcome::given_up;
  }
}

// ---- messages ---------------------------------------------------------------------------------------------

shard_commons::shard_commons(std::uint32_t count, std::vector<tenant_limit> limits) : count_(count) {
  for (const auto& limit : limits) {
    auto& t = *tenants_.emplace_back(std::make_unique<tenant>());
    t.limit = limit;
    for (auto& c : t.coldest) c = never;
  }
}

void shard_commons::post(std::uint32_t to, shard_message message) {
  auto& b = boxes_[to];
  std::lock_guard lock{b.mutex};
  b.messages.push_back(std::move(message));
  if (b.messages.size() == 1 && b.wake) b.wake();
}

std::vector<shard_message> shard_commons::take_messages(std::uint32_t shard) {
  auto& b = boxes_[shard];
  std::lock_guard lock{b.mutex};
  return std::exchange(b.messages, {});
}

void shard_commons::wake_by(std::uint32_t shard, std::function<void()> wake) {
  auto& b = boxes_[shard];
  std::lock_guard lock{b.mutex};
  b.wake = std::move(wake);
  if (!b.messages.empty() && b.wake) b.wake();
}

// ---- tenants ----------------------------------------------------------------------------------------------

namespace {

bool take_within(std::atomic<std::uint64_t>& used, std::uint64_t more, std::uint64_t limit) noexcept {
  if (more == 0) return true;
  auto now = used.load();
  do {
    if (more > limit || now > limit - more) return false;
  } while (!used.compare_exchange_weak(now, now + more));
  return true;
}

}  // namespace

quota_use shard_commons::used(std::uint32_t owner) const noexcept {
  const auto& t = of(owner);
  return {t.bytes, t.objects, t.disk_bytes, t.passing_bytes, t.passing_objects};
}

bool shard_commons::take(std::uint32_t owner, const quota_use& more) noexcept {
  auto& t = of(owner);
  if (!take_within(t.bytes, more.bytes, t.limit.bytes)) return false;
  if (!take_within(t.objects, more.objects, t.limit.objects)) {
    t.bytes -= more.bytes;
    return false;
  }
  if (take_within(t.disk_bytes, more.disk_bytes, t.limit.disk_bytes)) return true;
  t.bytes -= more.bytes;
  t.objects -= more.objects;
  return false;
}

// Unsigned differences: a decrease is added as a number that makes the sum wrap.
void shard_commons::change(std::uint32_t owner, const quota_use& was, const quota_use& is) noexcept {
  auto& t = of(owner);
  const auto add = [](std::atomic<std::uint64_t>& to, std::uint64_t before, std::uint64_t after) {
    if (before != after) to += after - before;
  };
  add(t.bytes, was.bytes, is.bytes);
  add(t.objects, was.objects, is.objects);
  add(t.disk_bytes, was.disk_bytes, is.disk_bytes);
  add(t.passing_bytes, was.passing_bytes, is.passing_bytes);
  add(t.passing_objects, was.passing_objects, is.passing_objects);
}

void shard_commons::say_coldest(std::uint32_t owner, std::uint32_t shard, std::int64_t used_at) noexcept {
  of(owner).coldest[shard] = used_at;
}
std::int64_t shard_commons::coldest(std::uint32_t owner, std::uint32_t shard) const noexcept {
  return of(owner).coldest[shard];
}

void shard_commons::note_capacity(std::uint32_t shard, std::uint64_t memory, std::uint64_t disks) noexcept {
  memory_[shard] = memory;
  disks_[shard] = disks;
}
std::uint64_t shard_commons::memory_bytes() const noexcept {
  return std::accumulate(memory_.begin(), memory_.end(), std::uint64_t{0});
}
std::uint64_t shard_commons::disk_bytes() const noexcept {
  return std::accumulate(disks_.begin(), disks_.end(), std::uint64_t{0});
}

// ---- groups -----------------------------------------------------------------------------------------------

shared_group& shard_commons::join(std::string_view group, std::uint32_t shard) {
  auto& s = groups_[stripe_of(text_hash{}(group))];
  std::lock_guard lock{s.mutex};
  auto at = s.all.find(group);
  if (at == s.all.end()) at = s.all.try_emplace(std::string{group}, std::make_unique<shared_group>()).first;
  at->second->shards_ |= 1u << shard;
  return *at->second;
}

void shard_commons::leave(std::string_view group, std::uint32_t shard) {
  auto& s = groups_[stripe_of(text_hash{}(group))];
  std::lock_guard lock{s.mutex};
  const auto at = s.all.find(group);
  if (at == s.all.end()) return;
  at->second->shards_ &= ~(1u << shard);
  if (at->second->shards_ == 0) s.all.erase(at);
}

std::size_t shard_commons::groups() const {
  std::size_t n = 0;
  for (const auto& s : groups_) {
    std::lock_guard lock{s.mutex};
    n += s.all.size();
  }
  return n;
}

// ---- chains -----------------------------------------------------------------------------------------------

std::uint32_t shard_commons::depth(std::uint64_t object) const {
  const auto& s = links_[stripe_of(object)];
  std::lock_guard lock{s.mutex};
  const auto at = s.all.find(object);
  return at == s.all.end() ? 0 : at->second.depth;
}

void shard_commons::enter(std::uint64_t object, std::uint32_t depth, std::uint64_t parent, bool elsewhere) {
  {
    auto& s = links_[stripe_of(object)];
    std::lock_guard lock{s.mutex};
    auto& l = s.all[object];
    l.depth = depth;
    ++l.here;
  }
  if (!elsewhere) return;
  auto& s = links_[stripe_of(parent)];
  std::lock_guard lock{s.mutex};
  ++s.all[parent].followers;
}

bool shard_commons::leave_chain(std::uint64_t object, std::uint64_t parent, bool elsewhere) {
  {
    auto& s = links_[stripe_of(object)];
    std::lock_guard lock{s.mutex};
    const auto at = s.all.find(object);
    if (--at->second.here == 0) at->second.depth = 0;
    if (at->second.of_no_use()) s.all.erase(at);
  }
  if (!elsewhere) return false;
  auto& s = links_[stripe_of(parent)];
  std::lock_guard lock{s.mutex};
  const auto at = s.all.find(parent);
  if (--at->second.followers > 0) return false;
  const bool told = std::exchange(at->second.watched, false);
  if (at->second.of_no_use()) s.all.erase(at);
  return told;
}

bool shard_commons::is_followed(std::uint64_t object) {
  auto& s = links_[stripe_of(object)];
  std::lock_guard lock{s.mutex};
  const auto at = s.all.find(object);
  if (at == s.all.end() || at->second.followers == 0) return false;
  return at->second.watched = true;
}

std::size_t shard_commons::links() const {
  std::size_t n = 0;
  for (const auto& s : links_) {
    std::lock_guard lock{s.mutex};
    n += s.all.size();
  }
  return n;
}

}  // namespace mooncaf
