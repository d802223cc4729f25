#include "storage/objects/table/tenant_quotas.hpp"

#include <algorithm>

#include "storage/objects/terms/key_scope.hpp"

namespace mooncaf {

namespace {
/// A shard that had nothing to give is not asked again before that.
constexpr auto ask_one_again = std::chrono::milliseconds(100);
/// Once a put has waited for room for so long, also objects not on SSD yet go in the other shards.
constexpr auto patience = std::chrono::seconds(1);
/// More is asked for than one put needs, so that not each one waits; not more than this part of the quota.
constexpr std::uint64_t ahead_puts = 16, ahead_part = 32;
}  // namespace

tenant_quotas::tenant_quotas(const std::vector<std::pair<std::string, tenant_limit>>& limits,
                             shard_place shard, shard_commons* commons)
    : shard_(shard), commons_(commons) {
  for (const auto& [name, limit] : limits) tenants_[number(name)].limit = limit;
}

// ---- which tenants there are ------------------------------------------------------------------------------

std::uint32_t tenant_quotas::number(std::string_view tenant) {
  if (tenant.empty()) return 0;
  const auto [at, fresh] = numbers_.try_emplace(std::string{tenant}, size());
  if (fresh) tenants_.emplace_back().name = tenant;
  return at->second;
}

std::uint32_t tenant_quotas::number_of(std::string_view key) const {
  if (key.empty() || key.front() != '\0') return 0;
  const auto found = numbers_.find(split_name(key).tenant);
  return found == numbers_.end() ? 0 : found->second;
}

object_counts tenant_quotas::with(object_counts events, const tenant_use& is) {
  events.objects = is.objects;
  events.reserved = is.reserved;
  events.object_bytes = is.object_bytes;
  events.quarantined_bytes = is.resting_bytes;
  events.replicas = is.replicas;
  return events;
}

tenant_limit tenant_quotas::part_of(const tenant_limit& limit) const {
  return {shard_.part_of(limit.bytes), shard_.part_of(limit.objects), shard_.part_of(limit.disk_bytes)};
}

tenant_view tenant_quotas::view(std::uint32_t owner, std::uint64_t total_bytes,
                                std::uint64_t disk_total_bytes) const {
  const auto& who = tenants_[owner];
  tenant_view t{who.name, who.limit, with(who.seen, who.is)};
  const bool shared = is_bounded(owner);
  t.counts.total_bytes = std::min(who.limit.bytes, shared ? commons_->memory_bytes() : total_bytes);
  t.counts.free_bytes = t.counts.total_bytes - std::min(t.counts.total_bytes, use_of_all(owner).bytes);
  t.counts.disk_bytes = who.is.disk_bytes;
  t.counts.disk_total_bytes =
      std::min(who.limit.disk_bytes, shared ? commons_->disk_bytes() : disk_total_bytes);
  if (!shared) return t;
  // Each shard tells its even part of the common limit, so that a client that asks all of them can add up.
  for (const auto limit : {&tenant_limit::bytes, &tenant_limit::objects, &tenant_limit::disk_bytes})
    if (t.limit.*limit != ~std::uint64_t{0}) t.limit.*limit = shard_.part_of(t.limit.*limit);
  for (const auto figure :
       {&object_counts::total_bytes, &object_counts::free_bytes, &object_counts::disk_total_bytes})
    t.counts.*figure = shard_.part_of(t.counts.*figure);
  return t;
}

// ---- use and events ---------------------------------------------------------------------------------------

void tenant_quotas::count(std::uint32_t owner, std::uint64_t object_counts::*event, std::uint64_t n) {
  seen_.*event += n;
  tenants_[owner].seen.*event += n;
}

// ---- limits -----------------------------------------------------------------------------------------------

quota_use tenant_quotas::own_use(std::uint32_t owner) const {
  const auto& is = tenants_[owner].is;
  return {is.used_bytes, is.objects - is.on_disk_alone + is.reserved, is.disk_bytes,
          is.resting_bytes + is.moving_bytes + is.leaving_bytes, is.leaving};
}

quota_use tenant_quotas::use_of_all(std::uint32_t owner) const {
  const auto own = own_use(owner);
  if (!is_bounded(owner)) return own;
  const auto all = commons_->used(owner);
  const auto& told = tenants_[owner].told;
  return {own.bytes + (all.bytes - told.bytes), own.objects + (all.objects - told.objects),
          own.disk_bytes + (all.disk_bytes - told.disk_bytes),
          own.passing_bytes + (all.passing_bytes - told.passing_bytes),
          own.passing_objects + (all.passing_objects - told.passing_objects)};
}

bool tenant_quotas::claim(std::uint32_t owner, const quota_use& room) {
  tell(owner);
  return claim_more(owner, room, {});
}

bool tenant_quotas::claim_more(std::uint32_t owner, const quota_use& room, const quota_use& claimed) {
  auto& who = tenants_[owner];
  if (!is_bounded(owner)) {
    const auto used = own_use(owner);
    const auto fits = [](std::uint64_t had, std::uint64_t more, std::uint64_t limit) {
      return more == 0 || (more <= limit && had <= limit - more);
    };
    return fits(used.bytes + claimed.bytes, room.bytes, who.limit.bytes) &&
           fits(used.objects + claimed.objects, room.objects, who.limit.objects) &&
           fits(used.disk_bytes, room.disk_bytes, who.limit.disk_bytes);
  }
  if (!commons_->take(owner, room)) return false;
  who.told.bytes += room.bytes;
  who.told.objects += room.objects;
  who.told.disk_bytes += room.disk_bytes;
  (room.disk_bytes > 0 ? who.to_disk : who.to_memory).since = {};
  touch(owner);
  return true;
}

bool tenant_quotas::fits(std::uint32_t owner, const quota_use& room, std::uint64_t leaving_bytes,
                         std::uint64_t leaving) const {
  const auto& limit = tenants_[owner].limit;
  const auto used = use_of_all(owner);
  return used.bytes - leaving_bytes <= limit.bytes - room.bytes &&
         (room.objects == 0 || used.objects - leaving < limit.objects);
}

bool tenant_quotas::is_over(std::uint32_t owner) {
  tell(owner);
  const auto over = [](const quota_use& u, const tenant_limit& l) {
    return u.bytes - u.passing_bytes > l.bytes || u.objects - u.passing_objects > l.objects;
  };
  const auto& limit = tenants_[owner].limit;
  return over(use_of_all(owner), limit) && (!commons_ || over(own_use(owner), part_of(limit)));
}

bool tenant_quotas::is_over_on_disks(std::uint32_t owner) {
  tell(owner);
  const auto& limit = tenants_[owner].limit;
  return use_of_all(owner).disk_bytes > limit.disk_bytes &&
         (!commons_ || own_use(owner).disk_bytes > shard_.part_of(limit.disk_bytes));
}

// ---- other shards -----------------------------------------------------------------------------------------

void tenant_quotas::touch(std::uint32_t owner) {
  if (!is_bounded(owner) || std::exchange(tenants_[owner].to_tell, true)) return;
  to_tell_.push_back(owner);
}

void tenant_quotas::tell(std::uint32_t owner) {
  if (!is_bounded(owner)) return;
  auto& who = tenants_[owner];
  const auto is = own_use(owner);
  commons_->change(owner, who.told, is);
  who.told = is;
}

void tenant_quotas::tell_others() {
  for (const auto owner : to_tell_) {
    tenants_[owner].to_tell = false;
    tell(owner);
  }
  to_tell_.clear();
}

void tenant_quotas::note_capacity(std::uint64_t memory_bytes, std::uint64_t disk_bytes) {
  if (commons_) commons_->note_capacity(shard_.index, memory_bytes, disk_bytes);
}

bool tenant_quotas::is_nearly_full(std::uint32_t owner) const {
  const auto used = commons_->used(owner);
  const auto& limit = tenants_[owner].limit;
  return used.bytes > limit.bytes / 8 * 7 || used.objects > limit.objects / 8 * 7;
}

void tenant_quotas::say_coldest(std::uint32_t owner, std::int64_t at) {
  commons_->say_coldest(owner, shard_.index, at);
}

bool tenant_quotas::has_colder_elsewhere(std::uint32_t owner, std::int64_t here, duration one_use,
                                         time_point now) const {
  auto there = shard_commons::never;
  for (std::uint32_t s = 0; s < commons_->count(); ++s)
    if (s != shard_.index) there = std::min(there, commons_->coldest(owner, s));
  const std::int64_t unused = now.time_since_epoch().count() - here;
  const std::int64_t margin = std::max(unused, std::int64_t{one_use.count()});
  return there != shard_commons::never && here - there > margin;
}

// Shards are asked one at a time: asked at once, each would make the room that one of them has to.
bool tenant_quotas::ask_others(std::uint32_t owner, const quota_use& room, bool lossy, time_point now) {
  if (!is_bounded(owner)) return false;
  auto& who = tenants_[owner];
  const bool of_disks = room.disk_bytes > 0;
  auto& r = of_disks ? who.to_disk : who.to_memory;
  if (r.pending) return true;
  const auto own = own_use(owner), all = use_of_all(owner);
  if (of_disks ? all.disk_bytes == own.disk_bytes : all.bytes == own.bytes) return false;
  if (now - r.heard > ask_one_again) r.asked = 0;
  if (now - r.heard > patience) r.since = {};
  std::uint32_t whom = commons_->count();
  for (std::uint32_t s = 0; s < commons_->count(); ++s) {
    if (s == shard_.index || (r.asked >> s & 1) != 0) continue;
    if (whom == commons_->count() || commons_->coldest(owner, s) < commons_->coldest(owner, whom)) whom = s;
  }
  if (whom == commons_->count()) {
    r.since = {};
    return false;
  }
  if (r.since == time_point{}) r.since = now;
  const auto some_more = [](std::uint64_t one, std::uint64_t limit) {
    return std::min(one * ahead_puts, std::max(one, limit / ahead_part));
  };
  r.pending = true;
  r.asked |= 1u << whom;
  shard_message ask{shard_message::kind::make_room, shard_.index, owner};
  ask.room = {some_more(room.bytes, who.limit.bytes), some_more(room.objects, who.limit.objects),
              some_more(room.disk_bytes, who.limit.disk_bytes)};
  ask.lossy = lossy || now - r.since > patience;
  commons_->post(whom, std::move(ask));
  return true;
}

void tenant_quotas::hear_answer(const shard_message& m, time_point now) {
  auto& who = tenants_[m.owner];
  auto& r = m.room.disk_bytes > 0 ? who.to_disk : who.to_memory;
  r.pending = false;
  r.heard = now;
  if (m.some) r.asked = 0;
}

void tenant_quotas::answer(std::uint32_t shard, shard_message&& room_made) {
  room_made.from = shard_.index;
  commons_->post(shard, std::move(room_made));
}

bool tenant_quotas::agrees_with(const std::vector<tenant_use>& recounted) const {
  if (recounted.size() != tenants_.size()) return false;
  tenant_use sum;
  for (std::size_t i = 0; i < tenants_.size(); ++i) {
    const auto& is = tenants_[i].is;
    if (!(is == recounted[i])) return false;
    for (const auto what : {&tenant_use::used_bytes, &tenant_use::resting_bytes, &tenant_use::moving_bytes,
                            &tenant_use::leaving_bytes, &tenant_use::leaving, &tenant_use::objects,
                            &tenant_use::reserved, &tenant_use::object_bytes, &tenant_use::replicas,
                            &tenant_use::on_disk_alone, &tenant_use::disk_bytes})
      sum.*what += is.*what;
  }
  return sum == all_;
}

}  // namespace mooncaf
