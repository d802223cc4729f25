#pragma once
// Answers the questions of clients out of the object table. No socket and no clock: bytes and time come in,
// bytes go out.

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "storage/objects/directory/disk_notes.hpp"
#include "storage/objects/table/object_table.hpp"
#include "storage/objects/terms/key_scope.hpp"
#include "storage/objects/wire/store_wire.hpp"

namespace mooncaf {

/// How long a directory waits for segments that an earlier one knew. Which those are it hears from the first
/// of them.
struct recovery_patience {
  time_point first{};   ///< until then one must have come; else it begins empty
  time_point others{};  ///< until then all must have; who comes later begins empty
};

/// The directory of objects, as its connections see it.
///
/// What becomes of an object is told to the holders of its memory before the answer goes out, and they tell
/// the next directory. A removal is answered when they have acknowledged it: no later directory shows the
/// object again. A directory that has just begun keeps the questions about objects until it knows all that
/// there is, or has given up what did not come in time.
/// @thread  not synchronised
class directory_core : private object_journal {
 public:
  /// @param notes  of SSDs; null: in memory alone, for a store that begins with this directory.
  /// @param endpoint_key  what lets a tenant's clients through the endpoints of segments, as long as this
  /// directory is.
  explicit directory_core(object_table_options options, recovery_patience until = {},
                          std::unique_ptr<disk_notes> notes = nullptr,
                          std::function<std::string(const std::string& tenant)> endpoint_key = {});

  /// A connection was let in. @returns the number under which it asks from now on.
  /// @param tenant  who proved itself, and neither sees nor changes what is not its own; empty: somebody who
  /// knows the cluster's secret.
  std::uint64_t open(std::string tenant = {});
  /// It sleeps until it is told something urgent, or much, and is woken then: no filler is to do that.
  void wakes_on_purpose(std::uint64_t session);
  /// It has ended: so do its reservations, and the segments that it mounted.
  void close(std::uint64_t session, time_point now);

  /// Appends the answer to one question to `out`, or keeps it for `deliver` where others must hear first.
  /// @returns false for a question that nobody of ours asks: the connection is to be closed.
  bool answer(std::uint64_t session, const store_wire::header& question, std::span<const std::byte> payload,
              time_point now, std::vector<std::byte>& out);

  /// How long somebody worked on the answer to a question: what `counts` tells.
  void worked(store_wire::op what, duration took) { times_[static_cast<std::size_t>(what)].note(took); }

  /// What another shard says; `deliver` is next.
  void hear(const shard_message& message, time_point now);

  void tick(time_point now);
  struct outgoing {
    std::uint64_t session;
    std::span<const std::byte> bytes;
    bool urgent;  ///< somebody waits for what it does with them
  };
  /// Hands over what is to be sent to whom, beside the answers. Before those are sent: so a directory that is
  /// killed has told the holders whatever it has told its clients.
  void deliver(const std::function<void(const outgoing&)>& to);

  object_counts counts() const { return table_.counts(); }
  bool consistent() const { return table_.consistent(); }

