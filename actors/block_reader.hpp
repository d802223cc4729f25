#pragma once
// The reads of a fetch as transfers of the data plane: their slices, their deadlines, and their measured
// costs.

#include <functional>
#include <unordered_map>

#include "actors/node_context.hpp"
#include "runtime/compute/prefix_load.hpp"
#include "runtime/request/fetch_core.hpp"

namespace mooncaf {

/// @thread  Owned by the messenger; not synchronised, but for what is called when a read has ended.
class block_reader {
 public:
  /// On a thread of the data plane. @param failure  code none: the bytes are here.
  using ended_fn = std::function<void(const error& failure)>;

  explicit block_reader(context_ptr context) : context_(std::move(context)) {}

  /// How a `fetch_core` sees this node.
  fetch_options options() const;
  /// @param load  told of layers that are in; null for runs. @param ended  called exactly once.
  void read(const fetch_action::read& order, const prefix_load_ptr& load, ended_fn ended);
  /// @pre the read has not been `done`
  void cancel(std::uint64_t read);
  /// The read ended.
  void done(std::uint64_t read) { transfers_.erase(read); }

 private:
  transfer transfer_of(const fetch_action::read& order) const;

  context_ptr context_;
  std::unordered_map<std::uint64_t, transfer_id> transfers_;  ///< under way, by read
};

/// Leading slots whose blocks have these checksums. @thread any
std::uint32_t leading_good(const node_context& context, const fetch_action::verify& what);

}  // namespace mooncaf
