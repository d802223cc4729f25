#pragma once
// An attempt at either worker, as computing needs it.

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "actors/job_sampler.hpp"
#include "actors/messages.hpp"
#include "actors/node_context.hpp"

namespace mooncaf {

struct worker_request {
  generate_job job;
  std::shared_ptr<sampler> sample;
  std::vector<std::byte*> blocks;  ///< addresses of its slots, as far as they are known

  /// Looks up the addresses of slots that were added since the last call.
  void locate(const node_context& context, std::span<const slot_index> slots) {
    for (auto i = blocks.size(); i < slots.size(); ++i) blocks.push_back(context.slot(slots[i]));
  }
  /// Whether its answer ends with a token, which its sampler has accepted.
  finish_reason finish_with(const node_context& context, std::int32_t token) const {
    return finish_after(job.sampling, context.text->eog_ids(), sample->position(), token);
  }
};

}  // namespace mooncaf
