#pragma once
// How much of a node's memory its KV blocks have, and how much the objects of the store: one order of
// eviction over two indices that know nothing of each other. Pure: no memory, no clock, no I/O.

#include <algorithm>
#include <cstdint>
#include <optional>

#include "runtime/base/units.hpp"

namespace mooncaf {

/// The report of one of the two sides.
struct boundary_report {
  std::uint64_t withheld_bytes = 0;  ///< of the shared memory: bytes the side does without, their pages given
                                     ///< back
  std::uint64_t bytes = 0;           ///< memory that the side has, its own and its part of the shared
  std::uint64_t idle_bytes = 0;      ///< the part of these that it could do without and give up nothing
  std::uint64_t taken_bytes = 0;  ///< bytes that came to it since some time: shows whether it goes on filling
  std::optional<duration> coldest;  ///< since the last use of its next victim; nothing: it has none
};

/// Divides memory that two have in common, in slabs: a slab goes to the one that fills and has less than a
/// slab idle, from the other one, if that has two of them idle, or has a colder next victim. So the next
/// eviction takes, of all that both may evict, about the one used longest ago, as if both were in one order:
/// ```
///    own │   shared                          │ own
///   ─────┼──────────────┬────┬───────────────┼────────        the slab that is on its way belongs to nobody
///    blocks ◄───────────┘    └────────► objects
///                    ◄── slab ──►
/// ```
/// **It does not go to and fro**: a slab makes the giver's coldest warmer and the taker's colder, about by
/// the slab's share of what each has, and it only goes if the giver's would be the colder one by a tenth even
/// then. Where that is not enough (a side that nearly fits wants one slab more, and then none), each turn has
/// to wait for longer than the one before, up to `turn_max`, until several slabs have gone one way. A giver
/// that cannot (all is pinned, or saving takes its time) gets back the slab that it did not give.
/// @thread  not synchronised. Time comes in and never goes back.
class memory_boundary {
 public:
  enum class side : std::uint8_t { blocks, objects };
  /// For so long a giver may take to withhold a slab; then the slab is forgone.
  static constexpr duration patience = std::chrono::seconds(10);
  static constexpr duration turn_min = std::chrono::seconds(1), turn_max = std::chrono::seconds(64);

  /// The blocks begin with all of it, so a node without objects loses nothing.
  /// @param shared  bytes that both may have; a multiple of `slab`.
  memory_boundary(std::uint64_t shared, std::uint64_t slab) : shared_(shared), slab_(slab), has_{shared, 0} {}
  /// A slab for memory of this size: 1/64 of it, but 2 to 256 MiB, in pages of 2 MiB.
  static std::uint64_t slab_for(std::uint64_t shared) noexcept;

  /// Bytes that the side is to do without. The two never have more than all together.
  std::uint64_t withheld_from(side s) const noexcept { return shared_ - has_[at(s)]; }
  std::uint64_t has(side s) const noexcept { return has_[at(s)]; }
  std::uint64_t shared() const noexcept { return shared_; }
  std::uint64_t slab() const noexcept { return slab_; }
  /// Slabs that reached the side.
  std::uint64_t moved_to(side s) const noexcept { return moved_[at(s)]; }
  bool in_flight() const noexcept { return giver_.has_value(); }

  /// @param blocks, objects  each side's answer when told its share to withhold.
  /// @returns whether a share has changed, so that both are to be told again.
  bool look(const boundary_report& blocks, const boundary_report& objects, time_point now);

 private:
  static constexpr std::size_t at(side s) noexcept { return static_cast<std::size_t>(s); }
  static constexpr side other(side s) noexcept { return s == side::blocks ? side::objects : side::blocks; }
  void start(side giver, time_point now);
  bool gives(side giver, const boundary_report& from, const boundary_report& to) const noexcept;

  std::uint64_t shared_, slab_;
  std::uint64_t has_[2];
  std::uint64_t moved_[2] = {0, 0};
  std::optional<std::uint64_t> taken_[2];  ///< as the side said last
  std::optional<side> giver_;              ///< the side that gives the slab on its way
  time_point asked_{};
  side towards_ = side::blocks;  ///< went the last slab
  std::uint32_t in_a_row_ = 0;
  duration turn_{};  ///< after it, until one may go the other way
};

}  // namespace mooncaf
