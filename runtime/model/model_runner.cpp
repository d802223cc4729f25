#include "runtime/model/model_runner.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <string>
#include <utility>

#include "gpu/device_failure.hpp"

namespace mooncaf {

namespace {

// The feed-forward part works on this many tokens at a time: its activations are several times wider than the
// rest, and a tile of them stays in the cache between its three products. Rows are independent, so nothing
// else changes.
constexpr std::size_t ffn_tile_tokens = 512;

tensor rows_of(tensor t, std::size_t begin, std::size_t count) noexcept {
  return {t.row(begin), count, t.cols, t.stride};
}

std::string item_name(std::size_t index) { return "batch item " + std::to_string(index); }

void let_readers_go(std::span<const batch_item> items) {
  for (const auto& item : items)
    if (item.reader != nullptr) item.reader->let_go();
}

}  // namespace

model_runner::~model_runner() = default;

result<std::unique_ptr<model_runner>> model_runner::make(std::shared_ptr<const model> m, device& dev,
                                                         const runner_options& options) {
  const auto& c = m->config();
  if (options.max_batch_tokens == 0 || options.max_logit_rows == 0)
    return fail(ec::invalid_argument, "model runner: max_batch_tokens and max_logit_rows must be at least 1");
  auto shape = m->layout(options.layout.block_tokens, options.layout.dtype);
  // Only beside a device with memory of its own pages may be in another order.
  if (!dev.info().host_memory) shape.pages = options.layout.pages;
  if (options.layout.block_tokens == 0 || options.layout != shape)
    return fail(ec::invalid_argument, "model runner: KV layout is " + to_string(options.layout) +
                                          ", the model has " + to_string(shape));
  if (!dev.info().host_memory &&
      (!options.device_blocks || options.device_blocks->layout() != options.layout))
    return fail(ec::invalid_argument,
                "model runner: a device with memory of its own needs KV blocks of this layout");
  std::unique_ptr<model_runner> r(new model_runner);
  r->model_ = std::move(m);
  r->options_ = options;
  auto& longest = r->options_.context_tokens;
  longest = longest == 0 ? c.context_length : std::min(longest, c.context_length);
  r->logits_in_place_ = dev.info().host_memory;

  const std::size_t tokens = options.max_batch_tokens;
  const std::size_t wide = std::max({c.dim, c.q_dim(), c.latent.query_rank});
  const std::size_t tile = std::min(tokens, ffn_tile_tokens);
  std::size_t total = 0;
  const auto take = [&total](std::size_t floats) {
    constexpr std::size_t line = 16;  // floats of a cache line
    return std::exchange(total, total + (floats + line - 1) / line * line);
  };
  r->at_.x = take(tokens * c.dim);
  r->at_.h = take(tokens * wide);
  r->at_.q = take(tokens * wide);
  r->at_.k = take(tokens * c.kv_dim());
  r->at_.v = take(c.latent.rank == 0 ? tokens * c.kv_dim() : 0);
  if (const auto& l = c.latent; l.rank != 0) {
    r->at_.heads = take(tokens * c.n_heads * std::max(l.query_dim(), l.value_dim));
    r->each_head_.resize(tokens * c.n_heads);
    std::iota(r->each_head_.begin(), r->each_head_.end(), 0u);
  }
  r->at_.gate = take(tile * c.widest_ffn());
  r->at_.up = take(tile * c.widest_ffn());
  if (c.n_experts != 0) {
    r->at_.picked = take(tile * c.dim);
    r->at_.scores = take(tile * c.n_experts);
    r->scores_.resize(tile * c.n_experts);
    r->experts_.reserve(tile, c.n_experts, c.experts_per_token);
  }
  r->at_.last = take(std::size_t{options.max_logit_rows} * c.dim);
  r->at_.logits = r->logits_in_place_ ? total : take(std::size_t{options.max_logit_rows} * c.vocab_size);
  auto memory = dev.allocate(total * sizeof(float));
  if (!memory) return fail(std::move(memory.error()));
  r->memory_ = std::move(*memory);
  r->queue_ = dev.make_queue(options.priority);
  r->collector_ = dynamic_cast<work_collector*>(r->queue_.get());
  if (options.lora_rank != 0) {
    auto lora = lora_pass::make(dev, c, options.lora_rank);
    if (!lora) return fail(std::move(lora.error()));
    r->lora_ = std::move(*lora);
  }
  if (!dev.info().host_memory) {
    r->mirror_ = std::make_unique<kv_mirror>(dev, options.device_blocks);
    r->written_.resize(c.n_layers);
  }

  r->tokens_.reserve(tokens);
  r->positions_.reserve(tokens);
  r->seqs_.reserve(tokens);
  r->last_rows_.reserve(options.max_logit_rows);
  r->last_positions_.reserve(options.max_logit_rows);
  r->last_seqs_.reserve(options.max_logit_rows);
  return r;
}

tensor model_runner::view(std::size_t offset, std::size_t rows, std::size_t cols) const noexcept {
  return {memory_->data() + offset, rows, cols, cols};
}

result<void> model_runner::check(std::span<const batch_item> items, std::span<float> logits) const {
  const auto& c = model_->config();
  std::size_t tokens = 0, wanted = 0, rows = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const auto& item = items[i];
    if (item.tokens.empty()) return fail(ec::invalid_argument, item_name(i) + " has no tokens");
    if (item.adapter != nullptr && item.adapter->rank() > options_.lora_rank)
      return fail(ec::invalid_argument, item_name(i) + " names an adapter of rank " +
                                            std::to_string(item.adapter->rank()) + ", the runner takes " +
                                            std::to_string(options_.lora_rank));
    const std::size_t end = item.start + item.tokens.size();
    if (end > c.context_length)
      return fail(ec::invalid_argument, item_name(i) + " reaches position " + std::to_string(end) +
                                            ", the model's context has " + std::to_string(c.context_length));
    if (item.blocks.size() < options_.layout.blocks_for(end))
      return fail(ec::invalid_argument, item_name(i) + " has " + std::to_string(item.blocks.size()) +
                                            " KV blocks, " + std::to_string(options_.layout.blocks_for(end)) +
                                            " are needed for " + std::to_string(end) + " positions");
    for (const auto id : item.tokens)
      if (id < 0 || static_cast<std::uint32_t>(id) >= c.vocab_size)
        return fail(ec::invalid_argument, item_name(i) + " has token id " + std::to_string(id) +
                                              ", the vocabulary has " + std::to_string(c.vocab_size));
    tokens += item.tokens.size();
    wanted += item.want_logits ? 1 : 0;
    rows += item.needs_logits() ? 1 : 0;
    if (item.choose != nullptr && (item.want_logits || item.chosen == nullptr || !chooses()))
      return fail(ec::invalid_argument, item_name(i) + " has a choice that this pass does not make");
  }
  if (tokens == 0 || tokens > options_.max_batch_tokens)
    return fail(ec::invalid_argument, "a pass has " + std::to_string(tokens) + " tokens, 1 to " +
                                          std::to_string(options_.max_batch_tokens) + " are allowed");
  if (rows > options_.max_logit_rows)
    return fail(ec::invalid_argument, std::to_string(rows) + " items want logits, at most " +
                                          std::to_string(options_.max_logit_rows) + " may");
  if (logits.size() != wanted * c.vocab_size)
    return fail(ec::invalid_argument, "logits have room for " + std::to_string(logits.size()) + " values, " +
                                          std::to_string(wanted * c.vocab_size) + " are needed");
  return {};
}

