#include "gpu/linked/linked_queue.hpp"

#include <utility>
#include <vector>

#include "gpu/host/host_copies.hpp"

namespace mooncaf {

namespace {

/// Sequences of an attention call with block tables of their own.
struct kept_seqs {
  std::vector<attention_seq> seqs;
  std::vector<device_bytes> blocks;

  kept_seqs(std::span<const attention_seq> from, const sealed_memory& memory)
      : seqs(from.begin(), from.end()) {
    std::size_t total = 0;
    for (const auto& s : seqs) total += s.blocks.size();
    blocks.reserve(total);
    for (auto& s : seqs) {
      const auto first = blocks.size();
      for (const auto b : s.blocks) blocks.push_back({memory.open(b.at)});
      s.blocks = std::span{blocks}.subspan(first);
    }
  }
};

/// Choices with edits of their own.
struct kept_choices {
  std::vector<token_choice> rows;
  std::vector<logit_edit> edits;
  std::size_t bytes_there = 0;
  std::size_t bytes_back = 0;  ///< beside the tokens

  explicit kept_choices(std::span<const token_choice> from) : rows(from.begin(), from.end()) {
    std::size_t total = 0;
    for (const auto& row : rows) {
      total += row.edits.size();
      bytes_back += row.top.size_bytes();
    }
    bytes_there = from.size_bytes() + total * sizeof(logit_edit);
    edits.reserve(total);
    for (auto& row : rows) {
      const auto first = edits.size();
      edits.insert(edits.end(), row.edits.begin(), row.edits.end());
      row.edits = std::span{edits}.subspan(first);
    }
  }
};

using shared_seqs = std::shared_ptr<const kept_seqs>;

template <class T>
std::vector<T> kept(std::span<const T> from) {
  return {from.begin(), from.end()};
}

}  // namespace

tensor linked_queue::open(tensor t) const noexcept {
  t.data = memory_.open(t.data);
  return t;
}

void linked_queue::embed(const weight& table, std::span<const std::int32_t> tokens, tensor out) {
  line_.add([this, &table, tokens = kept(tokens), out = open(out)] { inner_->embed(table, tokens, out); });
}

void linked_queue::rms_norm(tensor x, const float* gain, float eps, tensor out) {
  line_.add([this, x = open(x), gain = memory_.open(gain), eps, out = open(out)] {
    inner_->rms_norm(x, gain, eps, out);
  });
}

void linked_queue::rms_norm_heads(tensor x, std::uint32_t heads, std::uint32_t head_dim, const float* gain,
                                  float eps) {
  line_.add([this, x = open(x), heads, head_dim, gain = memory_.open(gain), eps] {
    inner_->rms_norm_heads(x, heads, head_dim, gain, eps);
  });
}

void linked_queue::linear(tensor x, std::span<const linear_job> jobs) {
  auto own = kept(jobs);
  for (auto& job : own) {
    job.bias = memory_.open(job.bias);
    job.out = open(job.out);
  }
  line_.add([this, x = open(x), own = std::move(own)] { inner_->linear(x, own); });
}

void linked_queue::linear_f32(tensor x, const linear_job& job) {
  auto own = job;
  own.bias = memory_.open(job.bias);
  own.out = open(job.out);
  line_.add([this, x = open(x), own] { inner_->linear_f32(x, own); });
}

void linked_queue::rope(tensor x, std::uint32_t heads, std::uint32_t head_dim,
                        std::span<const std::int32_t> positions, const rope_params& rope) {
  line_.add([this, x = open(x), heads, head_dim, positions = kept(positions), own = rope,
             frequencies = kept(rope.inv_freq)] {
    auto with = own;
    with.inv_freq = frequencies;
    inner_->rope(x, heads, head_dim, positions, with);
  });
}

void linked_queue::kv_write(const kv_layout& layout, std::uint32_t layer, tensor k, tensor v,
                            std::span<const attention_seq> seqs) {
  line_.add([this, layout, layer, k = open(k), v = open(v),
             own = shared_seqs{std::make_shared<kept_seqs>(seqs, memory_)}] {
    inner_->kv_write(layout, layer, k, v, own->seqs);
  });
}

void linked_queue::paged_attention(const kv_layout& layout, std::uint32_t layer, const attention_form& form,
                                   tensor q, std::span<const attention_seq> seqs, tensor out) {
  auto opened = form;
  opened.sinks = memory_.open(form.sinks);
  line_.add([this, layout, layer, opened, q = open(q), out = open(out),
             own = shared_seqs{std::make_shared<kept_seqs>(seqs, memory_)}] {
    inner_->paged_attention(layout, layer, opened, q, own->seqs, out);
  });
}

void linked_queue::swiglu(tensor gate, tensor up, tensor out) {
  line_.add([this, gate = open(gate), up = open(up), out = open(out)] { inner_->swiglu(gate, up, out); });
}

void linked_queue::geglu(tensor gate, tensor up, tensor out) {
  line_.add([this, gate = open(gate), up = open(up), out = open(out)] { inner_->geglu(gate, up, out); });
}

void linked_queue::clamped_swiglu(tensor gate, tensor up, float limit, tensor out) {
  line_.add([this, gate = open(gate), up = open(up), limit, out = open(out)] {
    inner_->clamped_swiglu(gate, up, limit, out);
  });
}

void linked_queue::add(tensor x, tensor y) {
  line_.add([this, x = open(x), y = open(y)] { inner_->add(x, y); });
}

void linked_queue::scale(tensor x, float factor) {
  line_.add([this, x = open(x), factor] { inner_->scale(x, factor); });
}

void linked_queue::soft_cap(tensor x, float cap) {
  line_.add([this, x = open(x), cap] { inner_->soft_cap(x, cap); });
}

void linked_queue::gather(tensor x, std::span<const std::uint32_t> rows, tensor out) {
  line_.add([this, x = open(x), rows = kept(rows), out = open(out)] { inner_->gather(x, rows, out); });
}

void linked_queue::scatter_add(tensor y, std::span<const std::uint32_t> rows, std::span<const float> weights,
                               tensor x) {
  line_.add([this, y = open(y), rows = kept(rows), weights = kept(weights), x = open(x)] {
    inner_->scatter_add(y, rows, weights, x);
  });
}

void linked_queue::choose(tensor logits, std::span<const token_choice> how, std::span<chosen_token> out) {
  auto own = std::make_shared<kept_choices>(how);
  line_.add([this, logits = open(logits), own = std::move(own), out] {
    link_.cross(timed_link::direction::to_device, own->bytes_there);
    inner_->choose(logits, own->rows, out);
    link_.cross(timed_link::direction::to_host, out.size_bytes() + own->bytes_back);
  });
}

void linked_queue::checksum(std::span<const device_bytes> blocks, std::size_t bytes,
                            std::span<std::uint64_t> out) {
  auto own = kept(blocks);
  for (auto& b : own) b.at = memory_.open(b.at);
  line_.add([this, own = std::move(own), bytes, out] {
    inner_->checksum(own, bytes, out);
    link_.cross(timed_link::direction::to_host, out.size_bytes());
  });
}

void linked_queue::upload(std::span<const float> from, float* to) {
  line_.add([this, from, to = memory_.open(to)] {
    link_.cross(timed_link::direction::to_device, from.size_bytes());
    inner_->upload(from, to);
  });
}

void linked_queue::download(const float* from, std::span<float> to) {
  line_.add([this, from = memory_.open(from), to] {
    link_.cross(timed_link::direction::to_host, to.size_bytes());
    inner_->download(from, to);
  });
}

void linked_queue::wait(const event_ptr& e) {
  if (!is_reached(e)) line_.add([e] { e->wait(); });
}

void linked_queue::begin_turn() {
  line_.add([this] { inner_->begin_turn(); });
}

void linked_queue::end_turn() {
  line_.add([this] { inner_->end_turn(); });
}

void linked_copies::add(std::span<const kv_copy> copies, timed_link::direction to) {
  if (copies.empty()) return;
  auto own = kept(copies);
  std::size_t bytes = 0;
  for (auto& c : own) {
    c.device.at = memory_.open(c.device.at);
    bytes += c.bytes();
  }
  line_.add([&link = link_, &engines = engines_, own = std::move(own), bytes, to] {
    engines.begin(to);
    link.cross(to, bytes);
    if (to == timed_link::direction::to_device) host_copies{}.load(own);
    else host_copies{}.store(own);
    engines.end(to);
  });
}

void linked_copies::wait(const event_ptr& e) {
  if (!is_reached(e)) line_.add([e] { e->wait(); });
}

}  // namespace mooncaf
