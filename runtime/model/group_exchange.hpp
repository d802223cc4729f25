#pragma once
// What a tensor group's ranks have in common, as the one that runs its passes sees it.

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <string>

#include "runtime/model/model_config.hpp"

namespace mooncaf {

class group_exchange {
 public:
  virtual ~group_exchange() = default;

  /// Columns of the widest tensor that is gathered, of the whole model.
  static std::size_t widest_row(const model_config& whole) noexcept {
    return std::max<std::size_t>({whole.vocab_size, whole.widest_ffn(), whole.q_dim(), whole.dim});
  }

  /// A rank has failed: the others' waits throw. @thread  any
  virtual void abandon(const std::string& why) = 0;
  /// After that, for the next pass, if there can be one. @pre no rank is in a pass.
  virtual void renew() = 0;
  /// Whether ranks have memory of their own: each takes a prefix out of the blocks when it likes, and writes its part.
  virtual bool far() const noexcept = 0;

  /// Held through a pass: ranks are in one at a time, whichever worker wants it.
  std::mutex passes;
};

}  // namespace mooncaf
