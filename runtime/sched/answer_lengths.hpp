#pragma once
// How long answers are, when some have ended and others are under way. The ones that have ended are the short ones:
// counted alone they would promise an easier time than there was.

#include <cstdint>
#include <vector>

namespace mooncaf {

/// The share of answers that are longer than a number of tokens:
///
///   S(t) = Π over lengths l ≤ t of (1 - ended at l / not over before l)
///
/// An answer under way counts among the ones that are not over until its own length so far.
/// @source  Kaplan and Meier, "Nonparametric Estimation from Incomplete Observations" (1958).
class answer_lengths {
 public:
  void ended(std::uint32_t tokens) { seen_.push_back({tokens, true}); }
  /// @param tokens  so far.
  void under_way(std::uint32_t tokens) { seen_.push_back({tokens, false}); }
  std::size_t seen() const noexcept { return seen_.size(); }
  /// To be called after the last of both, before `draw`.
  void sum_up();

  /// The length that a share of the answers with more than `beyond` tokens does not exceed. Behind the longest one
  /// seen the rest falls off exponentially, by the mean of all.
  /// @param share  in [0, 1). @pre something was seen.
  std::uint32_t draw(double share, std::uint32_t beyond = 0) const;

 private:
  struct answer {
    std::uint32_t tokens = 0;
    bool over = false;
  };
  struct point {
    std::uint32_t tokens = 0;
    double longer = 1;  // S
  };
  std::vector<answer> seen_;
  std::vector<point> curve_;
  double mean_ = 0;
};

}  // namespace mooncaf
