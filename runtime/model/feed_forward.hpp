#pragma once
// The feed-forward part of a layer: one gated network, or a mixture of experts with a shared part beside it.

#include "runtime/model/pass_tools.hpp"

namespace mooncaf {

/// Of one runner, on the thread of its pass.
class feed_forward {
 public:
  explicit feed_forward(const pass_tools& tools) : tools_(tools) {}

  /// x += down(act(gate(norm(x))) · up(norm(x))), tile by tile. @param x  [rows, dim]
  void run(const layer_weights& w, tensor x);

 private:
  void through(const ffn_weights& w, tensor h, tensor out, bool whole = false);
  void choose_experts(const layer_weights& w, tensor h);
  void mix(const layer_weights& w, tensor h, tensor x);
  void mix_divided(const layer_weights& w, tensor h, tensor x);
  void add_shared(const layer_weights& w, tensor h, tensor x);

  pass_tools tools_;
};

}  // namespace mooncaf
