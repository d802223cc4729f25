#pragma once
// The object store as another process uses it. Plain C++: no actor, no signal handler, nothing on standard
// output.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/base/result.hpp"
#include "storage/objects/client/partial_object.hpp"
#include "storage/objects/client/segment_reach.hpp"
#include "storage/objects/wire/directory_link.hpp"
#include "storage/objects/wire/shard_links.hpp"
#include "transport/peer_address.hpp"

namespace mooncaf {

/// Purpose for which the store's key is derived from the cluster's secret (`cluster_secret::derive`).
inline constexpr std::string_view store_key_purpose = "object store v1";

struct store_client_options {
  directory_address directory;             ///< `own_host` empty: `this_host()`
  std::uint64_t staging_bytes = 16 * MiB;  ///< for segments on other hosts
  /// Buffers of the caller that NICs read and write themselves, without staging. Null: none.
  std::shared_ptr<const registered_memory> registered;
};

struct outgoing_object {
  std::string_view key;
  std::vector<std::span<const std::byte>> pieces;  ///< the object is these, one after the other
  object_ties ties = {};
};
inline std::uint64_t size_of(const outgoing_object& object) {
  std::uint64_t size = 0;
  for (const auto& p : object.pieces) size += p.size();
  return size;
}

struct directory_figures {
  object_counts counts;
  store_wire::question_times times{};
};

struct listed_object {
  std::string key;
  std::uint64_t size = 0;
  std::uint32_t replicas = 0;
  std::uint32_t on_disk = 0;  ///< replicas among them
};

/// A connection that breaks is made again by the next call, or, where no directory answers, by one after a
/// pause that grows to half a second. Where a directory has several seats a call that it broke under is made again at the
/// one that serves then; else it answers `directory_unreachable`, and the object that it was writing is gone or, where only
/// the last answer was lost, published.
/// @thread  All functions may be called from any thread.
class store_client {
 public:
  /// @error as `directory_link::connect`
  static result<std::unique_ptr<store_client>> connect(store_client_options options);
  ~store_client();  ///< ends the connection; reservations of calls under way end with it

  /// Each object is written to all its places and published, or not visible at all.
  /// @returns one code for each: ok, already_exists, no_space, invalid_key, invalid_parameters,
  /// transfer_failed, …
  std::vector<store_code> put(std::span<const outgoing_object> items, const put_policy& policy);
  /// Where an object that was found is to be copied to, spans that are together as long as the object; empty:
  /// it is not copied, and answered with invalid_parameters. Must not throw.
  using target_of = std::function<std::vector<std::span<std::byte>>(std::size_t item, std::uint64_t size)>;
  /// Finds objects and copies them, each as soon as it is in memory: objects on SSD alone are read from there
  /// while others are copied. @returns one code for each key, as of `find` and `read`.
  std::vector<store_code> get(std::span<const std::string_view> keys, const target_of& into);
  /// Where objects are in memory, under a lease. Waits for objects on SSD alone to be read from there; one
  /// that finds no room in memory is no_space. @returns one view for each key.
  std::vector<object_view> find(std::span<const std::string_view> keys);
  /// The same without a lease, and not counted as use.
  std::vector<object_view> look(std::span<const std::string_view> keys) {
    return ask_views(store_wire::op::look, keys);
  }
  /// Copies an object that `find` found. @param pieces  as long together as the object.
  /// @returns ok only if all bytes are there and agree with the checksum; else the pieces' bytes are
  /// undefined.
  store_code read(const object_view& object, target_pieces pieces);

  // ---- objects that are written or read part by part, as a model's layers come and go

  /// Room for objects, which no client sees before `finish`.
  std::vector<begun_object> begin(std::span<const object_outline> items, const put_policy& policy);
  /// Writes a part. @param pieces  lie in the object one after the other, from `at` on.
  /// @returns invalid_parameters for an empty part, one beyond the object, or one after the object has ended.
  store_code write_part(partial_object& object, std::uint64_t at, source_pieces pieces);
  /// Publishes objects of which every byte was written; the others are given up, with invalid_parameters.
  std::vector<store_code> finish(std::span<const std::shared_ptr<partial_object>> objects);
  /// Their room is free again.
  void give_up(std::span<const std::shared_ptr<partial_object>> objects);
  /// Copies parts of objects that `find` found, and asks afterwards whether the objects are still where they
  /// were. Before the first part of an object is read the whole replica is held against the checksum, where
  /// it lies if that is in one piece. Parts from another host are held against the holder's checksums. From a
  /// replica that does not agree, or cannot be read, another one takes over.
  /// @param objects  one for each key; leased anew. @returns a code for each part; where it is not ok the
  /// bytes are undefined.
  std::vector<store_code> read_parts(std::span<const std::string_view> keys, std::span<object_view> objects,
                                     std::span<const part_to_read> parts);

