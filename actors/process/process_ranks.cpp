// A pipeline group of several processes: the leader finds its ranks, a rank waits for its leader.

#include <algorithm>
#include <caf/scoped_actor.hpp>
#include <thread>

#include "actors/cluster/wire.hpp"
#include "actors/process/model_extras.hpp"
#include "actors/process/process.hpp"
#include "actors/rank.hpp"
#include "runtime/log/log.hpp"

namespace mooncaf {

namespace {

constexpr auto greet_limit = std::chrono::seconds(30);  ///< a rank makes its memory ready meanwhile
constexpr auto dial_interval = std::chrono::milliseconds(100);
constexpr auto tell_interval = std::chrono::seconds(2);

}  // namespace

result<void> process::find_ranks() {
  for (std::uint32_t i = 0; i < opts().cluster.ranks.size(); ++i) {
    const auto where = to_string(opts().cluster.ranks[i]);
    auto found = find_rank(i);
    if (!found) return fail(found.error().code, "ranks: " + where + ": " + found.error().detail);
    log_info(
        "rank",
        {{"at", where}, {"name", (*found)->place().name}, {"layers", to_string((*found)->place().layers)}});
    group_.ranks.push_back(std::move(*found));
  }
  if (group_.ranks.size() + context_->stages.size() > 1) {
    for (const auto& own : context_->stages) {
      const auto share = own.net->share();
      const auto rank = share.whole()
                            ? std::string{}
                            : ", rank " + std::to_string(share.rank + 1) + " of " + std::to_string(share.of);
      local_.ranks.push_back(
          {context_->name, "", to_string(own.net->part()) + rank, own.hardware->info().name, ""});
    }
  }
  return {};
}

result<std::shared_ptr<rank_link>> process::find_rank(std::uint32_t stage) {
  const auto& where = opts().cluster.ranks[stage];
  const auto began = clock_type::now();
  for (auto told = began;;) {
    auto found = link_->dial<rank_actor>(where.host, where.port);
    if (found) return greet(*found, stage);
    const auto now = clock_type::now();
    if (found.error() != ec::peer_lost || now - began > opts().cluster.ranks_wait)
      return fail(std::move(found.error()));
    if (now - told > tell_interval) {
      told = now;
      log_info("rank", {{"waits for", to_string(where)}, {"reason", to_string(found.error())}});
    }
    std::this_thread::sleep_for(dial_interval);
  }
}

/// Each side learns of the other's memory: the rank first, which then makes its own ready.
result<std::shared_ptr<rank_link>> process::greet(const rank_actor& rank, std::uint32_t stage) {
  const auto& o = opts();
  const auto& shape = context_->shape;
  const auto stages = static_cast<std::uint32_t>(o.cluster.ranks.size()) + 1;
  rank_place place;
  place.layers = stage_layers(shape.n_layers, stages, stage);
  place.layout = context_->layout;
  place.layout.n_layers = place.layers.count;
  place.dim = shape.dim;
  rank_greeting mine;
  mine.name = context_->name;
  mine.fingerprint = cluster_identity(*context_);
  mine.model = model_text() + ", " + layout_text();
  mine.stage = stage + 1;
  mine.stages = stages;
  mine.max_batch_tokens = std::max(o.cluster.prefill ? o.prefill.max_batch_tokens : 0u,
                                   o.cluster.decode ? o.decode.max_batch : 0u);
  mine.context_tokens = o.model.context_length == 0 ? shape.context_length : o.model.context_length;
  place.inbox.length = rank_link::call_bytes(mine.max_batch_tokens, shape.dim);
  auto link = rank_link::make(*context_->plane, context_->transfer_ids, *group_.notices,
                              context_->memory->bytes(), place);
  if (!link) return fail(std::move(link.error()));
  mine.data_plane = encode(context_->plane->local_announcement());
  mine.pages = context_->region.id;
  mine.replies = (*link)->replies();
  result<rank_welcome> answer = fail(ec::internal);
  caf::scoped_actor self{*system_};
  self->request(rank, greet_limit, hello_atom_v, std::move(mine))
      .receive([&](const rank_welcome& w) { answer = w; },
               [&](const caf::error& why) { answer = fail(from_caf(why)); });
  if (!answer) return fail(std::move(answer.error()));
  auto theirs = decode_announcement(answer->data_plane);
  if (!theirs) return fail(std::move(theirs.error()));
  const auto inbox = std::ranges::find(theirs->regions, answer->inbox, &region_desc::id);
  if (inbox == theirs->regions.end() || inbox->length < place.inbox.length)
    return fail(ec::incompatible, "it offers no memory for calls");
  if (auto known = context_->plane->add_peer(theirs->address, theirs->regions); !known)
    return fail(std::move(known.error()));
  (*link)->found(answer->name, theirs->address.node, *inbox);
  local_.ranks.push_back({answer->name, to_string(o.cluster.ranks[stage]), to_string(place.layers),
                          answer->device, answer->metrics});
  rank->attach_functor([this, name = answer->name](const caf::error&) { rank_lost(name); });
  return std::shared_ptr<rank_link>{std::move(*link)};
}

// The pass that a rank breaks off says so, too; this is for a group that has nothing to compute meanwhile.
void process::rank_lost(const std::string& rank) {
  if (group_.ends) return;
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
  self.stage = m.stage;
  self.stages = m.pipeline;
  self.layout = context_->layout;
  self.kv_bytes = m.device_kv_bytes;
  self.hardware = stage.hardware;
  self.net = stage.net;
  self.plane = context_->plane;
  self.ids = context_->transfer_ids;
  self.notices = group_.notices;
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
