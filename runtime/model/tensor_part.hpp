#pragma once
// Which share of each layer a rank of a tensor group has.
//
// No sum is divided. A rank has some rows of every matrix, so it computes some columns of every product, each of
// them from the whole input and in the order in which one device adds. Ranks give each other their columns before
// the next product (`rank_exchange`). So a group of any size has the bits of one device, and one device pays
// nothing for that; where partial sums are exchanged instead, their order depends on the number of ranks.
//
// A mixture's experts may be divided whole instead: a rank computes what goes to its experts, and gives the others
// those rows once a layer; each then adds them in the order of the experts.

#include <cstddef>
#include <cstdint>

namespace mooncaf {

/// Columns, rows or heads [first, first + count).
struct part_range {
  std::size_t first = 0, count = 0;
  constexpr bool has(std::size_t i) const noexcept { return i >= first && i < first + count; }
  friend constexpr bool operator==(const part_range&, const part_range&) noexcept = default;
};

/// Rank `rank` of `of`, from 0.
struct tensor_part {
  std::uint32_t rank = 0;
  std::uint32_t of = 1;
  bool whole_experts = false;  ///< it has some of a mixture's experts, not some rows of each

  constexpr bool whole() const noexcept { return of == 1; }
  constexpr bool same_seat(const tensor_part& other) const noexcept {
    return rank == other.rank && of == other.of;
  }
  /// Its share of `n` columns or rows: as equal as they can be.
  constexpr part_range share(std::size_t n) const noexcept {
    const auto first = n * rank / of;
    return {first, n * (rank + 1) / of - first};
  }
  /// The heads of `n` KV heads that its share of the query heads reads: where there are fewer than ranks, several
  /// ranks have the same one. @pre n divides `of`, or `of` divides n.
  constexpr part_range kv_heads(std::size_t n) const noexcept {
    const auto first = n * rank / of;
    return {first, (n * (rank + 1) + of - 1) / of - first};
  }
  /// Whether it writes those heads: of several ranks that have them one does.
  constexpr bool writes_kv(std::size_t n) const noexcept { return n >= of || rank % (of / n) == 0; }

  friend constexpr bool operator==(const tensor_part&, const tensor_part&) noexcept = default;
};

}  // namespace mooncaf
