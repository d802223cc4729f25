#pragma once
// The SSD of a holder, as the process that mounts it uses it: an interface, because a client of the store
// wants no database. `rocksdb_object_disk` is the one that there is.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "runtime/base/result.hpp"
#include "storage/objects/terms/object_terms.hpp"

namespace mooncaf {

/// Keeps objects under their tickets. It works in the background, in the order of its calls where that
/// matters: an object is erased after it was saved.
/// @thread  All functions from one thread; `report` and the callbacks of erasures are called on others,
/// `report` on several, one after the other.
class object_disk {
 public:
  struct outcome {
    std::uint64_t ticket = 0;
    bool good = false;
  };
  virtual ~object_disk() = default;

  /// Bytes of objects that it may hold: more, as it learns how well they pack. @thread  any
  virtual std::uint64_t bytes() const = 0;
  virtual disk_policy policy() const = 0;
  virtual std::uint64_t number() const = 0;  ///< its own, for as long as it is
  virtual std::uint64_t store() const = 0;   ///< number of the store that its objects are of; zero: none
  /// The objects, and parts of objects, that it holds; some may turn out damaged when they are read.
  virtual std::vector<segment_record> contents() = 0;
  /// Erases everything; it holds objects of that store from now on.
  virtual void start_over(std::uint64_t store) = 0;
  /// The store has another number from now on: another directory serves it.
  virtual void renumber(std::uint64_t store) = 0;

  /// @param report  of each save and each load.
  virtual void begin_work(std::function<void(std::span<const outcome>)> report) = 0;
  /// Forgets work that has not begun, but for erasures, and waits for the rest. Reports nothing any more.
  virtual void end_work() = 0;
  /// An object, one piece after the other.
  using source = std::vector<std::span<const std::byte>>;
  using target = std::vector<std::span<std::byte>>;
  /// @param bytes  stay as they are until it is reported, or disagree with the object's checksum: then it is
  /// reported as failed. A part of an object has no checksum: its bytes stay, or it is erased.
  virtual void save(const segment_record& object, source bytes) = 0;
  /// @param into  as long as the saved bytes; nothing else uses that memory until the load is reported.
  virtual void load(std::uint64_t ticket, target into) = 0;
  virtual void erase(std::uint64_t ticket) = 0;
  /// Calls `then` when all that was to be erased until now is, so that a killed process does not find it.
  virtual void after_erasures(std::function<void()> then) = 0;

  /// An even part of the room, for one of several shards of a directory: a disk of its own, beside this one,
  /// which holds nothing any more. @param shard  less than `shards`, which are two at least.
  virtual result<std::unique_ptr<object_disk>> part(std::uint32_t shard, std::uint32_t shards) = 0;
};

}  // namespace mooncaf
