#include "actors/cluster/wire.hpp"

#include <string>

namespace mooncaf {

error from_caf(const caf::error& e) {
  if (e.category() == error_category) {
    error out{static_cast<ec>(e.code()), {}};
    if (e.context().match_elements<std::string>()) out.detail = e.context().get_as<std::string>(0);
    return out;
  }
  if (e == caf::sec::request_timeout) return {ec::timed_out, "no answer in time"};
  if (e == caf::sec::request_receiver_down || e == caf::sec::cannot_connect_to_node) {
    return {ec::peer_lost, "the receiver is gone"};
  }
  return {ec::internal, "actor runtime: " + caf::to_string(e)};
}

}  // namespace mooncaf
