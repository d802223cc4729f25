#include "runtime/model/model_runner.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "gpu/device_failure.hpp"

namespace mooncaf {

namespace {

std::string item_name(std::size_t index) { return "batch item " + std::to_string(index); }

/// A turn of all ranks of a tensor group: the others take theirs once the first one has its own, so that two passes of a
/// group never wait for each other's.
class group_turn {
 public:
  /// @throws device_failure, as `rank_exchange::goes_on`
  group_turn(compute_queue& queue, rank_exchange* exchange) : queue_(queue) {
    const bool first = exchange == nullptr || exchange->part().rank == 0;
    taken_ = first || exchange->goes_on(true);
    if (!taken_) return;
    queue_.begin_turn();
    if (first && exchange != nullptr) exchange->goes_on(true);
  }
  ~group_turn() {
    if (taken_) queue_.end_turn();
  }
  group_turn(const group_turn&) = delete;
  group_turn& operator=(const group_turn&) = delete;

  /// False: the first rank has ended the pass.
  explicit operator bool() const noexcept { return taken_; }

 private:
  compute_queue& queue_;
  bool taken_ = false;
};

void let_readers_go(std::span<const batch_item> items) {
  for (const auto& item : items)
    if (item.reader != nullptr) item.reader->let_go();
}

}  // namespace

model_runner::~model_runner() = default;

// All that can be refused is refused before the first allocation on the device.
result<std::unique_ptr<model_runner>> model_runner::make(std::shared_ptr<const model> m, device& dev,
                                                         const runner_options& options) {
  const auto& c = m->config();
  if (options.max_batch_tokens == 0 || options.max_logit_rows == 0)
    return fail(ec::invalid_argument, "model runner: max_batch_tokens and max_logit_rows must be at least 1");
  auto shape = m->layout(options.layout.block_tokens, options.layout.dtype);
  // Only beside a device with memory of its own pages may be in another order.
  if (!dev.info().host_memory) shape.pages = options.layout.pages;
  shape.block_heads = options.layout.block_heads;
  if (!(options.exchange ? options.exchange->part() : tensor_part{}).same_seat(m->share()))
    return fail(ec::invalid_argument, "model runner: a share of a model needs a tensor group's other ranks");
  if (options.exchange && options.lora_rank != 0)
    return fail(ec::invalid_argument, "model runner: ranks of a tensor group take no adapters");
  if (options.layout.block_tokens == 0 || options.layout != shape)
    return fail(ec::invalid_argument, "model runner: KV layout is " + to_string(options.layout) +
                                          ", the model has " + to_string(shape));
  if (!dev.info().host_memory &&
      (!options.device_blocks || options.device_blocks->layout() != options.layout.compact()))
    return fail(ec::invalid_argument,
                "model runner: a device with memory of its own needs KV blocks of this layout");
  std::unique_ptr<model_runner> r(new model_runner);
  r->model_ = std::move(m);
  r->options_ = options;
  r->blocks_ = options.layout;
  auto& longest = r->options_.context_tokens;
  longest = longest == 0 ? c.context_length : std::min(longest, c.context_length);
  r->logits_in_place_ = dev.info().host_memory;

  auto scratch = pass_scratch::make(
      dev, c,
      {options.max_batch_tokens, options.max_logit_rows, !r->logits_in_place_ && r->model_->makes_logits(),
       r->model_->share().of, r->model_->share().whole_experts});
  if (!scratch) return fail(std::move(scratch.error()));
  r->scratch_ = std::move(*scratch);
  r->queue_ = dev.make_queue(options.priority);
  r->collector_ = dynamic_cast<work_collector*>(r->queue_.get());
  if (options.lora_rank != 0) {
    auto lora = lora_pass::make(dev, c, options.lora_rank);
    if (!lora) return fail(std::move(lora.error()));
    r->lora_ = std::move(*lora);
  }
  if (!dev.info().host_memory) {
    r->mirror_ = std::make_unique<kv_mirror>(dev, options.device_blocks, options.layout, r->writes_blocks());
    r->blocks_ = options.layout.compact();
    r->written_.resize(c.n_layers);
  }

  r->plan_.reserve(options.max_batch_tokens, options.max_logit_rows);
  r->ranks_.emplace(*r->queue_, r->model_->share(), options.exchange, r->scratch_->swapped);
  const pass_tools tools{*r->model_, *r->queue_, *r->scratch_, *r->ranks_, r->lora_.get()};
  r->attention_ = attention::make(tools, r->blocks_, r->plan_);
  r->feed_forward_.emplace(tools);
  const auto shown = std::min<std::size_t>(rows_shown_at_once, options.max_batch_tokens);
  r->results_.emplace(tools, pass_results::settings{r->logits_in_place_, shown, options.layout}, r->plan_);
  return r;
}

// Everything is checked before the first write: a refused batch leaves the blocks of its items as they were.
result<void> model_runner::check(const stage_work& work) const {
  const auto& c = model_->config();
  const auto& items = work.items;
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
  if (work.from.size() != (model_->embeds() ? 0 : tokens * c.dim) ||
      work.to.size() != (model_->makes_logits() ? 0 : tokens * c.dim) ||
      (rows != 0 && !model_->makes_logits()))
    return fail(ec::invalid_argument, "a pass of layers " + std::to_string(layers().first) + " to " +
                                          std::to_string(layers().end()) +
                                          " gets, leaves or chooses what other layers do");
  if (work.logits.size() != wanted * c.vocab_size)
    return fail(ec::invalid_argument, "logits have room for " + std::to_string(work.logits.size()) +
                                          " values, " + std::to_string(wanted * c.vocab_size) +
                                          " are needed");
  return {};
}

result<void> model_runner::forward(std::span<const batch_item> items, std::span<float> logits,
                                   const layer_done_fn& done, const std::atomic<bool>* cancel,
                                   const before_layer_fn& before) {
  return run({items, {}, {}, logits, done, cancel, before});
}

/// Of ranks that have the same heads one writes them to the host's blocks.
bool model_runner::writes_blocks() const noexcept {
  const auto heads = options_.layout.block_heads;
  return heads == 0 || part().writes_kv(heads);
}

result<void> model_runner::run(const stage_work& work) {
  auto fine = check(work);
  if (!options_.exchange && !fine) return fine;
  if (!options_.exchange && !mirror_) return pass(work);
  try {
    return in_parts(work, fine);
  } catch (const device_failure&) {
    // A failed device may still write to the host's blocks, and other runners wait for the device's blocks.
    try {
      queue_->synchronize();
    } catch (const device_failure&) {
    }
    let_readers_go(work.items);
    if (mirror_) mirror_->abandon();
    throw;
  }
}

/// How many leading items are computed together: what fits into the device, and into those of the group's other ranks.
/// None: they refuse.
std::size_t model_runner::begin_part(std::span<const batch_item> items) {
  auto fit = mirror_ && !items.empty() ? mirror_->begin(items) : items.size();
  if (!options_.exchange) return fit;
  const auto agreed = least_of(*options_.exchange, fit);
  if (!mirror_ || agreed == fit) return agreed;
  mirror_->end(false);
  return agreed == 0 ? 0 : mirror_->begin(items.first(agreed));
}

/// @param fine  that the work was checked. A rank that refuses it tells the others, which have not begun then.
result<void> model_runner::in_parts(stage_work work, const result<void>& fine) {
  // Items whose contexts do not fit into the device together are computed one part after the other: no bit
  // depends on what shares a pass.
  const auto take = [](auto& of, std::size_t count) {
    const auto part = of.first(of.empty() ? 0 : count);
    of = of.subspan(part.size());
    return part;
  };
  while (!work.items.empty()) {
    auto part = work;
    part.items = take(work.items, begin_part(fine ? work.items : std::span<const batch_item>{}));
    if (!fine) return fine;
    if (part.items.empty())
      return fail(ec::invalid_argument,
                  "a context of " +
                      std::to_string(work.items.front().start + work.items.front().tokens.size()) +
                      " tokens does not fit into the KV memory of the device, or another rank's");
    std::size_t rows = 0, wanted = 0;
    for (const auto& item : part.items) rows += item.tokens.size(), wanted += item.want_logits ? 1 : 0;
    part.from = take(work.from, rows * model_->config().dim);
    part.to = take(work.to, rows * model_->config().dim);
    part.logits = take(work.logits, wanted * vocab_size());
    if (!work.items.empty()) part.done = {};
    auto computed = pass(part);
    let_readers_go(part.items);
    if (mirror_) mirror_->end(computed.has_value());
    if (!computed) return computed;
  }
  return {};
}

result<void> model_runner::pass(const stage_work& work) {
  const auto& items = work.items;
  plan_.begin(items, options_.layout.block_tokens, mirror_.get());
  if (lora_) lora_->plan(items);
  const bool whole = work.from.empty() && work.to.empty();
  step_ = collector_ != nullptr && !options_.exchange && mirror_ && whole && !work.done && !work.cancel &&
          !work.before && plan_.tokens.size() == items.size();
  auto computed = step_ ? (run_step(), result<void>{}) : run_layers(work);
  // All ranks of a group agree on whether a pass was computed.
  const group_turn turn(*queue_, computed ? options_.exchange.get() : nullptr);
  if (computed && !work.to.empty()) queue_->download(scratch_->x(plan_.tokens.size()).data, work.to);
  if (computed) results_->show_rows();
  if (computed && !plan_.last_rows.empty()) results_->write_logits(work.logits);
  if (computed && checks()) results_->checksum_blocks();
  // Also after an error: the caller may reuse the blocks, so nothing may still be writing to them.
  queue_->synchronize();
  return computed;
}

result<void> model_runner::run_layers(const stage_work& work) {
  const auto count = layers().count;
  for (std::uint32_t layer = 0; layer < count; ++layer) {
    const bool ends = work.cancel != nullptr && work.cancel->load(std::memory_order_relaxed);
    auto ready = ends ? fail(ec::cancelled, "before layer " + std::to_string(layers().first + layer))
                      : fetch_layer(layer, work.before);
    if (!ready) {
      if (options_.exchange && part().rank == 0) options_.exchange->goes_on(false);
      return ready;
    }
    {
      const group_turn turn(*queue_, options_.exchange.get());
      if (!turn) return fail(ec::cancelled, "by the first rank of the group");
      if (layer == 0) begin_tokens(work.from);
      run_layer(layer, work.done);
    }
    if (!mirror_ || layer == 0) continue;
    // No more than a layer ahead of the device, so that a cancelled pass ends soon.
    wait_for(written_[layer - 1]);
    tell_readers(layer - 1);
    tell_stored(layer, work.done, false);
  }
  if (mirror_) tell_readers(count - 1), tell_stored(count, work.done, true);
  return {};
}

/// A step of decoding is many small operations, the same ones for every batch of its size: they go to the
/// device together, and so do its rows to the host's blocks, behind them.
void model_runner::run_step() {
  mirror_->load_all();
  const device_turn turn(*queue_);
  queue_->wait(mirror_->loaded(model_->config().n_layers - 1));
  collector_->collect();
  begin_tokens({});
  for (std::uint32_t layer = 0; layer < model_->config().n_layers; ++layer) run_layer(layer, {});
  collector_->hand_over();
  mirror_->store_all(queue_->record());
}

void model_runner::begin_tokens(std::span<const float> from) {
  const auto& c = model_->config();
  const auto x = scratch_->x(plan_.tokens.size());
  if (!model_->embeds()) return queue_->upload(from, x.data);
  queue_->embed(model_->embedding(), plan_.tokens, x);
  if (c.embedding_scale != 1) queue_->scale(x, c.embedding_scale);
}

/// Waits until the prefix of `layer` is in the host's blocks, and has the queue wait until the device has it.
result<void> model_runner::fetch_layer(std::uint32_t layer, const before_layer_fn& before) {
  if (layer == 0) told_ = 0;
  if (before)
    if (auto ready = before(layers().first + layer); !ready) return ready;
  if (!mirror_) return {};
  if (before) mirror_->load(layer);
  else mirror_->load_all();
  queue_->wait(mirror_->loaded(layer));
  return {};
}

/// Calls `done` for each of the first `layers` that was written back since the last call.
void model_runner::tell_stored(std::uint32_t layers, const layer_done_fn& done, bool wait) {
  for (; done && told_ < layers; ++told_) {
    if (wait) wait_for(mirror_->stored(told_));
    else if (!is_reached(mirror_->stored(told_))) return;
    done(model_->part().first + told_);
  }
}

/// Shows the items' KV of `layer` to their readers.
void model_runner::tell_readers(std::uint32_t layer) {
  for (std::size_t i = 0; i < plan_.items.size(); ++i) {
    const auto& item = plan_.items[i];
    if (item.reader == nullptr) continue;
    wait_for(written_[layer]);
    item.reader->on_device(layers().first + layer, item.start, static_cast<std::uint32_t>(item.tokens.size()),
                           mirror_->blocks(i));
  }
}

/// Computes a layer. Keys and values come first, so that KV can leave while attention and feed-forward go on.
void model_runner::run_layer(std::uint32_t layer, const layer_done_fn& done) {
  const auto& c = model_->config();
  const auto& w = model_->layer(layer);
  const std::size_t n = plan_.tokens.size(), wanted = plan_.last_rows.size();
  const auto x = scratch_->x(n);
  const auto h = scratch_->h(n, c.dim);
  // Behind the last layer's KV only the rows that become logits matter; a chunk in the middle of a prompt has
  // none.
  const bool narrow = model_->makes_logits() && layer + 1 == c.n_layers && wanted < n && !plan_.every_row;
  if (lora_) lora_->begin_layer(layers().first + layer);
  queue_->rms_norm(x, w.attention_gain, c.rms_eps, h);
  attention_->enter(w, h, !narrow);
  // Of ranks that have the same head one writes it, where all have one block.
  attention_->write(layer, mirror_ || writes_blocks());
  pass_on_kv(layer, done);
  if (!narrow) {
    const auto attended = scratch_->q(n, c.dim);
    attention_->attend(layer, plan_.seqs, plan_.positions, attended);
    if (w.attention_post_gain != nullptr)
      queue_->rms_norm(attended, w.attention_post_gain, c.rms_eps, attended);
    queue_->add(x, attended);
    feed_forward_->run(w, x);
    return;
  }
  if (wanted == 0) return;
  if (lora_) lora_->narrow();
  const auto last = scratch_->last(wanted);
  const auto last_h = scratch_->h(wanted, c.dim);
  for (std::size_t i = 0; i < wanted; ++i)
    queue_->rms_norm(rows_of(x, plan_.last_rows[i], 1), w.attention_gain, c.rms_eps, rows_of(last_h, i, 1));
  attention_->queries(w, last_h);
  attention_->attend(layer, plan_.last_seqs, plan_.last_positions, last);
  if (w.attention_post_gain != nullptr) queue_->rms_norm(last, w.attention_post_gain, c.rms_eps, last);
  for (std::size_t i = 0; i < wanted; ++i)
    queue_->add(rows_of(last, i, 1), rows_of(x, plan_.last_rows[i], 1));
  feed_forward_->run(w, last);
}

/// Sends the KV of a layer to the host's blocks, or tells that it is there.
void model_runner::pass_on_kv(std::uint32_t layer, const layer_done_fn& done) {
  // Whoever is told of the layer reads the heads of all ranks, and a rank may attend over another's.
  if (!mirror_) ranks_->gather({});
  if (step_) return;
  if (mirror_) {
    written_[layer] = queue_->record();
    return mirror_->store(layer, written_[layer]);
  }
  if (!done) return;
  queue_->synchronize();
  done(layers().first + layer);
}

}  // namespace mooncaf
