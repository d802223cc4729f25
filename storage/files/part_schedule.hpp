#pragma once
// Which part comes next, and from which source.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "storage/files/file_manifest.hpp"

namespace mooncaf {

/// A source that is faster ends its parts sooner, and so gets more of them: the next part is the least busy source's.
/// A part that failed is asked of another source, if there is one.
///
/// Hosts that fetch the same are sources of the parts that have come to them. Of a whole source then is asked what none of
/// them has or is getting, in any order within a window: so each part leaves it about once, for all of them, and its
/// link is not shared by as many as there are. What the others are getting is asked of it, too, one part at a time,
/// since one of them may be slow.
/// @thread  not synchronised
class part_schedule {
 public:
  /// A source that fails so often in a row is asked no more.
  static constexpr std::uint32_t failures_max = 3;
  /// Parts ahead among which one is drawn: a source hashes in order, and those must not wait for it.
  static constexpr std::size_t window = file_manifest::hashes_per_block;

  struct task {
    std::size_t part = 0, source = 0;
  };

  /// @param sources  that have all parts. @param seed  hosts that fetch the same need different ones
  /// @param all  false: no part is wanted yet
  part_schedule(std::size_t parts, std::size_t sources, std::uint64_t seed = 0, bool all = true);

  /// One more part is wanted, which was not.
  void want(std::size_t part);

  /// One more source, which fetches itself. @returns its number
  std::size_t add_fetching();
  /// What a source that fetches has now. @param map  a `part_holding` a part; shorter: the others are not there
  void holds(std::size_t source, std::span<const std::byte> map);

  /// Parts come in order where nobody else fetches. @returns nothing where all parts are on their way, or no source
  /// has what is left
  std::optional<task> take();
  /// The part is there, and is what it should be.
  void done(const task& t);
  /// It did not come, or was not what it should be.
  void failed(const task& t, std::string why);
  /// The source is asked no more.
  void drop(std::size_t source, std::string why);

  bool finished() const noexcept { return left_ == 0; }
  /// No source is left.
  bool hopeless() const noexcept;
  /// No source is left that has all, and no part is under way: others that fetch may have the rest, or may not.
  bool stranded() const noexcept;
  bool dropped(std::size_t source) const { return sources_.at(source).dropped; }
  bool fetches(std::size_t source) const { return sources_.at(source).fetches; }
  /// Why a source was dropped, or what its last failure was; empty: none.
  const std::string& trouble(std::size_t source) const { return sources_.at(source).why; }
  /// Parts that came from a source.
  std::size_t came_from(std::size_t source) const { return sources_.at(source).parts; }
  std::size_t sources() const noexcept { return sources_.size(); }
  std::size_t left() const noexcept { return left_; }

 private:
  struct source_state {
    std::size_t busy = 0, parts = 0;
    std::uint32_t failures = 0;  ///< in a row
    bool dropped = false, fetches = false;
    std::string why;
    std::vector<std::byte> map;  ///< of one that fetches
  };
  struct again {
    std::size_t part = 0, source = 0;  ///< that failed
  };

  part_holding has(const source_state& s, std::size_t part) const;
  bool is_elsewhere(std::size_t part) const;
  std::optional<std::size_t> least_busy_with(std::size_t part, std::optional<std::size_t> not_this) const;
  std::optional<task> take_again();
  std::optional<std::size_t> wanted_of(const source_state& s);

  std::vector<bool> taken_;  ///< parts on their way, here, in `again_`, or not wanted
  std::size_t first_ = 0;    ///< of those that are not
  std::size_t left_ = 0;
  std::deque<again> again_;
  std::vector<source_state> sources_;
  bool alone_ = true;  ///< nobody else fetches
  std::mt19937_64 random_;
};

}  // namespace mooncaf