/// The blocks of an item where the device computes; `blocks_` has room for those of all items.
std::span<const device_bytes> model_runner::blocks_of(std::span<const batch_item> items, std::size_t item) {
  if (mirror_) return mirror_->blocks(item);
  const auto end = items[item].start + items[item].tokens.size();
  const auto first = blocks_.size();
  for (auto* block : items[item].blocks.first(options_.layout.blocks_for(end))) blocks_.push_back({block});
  return std::span{blocks_}.subspan(first);
}

void model_runner::plan(std::span<const batch_item> items) {
  items_ = items;
  blocks_.clear();
  std::size_t blocks = 0;
  for (const auto& item : items) blocks += item.blocks.size();
  blocks_.reserve(mirror_ ? 0 : blocks);
  tokens_.clear();
  positions_.clear();
  seqs_.clear();
  last_rows_.clear();
  last_positions_.clear();
  last_seqs_.clear();
  every_row_ = false;
  if (lora_) lora_->plan(items);
  for (std::size_t i = 0; i < items.size(); ++i) {
    const auto& item = items[i];
    every_row_ |= item.each_row || item.each_hidden;
    const auto begin = static_cast<std::uint32_t>(tokens_.size());
    const auto count = static_cast<std::uint32_t>(item.tokens.size());
    const auto own = blocks_of(items, i);
    tokens_.insert(tokens_.end(), item.tokens.begin(), item.tokens.end());
    for (std::uint32_t t = 0; t < count; ++t) positions_.push_back(static_cast<std::int32_t>(item.start + t));
    seqs_.push_back({begin, count, item.start + count, own});
    if (!item.needs_logits()) continue;
    last_seqs_.push_back({static_cast<std::uint32_t>(last_rows_.size()), 1, item.start + count, own});
    last_rows_.push_back(begin + count - 1);
    last_positions_.push_back(static_cast<std::int32_t>(item.start + count - 1));
  }
}

