#pragma once
// The results of a pass: logits, tokens chosen on the device, hidden states, checksums.

#include <cstdint>
#include <span>
#include <vector>

#include "gpu/device.hpp"
#include "runtime/base/kv_layout.hpp"
#include "runtime/model/pass_plan.hpp"
#include "runtime/model/pass_tools.hpp"

namespace mooncaf {

/// Of one runner, on the thread of its pass.
class pass_results {
 public:
  struct settings {
    bool in_place = false;       ///< the device writes host memory, so logits need no download
    std::size_t shown_rows = 1;  ///< computed at a time for `each_row` and `each_hidden`
    kv_layout layout;            ///< of the items' blocks
  };
  /// @param plan  of the pass at hand; outlives the results.
  pass_results(const pass_tools& tools, const settings& how, const pass_plan& plan)
      : tools_(tools), how_(how), plan_(plan) {}

  /// @param logits  [items that want them, vocab_size]
  void write_logits(std::span<float> logits);
  /// Calls `each_hidden` and `each_row` of the plan's items.
  void show_rows();
  /// Computes the checksums that items ask for, of the blocks that their tokens fill.
  void checksum_blocks();

 private:
  void to_logits(tensor h, tensor out);
  void deliver(tensor computed, std::span<float> logits);
  void show(const batch_item& item, std::uint32_t begin);

  pass_tools tools_;
  settings how_;
  const pass_plan& plan_;
  std::vector<float> logits_;          ///< [some rows, vocab_size], from the first `each_row` on
  std::vector<float> hidden_;          ///< [some rows, dim], from the first `each_hidden` on
  std::vector<token_choice> choices_;  ///< of the items that have one, in their order
  std::vector<chosen_token> chosen_;   ///< the outcomes of `choices_`
  std::vector<device_bytes> full_;     ///< blocks whose checksums items ask for
  std::vector<std::uint64_t> sums_;    ///< of `full_`
};

}  // namespace mooncaf