 private:
  using needs = std::vector<std::pair<std::uint64_t, std::uint64_t>>;  ///< session, number of its frame
  struct held_answer {
    needs until;
    std::vector<std::byte> bytes;
  };
  struct kept_question {
    store_wire::header header;
    std::vector<std::byte> payload;
  };
  struct session {
    std::string host;
    key_scope scope;
    std::uint32_t owner = 0;  ///< the tenant's number in the table
    bool greeted = false;
    std::vector<std::uint32_t> mounted;
    std::vector<std::byte> entries;  ///< of the next journal frame
    store_wire::waits waited_for = {};
    bool urgent = false;  ///< somebody waits for what is in `ready`
    bool woken_on_purpose = false;
    std::uint64_t told = 0, acked = 0;
    time_point told_at{};
    std::vector<std::byte> ready;
    bool has_output = false, staged = false;
    std::deque<held_answer> held;
    std::size_t held_bytes = 0;
    std::deque<kept_question> kept;  ///< until everything is known
    std::size_t kept_bytes = 0;
    bool nonsense = false;  ///< one of them fits nothing
  };
  void reserved(std::uint32_t segment, const segment_record& record) override;
  void published(std::uint32_t segment, const segment_record& record, std::string_view key,
                 std::string_view group) override;
  void freed(std::uint32_t segment, std::uint64_t ticket, std::uint64_t offset, duration rests) override;
  void erased(std::uint32_t disk, std::uint64_t ticket, std::string_view key) override;
  void changed(std::string_view key) override;
  void save(std::uint32_t to, const segment_record& record, std::string_view key, std::string_view group,
            std::span<const replica_place> from) override;
  void load(std::uint32_t from, std::uint64_t ticket, std::span<const replica_place> to) override;
  /// Something of a holder's that the answer in the making has to wait for.
  void wait_for(std::uint64_t holder, session& s);
  /// Somebody waits for what this segment's holder does with what is written down for it.
  void wake(std::uint32_t segment);
  session* holder(std::uint32_t segment);
  void write_entry(std::uint64_t to, store_wire::entry kind, std::uint32_t segment,
                   const std::function<void(byte_writer&)>& rest);
  void seal(session& s);
  void tell_before();
  void has_output(std::uint64_t id, session& s);
  bool hold_back(std::uint64_t id, std::size_t begin, std::vector<std::byte>& out);
  void release_held();
  void fence(std::uint32_t segment);
  void lose_disk(std::uint32_t segment);
  bool mount_disk(std::uint64_t id, session& from, byte_reader& in, store_wire::frame& out);
  bool announce_disk(std::uint32_t segment, bool last, std::uint32_t n, byte_reader& in, time_point now,
                     store_wire::frame& out);
  bool disk_done(const session& from, byte_reader& in, time_point now);
  void disk_heard(session& s);
  bool load_all(std::uint64_t id, const session& from, std::uint64_t number, byte_reader& in, time_point now);
  bool settle(const std::vector<std::string>& keys, bool at_last, std::uint64_t session, std::uint64_t number,
              time_point now);
  void settle_loads(time_point now);
  void tell_members(store_wire::entry kind, std::uint32_t segment);
  bool admit(const store_wire::former_life& former);
  void serve_when_complete(time_point now);
  bool keep(session& from, const store_wire::header& question, std::span<const std::byte> payload);
  bool announce(session& from, byte_reader& in, time_point now, store_wire::frame& out);
  bool answer_now(std::uint64_t id, const store_wire::header& question, std::span<const std::byte> payload,
                  time_point now, std::vector<std::byte>& out);
  bool dispatch(std::uint64_t id, session& from, store_wire::op what, byte_reader& in, time_point now,
                store_wire::frame& out);
  bool greet(session& from, byte_reader& in, store_wire::frame& out);
  bool mount(std::uint64_t id, session& from, byte_reader& in, store_wire::frame& out);
  void list_segments(const session& from, store_wire::frame& out) const;
  void list_tenants(const session& from, store_wire::frame& out) const;
  void list_hottest(const session& from, time_point now, store_wire::frame& out);
  bool reserve(std::uint64_t id, const session& from, byte_reader& in, time_point now,
               store_wire::frame& out);
  bool publish(std::uint64_t id, byte_reader& in, time_point now, store_wire::frame& out);
  bool put_next(std::uint64_t id, const session& from, byte_reader& in, time_point now,
                store_wire::frame& out);
  bool revoke(std::uint64_t id, byte_reader& in, time_point now, store_wire::frame& out);
  bool find(const session& from, byte_reader& in, bool lease, time_point now, store_wire::frame& out);
  bool exists(const session& from, byte_reader& in, time_point now, store_wire::frame& out);
  bool remove(const session& from, byte_reader& in, time_point now, store_wire::frame& out);
  bool remove_all(const session& from, byte_reader& in, time_point now, store_wire::frame& out);
  bool drain(byte_reader& in, store_wire::frame& out);
  bool withhold(const session& from, byte_reader& in, time_point now, store_wire::frame& out);
  bool list(const session& from, byte_reader& in, time_point now, store_wire::frame& out) const;
  struct task {
    task_order order;
    task_status status = task_status::pending;
    time_point created{}, updated{};
    std::uint64_t assigned_to = 0;
    int attempts = 0;
    std::string message;
  };
  std::optional<segment_view> segment_named(std::string_view name) const;
  bool create_task(const session& from, byte_reader& in, time_point now, store_wire::frame& out);
  bool query_task(byte_reader& in, time_point now, store_wire::frame& out) const;
  bool end_task(byte_reader& in, time_point now, store_wire::frame& out);
  task_id begin_task(task_order order, time_point now);
  void assign(task& t, time_point now);
  void end_task(task& t, store_code code, time_point now);
  void reassign_tasks(std::uint64_t of_session, time_point now);
  void copy_for_readers(time_point now);
  void tick_tasks(time_point now);

  /// An SSD that is here.
  struct disk_state {
    std::uint64_t number = 0;
    bool announcing = false;
    bool to_clear = false;  ///< of notes, once it has erased what it was told to
    std::deque<std::pair<std::uint64_t, std::uint64_t>> untold;  ///< frame, key: erased, and not acknowledged
  };
  struct waiting_load {
    std::uint64_t session, number;
    std::vector<std::string> keys;
    time_point until;
  };

  std::uint64_t incarnation_;
  shard_place shard_;
  recovery_patience until_;
  std::function<std::string(const std::string& tenant)> endpoint_key_;
  std::array<std::string, 3> names_;  ///< of the object in question, its group, its parent
  std::unique_ptr<disk_notes> notes_;
  std::map<std::uint32_t, disk_state> disks_;
  std::set<std::uint64_t> awaited_disks_;  ///< that an earlier directory knew; until we serve
  std::list<waiting_load> loads_;
  bool loads_stir_ = false;  ///< one of them may be settled
  object_table table_;
  std::map<std::uint64_t, session> sessions_;
  std::map<std::uint32_t, std::uint64_t> holders_;    ///< session by segment
  bool serving_ = false;                              ///< knows all that there is
  std::map<std::uint32_t, std::uint64_t> came_back_;  ///< by whom it was served last; until we serve
  std::set<std::uint32_t> announcing_, expected_;
  std::deque<std::uint32_t> fenced_;
  std::vector<std::uint64_t> with_output_;
  struct staged_bytes {
    std::uint64_t session;
    std::vector<std::byte> bytes;
    bool urgent;
  };
  std::vector<staged_bytes> staged_;  ///< goes out before that, in order
  std::set<std::uint64_t> waiting_;   ///< sessions with held answers
  needs heard_first_;                 ///< by whom, before the answer in the making goes out
  bool removing_ = false;
  bool publication_unsaid_ = false;  ///< there is one among the entries that are not sealed
  time_point now_{};
  std::map<std::uint32_t, store_wire::segment_address> addresses_;
  std::uint64_t next_session_ = 1;
  std::map<std::uint64_t, task> tasks_;  ///< by the lower half of their ids
  std::deque<std::uint64_t> ended_tasks_;
  std::size_t open_tasks_ = 0;
  std::uint64_t next_task_ = 1;
  store_wire::question_times times_{};
};

}  // namespace mooncaf