  /// @returns 1, 0 or a code for each.
  std::vector<std::int32_t> exists(std::span<const std::string_view> keys);
  std::vector<store_code> remove(std::span<const std::string_view> keys, bool force);
  /// @param pattern  ECMAScript expression that is searched in each key, without back references; empty: all.
  /// @returns how many were removed, or a code.
  std::int64_t remove_all(std::string_view pattern, bool force);

  struct listing {
    store_code code = store_code::ok;
    std::vector<listed_object> objects;
  };
  /// @param segment  name: objects alone that lie in it; empty: all.
  listing list(std::string_view pattern, std::uint32_t limit, std::string_view segment = {});

  // ---- where objects lie

  /// Copies objects to other places, where they are the same ones as before, and gives up the places where
  /// they were. `policy` says how often and where; `move` is understood. No object makes way.
  /// @returns a code for each: no_space and not_found leave the object as it was.
  std::vector<store_code> move(std::span<const std::string_view> keys, put_policy policy);
  /// Has a process that holds the object copy it, or move its replica from `source`. This directory alone
  /// knows the task, until it ends. @param order  its id is ignored. @returns the code, and the id if that is
  /// ok.
  /// @error not_found, too_many_tasks, invalid_parameters for segments that are not there, or no source.
  std::pair<store_code, task_id> create_task(const task_order& order);
  /// @error task_not_found
  std::pair<store_code, task_view> query_task(const task_id& id);
  /// To be called by the process that carried it out.
  void end_task(const task_id& id, store_code code);
  /// From now on nothing is placed in the segment, or, with `on` false, it is again. The next directory hears
  /// of it from the segment's holder. @error segment_not_found
  store_code drain(std::string_view segment, bool on);
  struct emptied {
    std::uint64_t moved = 0, left = 0;
    store_code code = store_code::ok;  ///< why the last one is left
  };
  /// Moves the objects of a segment to others, as far as there is free room; round after round, as long as
  /// that moves any, since clients may have been writing there. `drain` ends that.
  /// @param until  then it leaves the rest where it is. @param tell  after each round: how many were moved.
  emptied empty(const std::string& segment, time_point until,
                const std::function<void(std::uint64_t)>& tell = {});
  /// Moves what lies in the memory of a drained segment alone, on no other and on no SSD: what would be lost
  /// with the segment. As of `empty`.
  emptied move_last_copies(const std::string& segment, time_point until);
  /// Each shard's part of each process's mounted memory.
  result<std::vector<store_wire::mounted_segment>> segments();
  /// The segments that processes have mounted: all shards' parts of a name are one, under the number of the
  /// first.
  result<std::vector<store_wire::mounted_segment>> mounted();
  result<object_counts> counts();
  result<directory_figures> figures();
  /// The objects that are read most, the hottest first: every tenant's, or a tenant's own.
  result<std::vector<store_wire::named_hot_object>> hottest();
  /// Each tenant's use and limits; a tenant's client hears of its own alone.
  result<std::vector<tenant_view>> tenants();
  /// The tenant of this client; empty: none. @error as `connect`
  result<std::string> tenant();

  /// For callers that pipeline questions of their own. @error as `connect`
  result<shard_dialer::links> links();

  /// Replicas in the order in which they are read: first in mapped memory, then by how near they are
  /// (host_place.hpp), and among equals by chance, so that readers elsewhere divide themselves among them.
  std::vector<std::span<const replica_place>> nearest_first(const object_view& object) const;

