#pragma once
// The directory of objects as its connections see it: questions come in as bytes; answers, and entries for
// the holders of segments, go out as bytes. No socket and no clock.
//
//   directory_core ── sessions; which part answers a question
//     object_questions    about objects              segment_questions   about segments and SSDs
//     directory_tasks     copies and moves           waiting_loads       readers of what is on SSD alone
//     directory_recovery  what the directory has to hear before it answers      kept_questions   meanwhile
//     ─────────────────────────────────────────────────────── these ask the table, and write to the outbox
//     object_table        which objects there are    holder_journal      the table's changes as entries
//     segment_holders, disk_book                     outbox              frames to send, in their order

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "storage/objects/directory/directory_recovery.hpp"
#include "storage/objects/directory/directory_session.hpp"
#include "storage/objects/directory/directory_tasks.hpp"
#include "storage/objects/directory/disk_book.hpp"
#include "storage/objects/directory/disk_notes.hpp"
#include "storage/objects/directory/holder_journal.hpp"
#include "storage/objects/directory/kept_questions.hpp"
#include "storage/objects/directory/object_questions.hpp"
#include "storage/objects/directory/outbox.hpp"
#include "storage/objects/directory/segment_holders.hpp"
#include "storage/objects/directory/segment_questions.hpp"
#include "storage/objects/directory/waiting_loads.hpp"
#include "storage/objects/table/object_table.hpp"
#include "storage/objects/wire/store_wire.hpp"

namespace mooncaf {

/// The holders of an object's memory hear of each change before the answer goes out, and tell the next
/// directory. A removal is answered when they have acknowledged it: no later directory shows the object
/// again. A directory that has just begun keeps the questions about objects until it knows all that there is,
/// or has given up the segments that did not come in time.
/// @thread  not synchronised. Time comes in and never goes back.
class directory_core {
 public:
  /// @param notes  of SSDs; null: in memory alone, for a store that begins with this directory.
  /// @param endpoint_key  lets a tenant's clients through the endpoints of segments, as long as this
  /// directory runs.
  explicit directory_core(object_table_options options, recovery_patience until = {},
                          std::unique_ptr<disk_notes> notes = nullptr,
                          std::function<std::string(const std::string& tenant)> endpoint_key = {});

  /// A connection was let in. @returns the number under which it asks from now on.
  /// @param tenant  that has proved itself, and neither sees nor changes others' objects; empty: a client
  /// that knows the cluster's secret.
  std::uint64_t open(std::string tenant = {});
  /// Behave as the release that knew this version of the protocol and none after it. @pre nobody was greeted yet
  void know(std::uint32_t newest) noexcept { newest_ = newest; }
  /// The connection's other end sleeps until it is woken on purpose for urgent frames: they need no filler.
  void wakes_on_purpose(std::uint64_t session) { outbox_.wakes_on_purpose(session); }
  /// The connection has ended, and with it its reservations and the segments that it mounted.
  void close(std::uint64_t session, time_point now);

  /// Appends the answer to one question to `out`, or keeps it for `deliver` where holders must hear first.
  /// @returns false for a question that no client of ours asks: the connection is to be closed.
  bool answer(std::uint64_t session, const store_wire::header& question, std::span<const std::byte> payload,
              time_point now, std::vector<std::byte>& out);

  /// The answer to a question took so long: `counts` tells it.
  void worked(store_wire::op what, duration took) { times_[static_cast<std::size_t>(what)].note(took); }

  /// Takes in another shard's message; `deliver` is next.
  void hear(const shard_message& message, time_point now);

  void tick(time_point now);
  using outgoing = outbox::delivery;
  /// Hands over the frames to be sent beside the answers, and before them (`outbox::deliver`).
  void deliver(const std::function<void(const outgoing&)>& to);

  object_counts counts() const { return table_.counts(); }
  bool consistent() const { return table_.consistent(); }

 private:
  void at(time_point now);
  bool answer_now(directory_session& from, const store_wire::header& question,
                  std::span<const std::byte> payload, std::vector<std::byte>& out);
  bool dispatch(directory_session& from, store_wire::op what, byte_reader& in, store_wire::frame& out);
  bool greet(directory_session& from, byte_reader& in, store_wire::frame& out) const;
  bool heard(const directory_session& from, byte_reader& in);
  void list_tenants(const directory_session& from, store_wire::frame& out) const;
  void list_hottest(const directory_session& from, store_wire::frame& out);
  void put_counts(const directory_session& from, store_wire::frame& out) const;
  void serve_when_complete();

  const std::uint64_t incarnation_;
  const shard_place shard_;
  const std::function<std::string(const std::string& tenant)> endpoint_key_;
  std::map<std::uint64_t, directory_session> sessions_;
  std::uint64_t next_session_ = 1;
  std::uint32_t newest_ = store_wire::newest;
  time_point now_{};
  store_wire::question_times times_{};
  outbox outbox_;
  segment_holders holders_;
  disk_book disks_;
  holder_journal journal_;
  object_table table_;
  directory_recovery recovery_;
  kept_questions kept_;
  waiting_loads loads_;
  directory_tasks tasks_;
  object_questions objects_;
  segment_questions segments_;
};

}  // namespace mooncaf
