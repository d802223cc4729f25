#pragma once
// What a tensor group's ranks have in common, as the one that runs its passes sees it.

#include <mutex>
#include <string>

namespace mooncaf {

class group_exchange {
 public:
  virtual ~group_exchange() = default;

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