result<void> model_runner::forward(std::span<const batch_item> items, std::span<float> logits,
                                   const layer_done_fn& done, const std::atomic<bool>* cancel,
                                   const before_layer_fn& before) {
  if (auto fine = check(items, logits); !fine) return fine;
  if (!mirror_) return pass(items, logits, done, cancel, before);
  try {
    return mirrored(items, logits, done, cancel, before);
  } catch (const device_failure&) {
    // What the device can still do may write to the host's blocks; and others wait for its own.
    try {
      queue_->synchronize();
    } catch (const device_failure&) {
    }
    let_readers_go(items);
    mirror_->abandon();
    throw;
  }
}

result<void> model_runner::mirrored(std::span<const batch_item> items, std::span<float> logits,
                                    const layer_done_fn& done, const std::atomic<bool>* cancel,
                                    const before_layer_fn& before) {
  // Items whose contexts do not fit into the device together are computed one part after the other: no bit
  // depends on what shares a pass.
  while (!items.empty()) {
    const auto part = items.first(mirror_->begin(items));
    if (part.empty())
      return fail(ec::invalid_argument,
                  "a context of " + std::to_string(items.front().start + items.front().tokens.size()) +
                      " tokens does not fit into the device's KV memory");
    const auto wanted = static_cast<std::size_t>(std::ranges::count(part, true, &batch_item::want_logits));
    const auto own = logits.first(wanted * vocab_size());
    items = items.subspan(part.size());
    logits = logits.subspan(own.size());
    auto computed = pass(part, own, items.empty() ? done : layer_done_fn{}, cancel, before);
    let_readers_go(part);
    mirror_->end(computed.has_value());
    if (!computed) return computed;
  }
  return {};
}

result<void> model_runner::pass(std::span<const batch_item> items, std::span<float> logits,
                                const layer_done_fn& done, const std::atomic<bool>* cancel,
                                const before_layer_fn& before) {
  plan(items);
  step_ = collector_ != nullptr && mirror_ && !done && !cancel && !before && tokens_.size() == items.size();
  auto computed = step_ ? (run_step(), result<void>{}) : run_layers(done, cancel, before);
  const device_turn turn(*queue_);
  for (std::size_t i = 0; computed && every_row_ && i < items.size(); ++i)
    if (items[i].each_row || items[i].each_hidden) show_rows(items[i], seqs_[i].q_begin);
  if (computed && !last_rows_.empty()) write_logits(items, logits);
  if (computed && checks()) checksum_blocks(items);
  // Also after an error: the caller may reuse the blocks, so nothing may still be writing to them.
  queue_->synchronize();
  return computed;
}

