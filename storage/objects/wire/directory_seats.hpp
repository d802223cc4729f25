#pragma once
// Where the directory of a store may answer.

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/host_port.hpp"

namespace mooncaf {

/// Each conductor of a cluster has a seat, and the directory is at that of the leader; where there is one seat, the
/// directory is there.
/// @thread  All functions may be called from any thread.
class directory_seats {
 public:
  directory_seats() = default;
  explicit directory_seats(std::vector<host_port> all) {
    for (auto& at : all) seats_.emplace(static_cast<std::uint32_t>(seats_.size()), std::move(at));
  }
  /// The seat is there from now on. @returns whether that is news.
  bool set(std::uint32_t seat, host_port at) {
    std::lock_guard lock{mutex_};
    const auto found = seats_.find(seat);
    if (found != seats_.end() && found->second == at) return false;
    seats_[seat] = std::move(at);
    return true;
  }
  std::vector<host_port> all() const {
    std::vector<host_port> out;
    std::lock_guard lock{mutex_};
    for (const auto& [seat, at] : seats_) out.push_back(at);
    return out;
  }
  bool several() const {
    std::lock_guard lock{mutex_};
    return seats_.size() > 1;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::uint32_t, host_port> seats_;
};

inline std::shared_ptr<const directory_seats> one_seat(std::string host, std::uint16_t port) {
  return std::make_shared<const directory_seats>(std::vector{host_port{std::move(host), port}});
}

}  // namespace mooncaf
