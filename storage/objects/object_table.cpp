#include "storage/objects/object_table.hpp"

#include <algorithm>
#include <cmath>

namespace mooncaf {

object_table::object_table(object_table_options options, object_journal* journal)
    : options_(std::move(options)),
      journal_(journal),
      next_ticket_(options_.first_ticket),
      order_(options_.eviction),
      random_(options_.seed),
      commons_(options_.commons.get()) {
  // Another life of a directory numbers from elsewhere: places of the one mean nothing in the other.
  constexpr std::uint32_t numbers = (std::uint64_t{1} << 32) / shards_max;
  next_segment_ = options_.shard.index * numbers + 1 + static_cast<std::uint32_t>(draw(numbers / 2));
  for (const auto& [name, limit] : options_.tenants) owners_[owner(name)].limit = limit;
}

// ---- what there is ----------------------------------------------------------------------------------------

object_table::entry* object_table::visible(std::string_view key, time_point now) {
  const auto found = objects_.find(key);
  if (found == objects_.end() || found->second.ticket != 0) return nullptr;
  auto& o = found->second;
  if (o.ttl_end > now) {
    if (!o.in || !follow_group(o.in->second, now)) return &*found;
    return visible(key, now);  // it may be among those that are gone
  }
  count(o.owner, &object_counts::expired);
  erase(*found, protected_until(o), now);
  return nullptr;
}

std::vector<replica_place> object_table::places(std::span<const held> memory) {
  std::vector<replica_place> all;
  all.reserve(memory.size());
  for (const auto& m : memory) all.push_back({m.segment, m.extent.offset, m.size});
  return all;
}

object_view object_table::view_of(const object& o) const {
  object_view view{store_code::ok, o.size, o.checksum, places(o.memory)};
  for (const auto& part : o.disks)
    if (std::find(view.disks.begin(), view.disks.end(), part.segment) == view.disks.end())
      view.disks.push_back(part.segment);
  return view;
}

object_view object_table::find(std::string_view key, time_point now) {
  auto* const e = visible_and_leased(key, now);
  if (!e) {
    count(owner_of(key), &object_counts::misses);
    return {store_code::not_found, 0, 0, {}};
  }
  count(e->second.owner, &object_counts::hits);
  if (e->second.memory.empty()) count(e->second.owner, &object_counts::disk_hits);
  use(*e, now);
  count_read(*e, now);
  note_read(e->second);
  return view_of(e->second);
}

bool object_table::exists(std::string_view key, time_point now) {
  auto* const e = visible_and_leased(key, now);
  if (e) use(*e, now);
  return e != nullptr;
}

object_view object_table::look(std::string_view key, time_point now) {
  auto found = objects_.find(key);
  if (found != objects_.end() && found->second.in && follow_group(found->second.in->second, now))
    found = objects_.find(key);
  if (found == objects_.end() || found->second.ticket != 0 || found->second.ttl_end <= now)
    return {store_code::not_found, 0, 0, {}};
  return view_of(found->second);
}

void object_table::for_each(const std::function<bool(std::string_view, std::uint64_t size,
                                                     std::size_t replicas, std::size_t disks)>& visit,
                            std::string_view in, time_point now) const {
  const auto lies_there = [&](const held& part) { return segments_.at(part.segment).name == in; };
  const auto begins = [](const auto& part) { return part.at == 0; };
  for (const auto& [key, o] : objects_) {
    if (o.ticket != 0 || o.ttl_end <= now) continue;
    const auto on_disk_there = [&](const disk_part& part) { return segments_.at(part.segment).name == in; };
    if (!in.empty() && std::none_of(o.memory.begin(), o.memory.end(), lies_there) &&
        std::none_of(o.disks.begin(), o.disks.end(), on_disk_there))
      continue;
    const auto replicas = static_cast<std::size_t>(std::count_if(o.memory.begin(), o.memory.end(), begins));
    const auto disks = static_cast<std::size_t>(std::count_if(o.disks.begin(), o.disks.end(), begins));
    if (!visit(key, o.size, replicas + disks, disks)) return;
  }
}

bool object_table::is_key(std::string_view name) {
  const auto bytes = split_name(name).key.size();
  return bytes > 0 && bytes <= key_bytes_max;
}

// ---- writing ----------------------------------------------------------------------------------------------

reservation object_table::reserve(session_id writer, std::string_view key, std::uint64_t size,
                                  const put_policy& policy, std::string_view host, time_point now,
                                  const object_ties& ties) {
  const auto refuse = [](store_code why) { return reservation{why, 0, {}}; };
  if (!is_key(key)) return refuse(store_code::invalid_key);
  const auto bytes_of = [](std::string_view name) { return split_name(name).key.size(); };
  if ((!policy.move && (size == 0 || policy.replicas == 0)) || policy.replicas > replicas_max ||
      policy.soft_pin_for.count() < 0 || policy.soft_pin_for > options_.soft_pin_max ||
      (!policy.move && (policy.keep || policy.exactly)) || policy.ttl.count() < 0 ||
      bytes_of(ties.group) > key_bytes_max || bytes_of(ties.parent) > key_bytes_max ||
      !(ties.cost >= 0 && std::isfinite(ties.cost))) {
    return refuse(store_code::invalid_parameters);
  }
  visible(key, now);  // an object past its time makes way
  settle(now);
  const auto there = objects_.find(key);
  const bool over = policy.replace || policy.move;
  if (there != objects_.end() && (!over || there->second.ticket != 0))
    return refuse(store_code::already_exists);
  if (replacing_.find(key) != replacing_.end()) return refuse(store_code::already_exists);
  if (policy.move && there == objects_.end()) return refuse(store_code::not_found);
  if (policy.move) size = there->second.size;
  const auto leaving = std::find_if(segments_.begin(), segments_.end(), [&](const auto& at) {
    return policy.move && at.second.name == policy.leaving;
  });
  if (!policy.leaving.empty() && leaving == segments_.end()) return refuse(store_code::segment_not_found);
  std::vector<held> stays;
  if (policy.move && policy.keep) {
    stays = there->second.memory;
    if (leaving != segments_.end()) drop_copies(stays, leaving->first);
  }
  const auto is_first = [](const held& part) { return part.at == 0; };
  auto copies = std::size_t{policy.replicas};
  if (copies == 0)
    copies = static_cast<std::size_t>(
        std::count_if(there->second.memory.begin(), there->second.memory.end(), is_first));
  if (policy.move && policy.replicas == 0) copies = std::max<std::size_t>(copies, 1);  // on SSD alone
  if (copies + static_cast<std::size_t>(std::count_if(stays.begin(), stays.end(), is_first)) > replicas_max)
    return refuse(store_code::invalid_parameters);
  const auto owner = owner_of(key);
  bool coming = false;
  if (!policy.move) {
    const auto each = offset_allocator::rounded(size);
    const auto made = make_way(owner, each, there == objects_.end(), policy.lossy, now);
    if (made != way::made && made != way::none) return refuse(store_code::busy);
    if (made == way::none) {
      count(owner, &object_counts::refused);
      return refuse(store_code::quota_exceeded);
    }
    std::size_t within = 1;
    while (within < copies && claim_more(owner, {each}, {within * each})) ++within;
    copies = within;
  }
  auto memory = place_all(size, copies, {policy, host, stays, now}, !policy.move, coming);
  if (memory.empty()) {
    tell(owner);
    if (!policy.move && !coming) count(owner, &object_counts::refused);
    return refuse(coming ? store_code::busy : store_code::no_space);
  }
  const bool replaces = objects_.find(key) != objects_.end();
  auto& made = *(replaces ? replacing_ : objects_).try_emplace(std::string{key}).first;
  auto& o = made.second;
  o.replaces = replaces;
  o.size = size;
  o.writer = writer;
  o.ticket = o.version = next_ticket_++;
  o.owner = owner;
  o.memory = std::move(memory);
  o.keeps = policy.move && policy.keep;
  for (auto& part : o.memory) {
    part.ticket = o.ticket;
    part.for_readers = policy.for_readers && o.keeps;
    hot_bytes_ += part.for_readers ? part.bytes : 0;
    part.owner = part.for_readers ? 0 : owner;  // the store has made it, for itself
    take(part);
  }
  ++owners_[owner].seen.reserved;
  tell(owner);  // no more than was claimed
  if (policy.move) owners_[owner].moving_bytes += bytes_in(o.memory);
  o.moves = policy.move;
  o.leaving = leaving == segments_.end() ? 0 : leaving->first;
  o.hard = policy.hard_pin;
  o.lease_end = now;
  o.soft_end =
      policy.soft_pin ? now + (policy.soft_pin_for.count() ? policy.soft_pin_for : options_.soft_pin) : now;
  if (policy.ttl.count() && policy.ttl < time_point::max() - now) o.ttl_end = now + policy.ttl;
  if (!ties.group.empty() && !o.moves) join(made, ties.group);
  place_in_chain(made, ties);
  tickets_.emplace(o.ticket, &made);
  tickets_of_[writer].insert(o.ticket);
  if (journal_)
    for (const auto& part : o.memory) {
      auto record = record_of(o, part, now);
      record.tenant = owners_[owner].name;
      journal_->reserved(part.segment, record);
    }
  return {store_code::ok, o.ticket, places(o.memory)};
}

store_code object_table::publish(session_id writer, std::uint64_t ticket, std::uint64_t checksum,
                                 time_point now) {
  const auto found = tickets_.find(ticket);
  if (found == tickets_.end() || found->second->second.writer != writer) return store_code::not_found;
  auto& e = *found->second;
  auto& o = e.second;
  // What has become of its group until now does not concern it, nor what it joins.
  if (o.in) follow_group(o.in->second, now);
  if (const auto was = objects_.find(e.first); was != objects_.end() && was->second.in)
    follow_group(was->second.in->second, now);
  if (o.moves && !still_moves(e, checksum)) {
    erase(e, free_after_writing(o, now), now);
    return store_code::not_found;
  }
  tickets_.erase(found);
  tickets_of_[writer].erase(ticket);
  touch(o.owner);
  o.ticket = 0;
  --owners_[o.owner].seen.reserved;
  if (o.moves) owners_[o.owner].moving_bytes -= bytes_in(o.memory);
  o.checksum = checksum;
  if (o.moves) {
    const auto& was = objects_.find(e.first)->second;
    o.hard = was.hard;
    o.soft_end = was.soft_end;
    o.ttl_end = was.ttl_end;
    o.counted = was.counted;
    o.used = was.used;
    o.reads = was.reads;
    o.hot_again = was.hot_again;
    o.among_hottest = was.among_hottest;
    if (o.keeps) o.version = was.version;  // one of its replicas, not a later value
    if (o.memory.front().for_readers) {
      ++seen_.warmed;
      hot_replicas_.emplace_back(e.first, ticket);
    }
  }
  // A later directory that knows both takes this one, so it is told of before what it replaces is gone.
  const auto old = o.replaces ? objects_.find(e.first) : objects_.end();
  if (old != objects_.end() && old->second.in && !o.in) join(e, old->second.in->first);
  const std::string_view group = o.in ? std::string_view{o.in->first} : std::string_view{};
  changed(e.first);
  if (journal_)
    for (const auto& part : o.memory)
      journal_->published(part.segment, record_of(o, part, now), e.first, group);
  if (o.replaces) take_place(e, now);
  show(e, now);
  save_by_policy(e, now);
  return store_code::ok;
}

/// Whether the object that is to lie elsewhere is there, and the one that was copied.
bool object_table::still_moves(const entry& e, std::uint64_t checksum) const {
  const auto old = objects_.find(e.first);
  return old != objects_.end() && old->second.checksum == checksum && old->second.size == e.second.size;
}

void object_table::take_place(entry& e, time_point now) {
  if (const auto old = objects_.find(e.first); old != objects_.end()) {
    auto &was = old->second, &is = e.second;  // its children are those of what replaces it
    order_.stand(was.place, eviction_order::standing::held);
    std::swap(was.place, is.place);
    std::swap(was.parent, is.parent);
    std::swap(placed_[was.place], placed_[is.place]);
    if (is.keeps) keep_copies(was, is);
    if (!is.moves) order_.use(is.place, true);
    if (is.moves) count(is.owner, &object_counts::moved);
    const auto read_until = protected_until(was);
    erase(*old, read_until, now);
    if (is.keeps && read_until > now) lease(e, now);  // somebody reads what it has taken over
  }
  e.second.replaces = false;
  objects_.insert(replacing_.extract(replacing_.find(e.first)));  // the entry itself stays where it is
}

void object_table::show(entry& e, time_point now) {
  auto& o = e.second;
  if (!o.moves) o.used = now;
  object_bytes_ += o.size;
  touch(o.owner);
  ++owners_[o.owner].seen.objects;
  owners_[o.owner].seen.object_bytes += o.size;
  count_alone(o);
  if (o.in) o.in->second.leased_at = {};  // not all of it any more
  if (o.ttl_end != time_point::max()) by_ttl_.insert({o.ttl_end, &e});
  if (!o.hard && o.soft_end > now) by_soft_end_.insert({o.soft_end, &e});
  offer(e, now);
}

store_code object_table::revoke(session_id writer, std::uint64_t ticket, time_point now) {
  const auto found = tickets_.find(ticket);
  if (found == tickets_.end() || found->second->second.writer != writer) return store_code::not_found;
  erase(*found->second, free_after_writing(found->second->second, now), now);
  return store_code::ok;
}

void object_table::end_session(session_id writer, time_point now) {
  const auto found = tickets_of_.find(writer);
  if (found == tickets_of_.end()) return;
  const auto left = std::move(found->second);
  tickets_of_.erase(found);
  for (const auto ticket : left) erase(*tickets_.at(ticket), now + options_.quarantine, now);
}

// ---- leaving ----------------------------------------------------------------------------------------------

store_code object_table::remove(std::string_view key, bool force, time_point now) {
  auto* const e = visible(key, now);
  const bool absent = objects_.find(key) == objects_.end() && replacing_.find(key) == replacing_.end();
  if (absent) forget_alone(key);
  if (!e) return absent ? store_code::not_found : store_code::replica_not_ready;
  if (!force && (protected_until(e->second) > now || e->second.hard)) return store_code::has_lease;
  changed(key);
  erase(*e, protected_until(e->second), now);
  return store_code::ok;
}

std::uint64_t object_table::remove_if(const std::function<bool(std::string_view)>& matches, bool force,
                                      time_point now) {
  std::vector<entry*> going;
  for (auto& e : objects_) {
    const auto& o = e.second;
    if (o.ticket != 0 || o.ttl_end <= now || (!force && (protected_until(o) > now || o.hard))) continue;
    if (matches(e.first)) going.push_back(&e);
  }
  for (auto* const e : going) {
    changed(e->first);
    erase(*e, protected_until(e->second), now);
  }
  forget_alone_if([&](std::string_view key) { return objects_.find(key) == objects_.end() && matches(key); });
  return going.size();
}

// Forgets the object. Its memory is free at `free_at`: somebody may read or write it until then.
void object_table::erase(entry& e, time_point free_at, time_point now, bool evicted) {
  auto& o = e.second;
  unlease(e);
  end_work(e, true, now);
  while (!o.disks.empty()) drop_from_disk(e, o.disks.back().replica());
  leave_chain(e);
  forget_group_end(e);
  order_.erase(o.place, evicted);
  leave(e);
  touch(o.owner);
  owners_[o.owner].on_disk_alone -= o.alone;
  if (o.ticket != 0) {
    tickets_.erase(o.ticket);
    --owners_[o.owner].seen.reserved;
    if (o.moves) owners_[o.owner].moving_bytes -= bytes_in(o.memory);
    if (const auto found = tickets_of_.find(o.writer); found != tickets_of_.end())
      found->second.erase(o.ticket);
  } else {
    object_bytes_ -= o.size;
    --owners_[o.owner].seen.objects;
    owners_[o.owner].seen.object_bytes -= o.size;
    by_ttl_.erase({o.ttl_end, &e});
    by_soft_end_.erase({o.soft_end, &e});
  }
  for (const auto& part : o.memory) give_back(part, free_at, now);
  auto& all = o.replaces ? replacing_ : objects_;
  all.erase(all.find(e.first));
}

void object_table::give_back(const held& part, time_point free_at, time_point now) {
  hot_bytes_ -= part.for_readers ? part.bytes : 0;
  if (journal_)
    journal_->freed(part.segment, part.ticket, part.extent.offset, std::max(free_at - now, duration{}));
  if (free_at > now) {
    touch(part.owner);
    count_replica(part, false);
    quarantine_.insert({free_at, part})->second.rests = true;
    quarantined_bytes_ += part.bytes;
    owners_[part.owner].resting_bytes += part.bytes;
    return;
  }
  untake(part);
  segments_.at(part.segment).space.release(part.extent.handle);
}

void object_table::unmount(std::uint32_t id, time_point now) {
  const auto found = segments_.find(id);
  if (found == segments_.end()) return;
  forget_disk(id, now);
  std::vector<entry*> lost;
  for (auto* const all : {&objects_, &replacing_}) {
    for (auto& e : *all) {
      auto& o = e.second;
      const bool had = lose_on_disk(e, id, now);
      const bool in_memory = !o.memory.empty();
      lose_part(o, id, now);
      if (o.memory.empty() && o.disks.empty()) lost.push_back(&e);
      else if (in_memory && o.memory.empty()) order_.stand(o.place, eviction_order::standing::held);
      count_alone(o);
      if (had && o.disks.empty()) o.transient = false;
    }
  }
  for (auto* const e : lost) {
    if (e->second.ticket == 0) count(e->second.owner, &object_counts::lost);
    erase(*e, now, now);
  }
  for (auto& [key, some] : stripes_)
    std::erase_if(some, [&](const stripe& s) {
      if (s.part.segment == id) untake(s.part);
      return s.part.segment == id;
    });
  for (auto at = quarantine_.begin(); at != quarantine_.end();) {
    const auto next = std::next(at);
    if (at->second.segment == id) {
      untake(at->second);
      quarantined_bytes_ -= at->second.bytes;
      owners_[at->second.owner].resting_bytes -= at->second.bytes;
      quarantine_.erase(at);
    }
    at = next;
  }
  total_bytes_ -= found->second.usable_bytes();
  if (found->second.ssd) count_out_alone(*found->second.ssd);
  const auto beside = found->second.ssd ? found->second.ssd->beside : found->second.disk_beside;
  if (const auto other = segments_.find(beside); other != segments_.end())
    (other->second.ssd ? other->second.ssd->beside : other->second.disk_beside) = 0;
  segments_.erase(found);
  std::erase(segment_ids_, id);
  say_lent();
}

// ---- counting ---------------------------------------------------------------------------------------------

object_counts object_table::counts() const {
  auto c = seen_;
  c.regretted = order_.regretted();
  c.reserved = tickets_.size();
  c.objects = objects_.size() + replacing_.size() - tickets_.size();
  c.object_bytes = object_bytes_;
  c.total_bytes = total_bytes_;
  c.free_bytes = total_bytes_ - used_bytes_;
  c.quarantined_bytes = quarantined_bytes_;
  for (const auto& [id, s] : segments_) {
    if (!s.ssd) continue;
    c.disk_total_bytes += s.ssd->bytes;
    c.disk_bytes += s.ssd->used;
    c.disk_objects += s.ssd->objects();
  }
  return c;
}

bool object_table::consistent() const {
  std::uint64_t held_bytes = 0, object_bytes = 0, in_flight = 0, hanging = 0, should_hang = 0;
  std::uint64_t members = 0, grouped = 0, with_group = 0;
  for (const auto& [name, g] : groups_) {
    members += g.members.size();
    if (g.members.empty()) return false;
  }
  const auto whole = [&](const object& o) {
    for (const auto& part : o.memory) held_bytes += part.bytes;
    if ((o.memory.empty() && o.disks.empty()) || !whole_copies(o) || (o.ticket != 0 && o.leased))
      return false;
    const bool protects = o.hard || o.leased || o.group_end != time_point{};
    const bool may_go = o.ticket == 0 && !protects && o.work.empty() && !o.memory.empty();
    if (may_go != (order_.standing_of(o.place) != eviction_order::standing::held)) return false;
    in_flight += o.ticket != 0;
    object_bytes += o.ticket == 0 ? o.size : 0;
    should_hang += o.leased;
    grouped += o.in != nullptr;
    with_group += o.group_end != time_point{};
    return true;
  };
  for (const auto& [key, o] : objects_)
    if (o.replaces || !whole(o)) return false;
  for (const auto& [key, o] : replacing_)
    if (!o.replaces || o.ticket == 0 || !whole(o)) return false;
  const entry* before = nullptr;
  for (const entry* e = leased_.oldest; e; before = e, e = e->second.newer, ++hanging)
    if (!e->second.leased || e->second.older != before) return false;
  if (leased_.newest != before || !order_.consistent()) return false;
  std::uint64_t quarantined = 0, total = 0, free = 0;
  for (const auto& [key, some] : stripes_)
    for (const auto& s : some) held_bytes += s.part.bytes;
  for (const auto& [at, part] : quarantine_) quarantined += part.bytes;
  for (const auto& [which, work] : disk_work_)
    for (const auto& part : work.room) held_bytes += part.bytes;
  for (const auto& [id, s] : segments_) {
    if (!s.space.consistent()) return false;
    std::uint64_t room = 0, pages = 0;
    for (const auto& w : s.withheld) {
      room += w.room;
      pages += w.pages.bytes;
    }
    if (room != s.withheld_room || pages != s.withheld_bytes || s.withheld_told > s.withheld.size())
      return false;
    total += s.usable_bytes();
    free += s.space.free_bytes();
  }
  return disks_consistent() && members == grouped && with_group == by_group_end_.size() &&
         hanging == should_hang && in_flight == tickets_.size() && object_bytes == object_bytes_ &&
         quarantined == quarantined_bytes_ && total == total_bytes_ &&
         held_bytes + quarantined == used_bytes_ && free == total_bytes_ - used_bytes_ && owners_agree();
}

}  // namespace mooncaf