result<void> model_runner::run_layers(const layer_done_fn& done, const std::atomic<bool>* cancel,
                                      const before_layer_fn& before) {
  const auto& c = model_->config();
  for (std::uint32_t layer = 0; layer < c.n_layers; ++layer) {
    if (cancel != nullptr && cancel->load(std::memory_order_relaxed))
      return fail(ec::cancelled, "before layer " + std::to_string(layer));
    if (auto ready = fetch_layer(layer, before); !ready) return ready;
    {
      const device_turn turn(*queue_);
      if (layer == 0) begin_tokens();
      run_layer(layer, done);
    }
    if (!mirror_ || layer == 0) continue;
    // No more than a layer ahead of the device, so that a cancelled pass ends soon.
    wait_for(written_[layer - 1]);
    tell_readers(layer - 1);
    tell_stored(layer, done, false);
  }
  if (mirror_) tell_readers(c.n_layers - 1), tell_stored(c.n_layers, done, true);
  return {};
}

/// A step of decoding is many small operations, the same ones for every batch of its size: they go to the
/// device together, and so do its rows to the host's blocks, behind them.
void model_runner::run_step() {
  mirror_->load_all();
  const device_turn turn(*queue_);
  queue_->wait(mirror_->loaded(model_->config().n_layers - 1));
  collector_->collect();
  begin_tokens();
  for (std::uint32_t layer = 0; layer < model_->config().n_layers; ++layer) run_layer(layer, {});
  collector_->hand_over();
  mirror_->store_all(queue_->record());
}

void model_runner::begin_tokens() {
  const auto& c = model_->config();
  const auto x = view(at_.x, tokens_.size(), c.dim);
  queue_->embed(model_->embedding(), tokens_, x);
  if (c.embedding_scale != 1) queue_->scale(x, c.embedding_scale);
}

/// Before `layer` reads KV: what it reads is in the host's blocks, and will be in the device's.
result<void> model_runner::fetch_layer(std::uint32_t layer, const before_layer_fn& before) {
  if (layer == 0) told_ = 0;
  if (before)
    if (auto ready = before(layer); !ready) return ready;
  if (!mirror_) return {};
  if (before) mirror_->load(layer);
  else mirror_->load_all();
  queue_->wait(mirror_->loaded(layer));
  return {};
}

/// Calls `done` for those of the first `layers` that were written back since the last call.
void model_runner::tell_stored(std::uint32_t layers, const layer_done_fn& done, bool wait) {
  for (; done && told_ < layers; ++told_) {
    if (wait) wait_for(mirror_->stored(told_));
    else if (!is_reached(mirror_->stored(told_))) return;
    done(told_);
  }
}

/// Hands the items' KV of `layer` to those who take it from the device.
void model_runner::tell_readers(std::uint32_t layer) {
  for (std::size_t i = 0; i < items_.size(); ++i) {
    const auto& item = items_[i];
    if (item.reader == nullptr) continue;
    wait_for(written_[layer]);
    item.reader->on_device(layer, item.start, static_cast<std::uint32_t>(item.tokens.size()),
                           mirror_->blocks(i));
  }
}

