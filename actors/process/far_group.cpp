#include "actors/process/far_group.hpp"

#include <algorithm>
#include <caf/scoped_actor.hpp>
#include <chrono>
#include <random>
#include <thread>

#include "actors/cluster/wire.hpp"
#include "actors/prefill_options.hpp"
#include "actors/process/model_extras.hpp"
#include "runtime/compute/tensor_pass.hpp"
#include "runtime/log/log.hpp"
#include "runtime/model/model_config.hpp"

namespace mooncaf {

namespace {

constexpr auto greet_limit = std::chrono::seconds(30);  ///< a rank makes its memory ready meanwhile
constexpr auto dial_interval = std::chrono::milliseconds(100);
constexpr auto tell_interval = std::chrono::seconds(2);

}  // namespace

std::string rank_text(const layer_range& layers, const tensor_part& part) {
  auto text = to_string(layers);
  if (!part.whole()) text += ", rank " + std::to_string(part.rank + 1) + " of " + std::to_string(part.of);
  if (part.whole_experts) text += " with whole experts";
  return text;
}

// All are greeted before any is told of the others: a rank has memory for their columns by then.
result<std::vector<rank_status>> far_group::find(const surroundings& around) {
  const auto& o = around.context.opts;
  std::vector<rank_status> found;
  if (o.cluster.ranks.empty()) return found;
  tensor_ = o.model.tensor;
  if (tensor_ > 1) {
    auto own = far_exchange::make(*around.context.plane, around.context.transfer_ids, *notices_, {0, tensor_},
                                  far_exchange::widest_row(around.context.shape));
    if (!own) return fail(std::move(own.error()));
    own_ = std::move(*own);
  }
  std::vector<met> ranks;
  for (std::uint32_t i = 0; i < o.cluster.ranks.size(); ++i) {
    const auto where = to_string(o.cluster.ranks[i]);
    const auto named = [&](const error& why) {
      return fail(why.code, "ranks: " + where + ": " + why.detail);
    };
    const auto handle = dial(around, i);
    if (!handle) return named(handle.error());
    auto answer = greet(around, *handle, i);
    if (!answer) return named(answer.error());
    const auto& place = links_.back()->place();
    const auto layers = rank_text(place.layers, place.part);
    log_info("rank", {{"at", where}, {"name", place.name}, {"layers", layers}});
    found.push_back({place.name, where, layers, answer->welcome.device, answer->welcome.metrics});
    ranks.push_back(std::move(*answer));
  }
  for (std::uint32_t stage = 0; tensor_ > 1 && stage * tensor_ < ranks.size() + 1; ++stage) {
    const auto first = std::size_t{stage} * tensor_;
    const auto count = std::min<std::size_t>(tensor_, ranks.size() - first);
    if (auto joined = join_all(around, std::span{ranks}.subspan(first, count), stage); !joined)
      return fail(std::move(joined.error()));
  }
  return found;
}

result<rank_actor> far_group::dial(const surroundings& around, std::uint32_t index) const {
  const auto& c = around.context.opts.cluster;
  const auto& where = c.ranks[index];
  const auto began = clock_type::now();
  for (auto told = began;;) {
    auto found = around.link.dial<rank_actor>(where.host, where.port);
    const auto now = clock_type::now();
    if (found || found.error() != ec::peer_lost || now - began > c.ranks_wait) return found;
    if (now - told > tell_interval) {
      told = now;
      log_info("rank", {{"waits for", to_string(where)}, {"reason", to_string(found.error())}});
    }
    std::this_thread::sleep_for(dial_interval);
  }
}

/// The leader's own seat, the first of the last stage, is skipped.
far_group::seat far_group::seat_of(const node_context& context, std::uint32_t index) const {
  const auto all = static_cast<std::uint32_t>(context.opts.cluster.ranks.size()) + 1;
  const auto at = index < all - tensor_ ? index : index + 1;
  return {at / tensor_, all / tensor_, {at % tensor_, tensor_, context.opts.model.expert > 1}};
}

rank_place far_group::place_of(const node_context& context, std::uint32_t index) const {
  const auto seat = seat_of(context, index);
  rank_place place;
  place.layers = stage_layers(context.shape.n_layers, seat.stages, seat.stage);
  place.part = seat.part;
  place.layout = context.layout;
  place.layout.n_layers = place.layers.count;
  if (!place.part.whole()) place.layout = layout_of_share(place.layout, place.part);
  place.dim = context.shape.dim;
  return place;
}

rank_greeting far_group::greeting(const surroundings& around, std::uint32_t index) const {
  const auto& context = around.context;
  const auto& o = context.opts;
  const auto seat = seat_of(context, index);
  const auto budget = o.prefill.max_batch_tokens;
  rank_greeting mine;
  mine.name = context.name;
  mine.fingerprint = cluster_identity(context);
  mine.model = around.model;
  mine.stage = seat.stage + 1;
  mine.stages = seat.stages;
  mine.rank = seat.part.rank + 1;
  mine.ranks = seat.part.of;
  mine.whole_experts = seat.part.whole_experts;
  mine.max_batch_tokens =
      std::max(o.cluster.prefill ? budget : 0u, o.cluster.decode ? o.decode.max_batch : 0u);
  mine.max_logit_rows =
      std::max(o.cluster.prefill ? prompts_per_step(budget) : 0u, o.cluster.decode ? o.decode.max_batch : 0u);
  mine.context_tokens = o.model.context_length == 0 ? context.shape.context_length : o.model.context_length;
  mine.widest_row = far_exchange::widest_row(context.shape);
  return mine;
}

/// Each side learns of the other's memory: the rank first, which then makes its own ready.
result<far_group::met> far_group::greet(const surroundings& around, const rank_actor& rank,
                                        std::uint32_t index) {
  const auto& context = around.context;
  auto mine = greeting(around, index);
  auto place = place_of(context, index);
  place.inbox.length = rank_link::call_bytes(mine.max_batch_tokens, context.shape.dim);
  auto link =
      rank_link::make(*context.plane, context.transfer_ids, *notices_, context.memory->bytes(), place);
  if (!link) return fail(std::move(link.error()));
  mine.data_plane = encode(context.plane->local_announcement());
  mine.pages = context.region.id;
  mine.replies = (*link)->replies();
  result<rank_welcome> answer = fail(ec::internal);
  caf::scoped_actor self{around.system};
  self->request(rank, greet_limit, hello_atom_v, std::move(mine))
      .receive([&](const rank_welcome& w) { answer = w; },
               [&](const caf::error& why) { answer = fail(from_caf(why)); });
  if (!answer) return fail(std::move(answer.error()));
  auto theirs = decode_announcement(answer->data_plane);
  if (!theirs) return fail(std::move(theirs.error()));
  const auto inbox = std::ranges::find(theirs->regions, answer->inbox, &region_desc::id);
  if (inbox == theirs->regions.end() || inbox->length < place.inbox.length)
    return fail(ec::incompatible, "it offers no memory for calls");
  if (auto known = context.plane->add_peer(theirs->address, theirs->regions); !known)
    return fail(std::move(known.error()));
  (*link)->found(answer->name, theirs->address.node, *inbox);
  links_.push_back(std::move(*link));
  rank->attach_functor([lost = around.lost, name = answer->name, ends = ends_](const caf::error&) {
    if (!*ends) lost(name);
  });
  return met{rank, std::move(*answer)};
}

result<void> far_group::join_all(const surroundings& around, std::span<const met> ranks,
                                 std::uint32_t stage) {
  const auto& context = around.context;
  const bool own = ranks.size() < tensor_;  // the last stage, whose first rank is here
  rank_group group;
  group.number = std::random_device{}();
  if (own) group.ranks.push_back({0, encode(context.plane->local_announcement()), own_->slots()});
  for (const auto& one : ranks)
    group.ranks.push_back(
        {static_cast<std::uint32_t>(group.ranks.size()), one.welcome.data_plane, one.welcome.slots});
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    result<void> joined;
    caf::scoped_actor self{around.system};
    self->request(ranks[i].handle, greet_limit, join_atom_v, group)
        .receive([] {}, [&](const caf::error& why) { joined = fail(from_caf(why)); });
    if (!joined)
      return fail(joined.error().code, "ranks: " + ranks[i].welcome.name + ": " + joined.error().detail);
  }
  exchanges_.resize(stage + 1);
  if (!own) exchanges_[stage] = std::make_shared<elsewhere>();
  else exchanges_[stage] = own_;
  return own ? join(*context.plane, *own_, group) : result<void>{};
}

result<std::vector<std::unique_ptr<pass_stage>>> far_group::stages(const node_context& context,
                                                                   const make_own& own) const {
  std::vector<std::unique_ptr<pass_stage>> ranks, made;
  for (const auto& link : links_) ranks.push_back(std::make_unique<remote_stage>(link));
  auto here = own(own_);
  if (!here) return fail(here.error());
  ranks.insert(ranks.end() - (tensor_ - 1), std::move(*here));
  if (tensor_ == 1) return ranks;
  for (auto rest = std::span{ranks}; !rest.empty(); rest = rest.subspan(tensor_)) {
    auto whole = context.layout;
    whole.n_layers = rest.front()->layers().count;
    std::vector<std::unique_ptr<pass_stage>> share(std::make_move_iterator(rest.begin()),
                                                   std::make_move_iterator(rest.begin() + tensor_));
    auto stage =
        tensor_pass::make(std::move(share), exchanges_[made.size()], whole, context.shape.vocab_size);
    if (!stage) return fail(stage.error());
    made.push_back(std::move(*stage));
  }
  return made;
}

void far_group::close() {
  for (const auto& link : links_) link->close();
  links_.clear();
  exchanges_.clear();
  if (own_) own_->close();
}

}  // namespace mooncaf
