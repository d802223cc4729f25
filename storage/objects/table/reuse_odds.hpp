#pragma once
// How likely an object that has lain unused for so long is wanted again soon, as learned from earlier ones.

#include <array>
#include <cstddef>
#include <cstdint>

namespace mooncaf {

/// One estimate for each number of uses so far, as a function of the age.
/// @thread  not synchronised. Ages are in uses of all things together.
class reuse_odds {
 public:
  static constexpr std::size_t kinds = 4;  ///< used once, twice, three times, more often
  static std::size_t kind_of(std::uint32_t uses) noexcept {
    return uses == 0 ? 0 : uses > kinds ? kinds - 1 : uses - 1;
  }

  reuse_odds();
  /// An object was used again at this age …
  void came_back(std::size_t kind, std::uint64_t age) noexcept { histories_[kind].back[bucket(age)] += 1; }
  /// … or was forgotten at this age, and it is unknown whether it would have been used.
  void forgotten(std::size_t kind, std::uint64_t age) noexcept { histories_[kind].lost[bucket(age)] += 1; }
  /// Makes the estimates anew once in a while. Called for each that is given up.
  void learn_in_time() noexcept;
  /// @returns the odds that one is used again, for the time that it takes up room until then: of all times to
  /// wait the one for which that is most.
  double ahead(std::size_t kind, std::uint64_t age) const noexcept { return odds_[kind][bucket(age)]; }

 private:
  /// Four to a power of two: the last begins at 2^32.
  static constexpr std::size_t buckets = 128;
  struct history {
    std::array<float, buckets> back{}, lost{};
  };
  static std::size_t bucket(std::uint64_t age) noexcept;
  static double begin_of(std::size_t bucket) noexcept;
  void learn() noexcept;

  std::array<history, kinds> histories_{};
  std::array<std::array<float, buckets>, kinds> odds_{};
  std::uint32_t since_ = 0;
};

}  // namespace mooncaf
