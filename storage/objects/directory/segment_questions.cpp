#include "storage/objects/directory/segment_questions.hpp"

#include <string>
#include <utility>

#include "storage/objects/directory/directory_tasks.hpp"

namespace mooncaf {

using store_wire::entry;
using store_wire::frame;
using store_wire::put_code;

namespace {

constexpr std::size_t name_bytes_max = 1024;
constexpr std::uint64_t segment_bytes_max = std::uint64_t{1} << 46, disk_bytes_max = std::uint64_t{1} << 50;

}  // namespace

bool segment_questions::mount(const directory_session& from, byte_reader& in, time_point now, frame& out) {
  const auto name = in.get_text();
  const auto bytes = in.get<std::uint64_t>();
  auto address = store_wire::get_address(in);
  const auto former = store_wire::get_former(in);
  if (!in.ok() || in.left() != 0 || name.empty() || name.size() > name_bytes_max || bytes > segment_bytes_max)
    return false;
  auto segment = former.segment;
  auto code = store_code::ok;
  if (segment == 0) {
    segment = table_.mount(name, from.host, bytes);
    if (segment == 0) code = store_code::segment_exists;
  } else if (!recovery_.admit(former, [&](std::uint32_t s) { give_up(s, now); }) ||
             !table_.remount(segment, name, from.host, bytes)) {
    code = store_code::segment_not_found;
  } else {
    recovery_.begin_announcing(former);
  }
  put_code(out, code);
  out->put(segment);
  if (code != store_code::ok) return true;
  if (former.draining) table_.drain(name, true);
  holders_.mount(segment, from.id, from.peer, std::move(address));
  tell_what_is_known(from.id);
  out_.add_holder(from.id);
  out_.write_to_holders(entry::joined, segment);
  if (recovery_.serving()) tell_serving(segment, from.id);
  return true;
}

/// A new holder hears which segments belong to the store, and which do no more: it tells the next directory.
void segment_questions::tell_what_is_known(std::uint64_t session) {
  holders_.each([&](std::uint32_t other, std::uint64_t) {
    if (!disks_.is_disk(other)) out_.write(session, entry::joined, other);
  });
  for (const auto f : recovery_.fenced()) out_.write(session, entry::fenced, f);
}

bool segment_questions::mount_disk(const directory_session& from, byte_reader& in, frame& out) {
  const auto offer = store_wire::get_disk(in);
  if (!in.ok() || in.left() != 0 || offer.name.empty() || offer.name.size() > name_bytes_max ||
      offer.bytes > disk_bytes_max || !holders_.has(from.id, offer.beside))
    return false;
  store_wire::mounted_disk made;
  if (!disks_.is_here(offer.disk))
    made.segment = table_.mount_disk(offer.name, from.host, offer.bytes, offer.beside, offer.policy);
  if (made.segment == 0) {
    const bool memory_lost = table_.segment_gone(offer.beside);
    made.code = memory_lost ? store_code::segment_not_found : store_code::segment_exists;
    store_wire::put_disk(*out, made);
    return true;
  }
  made.known =
      disks_.mount(made.segment, offer.disk, offer.store, recovery_.is_continued(offer.beside, offer.disk));
  made.store = disks_.store();
  if (!made.known) table_.disk_open(made.segment);
  holders_.mount(made.segment, from.id, from.peer);
  store_wire::put_disk(*out, made);
  return true;
}

bool segment_questions::announce(const directory_session& from, byte_reader& in, time_point now, frame& out) {
  const auto segment = in.get<std::uint32_t>();
  const bool last = in.get<std::uint8_t>() != 0;
  const auto n = store_wire::get_count(in);
  if (!n || !holders_.has(from.id, segment)) return false;
  return disks_.is_disk(segment) ? announce_disk(segment, last, *n, in, now, out)
                                 : announce_memory(segment, last, *n, in, now, out);
}

bool segment_questions::announce_memory(std::uint32_t segment, bool last, std::uint32_t n, byte_reader& in,
                                        time_point now, frame& out) {
  // Where it is not, its holder has been told meanwhile that the contents count no more.
  const bool taken = recovery_.is_announcing(segment);
  for (std::uint32_t i = 0; i < n && taken; ++i) {
    auto record = store_wire::get_record(in);
    if (!in.ok() || !table_.recover(segment, std::move(record), now)) return false;
  }
  if (taken && in.left() != 0) return false;
  if (taken && last) recovery_.end_announcing(segment);
  put_code(out, taken ? store_code::ok : store_code::segment_not_found);
  return true;
}

bool segment_questions::announce_disk(std::uint32_t segment, bool last, std::uint32_t n, byte_reader& in,
                                      time_point now, frame& out) {
  const bool announcing = disks_.is_announcing(segment);
  for (std::uint32_t i = 0; i < n; ++i) {
    auto record = store_wire::get_record(in);
    if (!in.ok() || !announcing) return false;
    const auto ticket = record.ticket;
    const auto key = record.key;
    if (!table_.recover_on_disk(segment, std::move(record), disks_.is_stale(segment, key), now))
      journal_.erased(segment, ticket, key);
  }
  if (in.left() != 0) return false;
  if (last && announcing) {
    disks_.announced(segment);
    table_.disk_open(segment);
    acknowledged(holders_.of(segment));
  }
  put_code(out, store_code::ok);
  return true;
}

bool segment_questions::drain(byte_reader& in, frame& out) {
  const auto name = store_wire::get_text_view(in);
  const bool on = in.get<std::uint8_t>() != 0;
  if (!in.ok() || in.left() != 0) return false;
  const auto segment = segment_named(table_, name);
  put_code(out, segment ? store_code::ok : store_code::segment_not_found);
  if (!segment) return true;
  table_.drain(name, on);
  out_.write(holders_.of(segment->id), entry::draining, segment->id,
             [&](byte_writer& to) { to.put(static_cast<std::uint8_t>(on)); });
  return true;
}

bool segment_questions::withhold(const directory_session& from, byte_reader& in, time_point now, frame& out) {
  const auto segment = in.get<std::uint32_t>();
  const auto bytes = in.get<std::uint64_t>();
  if (!in.ok() || in.left() != 0 || !holders_.has(from.id, segment)) return false;
  const auto stands = table_.withhold(segment, bytes, now);
  put_code(out, stands ? store_code::ok : store_code::segment_not_found);
  if (stands) store_wire::put_withheld(*out, {*stands, table_.take_withheld(segment)});
  return true;
}

void segment_questions::list(const directory_session& from, frame& out) const {
  const auto all = table_.segments(from.owner);
  out->put(static_cast<std::uint32_t>(all.size()));
  for (const auto& s : all) {
    auto address = holders_.address(s.id);
    // A tenant reaches the memory through the endpoint alone.
    if (from.owner != 0) address = {{}, 0, {}, address.endpoint_host, address.endpoint_port};
    store_wire::put_segment(*out, {s, address, holders_.holder(s.id)}, from.peer.speaks);
  }
}

bool segment_questions::disk_done(const directory_session& from, byte_reader& in, time_point now) {
  const auto n = store_wire::get_count(in);
  if (!n) return false;
  std::uint32_t segment = 0;
  for (std::uint32_t i = 0; i < *n; ++i) {
    segment = in.get<std::uint32_t>();
    const auto ticket = in.get<std::uint64_t>();
    const bool good = in.get<std::uint8_t>() != 0;
    if (!in.ok() || !holders_.has(from.id, segment)) return false;
    table_.disk_done(segment, ticket, good, now);
  }
  if (*n > 0 && from.peer.speaks >= store_wire::tells_disk_room) {
    const auto bytes = in.get<std::uint64_t>();
    if (!in.ok() || bytes > disk_bytes_max || !disks_.is_disk(segment)) return false;
    table_.disk_fits(segment, bytes, now);
  }
  return in.left() == 0;
}

void segment_questions::acknowledged(std::uint64_t session) {
  const auto frame = out_.acknowledged(session);
  for (const auto segment : holders_.of_session(session))
    if (disks_.is_disk(segment)) disks_.acknowledged(segment, frame);
}

bool segment_questions::end_session(std::uint64_t session, time_point now) {
  const auto had = holders_.of_session(session);
  holders_.end_session(session);
  for (const auto segment : had) {
    if (!disks_.is_disk(segment)) {
      fence(segment, now);
      continue;
    }
    disks_.lose(segment);
    table_.unmount(segment, now);
    holders_.unmount(segment);
  }
  return !had.empty();
}

/// The segment is of an earlier directory than the last, and so is what the SSD beside it knows.
void segment_questions::give_up(std::uint32_t segment, time_point now) {
  for (const auto beside : holders_.of_session(holders_.of(segment))) {
    if (!disks_.is_disk(beside)) continue;
    disks_.distrust(beside);
    table_.unmount(beside, now);
    holders_.unmount(beside);
  }
  fence(segment, now);
}

void segment_questions::fence(std::uint32_t segment, time_point now) {
  table_.unmount(segment, now);
  if (recovery_.fence(segment)) out_.write_to_holders(entry::fenced, segment);
  holders_.unmount(segment);
}

void segment_questions::tell_serving() {
  holders_.each([&](std::uint32_t segment, std::uint64_t session) { tell_serving(segment, session); });
}

void segment_questions::tell_serving(std::uint32_t segment, std::uint64_t session) {
  out_.write(session, entry::serving, segment, [&](byte_writer& to) { to.put(incarnation_); });
}

}  // namespace mooncaf
