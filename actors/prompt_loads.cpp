#include "actors/prompt_loads.hpp"

#include <caf/send.hpp>
#include <utility>

#include "actors/executor.hpp"

namespace mooncaf {

prompt_loads::prompt_loads(context_ptr context, executor_actor thread)
    : context_(std::move(context)), thread_(std::move(thread)) {
  if (context_->device_blocks && thread_) queue_ = context_->hardware->make_copy_queue();
}

bool prompt_loads::make_room(const worker_request& request, std::uint32_t have_blocks) {
  const auto& job = request.job;
  const auto owner = job.id.owner();
  auto made = kv_arrival::make(
      context_->device_blocks, queue_,
      {owner, job.keys, request.blocks, static_cast<std::uint32_t>(job.tokens.size())}, context_);
  if (!made) return false;
  arrivals_[owner] = std::move(made);
  // Blocks that this node had already need not wait for the rest.
  const auto& layout = context_->layout;
  if (const auto tell = on_piece(owner); tell && have_blocks > 0)
    tell({0, 0, have_blocks * layout.block_tokens, layout.n_layers});
  return true;
}

landing_board::piece_callback prompt_loads::on_piece(std::uint64_t owner) const {
  const auto arrival = under_way(owner);
  if (!arrival) return {};
  return [thread = thread_, arrival](const kv_piece& what) {
    caf::anon_send(thread, run_atom_v, make_task([arrival, what] {
                     for (std::uint32_t layer = 0; layer < what.layers; ++layer)
                       arrival->landed(what.layer + layer, what.first, what.last);
                   }));
  };
}

std::shared_ptr<kv_arrival> prompt_loads::under_way(std::uint64_t owner) const {
  const auto i = arrivals_.find(owner);
  return i == arrivals_.end() || i->second->loaded() ? nullptr : i->second;
}

std::shared_ptr<kv_arrival> prompt_loads::take(std::uint64_t owner) {
  auto found = arrivals_.extract(owner);
  return found ? std::move(found.mapped()) : nullptr;
}

std::shared_ptr<kv_arrival> prompt_loads::let_go(std::uint64_t owner) {
  if (context_->device_blocks) context_->device_blocks->let_go(owner);
  auto arrival = take(owner);
  return arrival && !arrival->loaded() ? arrival : nullptr;
}

void prompt_loads::close() {
  arrivals_.clear();
  thread_ = nullptr;
}

}  // namespace mooncaf
