#pragma once
// Messages between clients and the directory of the object store. Little-endian, on a connection whose two
// ends have proved that they know the cluster secret; over TCP it is inside of TLS.
//
//   frame:   length of what follows (32 bits) | number of the question (64) | operation (8) | payload
//   answer:  the same number and operation; answers come in the order of the questions, which need not wait
//   for them
//
// The holder of a segment hears of the objects in it by frames that it did not ask for (`journal`), numbered
// from `journal_base` + 1, so that it can tell the next directory (`announce`).
//
// A batch is one frame: every question about objects carries a count and that many items, its answer one
// result for each, in order.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/base/ids.hpp"
#include "storage/memory_boundary.hpp"
#include "storage/objects/terms/key_shard.hpp"
#include "storage/objects/terms/latency_counts.hpp"
#include "storage/objects/terms/object_terms.hpp"
#include "storage/objects/terms/store_task.hpp"
#include "storage/objects/wire/store_version.hpp"
#include "transport/net/bytes.hpp"

namespace mooncaf::store_wire {

inline constexpr std::size_t header_bytes = 13;
inline constexpr std::size_t frame_bytes_max = 64 * MiB;
inline constexpr std::uint32_t batch_max = 64 * 1024;

/// Identity of the two ends in the handshake; a directory has no other name than its address. The number of
/// the shard that is wanted is where other links name an incarnation.
inline constexpr node_id directory_node{1};
inline constexpr node_id directory_client_node{2};

enum class op : std::uint8_t {
  hello = 1,  ///< version to speak, host, whether it names all tenants' objects, since `tells_releases` the
              ///< client's release: its first message. The answer has the version to speak, the directory's
  ///< incarnation, `welcome`, and the newest version that it knows (which one of version 20 leaves out)
  mount,       ///< a segment, by the process that mounts it; it stays mounted as long as the connection. With
               ///< `former_life`, it is to be announced; refused: segment_not_found
  segments,    ///< all segments, with how to reach them
  reserve,     ///< policy, then key, size and ties of each object
  publish,     ///< ticket and checksum of each
  revoke,      ///< ticket of each
  find,        ///< key of each; grants leases
  look,        ///< key of each; grants none
  exists,      ///< key of each; grants leases
  remove,      ///< force, then key of each
  remove_all,  ///< force, pattern; an empty pattern stands for all
  list,        ///< pattern, limit, name of a segment or nothing
  counts,      ///< figures of the whole store, and how long the directory worked on questions of each kind
  journal,     ///< to the holder of a segment: entries; see `entry`
  acked,       ///< number of a journal frame, from its receiver; has no answer
  announce,    ///< objects in such a segment: a part of them, and whether it was the last
  drain,       ///< name of a segment, whether nothing is to be placed there any more
  create_task,  ///< an order without its id; the answer has it
  query_task,   ///< id of one
  end_task,     ///< id, code: by whoever was told to carry it out
  tenants,      ///< each one's use and limits; a tenant hears of itself alone
  mount_disk,   ///< an SSD, by the process that mounts memory beside it; see `disk_offer`
  load,  ///< key of each object: into memory, if it is on SSD; like `find`, but answered when it is there
  disk_done,  ///< segment, ticket, and whether it went well, of each `save` and `load`; then, since
              ///< `tells_disk_room`, the bytes of the last one's SSD; has no answer
  put_next,   ///< ticket, checksum, key: publishes, under this key if there is one and the ticket has none;
              ///< then policy and size: room is kept for another put. The answer: code, ticket and places of
              ///< that room; ticket zero: there is none
  hottest,    ///< objects that are read most, everybody's; a tenant hears of its own alone
  ring,       ///< by a process of the directory's host, that has no other question open: its answer says
              ///< whether a `ring_stream` comes with it, and carries all that follows
  withhold,   ///< segment of the same connection, bytes of it that its holder uses for something else; the
              ///< answer: code, how it stands (`withheld`)
};
inline constexpr std::uint8_t op_last = static_cast<std::uint8_t>(op::withhold);
std::string_view name_of(op what) noexcept;

inline constexpr std::uint64_t journal_base = std::uint64_t{1} << 63;

/// A journal frame with an effect that a client waits for is at least this long, by filler, where the
/// receiver cannot be woken on purpose: it is not woken for less (`directory_link::only_listens`).
inline constexpr std::size_t urgent_bytes = 2048;

/// The effect of a journal frame that a client waits for.
enum class waits : std::uint8_t {
  nobody,
  to_hear,   ///< a remover waits for its acknowledgement; perhaps a reader, too
  for_work,  ///< a reader waits for the receiver's work; a tenant that writes through the receiver's
             ///< endpoint
};

/// The contents of a journal frame after `waits`, and filler with its length unless it is `nobody`: kind,
/// segment, and
enum class entry : std::uint8_t {
  reserved = 1,  ///< ticket, offset, size, tenant
  published,     ///< ticket, offset, checksum, pins, place in its object and in its chain, key, group
  freed,         ///< ticket, offset, for how long the memory rests
  joined,        ///< nothing: this segment is part of the store
  fenced,        ///< nothing: this segment's contents count no more
  serving,       ///< the incarnation of the directory, which knows all that there is by now
  task,          ///< an order that the holder is to carry out
  save,          ///< of an SSD: ticket, where it lies in the memory beside; then as `published`
  load,          ///< of an SSD: ticket, where it is to lie in the memory beside
  draining,      ///< whether nothing is to be placed there any more
};

/// A holder's words about its SSD. It announces the contents as for memory if the answer says so; else they
/// are of another store, or may not count any more, and are erased.
struct disk_offer {
  std::string name;
  std::uint64_t bytes = 0;
  std::uint32_t beside = 0;  ///< segment of the same connection
  std::uint64_t disk = 0;    ///< number of its own that it has had since it was made
  std::uint64_t store = 0;   ///< number of the store that its objects are of; zero: none
  disk_policy policy;
};
struct mounted_disk {
  store_code code = store_code::ok;
  std::uint32_t segment = 0;
  std::uint64_t store = 0;  ///< number of this one
  bool known = false;       ///< the contents count
};

/// A segment's record of the directory that it knew.
struct former_life {
  std::uint32_t segment = 0;    ///< number that it had; zero: it knew none
  std::uint64_t served_by = 0;  ///< the last that was serving, as far as it heard; later ones are greater
  std::vector<std::uint32_t> members;  ///< segments that belonged to the store
  std::vector<std::uint32_t> fenced;   ///< segments that did so no more
  bool draining = false;               ///< nothing was to be placed there any more
  std::uint64_t disk = 0;  ///< number of the SSD beside it that heard of all changes until then; zero: none
};
/// Longest of these lists; a store may have so many segments.
inline constexpr std::uint32_t former_max = 4096;

/// How much of a segment holds no objects, and how cold its next victim is.
struct withheld {
  boundary_report report;
  std::vector<withheld_run> fresh;  ///< runs that the holder was not told of yet
};

struct header {
  std::uint32_t payload_bytes = 0;
  std::uint64_t number = 0;
  op what = op::hello;
};

/// @returns nothing for a length or an operation that no program of ours sends.
std::optional<header> parse_header(std::span<const std::byte, header_bytes> in);

/// Begins a frame at the end of `out`, and writes its length when it ends.
class frame {
 public:
  frame(std::vector<std::byte>& out, std::uint64_t number, op what);
  ~frame();
  frame(const frame&) = delete;
  frame& operator=(const frame&) = delete;
  byte_writer* operator->() { return &writer_; }
  byte_writer& operator*() { return writer_; }