 private:
  explicit store_client(store_client_options options);
  emptied move_out(const std::vector<std::string>& places, time_point until,
                   const std::function<bool(const listed_object&)>& wanted,
                   const std::function<void(std::uint64_t)>& tell);
  /// Makes a call again whose question was lost with the directory, where another takes over.
  /// @param lost  whether that became of it.
  template <class Call, class Lost>
  auto patiently(const Call& call, const Lost& lost) {
    constexpr duration pause = std::chrono::milliseconds(10);
    for (const auto since = clock_type::now();; std::this_thread::sleep_for(pause)) {
      auto got = call();
      if (!lost(got) || clock_type::now() - since >= dialer_.patience()) return got;
    }
  }
  static bool has_lost(std::span<const store_code> codes) {
    return std::ranges::find(codes, store_code::directory_unreachable) != codes.end();
  }
  std::vector<store_code> put_all(std::span<const outgoing_object> items, const put_policy& policy);
  /// @param spoken  where the version of the protocol goes in which the answers are
  result<std::vector<directory_link::answer>> ask_everyone(store_wire::op what,
                                                           const std::function<void(byte_writer&)>& payload,
                                                           std::uint32_t* spoken = nullptr);
  struct reserved {
    store_code code = store_code::internal;
    std::uint32_t shard = 0;
    std::uint64_t ticket = 0;
    std::vector<replica_place> places = {};
  };
  struct reservations {
    shard_dialer::links to;  ///< a ticket belongs to its connection; null if all were refused
    std::vector<reserved> items;
  };
  reservations reserve(std::span<const object_outline> items, const put_policy& policy);
  std::vector<object_view> ask_views(store_wire::op what, std::span<const std::string_view> keys);
  void reach_all(const std::vector<replica_place>& places);
  struct written {
    store_code code = store_code::ok;
    std::uint64_t checksum = 0;
    bool settled = true;
  };
  written write(const outgoing_object& item, const std::vector<replica_place>& places);
  std::vector<written> write(std::span<const outgoing_object> items,
                             std::span<const std::vector<replica_place>* const> places);
  store_code carry_over(partial_object& object);
  void end_all(std::span<const std::shared_ptr<partial_object>> objects, std::span<const std::size_t> which,
               std::vector<store_code>& codes);
  std::vector<begun_object> begin_once(std::span<const object_outline> items, const put_policy& policy);
  std::vector<store_code> put_once(std::span<const outgoing_object> items, const put_policy& policy);
  // ---- room that was had ahead of its put (store_client_ahead.cpp)
  struct room_ahead {
    std::shared_ptr<directory_link> of;
    put_policy policy;
    std::uint64_t size = 0, ticket = 0;  ///< ticket zero: such a put was made, and no room was had
    std::vector<replica_place> places;
    time_point asked{};
  };
  std::optional<store_code> put_ahead(const outgoing_object& item, const put_policy& policy);
  bool put_alike(std::span<const outgoing_object> items, const put_policy& policy, std::uint32_t shard);
  store_code put_next(room_ahead now, std::uint32_t shard, std::uint64_t checksum, std::string_view key);
  room_ahead& ahead_in(std::uint32_t shard);
  class loads_ahead;
  std::vector<store_code> get_once(std::span<const std::string_view> keys, const target_of& into);
  store_code read_once(const object_view& object, target_pieces pieces);
  std::vector<store_code> move_some(std::span<const std::string_view> keys, put_policy policy);
  struct ending {
    std::size_t item;
    std::uint64_t ticket, checksum;
  };
  using endings = std::map<directory_link*, std::vector<ending>>;
  store_code came_of(std::string_view key);
  static void publish(const endings& all, std::vector<store_code>& codes);
  static void revoke(const endings& all);
  struct parts_of_one;
  bool find_sound(object_view& object, parts_of_one& reading);
  std::pair<store_code, std::size_t> read_part(object_view& object, const part_to_read& part,
                                               parts_of_one& reading);
  /// @error `ec::corrupt` if a part has changed since it was written.
  result<std::uint64_t> sum_to_publish(const partial_object& object);

  store_client_options options_;
  segment_reach reach_;
  shard_dialer dialer_;
  std::mutex mutex_;  // guards everything below
  std::uint64_t authorized_by_ = 0;
  std::string authorized_with_;
  std::vector<room_ahead> ahead_;  // by shard
};

}  // namespace mooncaf
