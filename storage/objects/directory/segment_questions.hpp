#pragma once
// Answers the questions of processes that mount segments of memory and SSDs, and follows segments to their
// end.

#include <cstdint>

#include "storage/objects/directory/directory_recovery.hpp"
#include "storage/objects/directory/directory_session.hpp"
#include "storage/objects/directory/disk_book.hpp"
#include "storage/objects/directory/holder_journal.hpp"
#include "storage/objects/directory/outbox.hpp"
#include "storage/objects/directory/segment_holders.hpp"
#include "storage/objects/table/object_table.hpp"
#include "storage/objects/wire/store_wire.hpp"

namespace mooncaf {

/// The functions with `in` read a question, as `store_wire::op` of the same name describes it, and write its
/// answer. They return false for a question that fits nothing.
/// @thread  not synchronised
class segment_questions {
 public:
  /// @param incarnation  of the directory. All others must outlive the object.
  segment_questions(std::uint64_t incarnation, object_table& table, holder_journal& journal, outbox& out,
                    segment_holders& holders, disk_book& disks, directory_recovery& recovery)
      : incarnation_(incarnation),
        table_(table),
        journal_(journal),
        out_(out),
        holders_(holders),
        disks_(disks),
        recovery_(recovery) {}

  bool mount(const directory_session& from, byte_reader& in, time_point now, store_wire::frame& out);
  bool mount_disk(const directory_session& from, byte_reader& in, store_wire::frame& out);
  bool announce(const directory_session& from, byte_reader& in, time_point now, store_wire::frame& out);
  bool drain(byte_reader& in, store_wire::frame& out);
  bool withhold(const directory_session& from, byte_reader& in, time_point now, store_wire::frame& out);
  void list(const directory_session& from, store_wire::frame& out) const;
  /// Has no answer.
  bool disk_done(const directory_session& from, byte_reader& in, time_point now);

  /// The session has acknowledged journal frames: its SSDs may be done with erasures.
  void acknowledged(std::uint64_t session);
  /// The session is gone, and its segments with it. @returns whether it had any.
  bool end_session(std::uint64_t session, time_point now);
  /// The segment's contents count no more, not for later directories either.
  void fence(std::uint32_t segment, time_point now);
  void give_up(std::uint32_t segment, time_point now);
  /// Tells each holder that the directory knows all objects by now.
  void tell_serving();

 private:
  bool announce_memory(std::uint32_t segment, bool last, std::uint32_t n, byte_reader& in, time_point now,
                       store_wire::frame& out);
  bool announce_disk(std::uint32_t segment, bool last, std::uint32_t n, byte_reader& in, time_point now,
                     store_wire::frame& out);
  void tell_what_is_known(std::uint64_t session);
  void tell_serving(std::uint32_t segment, std::uint64_t session);

  const std::uint64_t incarnation_;
  object_table& table_;
  holder_journal& journal_;
  outbox& out_;
  segment_holders& holders_;
  disk_book& disks_;
  directory_recovery& recovery_;
};

}  // namespace mooncaf
