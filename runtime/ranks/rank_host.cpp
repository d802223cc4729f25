#include "runtime/ranks/rank_host.hpp"

#include <algorithm>
#include <utility>

namespace mooncaf {

result<void> rank_host::check(const rank_greeting& leader) const {
  const auto differ = [&](const std::string& theirs, const std::string& ours) {
    return fail(ec::incompatible, "the leader " + leader.name + " has " + theirs + ", this rank " + ours);
  };
  if (leader.fingerprint != self_.fingerprint) return differ(leader.model, self_.about);
  if (leader.stage != self_.stage || leader.stages != self_.stages)
    return differ("it as stage " + std::to_string(leader.stage) + " of " + std::to_string(leader.stages),
                  "is stage " + std::to_string(self_.stage) + " of " + std::to_string(self_.stages));
  return {};
}

// The session with another leader ends first: two would compute with one memory.
result<rank_welcome> rank_host::greeted(const rank_greeting& leader) {
  if (auto fits = check(leader); !fits) return fail(std::move(fits.error()));
  auto theirs = decode_announcement(leader.data_plane);
  if (!theirs) return fail(std::move(theirs.error()));
  const auto find = [&](region_id id) {
    const auto found = std::ranges::find(theirs->regions, id, &region_desc::id);
    return found == theirs->regions.end() ? region_desc{} : *found;
  };
  rank_terms terms{theirs->address.node,    find(leader.pages),    find(leader.replies),
                   leader.max_batch_tokens, leader.context_tokens, self_.layout};
  terms.layout.n_layers = self_.net->part().count;
  if (terms.pages.length == 0 || terms.replies.length == 0)
    return fail(ec::invalid_argument, "the leader names memory that it does not offer");
  session_.reset();
  if (auto known = self_.plane->add_peer(theirs->address, theirs->regions); !known)
    return fail(std::move(known.error()));
  auto made = rank_session::make(*self_.plane, self_.ids, *self_.notices, *self_.hardware, self_.net, terms,
                                 self_.kv_bytes, log_);
  if (!made) return fail(std::move(made.error()));
  session_ = std::move(*made);
  return rank_welcome{self_.name, encode(self_.plane->local_announcement()), session_->inbox(),
                      self_.hardware->info().name, self_.metrics};
}

}  // namespace mooncaf
