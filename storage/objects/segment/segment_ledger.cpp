#include "storage/objects/segment/segment_ledger.hpp"

#include <algorithm>

#include "storage/objects/terms/key_scope.hpp"

namespace mooncaf {

using store_wire::entry;

// One case for each kind of entry; an entry that cannot be understood ends the link, as the ledger would be
// wrong from then on.
segment_ledger::outcome segment_ledger::apply(std::span<const std::byte> payload, time_point now) {
  byte_reader in{payload};
  outcome o;
  const auto waited_for = store_wire::waits{in.get<std::uint8_t>()};
  o.acknowledge = waited_for == store_wire::waits::to_hear;
  o.understood = waited_for <= store_wire::waits::for_work;
  if (waited_for != store_wire::waits::nobody) in.take(in.get<std::uint32_t>());  // filler
  while (o.understood && in.ok() && in.left() > 0) {
    const auto kind = static_cast<entry>(in.get<std::uint8_t>());
    const auto segment = in.get<std::uint32_t>();
    if (kind == entry::joined || kind == entry::fenced) {
      o.fenced = o.fenced || (kind == entry::fenced && segment == former_.segment);
      learn_member(segment, kind == entry::joined);
      continue;
    }
    if (kind == entry::draining) {
      const bool on = in.get<std::uint8_t>() != 0;
      if (in.ok() && segment == former_.segment) former_.draining = on;
      continue;
    }
    if (kind == entry::task) {
      auto order = store_wire::get_order(in);
      if (in.ok()) o.orders.push_back(std::move(order));
      continue;
    }
    const auto ticket = in.get<std::uint64_t>();  // or incarnation
    if (disk_ != 0 && segment == disk_) {
      o.understood = take_order(kind, ticket, in, o);
      if (!o.understood) break;
      continue;
    }
    segment_record told;
    if (kind == entry::reserved) {
      told.ticket = ticket;
      told.offset = in.get<std::uint64_t>();
      told.size = in.get<std::uint64_t>();
      told.tenant = in.get_text();
      if (in.ok()) reserve(std::move(told));
    } else if (kind == entry::published) {
      told.ticket = ticket;
      told.offset = in.get<std::uint64_t>();
      if (const auto* const known = find({ticket, told.offset})) told.size = known->record.size;
      store_wire::get_published(in, told);
      if (in.ok()) publish(std::move(told), now);
    } else if (kind == entry::freed) {
      const auto offset = in.get<std::uint64_t>();
      const duration rests{in.get<std::int64_t>()};
      if (in.ok()) free({ticket, offset}, rests, now);
    } else if (kind == entry::serving) {
      former_.served_by = ticket;
      if (!hears_of_disk_) former_.disk = 0;  // it misses something from now on
    } else {
      o.understood = false;
    }
    if (!o.understood || segment != former_.segment) break;
  }
  o.understood = o.understood && in.ok() && in.left() == 0;
  while (!resting_.empty() && resting_.begin()->first <= now) {
    forget(resting_.begin()->second);
    resting_.erase(resting_.begin());
  }
  return o;
}

bool segment_ledger::take_order(entry kind, std::uint64_t ticket, byte_reader& in, outcome& o) {
  disk_order order;
  order.object.ticket = ticket;
  if (kind == entry::save) {
    order.what = disk_order::kind::save;
    order.places = store_wire::get_places(in);
    store_wire::get_published(in, order.object);
  } else if (kind == entry::load) {
    order.what = disk_order::kind::load;
    order.places = store_wire::get_places(in);
  } else if (kind == entry::freed) {
    in.get<std::uint64_t>();
    in.get<std::int64_t>();
  } else {
    return kind == entry::serving;
  }
  for (const auto& place : order.places) order.object.size += place.bytes;
  if (in.ok()) o.disk_orders.push_back(std::move(order));
  return in.ok();
}

void segment_ledger::learn_member(std::uint32_t segment, bool joined) {
  auto &to = joined ? former_.members : former_.fenced, &from = joined ? former_.fenced : former_.members;
  std::erase(from, segment);
  if (std::find(to.begin(), to.end(), segment) != to.end()) return;
  if (to.size() == store_wire::former_max) to.erase(to.begin());
  to.push_back(segment);
}

/// Memory that is reserved again has rested long enough by the directory's clock, whatever this clock says.
void segment_ledger::reserve(segment_record&& told) {
  if (told.size == 0 || told.size > ~std::uint64_t{0} - told.offset) return;
  auto at = lines_.lower_bound(told.offset);
  if (at != lines_.begin() && std::prev(at)->first + std::prev(at)->second.record.size > told.offset) --at;
  while (at != lines_.end() && at->first < told.offset + told.size) {
    published_ -= at->second.record.published;
    at = lines_.erase(at);
  }
  tenant_part part{told.tenant, told.ticket, told.offset, told.size, false, false, std::nullopt, nullptr};
  auto& at_offset = lines_[told.offset];
  at_offset = {std::move(told), std::move(part), {}, time_point::max()};
}

segment_ledger::line* segment_ledger::find(const span_key& what) {
  const auto found = lines_.find(what.offset);
  return found == lines_.end() || found->second.record.ticket != what.ticket ? nullptr : &found->second;
}

void segment_ledger::publish(segment_record&& told, time_point now) {
  auto* const l = find({told.ticket, told.offset});
  if (!l || l->record.published) return;
  l->soft_end = now + std::clamp(told.soft_pin_for, duration{}, duration{std::chrono::hours(24 * 365)});
  if (told.ttl.count() > 0 && told.ttl < time_point::max() - now) l->ttl_end = now + told.ttl;
  l->record = std::move(told);
  l->part.sealed = true;
  if (l->part.owner.empty())
    l->part.owner = split_name(l->record.key).tenant;  // it was read from SSD, so no
                                                       // writer has said whose it is
  if (l->record.size == l->record.object_size) l->part.checksum = l->record.checksum;
  ++published_;
}

/// The object is gone, but clients may read or write its bytes until they have rested.
void segment_ledger::free(const span_key& what, duration rests, time_point now) {
  auto* const l = find(what);
  if (!l) return;
  if (rests.count() <= 0) return forget(what);
  published_ -= l->record.published;
  l->record.published = false;
  l->record.key = l->record.group = {};
  if (!l->part.sealed) l->part.owner = {};
  resting_.emplace(now + std::min(rests, duration{std::chrono::hours(24)}), what);
}

void segment_ledger::forget(const span_key& what) {
  const auto* const gone = find(what);
  if (!gone) return;
  published_ -= gone->record.published;
  lines_.erase(what.offset);
}

segment_ledger::tenant_part* segment_ledger::part_at(std::uint64_t offset, std::uint64_t bytes) {
  auto* const part = anyones_part_at(offset, bytes);
  return part && !part->owner.empty() ? part : nullptr;
}

segment_ledger::tenant_part* segment_ledger::anyones_part_at(std::uint64_t offset, std::uint64_t bytes) {
  const auto after = lines_.upper_bound(offset);
  if (after == lines_.begin()) return nullptr;
  auto& part = std::prev(after)->second.part;
  const auto at = offset - part.offset;
  return at <= part.size && bytes <= part.size - at ? &part : nullptr;
}

namespace {
/// Cuts records into payloads. @param next  writes one; false when there are no more.
std::vector<std::vector<std::byte>> cut(std::uint32_t segment,
                                        const std::function<bool(byte_writer&)>& next) {
  constexpr std::size_t bytes_max = 1 * MiB;
  std::vector<std::vector<std::byte>> all;
  std::vector<std::byte> records;
  std::uint32_t count = 0;
  const auto finish = [&](bool last) {
    auto& payload = all.emplace_back();
    payload.reserve(records.size() + 16);
    byte_writer out{payload};
    out.put(segment);
    out.put(static_cast<std::uint8_t>(last));
    out.put(count);
    out.put_bytes(records);
    records.clear();
    count = 0;
  };
  byte_writer out{records};
  while (next(out))
    if (++count == store_wire::batch_max || records.size() >= bytes_max) finish(false);
  finish(true);
  return all;
}
}  // namespace

std::vector<std::vector<std::byte>> announcement_of(std::uint32_t segment,
                                                    std::span<const segment_record> records) {
  return cut(segment, [at = records.begin(), end = records.end()](byte_writer& out) mutable {
    if (at == end) return false;
    store_wire::put_record(out, *at++);
    return true;
  });
}

std::vector<std::vector<std::byte>> segment_ledger::announcement(time_point now) {
  return cut(former_.segment, [&, at = lines_.begin()](byte_writer& out) mutable {
    if (at == lines_.end()) return false;
    auto& l = (at++)->second;
    l.record.soft_pin_for = std::max(l.soft_end - now, duration{});
    if (l.ttl_end != time_point::max()) l.record.ttl = std::max(l.ttl_end - now, duration{1});
    store_wire::put_record(out, l.record);
    return true;
  });
}

}  // namespace mooncaf
