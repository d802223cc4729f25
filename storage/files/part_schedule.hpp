#pragma once
// Which part comes next, and from which source.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

namespace mooncaf {

/// A source that is faster ends its parts sooner, and so gets more of them: the next part is the least busy source's.
/// A part that failed is asked of another source, if there is one.
/// @thread  not synchronised
class part_schedule {
 public:
  /// A source that fails so often in a row is asked no more.
  static constexpr std::uint32_t failures_max = 3;

  struct task {
    std::size_t part = 0, source = 0;
  };

  part_schedule(std::size_t parts, std::size_t sources);

  /// Parts come in order. @returns nothing where all parts are on their way, or no source is left
  std::optional<task> take();
  /// The part is there, and is what it should be.
  void done(const task& t);
  /// It did not come, or was not what it should be.
  void failed(const task& t, std::string why);
  /// The source is asked no more.
  void drop(std::size_t source, std::string why);

  bool finished() const noexcept { return left_ == 0; }
  bool hopeless() const noexcept;
  bool dropped(std::size_t source) const { return sources_.at(source).dropped; }
  /// Why a source was dropped, or what its last failure was; empty: none.
  const std::string& trouble(std::size_t source) const { return sources_.at(source).why; }
  /// Parts that came from a source.
  std::size_t came_from(std::size_t source) const { return sources_.at(source).parts; }
  std::size_t left() const noexcept { return left_; }

 private:
  struct source_state {
    std::size_t busy = 0, parts = 0;
    std::uint32_t failures = 0;  ///< in a row
    bool dropped = false;
    std::string why;
  };
  struct again {
    std::size_t part = 0, source = 0;  ///< that failed
  };

  std::optional<std::size_t> least_busy(std::optional<std::size_t> not_this) const;

  std::size_t next_ = 0, parts_ = 0, left_ = 0;
  std::deque<again> again_;
  std::vector<source_state> sources_;
};

}  // namespace mooncaf
