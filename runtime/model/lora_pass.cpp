#include "runtime/model/lora_pass.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace mooncaf {

namespace {
/// Rows that go through an adapter's products together.
constexpr std::size_t tile_rows = 128;
}  // namespace

result<std::unique_ptr<lora_pass>> lora_pass::make(device& dev, const model_config& config,
                                                   std::uint32_t rank) {
  std::unique_ptr<lora_pass> made{new lora_pass};
  // Whole cache lines, as the runner's own rows begin on.
  const auto lines = [](std::size_t floats) { return (floats + 15) / 16 * 16; };
  made->widest_ = lines(std::max({config.dim, config.q_dim(), config.ffn_dim}));
  made->rank_ = lines(rank);
  auto memory = dev.allocate(tile_rows * (2 * made->widest_ + made->rank_) * sizeof(float));
  if (!memory) return fail(std::move(memory.error()));
  made->memory_ = std::move(*memory);
  return made;
}

void lora_pass::plan(std::span<const batch_item> items) {
  for (std::size_t i = 0; i < used_; ++i) {
    groups_[i].rows.clear();
    groups_[i].last_rows.clear();
  }
  used_ = 0;
  std::uint32_t row = 0, last = 0;
  for (const auto& item : items) {
    const auto count = static_cast<std::uint32_t>(item.tokens.size());
    if (item.adapter != nullptr) {
      const auto begin = groups_.begin(), end = begin + static_cast<std::ptrdiff_t>(used_);
      auto at =
          static_cast<std::size_t>(std::ranges::find(begin, end, item.adapter, &group::adapter) - begin);
      if (at == used_) {
        if (used_ == groups_.size()) groups_.emplace_back();
        groups_[used_++].adapter = item.adapter;
      }
      for (std::uint32_t i = 0; i < count; ++i) groups_[at].rows.push_back(row + i);
      if (item.needs_logits()) groups_[at].last_rows.push_back(last);
    }
    row += count;
    last += item.needs_logits() ? 1 : 0;
  }
}

void lora_pass::begin_layer(std::uint32_t layer) noexcept {
  layer_ = layer;
  narrow_ = false;
  first_ = 0;
}

void lora_pass::add(compute_queue& queue, lora_site site, tensor x, tensor out) {
  for (std::size_t i = 0; i < used_; ++i) {
    const auto& g = groups_[i];
    if (!g.adapter->at(layer_, site).a) continue;
    const auto& all = narrow_ ? g.last_rows : g.rows;
    const auto begin = std::ranges::lower_bound(all, first_),
               end = std::ranges::lower_bound(all, first_ + x.rows);
    auto rows = std::span(begin, end);
    while (!rows.empty()) {
      const auto part = rows.first(std::min(rows.size(), tile_rows));
      add_rows(queue, *g.adapter, site, x, out, part);
      rows = rows.subspan(part.size());
    }
  }
}

void lora_pass::add_rows(compute_queue& queue, const lora_adapter& adapter, lora_site site, tensor x,
                         tensor out, std::span<const std::uint32_t> rows) {
  const auto& pair = adapter.at(layer_, site);
  picked_.resize(rows.size());
  std::ranges::transform(rows, picked_.begin(),
                         [this](auto r) { return r - static_cast<std::uint32_t>(first_); });
  scales_.assign(rows.size(), adapter.scale());
  const auto n = rows.size();
  float* memory = memory_->data();
  const tensor in{memory, n, pair.a->cols(), pair.a->cols()};
  const tensor low{memory + tile_rows * widest_, n, pair.a->rows(), pair.a->rows()};
  const tensor high{low.data + tile_rows * rank_, n, pair.b->rows(), pair.b->rows()};
  queue.gather(x, picked_, in);
  queue.linear(in, std::array{linear_job{pair.a.get(), nullptr, low}});
  queue.linear(low, std::array{linear_job{pair.b.get(), nullptr, high}});
  queue.scatter_add(high, picked_, scales_, out);
}

}  // namespace mooncaf
