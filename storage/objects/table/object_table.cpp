#include "storage/objects/table/object_table.hpp"

#include <algorithm>
#include <utility>

namespace mooncaf {

object_table::object_table(object_table_options options, object_journal* journal)
    : books_(std::move(options), journal),
      life_(books_),
      saving_(books_, life_),
      rooms_(books_, life_, saving_),
      reading_(books_, life_, saving_, rooms_),
      puts_(books_, life_, saving_, rooms_, reading_),
      recovery_(books_, life_) {
  // Another life of a directory numbers from elsewhere: places of the one mean nothing in the other.
  constexpr std::uint32_t numbers = (std::uint64_t{1} << 32) / shards_max;
  next_segment_ =
      books_.options.shard.index * numbers + 1 + static_cast<std::uint32_t>(books_.placing.draw(numbers / 2));
}

// ---- segments and SSDs ------------------------------------------------------------------------------------

bool object_table::is_mounted(std::string_view name) const {
  return books_.space.named(name) != 0 || books_.disks.named(name) != 0;
}

void object_table::note_capacity() {
  books_.quotas.note_capacity(books_.space.total_bytes(), books_.disks.total_bytes());
}

std::uint32_t object_table::mount(std::string name, std::string host, std::uint64_t bytes) {
  if (is_mounted(name)) return 0;
  const auto id = next_segment_++;
  books_.space.mount(id, std::move(name), std::move(host), bytes);
  note_capacity();
  return id;
}

bool object_table::remount(std::uint32_t id, std::string name, std::string host, std::uint64_t bytes) {
  if (id == 0 || !segment_gone(id) || is_mounted(name)) return false;
  books_.space.mount(id, std::move(name), std::move(host), bytes);
  note_capacity();
  return true;
}

std::uint32_t object_table::mount_disk(std::string name, std::string host, std::uint64_t bytes,
                                       std::uint32_t beside, const disk_policy& policy) {
  auto& space = books_.space;
  if (!space.has(beside) || space.ssd_beside(beside) != 0 || is_mounted(name)) return 0;
  const auto id = next_segment_++;
  books_.disks.mount(id, {std::move(name), std::move(host), bytes, beside, policy, space.draining(beside)});
  space.set_ssd_beside(beside, id);
  note_capacity();
  return id;
}

// Work under way ends first, because its reports would name places that are gone.
void object_table::unmount(std::uint32_t id, time_point now) {
  if (segment_gone(id)) return;
  auto& space = books_.space;
  auto& disks = books_.disks;
  const auto broken =
      books_.work.break_off([&](std::uint32_t disk) { return disk == id || disks.at(disk).beside == id; });
  for (const auto& part : broken.room) space.lose_room(part);
  for (auto* const o : broken.objects) {
    life_.end_work(*o, true, now);  // the first part's report ends the work of all of them
    life_.offer(*o, now);
  }
  std::vector<stored_object*> lost;
  const auto lose = [&](stored_object& o) {
    recovery_.lose_disk(o, id, now);
    life_.lose_memory(o, id, now);
    life_.count_alone(o);
    if (o.memory.empty() && o.disks.empty()) lost.push_back(&o);
    return true;
  };
  books_.index.each(lose);
  books_.index.each_beside(lose);
  for (auto* const o : lost) {
    if (o->published()) books_.quotas.count(o->owner, &object_counts::lost);
    life_.erase(*o, now, now);
  }
  if (space.has(id)) {
    recovery_.lose_segment(id);
    if (const auto ssd = space.ssd_beside(id); ssd != 0) disks.leave_memory(ssd);
    space.unmount(id);
  } else {
    books_.lone.drop_disk(id);
    if (const auto memory = disks.at(id).beside; memory != 0) space.set_ssd_beside(memory, 0);
    disks.unmount(id);
  }
  note_capacity();
}

bool object_table::segment_gone(std::uint32_t id) const {
  return !books_.space.has(id) && !books_.disks.has(id);
}

std::vector<segment_view> object_table::segments(std::uint32_t owner) const {
  std::vector<segment_view> all;
  for (const auto id : books_.space.ids()) all.push_back(books_.space.view(id, owner));
  for (const auto id : books_.disks.ids()) all.push_back(books_.disks.view(id, owner));
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  return all;
}

bool object_table::drain(std::string_view name, bool draining) {
  const auto memory = books_.space.named(name);
  const auto ssd = memory != 0 ? books_.space.ssd_beside(memory) : books_.disks.named(name);
  if (memory != 0) books_.space.drain(memory, draining);
  if (ssd != 0) books_.disks.drain(ssd, draining);
  return memory != 0 || ssd != 0;
}

std::optional<boundary_report> object_table::withhold(std::uint32_t segment, std::uint64_t bytes,
                                                      time_point now) {
  if (!books_.space.has(segment)) return std::nullopt;
  return rooms_.withhold(segment, bytes, now);
}

std::vector<withheld_run> object_table::take_withheld(std::uint32_t segment) {
  return books_.space.has(segment) ? books_.space.take_withheld(segment) : std::vector<withheld_run>{};
}

void object_table::disk_open(std::uint32_t disk) { books_.disks.open(disk); }

void object_table::disk_done(std::uint32_t disk, std::uint64_t ticket, bool good, time_point now) {
  const auto said = books_.work.done(disk, ticket, good);
  if (!said) return;
  for (const auto& part : said->room) books_.space.give_back(part, now, now);
  if (!said->of) return;
  if (!said->loads) books_.disks.note_writing(disk, good, now);
  if (!said->complete) return;
  said->loads ? reading_.end_load(*said->of, good, now) : saving_.end_save(*said->of, good, now);
}

void object_table::disk_fits(std::uint32_t disk, std::uint64_t bytes, time_point now) {
  if (books_.disks.has(disk)) saving_.fit(disk, bytes, now);
}

// ---- recovery ---------------------------------------------------------------------------------------------

bool object_table::recover(std::uint32_t segment, segment_record&& record, time_point now) {
  return recovery_.recover(segment, std::move(record), now);
}

bool object_table::recover_on_disk(std::uint32_t disk, segment_record&& record, bool stale, time_point now) {
  return recovery_.recover_on_disk(disk, std::move(record), stale, now);
}

void object_table::end_recovery(time_point now) { recovery_.end_recovery(now); }

// ---- writing ----------------------------------------------------------------------------------------------

reservation object_table::reserve(session_id writer, std::string_view key, std::uint64_t size,
                                  const put_policy& policy, std::string_view host, time_point now,
                                  const object_ties& ties) {
  return puts_.reserve(writer, key, size, policy, host, now, ties);
}

reservation object_table::reserve_ahead(session_id writer, std::uint64_t size, const put_policy& policy,
                                        std::string_view host, time_point now) {
  return puts_.reserve_ahead(writer, size, policy, host, now);
}

store_code object_table::name(session_id writer, std::uint64_t ticket, std::string_view key, time_point now) {
  return puts_.name(writer, ticket, key, now);
}

store_code object_table::publish(session_id writer, std::uint64_t ticket, std::uint64_t checksum,
                                 time_point now) {
  return puts_.publish(writer, ticket, checksum, now);
}

store_code object_table::revoke(session_id writer, std::uint64_t ticket, time_point now) {
  return puts_.revoke(writer, ticket, now);
}

void object_table::end_session(session_id writer, time_point now) { puts_.end_session(writer, now); }

// ---- reading ----------------------------------------------------------------------------------------------

object_view object_table::view_of(const stored_object& o) const {
  object_view view{store_code::ok, o.size, o.checksum, places_of(o.memory)};
  for (const auto& part : o.disks)
    if (std::find(view.disks.begin(), view.disks.end(), part.segment) == view.disks.end())
      view.disks.push_back(part.segment);
  return view;
}

object_view object_table::find(std::string_view key, time_point now) {
  const auto* const o = reading_.read(key, now);
  return o ? view_of(*o) : object_view{store_code::not_found, 0, 0, {}};
}

bool object_table::exists(std::string_view key, time_point now) { return reading_.used(key, now) != nullptr; }

object_view object_table::look(std::string_view key, time_point now) {
  auto* o = books_.index.find(key);
  if (o && rooms_.follow_group(*o, now)) o = books_.index.find(key);
  if (!o || !o->published() || o->protection.expired(now)) return {store_code::not_found, 0, 0, {}};
  return view_of(*o);
}

store_code object_table::load(std::string_view key, time_point now) { return reading_.load(key, now); }

void object_table::hold(std::string_view key, time_point now) { reading_.hold(key, now); }

void object_table::for_each(const std::function<bool(std::string_view, std::uint64_t size,
                                                     std::size_t replicas, std::size_t disks)>& visit,
                            std::string_view in, time_point now) const {
  const auto memory = books_.space.named(in), ssd = books_.disks.named(in);
  const auto on_ssd = [&](const disk_part& part) { return part.segment == ssd; };
  books_.index.each([&](const stored_object& o) {
    if (!o.published() || o.protection.expired(now)) return true;
    if (!in.empty() && !lies_in(o.memory, memory) && std::none_of(o.disks.begin(), o.disks.end(), on_ssd))
      return true;
    const auto disks = replicas_on_disks(o.disks).size();
    return visit(*o.key, o.size, replica_count(o.memory) + disks, disks);
  });
}

std::vector<std::string> object_table::take_hot() { return books_.warmth.take_hot(); }

std::vector<hot_object> object_table::hottest(time_point now) {
  std::vector<hot_object> told;
  for (const auto& [rate, o] : books_.warmth.hottest(now)) {
    if (rate < object_warmth::forgotten_per_s || !o->published() || o->protection.expired(now)) continue;
    told.push_back({*o->key, o->size, static_cast<std::uint32_t>(replica_count(o->memory)), rate});
  }
  return told;
}

// ---- leaving ----------------------------------------------------------------------------------------------

store_code object_table::remove(std::string_view key, bool force, time_point now) {
  auto* const o = reading_.visible(key, now);
  const bool absent = !books_.index.find(key) && !books_.index.has_beside(key);
  if (absent) books_.lone.forget(key);
  if (!o) return absent ? store_code::not_found : store_code::replica_not_ready;
  const auto read_until = object_life::protected_until(*o);
  if (!force && (read_until > now || o->protection.hard())) return store_code::has_lease;
  life_.changed(key);
  life_.erase(*o, read_until, now);
  return store_code::ok;
}

std::uint64_t object_table::remove_if(const std::function<bool(std::string_view)>& matches, bool force,
                                      time_point now) {
  std::vector<stored_object*> going;
  books_.index.each([&](stored_object& o) {
    const bool may = force || (object_life::protected_until(o) <= now && !o.protection.hard());
    if (o.published() && !o.protection.expired(now) && may && matches(*o.key)) going.push_back(&o);
    return true;
  });
  for (auto* const o : going) {
    life_.changed(*o->key);
    life_.erase(*o, object_life::protected_until(*o), now);
  }
  books_.lone.forget_if([&](std::string_view key) { return !books_.index.find(key) && matches(key); });
  return going.size();
}

bool object_table::drop_replica(std::string_view key, std::uint32_t segment, time_point now) {
  auto* const o = reading_.visible(key, now);
  const auto in = [&](const memory_part& part) { return part.segment == segment; };
  return o && life_.drop_replica(*o, in, now);
}

void object_table::tick(time_point now) {
  books_.space.end_rests(now);
  while (auto* const o = books_.protection.expired(now)) {
    books_.quotas.count(o->owner, &object_counts::expired);
    life_.erase(*o, object_life::protected_until(*o), now);
  }
  puts_.end_unnamed(now);
  rooms_.cool_down(now);
  life_.settle(now);
  rooms_.keep_quotas(now);
  rooms_.say_coldest();
  rooms_.keep_watermarks(now);
}

// ---- other shards, and counting ---------------------------------------------------------------------------

void object_table::hear(const shard_message& m, time_point now) {
  switch (m.what) {
    case shard_message::kind::group_left:
      if (auto* const member = books_.groups.any_of(m.group)) rooms_.follow_group(*member, now);
      return;
    case shard_message::kind::childless:
      if (auto* const parent = books_.index.find_hash(m.hash)) books_.order.childless(*parent);
      return;
    case shard_message::kind::make_room:
      return rooms_.make_room_for_others(m, now);
    case shard_message::kind::room_made:
      return books_.quotas.hear_answer(m, now);
  }
}

void object_table::tell_others() { books_.quotas.tell_others(); }

std::uint32_t object_table::owner(std::string_view tenant) { return books_.quotas.number(tenant); }

tenant_view object_table::tenant(std::uint32_t owner) const {
  return books_.quotas.view(owner, books_.space.total_bytes(), books_.disks.total_bytes());
}

object_counts object_table::counts() const {
  auto c = books_.quotas.counts();
  c.regretted = books_.order.regretted();
  c.total_bytes = books_.space.total_bytes();
  c.free_bytes = c.total_bytes - books_.quotas.use().used_bytes;
  books_.disks.count_into(c);
  return c;
}

bool object_table::consistent() const {
  std::vector<tenant_use> uses(books_.quotas.size());
  if (!life_.consistent(uses)) return false;
  recovery_.count_into(uses);
  return books_.space.consistent(uses) && books_.quotas.agrees_with(uses);
}

}  // namespace mooncaf
