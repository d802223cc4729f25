#pragma once
// Answers the questions of clients out of the object table. No socket and no clock: bytes and time come in,
// bytes go out.

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "storage/objects/object_table.hpp"
#include "storage/objects/store_wire.hpp"

namespace mooncaf {

/// The directory of objects, as its connections see it.
/// @thread  not synchronised
class directory_desk {
 public:
  explicit directory_desk(object_table_options options) : table_(std::move(options)) {}

  /// A connection was let in. @returns the number under which it asks from now on.
  std::uint64_t open();
  /// It has ended: so do its reservations, and the segments that it lent.
  void close(std::uint64_t session, time_point now);

  /// Appends the answer to one question to `out`.
  /// @returns false for a question that nobody of ours asks: the connection is to be closed.
  bool answer(std::uint64_t session, const store_wire::header& question, std::span<const std::byte> payload,
              time_point now, std::vector<std::byte>& out);

  void tick(time_point now) { table_.tick(now); }
  object_counts counts() const { return table_.counts(); }
  bool consistent() const { return table_.consistent(); }

 private:
  struct session {
    std::string host;
    bool greeted = false;
    std::vector<std::uint32_t> lent;
  };
  bool greet(session& from, byte_reader& in, store_wire::frame& out);
  bool mount(session& from, byte_reader& in, store_wire::frame& out);
  void list_segments(store_wire::frame& out) const;
  bool reserve(std::uint64_t id, const session& from, byte_reader& in, time_point now,
               store_wire::frame& out);
  bool publish(std::uint64_t id, byte_reader& in, time_point now, store_wire::frame& out);
  bool revoke(std::uint64_t id, byte_reader& in, time_point now, store_wire::frame& out);
  bool find(byte_reader& in, bool lease, time_point now, store_wire::frame& out);
  bool exists(byte_reader& in, time_point now, store_wire::frame& out);
  bool remove(byte_reader& in, time_point now, store_wire::frame& out);
  bool remove_all(byte_reader& in, time_point now, store_wire::frame& out);
  bool list(byte_reader& in, time_point now, store_wire::frame& out) const;

  object_table table_;
  std::map<std::uint64_t, session> sessions_;
  std::map<std::uint32_t, store_wire::segment_address> addresses_;
  std::uint64_t next_session_ = 1;
};

}  // namespace mooncaf
