#pragma once
// When a block of DRAM is also kept on SSD. Pure decisions, so that a simulator asks the very ones that a
// store acts on.

#include <cstdint>

#include "runtime/base/words.hpp"

namespace mooncaf {

/// When a block is written to SSD.
enum class write_policy : std::uint8_t {
  write_back,               ///< when it is about to leave DRAM
  write_through,            ///< when it is committed
  write_through_selective,  ///< when it has been used `selective_hits` times; colder ones are dropped from
                            ///< DRAM
};
constexpr auto words_of(write_policy) noexcept {
  using enum write_policy;
  return words<write_policy, 3>{{{write_back, "write_back"},
                                 {write_through, "write_through"},
                                 {write_through_selective, "write_through_selective"}}};
}
constexpr bool writes_on_commit(write_policy p) noexcept { return p == write_policy::write_through; }
/// @param uses  of the block so far, this one included.
constexpr bool writes_on_use(write_policy p, std::uint32_t uses, std::uint32_t selective_hits) noexcept {
  return p == write_policy::write_through_selective && uses >= selective_hits;
}
constexpr bool writes_on_eviction(write_policy p) noexcept { return p == write_policy::write_back; }

}  // namespace mooncaf