void model_runner::run_layer(std::uint32_t layer, const layer_done_fn& done) {
  const auto& c = model_->config();
  const auto& w = model_->layer(layer);
  const std::size_t n = tokens_.size();
  const auto x = view(at_.x, n, c.dim);
  const auto h = view(at_.h, n, c.dim);
  // Behind the last layer's KV only the rows that become logits matter; a chunk in the middle of a prompt has
  // none.
  const bool narrow = layer + 1 == c.n_layers && last_rows_.size() < n && !every_row_;
  if (lora_) lora_->begin_layer(layer);
  queue_->rms_norm(x, w.attention_gain, c.rms_eps, h);
  if (c.latent.rank != 0) {
    const std::array rows{linear_job{w.k.get(), nullptr, view(at_.k, n, c.kv_dim())}};
    queue_->linear(h, rows);
    if (!narrow) latent_queries(w, h);
  } else {
    const std::array jobs{linear_job{w.k.get(), w.k_bias, view(at_.k, n, c.kv_dim())},
                          linear_job{w.v.get(), w.v_bias, view(at_.v, n, c.kv_dim())},
                          linear_job{w.q.get(), w.q_bias, view(at_.q, n, c.q_dim())}};
    queue_->linear(h, std::span{jobs}.first(narrow ? 2 : 3));
    adapt(lora_site::k, h, jobs[0].out);
    adapt(lora_site::v, h, jobs[1].out);
    if (!narrow) adapt(lora_site::q, h, jobs[2].out);
  }
  write_kv(layer, done);
  if (!narrow) {
    const auto projected = view(at_.q, n, c.dim);
    attend(layer, seqs_, positions_, projected);
    join(x, projected, w.attention_post_gain);
    feed_forward(w, x);
    return;
  }
  if (last_rows_.empty()) return;
  if (lora_) lora_->narrow();
  const auto last = view(at_.last, last_rows_.size(), c.dim);
  const auto last_h = view(at_.h, last_rows_.size(), c.dim);
  for (std::size_t i = 0; i < last_rows_.size(); ++i)
    queue_->rms_norm(rows_of(x, last_rows_[i], 1), w.attention_gain, c.rms_eps, rows_of(last_h, i, 1));
  const std::array query{linear_job{w.q.get(), w.q_bias, view(at_.q, last_rows_.size(), c.q_dim())}};
  if (c.latent.rank != 0) latent_queries(w, last_h);
  else queue_->linear(last_h, query);
  adapt(lora_site::q, last_h, query[0].out);
  attend(layer, last_seqs_, last_positions_, last);
  if (w.attention_post_gain != nullptr) queue_->rms_norm(last, w.attention_post_gain, c.rms_eps, last);
  for (std::size_t i = 0; i < last_rows_.size(); ++i)
    queue_->add(rows_of(last, i, 1), rows_of(x, last_rows_[i], 1));
  feed_forward(w, last);
}

/// Finishes the keys of all tokens and writes them and the values into the blocks.
void model_runner::write_kv(std::uint32_t layer, const layer_done_fn& done) {
  const auto& c = model_->config();
  const auto k = view(at_.k, tokens_.size(), c.kv_dim());
  if (c.qk_norm) queue_->rms_norm_heads(k, c.n_kv_heads, c.head_dim, model_->layer(layer).k_gain, c.rms_eps);
  if (c.latent.rank != 0) finish_latents(model_->layer(layer), k);
  else
    queue_->rope(k, c.n_kv_heads, c.head_dim, positions_,
                 {c.inv_freq(layer), c.rope_neox, c.rope_attention_scale});
  queue_->kv_write(options_.layout, layer, k,
                   c.latent.rank != 0 ? k : view(at_.v, tokens_.size(), c.kv_dim()), seqs_);
  if (step_) return;
  if (mirror_) {
    written_[layer] = queue_->record();
    return mirror_->store(layer, written_[layer]);
  }
  if (!done) return;
  queue_->synchronize();
  done(layer);
}

/// Finishes the queries, attends over the blocks, and writes the output projection to `projected`.
void model_runner::attend(std::uint32_t layer, std::span<const attention_seq> seqs,
                          std::span<const std::int32_t> positions, tensor projected) {
  const auto& c = model_->config();
  const auto& w = model_->layer(layer);
  if (c.latent.rank != 0) return attend_latents(layer, seqs, positions, projected);
  const auto q = view(at_.q, projected.rows, c.q_dim());
  if (c.qk_norm) queue_->rms_norm_heads(q, c.n_heads, c.head_dim, w.q_gain, c.rms_eps);
  queue_->rope(q, c.n_heads, c.head_dim, positions, {c.inv_freq(layer), c.rope_neox, c.rope_attention_scale});
  const auto attended = view(at_.h, projected.rows, c.q_dim());
  queue_->paged_attention(options_.layout, layer,
                          {c.n_heads, c.score_scale(), c.window(layer), c.attention_softcap, w.sinks}, q,
                          seqs, attended);
  const std::array out{linear_job{w.attention_out.get(), w.attention_out_bias, projected}};
  queue_->linear(attended, out);
  adapt(lora_site::attention_out, attended, projected);
}

