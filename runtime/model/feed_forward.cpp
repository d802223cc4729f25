#include "runtime/model/feed_forward.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace mooncaf {

void feed_forward::run(const layer_weights& w, tensor x) {
  const auto& c = tools_.config();
  auto& queue = tools_.queue;
  for (std::size_t begin = 0; begin < x.rows; begin += ffn_tile_tokens) {
    const auto tile = rows_of(x, begin, std::min(ffn_tile_tokens, x.rows - begin));
    if (tools_.lora != nullptr) tools_.lora->begin_tile(begin);
    const auto h = tools_.scratch.h(tile.rows, c.dim);
    queue.rms_norm(tile, w.ffn_gain, c.rms_eps, h);
    if (w.router) {
      choose_experts(w, h);
      if (tools_.ranks.part().whole_experts) mix_divided(w, h, tile);
      else mix(w, h, tile);
      if (w.shared.gate) add_shared(w, h, tile);
      continue;
    }
    const auto projected = tools_.scratch.q(tile.rows, c.dim);
    through(w.ffn.front(), h, projected);
    if (w.ffn_post_gain != nullptr) queue.rms_norm(projected, w.ffn_post_gain, c.rms_eps, projected);
    queue.add(tile, projected);
  }
}

/// One feed-forward network, or one expert, of at most a tile of rows.
/// @param whole  the rank has all of it, not its share of the columns.
void feed_forward::through(const ffn_weights& w, tensor h, tensor out, bool whole) {
  const auto& c = tools_.config();
  auto& queue = tools_.queue;
  auto& ranks = tools_.ranks;
  const auto all = tools_.scratch.gate(h.rows, w.down->cols());
  const auto gate = whole ? all : ranks.own(all);
  const auto up = tools_.scratch.up(h.rows, w.up->rows());
  const std::array widen{linear_job{w.gate.get(), w.gate_bias, gate}, linear_job{w.up.get(), w.up_bias, up}};
  queue.linear(h, widen);
  tools_.adapt(lora_site::gate, h, gate);
  tools_.adapt(lora_site::up, h, up);
  if (c.glu_limit != 0) queue.clamped_swiglu(gate, up, c.glu_limit, gate);
  else if (c.gelu) queue.geglu(gate, up, gate);
  else queue.swiglu(gate, up, gate);
  if (!whole) ranks.gather(all);
  const std::array narrow{linear_job{w.down.get(), w.down_bias, whole ? out : ranks.own(out)}};
  queue.linear(all, narrow);
  if (!whole) ranks.gather(out);
  tools_.adapt(lora_site::down, all, out);
}

/// Which experts the rows of a tile go to; the router's scores are weighed on the host.
void feed_forward::choose_experts(const layer_weights& w, tensor h) {
  auto& queue = tools_.queue;
  auto& scratch = tools_.scratch;
  const auto scores = scratch.scores(h.rows);
  queue.linear_f32(h, {w.router.get(), w.router_bias, scores});
  const auto seen = std::span{scratch.seen_scores}.first(h.rows * tools_.config().n_experts);
  queue.download(scores.data, seen);
  if (w.shared_router) {
    const auto shares = scratch.shares(h.rows);
    queue.linear_f32(h, {w.shared_router.get(), nullptr, shares});
    scratch.seen_shares.resize(h.rows);
    queue.download(shares.data, scratch.seen_shares);
  }
  queue.synchronize();
  scratch.experts.choose(seen, tools_.config(), w.choice_bias);
}

/// x += the weighted sum of each row's best experts. Experts go one after the other, so that a row's sum has
/// the same order whatever rows are beside it. Adapters do not change experts.
void feed_forward::mix(const layer_weights& w, tensor h, tensor x) {
  const auto& experts = tools_.scratch.experts;
  for (std::uint32_t e = 0; e < tools_.config().n_experts; ++e) {
    const auto rows = experts.rows(e);
    if (rows.empty()) continue;
    const auto picked = tools_.scratch.picked(rows.size());
    const auto projected = tools_.scratch.q(rows.size(), x.cols);
    tools_.queue.gather(h, rows, picked);
    through(w.ffn[e], picked, projected);
    tools_.queue.scatter_add(projected, rows, experts.weights(e), x);
  }
}

/// The same with experts divided among ranks: what they made is gathered, and every rank adds all of it.
void feed_forward::mix_divided(const layer_weights& w, tensor h, tensor x) {
  const auto& experts = tools_.scratch.experts;
  const std::size_t count = tools_.config().n_experts;
  const auto mixed = tools_.scratch.mixed(experts.place(0, count).count);
  for (std::uint32_t e = 0; e < count; ++e) {
    const auto rows = experts.rows(e);
    if (rows.empty() || w.ffn[e].gate == nullptr) continue;
    const auto picked = tools_.scratch.picked(rows.size());
    tools_.queue.gather(h, rows, picked);
    through(w.ffn[e], picked, rows_of(mixed, experts.place(e).first, rows.size()), true);
  }
  std::vector<part_range> of;
  const auto ranks = tools_.ranks.part().of;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    const auto theirs = tensor_part{rank, ranks}.share(count);
    of.push_back(experts.place(theirs.first, theirs.count));
  }
  tools_.ranks.gather_rows(mixed, of);
  for (std::uint32_t e = 0; e < count; ++e)
    if (const auto rows = experts.rows(e); !rows.empty())
      tools_.queue.scatter_add(rows_of(mixed, experts.place(e).first, rows.size()), rows, experts.weights(e),
                               x);
}

/// x += the shared part of a mixture, weighted where the family does: by scores that `choose_experts` downloaded.
void feed_forward::add_shared(const layer_weights& w, tensor h, tensor x) {
  auto& scratch = tools_.scratch;
  const auto shared = scratch.q(h.rows, x.cols);
  through(w.shared, h, shared);
  if (!w.shared_router) return tools_.queue.add(x, shared);
  for (auto& share : scratch.seen_shares) share = 1 / (1 + std::exp(-share));
  tools_.queue.scatter_add(shared, std::span{scratch.tile_rows}.first(h.rows), scratch.seen_shares, x);
}

}  // namespace mooncaf
