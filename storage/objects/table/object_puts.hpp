#pragma once
// How an object comes to be: room is reserved, its writer fills it, and it is published, beside, or in place
// of, the present value.
//
//            reserve                     publish
//   absent ───────────► reserved (not seen yet) ─────────► published
//      └─ reserve_ahead ─► no name yet ─ name ──┘ │ revoke, or its writer is lost, or late to name it
//                                                 └──► absent, its bytes free at once or after a rest

#include <cstdint>
#include <string_view>
#include <vector>

#include "runtime/base/units.hpp"
#include "storage/objects/table/object_writers.hpp"
#include "storage/objects/table/stored_parts.hpp"
#include "storage/objects/terms/object_terms.hpp"

namespace mooncaf {

struct object_books;
class object_life;
class object_reading;
class object_saving;
class room_maker;

/// See `object_table` for the promises of the functions of the same names.
/// @thread  not synchronised.
class object_puts {
 public:
  using session_id = object_writers::session_id;
  static constexpr std::size_t key_bytes_max = 64 * KiB;
  static constexpr std::uint32_t replicas_max = 16;

  object_puts(object_books& books, object_life& life, object_saving& saving, room_maker& rooms,
              object_reading& reading);

  static bool is_key(std::string_view name);
  reservation reserve(session_id writer, std::string_view key, std::uint64_t size, const put_policy& policy,
                      std::string_view host, time_point now, const object_ties& ties);
  reservation reserve_ahead(session_id writer, std::uint64_t size, const put_policy& policy,
                            std::string_view host, time_point now);
  store_code name(session_id writer, std::uint64_t ticket, std::string_view key, time_point now);
  store_code publish(session_id writer, std::uint64_t ticket, std::uint64_t checksum, time_point now);
  store_code revoke(session_id writer, std::uint64_t ticket, time_point now);
  void end_session(session_id writer, time_point now);
  /// Room that has no name, and its time is over.
  void end_unnamed(time_point now);

 private:
  /// A put that `reserve` looks at: which present replicas stay, and how many are new.
  struct wanted {
    store_code code = store_code::ok;
    std::uint64_t size = 0;
    std::size_t copies = 0;
    bool over = false;  ///< there is another value, or it moves
    put_terms terms;
    std::vector<memory_part> stays;
  };
  bool makes_sense(const put_policy& policy, std::uint64_t size, const object_ties& ties) const;
  wanted look(std::string_view key, std::uint64_t size, const put_policy& policy);
  store_code take_quota(std::uint32_t owner, wanted& want, bool lossy, time_point now);
  std::vector<memory_part> place_all(const wanted& want, const put_policy& policy, std::string_view host,
                                     bool& coming, time_point now);
  std::vector<memory_part> place_first(std::uint64_t size, const struct placement_wish& where, bool& coming);
  stored_object& begin(session_id writer, std::string_view key, std::uint32_t owner, const wanted& want,
                       const put_policy& policy, std::vector<memory_part>&& memory);
  void enter(stored_object& o, const object_ties& ties);
  void become(stored_object& o, std::uint64_t ticket);
  void take_place(stored_object& o, time_point now);
  void keep_replicas(stored_object& was, stored_object& is);
  bool still_moves(const stored_object& o, std::uint64_t checksum) const;
  time_point free_after_writing(const stored_object& o, time_point now) const;

  object_books& b_;
  object_life& life_;
  object_saving& saving_;
  room_maker& rooms_;
  object_reading& reading_;
};

}  // namespace mooncaf
