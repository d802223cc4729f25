#pragma once
// Objects that are being written: the writer, the ticket, and until when a writer may keep room that it has
// not named.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "runtime/base/units.hpp"

namespace mooncaf {

struct stored_object;

/// The terms of a put, beside the bytes.
struct put_terms {
  bool moves = false;         ///< the same object in other places
  bool keeps = false;         ///< a move: the other replicas stay, but for any in `leaving`
  std::uint32_t leaving = 0;  ///< a segment
};

/// Invariant: an object is being written exactly if its slot has a ticket; tickets grow and are used once.
/// @thread  not synchronised.
class object_writers {
 public:
  using session_id = std::uint64_t;
  class slot {
   public:
    bool open() const noexcept { return ticket_ != 0; }
    bool ahead() const noexcept { return ahead_; }  ///< it has no name yet
    std::uint64_t ticket() const noexcept { return ticket_; }
    put_terms terms = {};  ///< stay as they are once it is published

   private:
    friend class object_writers;
    std::uint64_t ticket_ = 0;
    session_id writer_ = 0;
    bool ahead_ = false;
  };

  explicit object_writers(std::uint64_t first_ticket) : next_ticket_(first_ticket) {}

  /// @param n  tickets that follow each other. @returns the first.
  std::uint64_t new_ticket(std::uint64_t n = 1) { return std::exchange(next_ticket_, next_ticket_ + n); }
  std::uint64_t next_ticket() const noexcept { return next_ticket_; }
  /// An earlier directory gave it out.
  void seen(std::uint64_t ticket) { next_ticket_ = ticket >= next_ticket_ ? ticket + 1 : next_ticket_; }

  /// @returns the ticket.
  std::uint64_t begin(stored_object& o, session_id writer, const put_terms& terms);
  /// Null: the ticket is not the writer's, or has ended.
  stored_object* find(session_id writer, std::uint64_t ticket) const;
  void end(stored_object& o);  ///< the object is published, or given up
  /// Objects of a writer that is gone. The caller has to end them.
  std::vector<stored_object*> take(session_id writer);

  void keep_unnamed(stored_object& o, time_point until);
  void name(stored_object& o);
  /// An object that has no name, and its time is over; each once. Null: none.
  stored_object* unnamed_ended(time_point now);

  std::size_t size() const noexcept { return tickets_.size(); }

 private:
  std::unordered_map<std::uint64_t, stored_object*> tickets_;
  std::unordered_map<session_id, std::unordered_set<std::uint64_t>> tickets_of_;
  std::uint64_t next_ticket_;
  std::deque<std::pair<time_point, std::uint64_t>> unnamed_;  // when unnamed room ends
};

}  // namespace mooncaf
