#pragma once
// Orders for a NIC that are handed over together, which rings its doorbell once.

#include <infiniband/verbs.h>

#include <cstddef>
#include <vector>

namespace mooncaf {

/// @thread  not synchronised: the queue pair's
class order_batch {
 public:
  /// @param urgent  a completion shall tell of it as soon as it is over; otherwise a later one may.
  /// @returns the new order, with its source set, to be filled in before the next call.
  ::ibv_send_wr& add(const ::ibv_sge& source, bool urgent) {
    parts_.push_back(source);
    urgent_ |= urgent;
    auto& order = orders_.emplace_back();
    order.num_sge = 1;
    return order;
  }

  /// Hands all of them over. @param signal_every  one completion for so many orders.
  /// @returns zero, or the error number with which the NIC refuses them; the batch is empty either way.
  int post(::ibv_qp* pair, unsigned signal_every) {
    if (orders_.empty()) return 0;
    for (std::size_t i = 0; i < orders_.size(); ++i) {
      auto& o = orders_[i];
      o.sg_list = &parts_[i];
      o.next = i + 1 < orders_.size() ? &orders_[i + 1] : nullptr;
      // The last one asks for a completion if it is urgent: otherwise nothing would tell of the earlier ones.
      if (++unsignalled_ < signal_every && (o.next || !urgent_)) continue;
      o.send_flags |= IBV_SEND_SIGNALED;
      unsignalled_ = 0;
    }
    ::ibv_send_wr* bad = nullptr;
    const int rc = ::ibv_post_send(pair, orders_.data(), &bad);
    orders_.clear();
    parts_.clear();
    urgent_ = false;
    return rc;
  }

 private:
  std::vector<::ibv_send_wr> orders_;
  std::vector<::ibv_sge> parts_;  // the source of each
  unsigned unsignalled_ = 0;      // orders since the last that asked for a completion
  bool urgent_ = false;
};

}  // namespace mooncaf
