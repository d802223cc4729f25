#include "storage/objects/table/object_puts.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "storage/objects/table/object_books.hpp"
#include "storage/objects/table/object_life.hpp"
#include "storage/objects/table/object_reading.hpp"
#include "storage/objects/table/object_saving.hpp"
#include "storage/objects/table/room_maker.hpp"
#include "storage/objects/terms/key_scope.hpp"

namespace mooncaf {

namespace {
/// A put that finds no room sets so much more free than it needs: the next ones need not wait.
constexpr std::uint64_t saved_ahead = 32 * MiB;
/// Share of all memory that rooms without a name may have together: larger objects, and small stores, ask for
/// each put.
constexpr double largest_share_ahead = 1.0 / 256;

std::size_t key_bytes(std::string_view name) { return split_name(name).key.size(); }
}  // namespace

object_puts::object_puts(object_books& books, object_life& life, object_saving& saving, room_maker& rooms,
                         object_reading& reading)
    : b_(books), life_(life), saving_(saving), rooms_(rooms), reading_(reading) {}

bool object_puts::is_key(std::string_view name) {
  const auto bytes = key_bytes(name);
  return bytes > 0 && bytes <= key_bytes_max;
}

// ---- reserve ----------------------------------------------------------------------------------------------

bool object_puts::makes_sense(const put_policy& policy, std::uint64_t size, const object_ties& ties) const {
  return (policy.move || (size > 0 && policy.replicas > 0)) && policy.replicas <= replicas_max &&
         policy.soft_pin_for.count() >= 0 && policy.soft_pin_for <= b_.options.soft_pin_max &&
         (policy.move || (!policy.keep && !policy.exactly)) && policy.ttl.count() >= 0 &&
         key_bytes(ties.group) <= key_bytes_max && key_bytes(ties.parent) <= key_bytes_max &&
         ties.cost >= 0 && std::isfinite(ties.cost);
}

/// Whether the key's present value lets it be written.
object_puts::wanted object_puts::look(std::string_view key, std::uint64_t size, const put_policy& policy) {
  wanted want;
  const auto refuse = [&](store_code why) { return want.code = why, want; };
  const auto* const there = b_.index.find(key);
  want.over = there != nullptr;
  if (there && ((!policy.replace && !policy.move) || !there->published()))
    return refuse(store_code::already_exists);
  if (b_.index.has_beside(key)) return refuse(store_code::already_exists);
  want.size = size;
  want.copies = policy.replicas;
  if (!policy.move && !policy.leaving.empty()) return refuse(store_code::segment_not_found);
  if (!policy.move) return want;
  if (!there) return refuse(store_code::not_found);
  want.size = there->size;
  want.terms = {true, policy.keep, b_.space.named(policy.leaving)};
  if (!policy.leaving.empty() && want.terms.leaving == 0 && b_.disks.named(policy.leaving) == 0)
    return refuse(store_code::segment_not_found);
  if (policy.keep)
    want.stays = want.terms.leaving ? without_replicas_in(want.terms.leaving, there->memory) : there->memory;
  // The number of replicas stays, or is one for an object that is on SSD alone.
  if (want.copies == 0) want.copies = std::max<std::size_t>(replica_count(there->memory), 1);
  if (want.copies + replica_count(want.stays) > replicas_max) return refuse(store_code::invalid_parameters);
  return want;
}

/// Copies beyond the first are not made where they would not fit into the quota.
store_code object_puts::take_quota(std::uint32_t owner, wanted& want, bool lossy, time_point now) {
  const auto each = offset_allocator::rounded(want.size);
  const auto made = rooms_.make_way(owner, each, !want.over, lossy, now);
  if (made == way::none) {
    b_.quotas.count(owner, &object_counts::refused);
    return store_code::quota_exceeded;
  }
  if (made != way::made) return store_code::busy;
  std::size_t within = 1;
  while (within < want.copies && b_.quotas.claim_more(owner, {each}, {within * each})) ++within;
  want.copies = within;
  return store_code::ok;
}

// The checks that cost nothing come first: a put that is refused must not have made others leave.
reservation object_puts::reserve(session_id writer, std::string_view key, std::uint64_t size,
                                 const put_policy& policy, std::string_view host, time_point now,
                                 const object_ties& ties) {
  const auto refuse = [](store_code why) { return reservation{why, 0, {}}; };
  if (!is_key(key)) return refuse(store_code::invalid_key);
  if (!makes_sense(policy, size, ties)) return refuse(store_code::invalid_parameters);
  reading_.visible(key, now);  // an object past its time makes way
  life_.settle(now);
  auto want = look(key, size, policy);
  if (want.code != store_code::ok) return refuse(want.code);
  const auto owner = b_.quotas.number_of(key);
  if (!policy.move)
    if (const auto code = take_quota(owner, want, policy.lossy, now); code != store_code::ok)
      return refuse(code);
  bool coming = false;
  auto memory = place_all(want, policy, host, coming, now);
  if (memory.empty()) {
    b_.quotas.tell(owner);
    if (!policy.move && !coming) b_.quotas.count(owner, &object_counts::refused);
    return refuse(coming ? store_code::busy : store_code::no_space);
  }
  auto& o = begin(writer, key, owner, want, policy, std::move(memory));
  b_.protection.set_lease_end(o, now);
  const auto soft = policy.soft_pin_for.count() ? policy.soft_pin_for : b_.options.soft_pin;
  object_protection::pin(o, policy.hard_pin, policy.soft_pin ? now + soft : now, policy.ttl, now);
  if (!ties.group.empty() && !policy.move) b_.groups.join(o, ties.group);
  enter(o, ties);
  if (b_.journal)
    for (const auto& part : o.memory) {
      auto record = life_.record_of(o, part, now);
      record.tenant = b_.quotas.name(owner);
      b_.journal->reserved(part.segment, record);
    }
  return {store_code::ok, o.writing.ticket(), places_of(o.memory)};
}

/// The replicas that there is room for.
/// @param coming  becomes true if there is none, but will be when others are saved.
std::vector<memory_part> object_puts::place_all(const wanted& want, const put_policy& policy,
                                                std::string_view host, bool& coming, time_point now) {
  std::uint64_t room = 0;
  for (const auto id : b_.space.ids()) room += b_.space.draining(id) ? 0 : b_.space.usable_bytes(id);
  std::vector<memory_part> memory, others = want.stays;
  if (room < want.size) return memory;
  const placement_wish beside{policy, host, others, now};
  for (std::uint32_t copy = 0; copy < want.copies; ++copy) {
    // For the first copy other objects make way; a further one takes free memory alone.
    auto parts = copy == 0 && !policy.move ? place_first(want.size, beside, coming)
                                           : b_.placing.place(want.size, beside);
    if (parts.empty()) break;
    for (auto& part : parts) {
      part.copy = copy;
      b_.space.note_traffic(part.segment, part.size);
    }
    memory.insert(memory.end(), parts.begin(), parts.end());
    others.insert(others.end(), parts.begin(), parts.end());
  }
  coming = memory.empty() && !policy.move && (coming || b_.quotas.use().leaving_bytes > 0);
  return memory;
}

std::vector<memory_part> object_puts::place_first(std::uint64_t size, const placement_wish& where,
                                                  bool& coming) {
  auto parts = b_.placing.place(size, where);
  for (auto made = way::made; parts.empty() && made != way::none && made != way::late;) {
    const bool enough = !where.policy.lossy && b_.quotas.use().leaving_bytes >
                                                   size + std::min(saved_ahead, b_.space.total_bytes() / 8);
    made = enough ? way::late : rooms_.evict_one(where.now, where.policy.lossy, {{}, 0, true});
    coming = coming || made == way::coming || made == way::late;
    parts = b_.placing.place(size, where);
  }
  return parts;
}

stored_object& object_puts::begin(session_id writer, std::string_view key, std::uint32_t owner,
                                  const wanted& want, const put_policy& policy,
                                  std::vector<memory_part>&& memory) {
  auto& o = b_.index.add_or_beside(key);
  o.size = want.size;
  o.owner = owner;
  o.memory = std::move(memory);
  o.version = b_.writers.begin(o, writer, want.terms);
  for (auto& part : o.memory) {
    part.ticket = o.version;
    part.for_readers = policy.for_readers && want.terms.keeps;
    part.owner = part.for_readers ? 0 : owner;  // the store has made it, for itself
    b_.space.take(part);
  }
  b_.quotas.more(owner, &tenant_use::reserved);
  b_.quotas.tell(owner);  // no more than was claimed
  if (want.terms.moves) b_.quotas.more(owner, &tenant_use::moving_bytes, bytes_in_parts(o.memory));
  return o;
}

/// An object that replaces another value keeps that one's place in its chain when it is published.
void object_puts::enter(stored_object& o, const object_ties& ties) {
  const bool tied = !ties.parent.empty() && !o.beside;
  const auto* const parent = tied ? b_.index.find(ties.parent) : nullptr;
  b_.order.enter(o, parent == &o ? nullptr : parent, tied ? object_index::hash_of(ties.parent) : 0,
                 ties.cost);
}

// ---- before it has a name ---------------------------------------------------------------------------------

reservation object_puts::reserve_ahead(session_id writer, std::uint64_t size, const put_policy& policy,
                                       std::string_view host, time_point now) {
  const auto bytes = static_cast<double>(size) * std::max(policy.replicas, 1u);
  const auto all = static_cast<double>(b_.space.total_bytes());
  const bool fits =
      static_cast<double>(b_.quotas.use().used_bytes) + bytes <= all * b_.options.high_watermark;
  if (!policy.may_be_ahead() || bytes > all * largest_share_ahead || !fits)
    return {store_code::no_space, 0, {}};
  // No client can say this name, since a name that begins with a zero byte has another one behind it
  // (`key_scope`).
  auto unsaid = std::to_string(b_.writers.next_ticket());
  unsaid.insert(unsaid.begin(), '\0');
  const auto made = reserve(writer, unsaid, size, policy, host, now, {});
  if (made.code == store_code::ok)
    b_.writers.keep_unnamed(*b_.writers.find(writer, made.ticket), now + b_.options.ahead_for);
  return made;
}

store_code object_puts::name(session_id writer, std::uint64_t ticket, std::string_view key, time_point now) {
  auto* const o = b_.writers.find(writer, ticket);
  if (!o || !o->writing.ahead()) return store_code::not_found;
  if (!is_key(key)) return store_code::invalid_key;
  reading_.visible(key, now);  // an object past its time makes way
  if (b_.index.find(key) || b_.index.has_beside(key)) return store_code::already_exists;
  const auto drained = [&](const memory_part& part) { return b_.space.draining(part.segment); };
  if (std::any_of(o->memory.begin(), o->memory.end(), drained)) return store_code::not_found;
  b_.index.rename(*o, key);
  b_.writers.name(*o);
  o->version = b_.writers.new_ticket();  // others may have written this key since there was room for it
  b_.order.leave(*o, false);
  enter(*o, {});
  return store_code::ok;
}

void object_puts::end_unnamed(time_point now) {
  while (auto* const o = b_.writers.unnamed_ended(now))
    life_.erase(*o, now + b_.options.quarantine, now);  // its writer may be late, and writing
}

// ---- publish ----------------------------------------------------------------------------------------------

store_code object_puts::publish(session_id writer, std::uint64_t ticket, std::uint64_t checksum,
                                time_point now) {
  auto* const found = b_.writers.find(writer, ticket);
  if (!found) return store_code::not_found;
  auto& o = *found;
  // The end of the old value's group does not concern the new object, nor the group that it joins.
  rooms_.follow_group(o, now);
  if (auto* const was = b_.index.find(*o.key)) rooms_.follow_group(*was, now);
  const bool moves = o.writing.terms.moves;
  if (moves && !still_moves(o, checksum)) {
    life_.erase(o, free_after_writing(o, now), now);
    return store_code::not_found;
  }
  b_.writers.end(o);
  b_.quotas.less(o.owner, &tenant_use::reserved);
  o.checksum = checksum;
  if (moves) become(o, ticket);
  // A later directory that knows both takes this one, so it is told of before the old one is gone.
  const auto* const old = o.beside ? b_.index.find(*o.key) : nullptr;
  if (old && old->group.any() && !o.group.any()) b_.groups.join(o, object_groups::name(*old));
  life_.changed(*o.key);
  if (b_.journal)
    for (const auto& part : o.memory)
      b_.journal->published(part.segment, life_.record_of(o, part, now), *o.key, object_groups::name(o));
  if (o.beside) take_place(o, now);
  life_.show(o, now);
  saving_.save_by_policy(o, now);
  return store_code::ok;
}

/// The copy of a move keeps pins, uses and warmth of its original.
void object_puts::become(stored_object& o, std::uint64_t ticket) {
  b_.quotas.less(o.owner, &tenant_use::moving_bytes, bytes_in_parts(o.memory));
  const auto& was = *b_.index.find(*o.key);
  object_protection::pin_like(o, was);
  b_.order.used_like(o, was);
  object_warmth::like(o, was);
  if (o.writing.terms.keeps)
    o.version = was.version;  // a further replica of the same value, not a later
                              // value
  if (!o.memory.front().for_readers) return;
  b_.quotas.count(&object_counts::warmed, 1);
  b_.warmth.made_for_readers(o, ticket);
}

/// Whether the object that is to lie elsewhere is there, and the one that was copied.
bool object_puts::still_moves(const stored_object& o, std::uint64_t checksum) const {
  const auto* const old = b_.index.find(*o.key);
  return old && old->checksum == checksum && old->size == o.size;
}

/// The children of the old value become children of the new one.
void object_puts::take_place(stored_object& is, time_point now) {
  if (auto* const old = b_.index.find(*is.key)) {
    auto& was = *old;
    const auto& terms = is.writing.terms;
    b_.order.hand_over(was, is);
    if (terms.keeps) keep_replicas(was, is);
    if (terms.moves) b_.quotas.count(is.owner, &object_counts::moved);
    else b_.order.renew(is);
    const auto read_until = object_life::protected_until(was);
    life_.erase(was, read_until, now);
    if (terms.keeps && read_until > now)
      life_.lease(is, now);  // a client may be reading replicas that it
                             // has taken over
  }
  b_.index.put_in_place(is);
}

/// The replicas that stay change hands.
void object_puts::keep_replicas(stored_object& was, stored_object& is) {
  const auto leaving = is.writing.terms.leaving;
  const auto stays = leaving != 0 ? without_replicas_in(leaving, was.memory) : was.memory;
  std::erase_if(was.memory, [&](const memory_part& part) {
    return std::any_of(stays.begin(), stays.end(), [&](const memory_part& s) { return s.one_with(part); });
  });
  is.memory.insert(is.memory.begin(), stays.begin(), stays.end());
}

// ---- given up ---------------------------------------------------------------------------------------------

/// A tenant's bytes come through an endpoint, which may not have heard yet that they are not to be written
/// any more.
time_point object_puts::free_after_writing(const stored_object& o, time_point now) const {
  return o.owner == 0 ? now : now + b_.options.quarantine;
}

store_code object_puts::revoke(session_id writer, std::uint64_t ticket, time_point now) {
  auto* const o = b_.writers.find(writer, ticket);
  if (!o) return store_code::not_found;
  life_.erase(*o, free_after_writing(*o, now), now);
  return store_code::ok;
}

void object_puts::end_session(session_id writer, time_point now) {
  for (auto* const o : b_.writers.take(writer)) life_.erase(*o, now + b_.options.quarantine, now);
}

}  // namespace mooncaf