/// Adds what attention or the feed-forward part came to, normed first where the family does.
void model_runner::join(tensor x, tensor part, const float* post_gain) {
  if (post_gain != nullptr) queue_->rms_norm(part, post_gain, model_->config().rms_eps, part);
  queue_->add(x, part);
}

/// x += down(act(gate(norm(x))) · up(norm(x))), tile by tile.
void model_runner::feed_forward(const layer_weights& w, tensor x) {
  const auto& c = model_->config();
  for (std::size_t begin = 0; begin < x.rows; begin += ffn_tile_tokens) {
    const auto part = rows_of(x, begin, std::min(ffn_tile_tokens, x.rows - begin));
    if (lora_) lora_->begin_tile(begin);
    const auto h = view(at_.h, part.rows, c.dim);
    queue_->rms_norm(part, w.ffn_gain, c.rms_eps, h);
    if (w.router) {
      mix_experts(w, h, part);
      if (!w.shared.gate) continue;
      const auto shared = view(at_.q, part.rows, c.dim);
      through(w.shared, h, shared);
      queue_->add(part, shared);
      continue;
    }
    const auto projected = view(at_.q, part.rows, c.dim);
    through(w.ffn.front(), h, projected);
    join(part, projected, w.ffn_post_gain);
  }
}

/// One feed-forward part, or one expert, of at most a tile of rows.
void model_runner::through(const ffn_weights& w, tensor h, tensor out) {
  const auto& c = model_->config();
  const auto gate = view(at_.gate, h.rows, w.gate->rows());
  const auto up = view(at_.up, h.rows, w.up->rows());
  const std::array widen{linear_job{w.gate.get(), w.gate_bias, gate}, linear_job{w.up.get(), w.up_bias, up}};
  queue_->linear(h, widen);
  adapt(lora_site::gate, h, gate);
  adapt(lora_site::up, h, up);
  if (c.glu_limit != 0) queue_->clamped_swiglu(gate, up, c.glu_limit, gate);
  else if (c.gelu) queue_->geglu(gate, up, gate);
  else queue_->swiglu(gate, up, gate);
  const std::array narrow{linear_job{w.down.get(), w.down_bias, out}};
  queue_->linear(gate, narrow);
  adapt(lora_site::down, gate, out);
}

/// out += what the rows' adapters add to a product with x. Those of a mixture's experts they leave alone.
void model_runner::adapt(lora_site site, tensor x, tensor out) {
  if (lora_) lora_->add(*queue_, site, x, out);
}

/// x += the weighted sum of each row's best experts. Experts go one after the other, so that a row's sum has
/// the same order whatever rows are beside it.
void model_runner::mix_experts(const layer_weights& w, tensor h, tensor x) {
  const auto& c = model_->config();
  const auto scores = view(at_.scores, h.rows, c.n_experts);
  const std::array route{linear_job{w.router.get(), w.router_bias, scores}};
  queue_->linear(h, route);
  const auto shown = std::span{scores_}.first(h.rows * c.n_experts);
  queue_->download(scores.data, shown);
  queue_->synchronize();
  experts_.choose(shown, c, w.choice_bias);
  for (std::uint32_t e = 0; e < c.n_experts; ++e) {
    const auto rows = experts_.rows(e);
    if (rows.empty()) continue;
    const auto picked = view(at_.picked, rows.size(), c.dim);
    const auto projected = view(at_.q, rows.size(), c.dim);
    queue_->gather(h, rows, picked);
    through(w.ffn[e], picked, projected);
    queue_->scatter_add(projected, rows, experts_.weights(e), x);
  }
}

}  // namespace mooncaf