 private:
  std::vector<std::byte>& out_;
  std::size_t begin_;
  byte_writer writer_;
};

inline void put_code(frame& out, store_code code) { out->put(static_cast<std::int32_t>(code)); }

/// How a client reaches the memory of a segment.
struct segment_address {
  std::string unix_name;     ///< socket that hands out its descriptor to processes of the same host
  std::uint64_t region = 0;  ///< in the data plane of its process
  std::vector<std::byte> announcement;  ///< of that data plane
  std::string endpoint_host;            ///< of the segment's endpoint; empty: it has none
  std::uint16_t endpoint_port = 0;
  friend bool operator==(const segment_address&, const segment_address&) = default;
};
/// The directory's view of a client.
struct welcome {
  std::string tenant;        ///< empty: a client that knows the cluster's secret
  std::string endpoint_key;  ///< lets that tenant through the endpoints of segments
  bool tenants = false;      ///< the store has tenants, so each process that mounts memory has an endpoint
  shard_place shard;         ///< the shard that answers
};
/// The process at the other end of a connection of the directory's.
struct peer_release {
  std::uint32_t speaks =
      oldest;           ///< version of the protocol; of one that a directory of `oldest` lists: not known
  std::string release;  ///< of the program; empty: its version does not tell
};
struct mounted_segment {
  segment_view view;
  segment_address address;
  peer_release holder;  ///< the process that mounts it
};

/// The code of a call with a question that did not get through.
store_code code_of(const error& e);

std::string_view get_text_view(byte_reader& in);
std::optional<std::uint32_t> get_count(byte_reader& in);
void put_policy_to(byte_writer& out, const put_policy& policy);
put_policy get_policy(byte_reader& in);
void put_ties(byte_writer& out, const object_ties& ties);
/// Points into the bytes read.
object_ties get_ties(byte_reader& in);
void put_places(byte_writer& out, std::span<const replica_place> places);
std::vector<replica_place> get_places(byte_reader& in);
void put_view(byte_writer& out, const object_view& view);
object_view get_view(byte_reader& in);
void put_disk(byte_writer& out, const disk_offer& disk);
disk_offer get_disk(byte_reader& in);
void put_disk(byte_writer& out, const mounted_disk& disk);
mounted_disk get_mounted_disk(byte_reader& in);
void put_withheld(byte_writer& out, const withheld& w);
withheld get_withheld(byte_reader& in);
void put_address(byte_writer& out, const segment_address& address);
segment_address get_address(byte_reader& in);
void put_welcome(byte_writer& out, const welcome& w);
welcome get_welcome(byte_reader& in);
void put_former(byte_writer& out, const former_life& former);
former_life get_former(byte_reader& in);
void put_published(byte_writer& out, const segment_record& record, std::string_view key,
                   std::string_view group);
/// Reads all fields but ticket, offset and size, which the record has already.
void get_published(byte_reader& in, segment_record& record);
void put_record(byte_writer& out, const segment_record& record);
segment_record get_record(byte_reader& in);
/// @param version  that the connection speaks
void put_segment(byte_writer& out, const mounted_segment& segment, std::uint32_t version);
mounted_segment get_segment(byte_reader& in, std::uint32_t version);
void put_task_id(byte_writer& out, const task_id& id);
task_id get_task_id(byte_reader& in);
void put_order(byte_writer& out, const task_order& order);
task_order get_order(byte_reader& in);
void put_task(byte_writer& out, const task_view& task);
task_view get_task(byte_reader& in);
void put_tenant(byte_writer& out, const tenant_view& tenant);
tenant_view get_tenant(byte_reader& in);
/// One of the objects that are read most, and its tenant, empty for none.
struct named_hot_object {
  std::string tenant;
  hot_object object;  ///< under the name that its owner gave it
};
void put_hottest(byte_writer& out, const named_hot_object& object);
named_hot_object get_hottest(byte_reader& in);
/// By the number of the question.
using question_times = std::array<latency_counts, op_last + 1>;
void put_counts(byte_writer& out, const object_counts& counts);
object_counts get_counts(byte_reader& in);
/// Adds another shard's counts.
void add_counts(object_counts& to, const object_counts& more);
void put_times(byte_writer& out, const question_times& times);
question_times get_times(byte_reader& in);

}  // namespace mooncaf::store_wire
