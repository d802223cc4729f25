#pragma once
// Readers that wait until objects have been read from SSD into memory.

#include <cstdint>
#include <list>
#include <string>
#include <vector>

#include "storage/objects/directory/directory_session.hpp"
#include "storage/objects/directory/outbox.hpp"
#include "storage/objects/table/object_table.hpp"

namespace mooncaf {

/// @thread  not synchronised
class waiting_loads {
 public:
  /// Both must outlive it.
  waiting_loads(object_table& table, outbox& out) : table_(table), out_(out) {}

  /// A `load` question. Its answer goes to the outbox, at once where it can.
  /// @returns false for a question that fits nothing.
  bool ask(const directory_session& from, std::uint64_t number, byte_reader& in, time_point now);
  void end_session(std::uint64_t session);
  /// Something has changed that a load may have waited for.
  void stir() noexcept { stirred_ = true; }
  /// Answers readers once their objects can be read, never will be, or have been waited for too long.
  void settle(time_point now);

 private:
  struct waiting_load {
    std::uint64_t session, number;
    std::vector<std::string> keys;
    time_point until;
  };
  bool settle(const waiting_load& w, time_point now);

  object_table& table_;
  outbox& out_;
  std::list<waiting_load> loads_;
  bool stirred_ = false;
};

}  // namespace mooncaf
