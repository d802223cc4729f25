#pragma once
// Answers the questions that clients ask about objects.

#include <array>
#include <string>

#include "storage/objects/directory/directory_session.hpp"
#include "storage/objects/directory/disk_book.hpp"
#include "storage/objects/directory/holder_journal.hpp"
#include "storage/objects/table/object_table.hpp"
#include "storage/objects/wire/store_wire.hpp"

namespace mooncaf {

/// Each function reads a question, as `store_wire::op` of the same name describes it, and writes its answer.
/// @returns false for a question that fits nothing.
/// @thread  not synchronised
class object_questions {
 public:
  /// All of them must outlive it.
  object_questions(object_table& table, holder_journal& journal, disk_book& disks)
      : table_(table), journal_(journal), disks_(disks) {}

  bool reserve(const directory_session& from, byte_reader& in, time_point now, store_wire::frame& out);
  bool publish(const directory_session& from, byte_reader& in, time_point now, store_wire::frame& out);
  bool put_next(const directory_session& from, byte_reader& in, time_point now, store_wire::frame& out);
  bool revoke(const directory_session& from, byte_reader& in, time_point now, store_wire::frame& out);
  /// @param lease  `find`; else `look`.
  bool find(const directory_session& from, byte_reader& in, bool lease, time_point now,
            store_wire::frame& out);
  bool exists(const directory_session& from, byte_reader& in, time_point now, store_wire::frame& out);
  bool remove(const directory_session& from, byte_reader& in, time_point now, store_wire::frame& out);
  bool remove_all(const directory_session& from, byte_reader& in, time_point now, store_wire::frame& out);
  bool list(const directory_session& from, byte_reader& in, time_point now, store_wire::frame& out) const;

 private:
  object_table& table_;
  holder_journal& journal_;
  disk_book& disks_;
  std::array<std::string, 3> names_;  // memory for the names of an object, its group and its parent
};

}  // namespace mooncaf
