#include "storage/objects/directory/holder_journal.hpp"

#include <utility>

namespace mooncaf {

using store_wire::entry;

void holder_journal::reserved(std::uint32_t segment, const segment_record& record) {
  const auto to = holders_.of(segment);
  out_.write(to, entry::reserved, segment, [&](byte_writer& out) {
    out.put(record.ticket);
    out.put(record.offset);
    out.put(record.size);
    out.put_text(record.tenant);
  });
  // A tenant writes through the segment's endpoint, which lets it wait until the endpoint has heard of the
  // place.
  if (!record.tenant.empty()) out_.wake(to);
}

void holder_journal::published(std::uint32_t segment, const segment_record& record, std::string_view key,
                               std::string_view group) {
  publication_unsent_ = true;
  out_.write(holders_.of(segment), entry::published, segment, [&](byte_writer& out) {
    out.put(record.ticket);
    out.put(record.offset);
    store_wire::put_published(out, record, key, group);
  });
}

/// The holders of a new value hear of it before the old value's holders hear that it is gone: they may be
/// others, and the directory may be killed in between.
void holder_journal::before_a_removal() {
  if (removing_ && std::exchange(publication_unsent_, false)) out_.send_before_more();
}

void holder_journal::freed(std::uint32_t segment, std::uint64_t ticket, std::uint64_t offset,
                           duration rests) {
  before_a_removal();
  const auto to = holders_.of(segment);
  out_.write(to, entry::freed, segment, [&](byte_writer& out) {
    out.put(ticket);
    out.put(offset);
    out.put(static_cast<std::int64_t>(rests.count()));
  });
  if (removing_) out_.hold_until_acknowledged(to);
}

/// Until the holder has acknowledged it, the object may or may not be on its SSD.
void holder_journal::erased(std::uint32_t disk, std::uint64_t ticket, std::string_view key) {
  before_a_removal();
  const auto to = holders_.of(disk);
  out_.write(to, entry::freed, disk, [&](byte_writer& out) {
    out.put(ticket);
    out.put(std::uint64_t{0});
    out.put(std::int64_t{0});
  });
  if (!out_.is_open(to) || !disks_.is_disk(disk)) return;
  disks_.erased(disk, out_.want_acknowledged(to), key);
  if (removing_) out_.hold_until_acknowledged(to);
}

void holder_journal::save(std::uint32_t to, const segment_record& record, std::string_view key,
                          std::string_view group, std::span<const replica_place> from) {
  out_.write(holders_.of(to), entry::save, to, [&](byte_writer& out) {
    out.put(record.ticket);
    store_wire::put_places(out, from);
    store_wire::put_published(out, record, key, group);
  });
}

void holder_journal::load(std::uint32_t from, std::uint64_t ticket, std::span<const replica_place> to) {
  out_.write(holders_.of(from), entry::load, from, [&](byte_writer& out) {
    out.put(ticket);
    store_wire::put_places(out, to);
  });
  out_.wake(holders_.of(from));
}

}  // namespace mooncaf
