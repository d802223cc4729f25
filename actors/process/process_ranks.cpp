// A process of a group in several: as its leader it finds the ranks, as a rank it waits for a leader.

#include "actors/process/model_extras.hpp"
#include "actors/process/process.hpp"
#include "actors/rank.hpp"
#include "runtime/log/log.hpp"

namespace mooncaf {

result<void> process::find_ranks() {
  auto found = group_.find({*context_, *system_, *link_, model_text() + ", " + layout_text(),
                            [this](const std::string& rank) { rank_lost(rank); }});
  if (!found) return fail(found.error());
  local_.ranks = std::move(*found);
  if (local_.ranks.empty() && context_->stages.size() < 2) return {};
  for (const auto& own : context_->stages)
    local_.ranks.push_back(
        {context_->name, "", rank_text(own.net->part(), own.net->share()), own.hardware->info().name, ""});
  return {};
}

// The pass that a rank breaks off says so, too; this is for a group that has nothing to compute meanwhile.
void process::rank_lost(const std::string& rank) {
  const bool others = lives_without_workers();
  log_error("rank lost",
            {{"rank", rank},
             {"effect", others ? "its group computes nothing any more"
                               : "the process ends, to find the rank when it is started again"}});
  if (!others) leave_now(static_cast<int>(exit_code::actor_failed));
}

result<void> process::serve_leader() {
  const auto& m = opts().model;
  const auto& stage = context_->stages.front();
  rank_self self{.name = context_->name,
                 .fingerprint = cluster_identity(*context_),
                 .about = model_text() + ", " + layout_text()};
  self.stage = std::max(m.stage, 1u);
  self.stages = m.pipeline;
  self.layout = context_->layout;
  self.kv_bytes = m.device_kv_bytes;
  self.hardware = stage.hardware;
  self.net = stage.net;
  self.plane = context_->plane;
  self.ids = context_->transfer_ids;
  self.notices = group_.notices();
  self.metrics = local_.metrics_at;
  const auto handle = system_->spawn<rank, caf::detached>(std::move(self));
  must_live("rank", caf::actor_cast<caf::actor>(handle));
  roots_.push_back(caf::actor_cast<caf::actor>(handle));
  const auto& listen = opts().cluster.listen;
  const auto published = link_->publish(handle, listen.host, listen.port);
  if (!published) return fail(published.error());
  info_.roles = "rank";
  log_info("control", {{"at", to_string(host_port{listen.host, *published})}});
  return {};
}

}  // namespace mooncaf
