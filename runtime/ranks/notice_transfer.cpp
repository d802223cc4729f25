#include "runtime/ranks/notice_transfer.hpp"

#include <future>
#include <memory>
#include <utility>

namespace mooncaf {

result<void> send_notice(data_plane& plane, std::atomic<std::uint64_t>& ids, node_id to,
                         const rank_notices::notice& what, std::vector<slice_pair> slices) {
  const auto ended = std::make_shared<std::promise<result<void>>>();
  auto outcome = ended->get_future();
  transfer order;
  order.id = transfer_id{ids.fetch_add(1)};
  order.peer = to;
  order.slices = std::move(slices);
  order.tag = rank_notices::tag_of(what);
  plane.submit(std::move(order), [ended](const completion& c) { ended->set_value(c.outcome); });
  return outcome.get();
}

}  // namespace mooncaf
