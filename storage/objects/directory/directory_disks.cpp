// SSDs of holders, as the directory deals with them: the part of `directory_core` that tells them what to
// write, read and erase, decides what of theirs still counts when they come back, and lets those wait who
// want to read.

#include <algorithm>
#include <utility>

#include "storage/objects/directory/directory_core.hpp"

namespace mooncaf {

using store_wire::entry;
using store_wire::frame;

namespace {
constexpr std::size_t name_bytes_max = 1024;
constexpr auto load_limit = std::chrono::seconds(10);

std::uint64_t hash_of(std::string_view key) { return XXH3_64bits(key.data(), key.size()); }
}  // namespace

// ---- what the table wants of them
// --------------------------------------------------------------------------------

void directory_core::save(std::uint32_t to, const segment_record& record, std::string_view key,
                          std::string_view group, std::span<const replica_place> from) {
  write_entry(holders_.at(to), entry::save, to, [&](byte_writer& out) {
    out.put(record.ticket);
    store_wire::put_places(out, from);
    store_wire::put_published(out, record, key, group);
  });
}

void directory_core::load(std::uint32_t from, std::uint64_t ticket, std::span<const replica_place> to) {
  write_entry(holders_.at(from), entry::load, from, [&](byte_writer& out) {
    out.put(ticket);
    store_wire::put_places(out, to);
  });
  wake(from);
}

/// Until the holder has acknowledged it, nobody knows whether the object is still there.
void directory_core::erased(std::uint32_t disk, std::uint64_t ticket, std::string_view key) {
  if (removing_ && publication_unsaid_) tell_before();
  const auto to = holders_.at(disk);
  write_entry(to, entry::freed, disk, [&](byte_writer& out) {
    out.put(ticket);
    out.put(std::uint64_t{0});
    out.put(std::int64_t{0});
  });
  auto* const s = holder(disk);
  const auto here = disks_.find(disk);
  if (!s || here == disks_.end()) return;
  s->waited_for = store_wire::waits::to_hear;
  here->second.untold.emplace_back(s->told + 1, hash_of(key));
  if (removing_) wait_for(to, *s);
}

void directory_core::changed(std::string_view key) {
  const auto hash = hash_of(key);
  notes_->note(hash);
  for (const auto& [segment, d] : disks_) {
    const auto is_it = [&](const auto& u) { return u.second == hash; };
    if (!d.untold.empty() && std::any_of(d.untold.begin(), d.untold.end(), is_it))
      notes_->note(d.number, hash);
  }
}

// ---- what they say
// -----------------------------------------------------------------------------------------------

bool directory_core::mount_disk(std::uint64_t id, session& from, byte_reader& in, frame& out) {
  const auto offer = store_wire::get_disk(in);
  const bool its_own =
      std::find(from.mounted.begin(), from.mounted.end(), offer.beside) != from.mounted.end();
  if (!in.ok() || in.left() != 0 || offer.name.empty() || offer.name.size() > name_bytes_max ||
      offer.bytes > std::uint64_t{1} << 50 || !its_own)
    return false;
  store_wire::mounted_disk made;
  const bool here =
      std::any_of(disks_.begin(), disks_.end(), [&](const auto& d) { return d.second.number == offer.disk; });
  if (!here) made.segment = table_.mount_disk(offer.name, from.host, offer.bytes, offer.beside, offer.policy);
  if (made.segment == 0) {
    const bool memory_lost = table_.segment_gone(offer.beside);
    made.code = memory_lost ? store_code::segment_not_found : store_code::segment_exists;
    store_wire::put_disk(*out, made);
    return true;
  }
  made.known = offer.store == notes_->store() && notes_->knows(offer.disk);
  // Where the notes cannot be written down they are in memory: the next directory does not know the SSD.
  if (!made.known) static_cast<void>(notes_->adopt(offer.disk));
  made.store = notes_->store();
  if (!made.known) table_.disk_open(made.segment);
  from.mounted.push_back(made.segment);
  holders_[made.segment] = id;
  addresses_[made.segment] = {};
  disks_[made.segment] = {offer.disk, made.known, false, {}};
  store_wire::put_disk(*out, made);
  return true;
}

bool directory_core::announce_disk(std::uint32_t segment, bool last, std::uint32_t n, byte_reader& in,
                                   time_point now, frame& out) {
  auto& d = disks_.at(segment);
  for (std::uint32_t i = 0; i < n; ++i) {
    auto record = store_wire::get_record(in);
    if (!in.ok() || !d.announcing) return false;
    const auto ticket = record.ticket;
    const auto key = record.key;
    const auto whose = split_name(key).tenant;
    const bool stale = notes_->noted(d.number, hash_of(key)) ||
                       (!whose.empty() && notes_->noted(d.number, hash_of(all_of(whose))));
    if (!table_.recover_on_disk(segment, std::move(record), stale, now)) erased(segment, ticket, key);
  }
  if (in.left() != 0) return false;
  if (last && d.announcing) {
    d.announcing = false;
    d.to_clear = true;
    notes_->is_back(d.number);
    table_.disk_open(segment);
    if (auto* const s = holder(segment)) disk_heard(*s);
  }
  out->put(static_cast<std::int32_t>(store_code::ok));
  return true;
}

void directory_core::disk_heard(session& s) {
  for (const auto segment : s.mounted) {
    const auto found = disks_.find(segment);
    if (found == disks_.end()) continue;
    auto& d = found->second;
    while (!d.untold.empty() && d.untold.front().first <= s.acked) d.untold.pop_front();
    if (d.to_clear && d.untold.empty()) notes_->clear(d.number);
    d.to_clear = d.to_clear && !d.untold.empty();
  }
}

bool directory_core::disk_done(const session& from, byte_reader& in, time_point now) {
  const auto n = store_wire::get_count(in);
  if (!n) return false;
  for (std::uint32_t i = 0; i < *n; ++i) {
    const auto segment = in.get<std::uint32_t>();
    const auto ticket = in.get<std::uint64_t>();
    const bool good = in.get<std::uint8_t>() != 0;
    const bool its_own = std::find(from.mounted.begin(), from.mounted.end(), segment) != from.mounted.end();
    if (!in.ok() || !its_own) return false;
    table_.disk_done(segment, ticket, good, now);
  }
  loads_stir_ = true;
  return in.left() == 0;
}

/// It is away. What lies there counts again when it is back, but for keys that are noted.
void directory_core::lose_disk(std::uint32_t segment) {
  auto gone = disks_.extract(segment);
  notes_->leave(gone.mapped().number);
  for (const auto& [frame, key] : gone.mapped().untold) notes_->note(gone.mapped().number, key);
  table_.unmount(segment, now_);
  addresses_.erase(segment);
  holders_.erase(segment);
}

// ---- who waits for them
// -------------------------------------------------------------------------------------------

bool directory_core::load_all(std::uint64_t id, const session& from, std::uint64_t number, byte_reader& in,
                              time_point now) {
  const auto n = store_wire::get_count(in);
  if (!n) return false;
  waiting_load w{id, number, {}, now + load_limit};
  for (std::uint32_t i = 0; i < *n; ++i) {
    w.keys.emplace_back(from.scope.inside(store_wire::get_text_view(in), names_[0]));
    if (!in.ok()) return false;
  }
  if (in.left() != 0) return false;
  if (!settle(w.keys, false, id, number, now)) loads_.push_back(std::move(w));
  return true;
}

/// @returns whether all of them are where they can be read, or never will be; then the answer is on its way.
bool directory_core::settle(const std::vector<std::string>& keys, bool at_last, std::uint64_t id,
                            std::uint64_t number, time_point now) {
  std::vector<store_code> codes;
  bool all = true;
  for (const auto& key : keys) {
    codes.push_back(table_.load(key, now));
    all = all && codes.back() != store_code::busy;
  }
  if (!all && !at_last) return false;
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return true;
  {
    frame out{found->second.ready, number, store_wire::op::load};
    out->put(static_cast<std::uint32_t>(keys.size()));
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (codes[i] == store_code::ok) table_.hold(keys[i], now);
      auto view = table_.look(keys[i], now);
      if (codes[i] != store_code::ok) view.code = codes[i];
      store_wire::put_view(*out, view);
    }
  }
  has_output(id, found->second);
  return true;
}

void directory_core::settle_loads(time_point now) {
  if (!std::exchange(loads_stir_, false)) return;
  loads_.remove_if(
      [&](const waiting_load& w) { return settle(w.keys, now >= w.until, w.session, w.number, now); });
}

}  // namespace mooncaf
