#include "runtime/ranks/rank_host.hpp"

#include <algorithm>
#include <utility>

#include "runtime/model/model_config.hpp"

namespace mooncaf {

result<void> rank_host::check(const rank_greeting& leader) const {
  const auto differ = [&](const std::string& theirs, const std::string& ours) {
    return fail(ec::incompatible, "the leader " + leader.name + " has " + theirs + ", this rank " + ours);
  };
  if (leader.fingerprint != self_.fingerprint) return differ(leader.model, self_.about);
  const auto share = self_.net->share();
  const auto place = [](std::uint32_t stage, std::uint32_t stages, const tensor_part& part) {
    auto text = "stage " + std::to_string(stage) + " of " + std::to_string(stages);
    if (!part.whole()) text += ", rank " + std::to_string(part.rank + 1) + " of " + std::to_string(part.of);
    if (part.whole_experts) text += " with whole experts";
    return text;
  };
  const auto theirs =
      place(leader.stage, leader.stages, {leader.rank - 1, leader.ranks, leader.whole_experts});
  const auto ours = place(self_.stage, self_.stages, share);
  return theirs == ours ? result<void>{} : differ("it as " + theirs, "is " + ours);
}

rank_terms rank_host::terms_of(const rank_greeting& leader, const announcement& theirs) const {
  const auto find = [&](region_id id) {
    const auto found = std::ranges::find(theirs.regions, id, &region_desc::id);
    return found == theirs.regions.end() ? region_desc{} : *found;
  };
  rank_terms terms;
  terms.leader = theirs.address.node;
  terms.pages = find(leader.pages);
  terms.replies = find(leader.replies);
  terms.max_batch_tokens = leader.max_batch_tokens;
  terms.max_logit_rows = leader.max_logit_rows;
  terms.context_tokens = leader.context_tokens;
  terms.layout = self_.layout;
  terms.layout.n_layers = self_.net->part().count;
  if (const auto share = self_.net->share(); !share.whole())
    terms.layout = layout_of_share(terms.layout, share);
  terms.widest_row = leader.widest_row;
  return terms;
}

// The session with another leader ends first: two would compute with one memory.
result<rank_welcome> rank_host::greeted(const rank_greeting& leader) {
  if (auto fits = check(leader); !fits) return fail(std::move(fits.error()));
  auto theirs = decode_announcement(leader.data_plane);
  if (!theirs) return fail(std::move(theirs.error()));
  const auto terms = terms_of(leader, *theirs);
  if (terms.pages.length == 0 || terms.replies.length == 0)
    return fail(ec::invalid_argument, "the leader names memory that it does not offer");
  session_.reset();
  if (auto known = self_.plane->add_peer(theirs->address, theirs->regions); !known)
    return fail(std::move(known.error()));
  auto made = rank_session::make(*self_.plane, self_.ids, *self_.notices, *self_.hardware, self_.net, terms,
                                 self_.kv_bytes, log_);
  if (!made) return fail(std::move(made.error()));
  session_ = std::move(*made);
  const auto* exchange = session_->exchange();
  return rank_welcome{self_.name,
                      encode(self_.plane->local_announcement()),
                      session_->inbox(),
                      exchange != nullptr ? exchange->slots() : region_id{},
                      self_.hardware->info().name,
                      self_.metrics};
}

result<void> rank_host::joined(const rank_group& group) {
  if (!session_ || session_->exchange() == nullptr)
    return fail(ec::invalid_argument, "a rank of a tensor group is greeted first, and joined then");
  return join(*self_.plane, *session_->exchange(), group);
}

result<void> join(data_plane& plane, far_exchange& exchange, const rank_group& group) {
  std::vector<exchange_peer> others;
  for (const auto& one : group.ranks) {
    if (one.rank == exchange.part().rank) continue;
    const auto theirs = decode_announcement(one.data_plane);
    if (!theirs) return fail(theirs.error());
    const auto slots = std::ranges::find(theirs->regions, one.slots, &region_desc::id);
    if (slots == theirs->regions.end())
      return fail(ec::invalid_argument,
                  "rank " + std::to_string(one.rank + 1) + " names memory that it does not offer");
    if (auto known = plane.add_peer(theirs->address, theirs->regions); !known) return known;
    others.push_back({one.rank, theirs->address.node, *slots});
  }
  return exchange.meet(group.number, std::move(others));
}

}  // namespace mooncaf
