#include "actors/rank.hpp"

#include <algorithm>
#include <utility>

#include "actors/cluster/wire.hpp"
#include "actors/process/model_extras.hpp"
#include "actors/stray_errors.hpp"
#include "runtime/log/log.hpp"

namespace mooncaf {

namespace {

/// Whether the two are parts of one group. @error `ec::incompatible` says in what they differ.
result<void> check(const rank_greeting& leader, const node_context& here) {
  const auto& m = here.opts.model;
  const auto differ = [&](const std::string& theirs, const std::string& ours) {
    return fail(ec::incompatible, "the leader " + leader.name + " has " + theirs + ", this rank " + ours);
  };
  if (leader.fingerprint != cluster_identity(here))
    return differ(leader.model, m.served_model_name + ", " + to_string(here.layout));
  if (leader.stage != m.stage || leader.stages != m.pipeline)
    return differ("it as stage " + std::to_string(leader.stage) + " of " + std::to_string(leader.stages),
                  "is stage " + std::to_string(m.stage) + " of " + std::to_string(m.pipeline));
  return {};
}

}  // namespace

rank::rank(caf::actor_config& config, context_ptr context, std::shared_ptr<rank_notices> notices)
    : rank_actor::base(config), context_(std::move(context)), notices_(std::move(notices)) {}

rank_actor::behavior_type rank::make_behavior() {
  outlive_stray_errors(*this);
  return {[this](hello_atom, const rank_greeting& leader) -> caf::result<rank_welcome> {
    auto welcome = greeted(leader);
    if (!welcome) log_warn("leader", {{"refused", leader.name}, {"reason", to_string(welcome.error())}});
    return to_caf(std::move(welcome));
  }};
}

void rank::on_exit() { session_.reset(); }

/// The session with another leader ends first: two would compute with one memory.
result<rank_welcome> rank::greeted(const rank_greeting& leader) {
  if (auto fits = check(leader, *context_); !fits) return fail(std::move(fits.error()));
  auto theirs = decode_announcement(leader.data_plane);
  if (!theirs) return fail(std::move(theirs.error()));
  const auto find = [&](region_id id) {
    const auto found = std::ranges::find(theirs->regions, id, &region_desc::id);
    return found == theirs->regions.end() ? region_desc{} : *found;
  };
  const auto& stage = context_->stages.front();
  rank_terms terms{theirs->address.node,    find(leader.pages),    find(leader.replies),
                   leader.max_batch_tokens, leader.context_tokens, context_->layout};
  terms.layout.n_layers = stage.net->part().count;
  if (terms.pages.length == 0 || terms.replies.length == 0)
    return fail(ec::invalid_argument, "the leader names memory that it does not offer");
  session_.reset();
  if (auto known = context_->plane->add_peer(theirs->address, theirs->regions); !known)
    return fail(std::move(known.error()));
  auto made =
      rank_session::make(*context_->plane, context_->transfer_ids, *notices_, *stage.hardware, stage.net,
                         terms, context_->opts.model.device_kv_bytes, [](const std::string& line) {
                           log_warn("pass", {{"problem", line}});
                         });
  if (!made) return fail(std::move(made.error()));
  session_ = std::move(*made);
  log_info("leader", {{"name", leader.name}});
  return rank_welcome{context_->name, stage.hardware->info().name,
                      encode(context_->plane->local_announcement()), session_->inbox()};
}

}  // namespace mooncaf
