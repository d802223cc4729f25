#pragma once
// The machine of tests/support/simt as an accelerator that counts what it is asked for.

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "tests/support/simt/simt_accelerator.hpp"

namespace mooncaf::testing {

/// Counts what is handed to the driver.
class counting_accelerator final : public cuda::accelerator {
 public:
  struct counts {
    int launches = 0, writes = 0, copies = 0, uploads = 0, pinned = 0;
    int graphs = 0, changes = 0, made = 0;
    int others = 0;           ///< downloads, events, waits
    unsigned processors = 0;  ///< that a kernel which carries KV may have taken, at most
    int calls() const { return launches + writes + copies + uploads + graphs + changes + others; }
  };
  /// @param graphs  false: a driver that has none
  explicit counting_accelerator(counts& to, bool graphs = true)
      : counts_(to), graphs_(graphs), inner_(simt::make_simt_accelerator()) {}

  cuda::accelerator_info info() const override { return inner_->info(); }
  result<std::byte*> allocate(std::size_t bytes) override { return inner_->allocate(bytes); }
  void release(std::byte* memory) noexcept override { inner_->release(memory); }
  result<std::byte*> pin(std::span<std::byte> memory) override {
    ++counts_.pinned;
    return inner_->pin(memory);
  }
  void unpin(std::byte* memory) noexcept override {
    --counts_.pinned;
    inner_->unpin(memory);
  }
  std::unique_ptr<cuda::stream> make_stream(int priority) override {
    return std::make_unique<counting_stream>(inner_->make_stream(priority), counts_, graphs_);
  }

 private:
  struct counting_graph final : cuda::launch_graph {
    counting_graph(std::unique_ptr<cuda::launch_graph> graph, counts& to)
        : inner(std::move(graph)), seen(to) {}
    void change(std::size_t i, const cuda::launch_view& to) override {
      ++seen.changes;
      inner->change(i, to);
    }
    std::unique_ptr<cuda::launch_graph> inner;
    counts& seen;
  };
  class counting_stream final : public cuda::stream {
   public:
    counting_stream(std::unique_ptr<cuda::stream> inner, counts& to, bool graphs)
        : inner_(std::move(inner)), counts_(to), graphs_(graphs) {}
    void launch(cuda::kernel which, cuda::grid blocks, const void* params) override {
      ++counts_.launches;
      if (which == cuda::kernel::carry || which == cuda::kernel::gather ||
          which == cuda::kernel::gather_pieces || which == cuda::kernel::gather_tokens)
        counts_.processors = std::max(counts_.processors, blocks.x);
      inner_->launch(which, blocks, params);
    }
    std::unique_ptr<cuda::launch_graph> keep(std::span<const cuda::launch_view> launches) override {
      if (!graphs_) return nullptr;
      ++counts_.made;
      return std::make_unique<counting_graph>(inner_->keep(launches), counts_);
    }
    void launch(cuda::launch_graph& graph) override {
      ++counts_.graphs;
      inner_->launch(*static_cast<counting_graph&>(graph).inner);
    }
    void write(std::byte* to, const void* from, std::size_t bytes) override {
      ++counts_.writes;
      inner_->write(to, from, bytes);
    }
    void upload(std::byte* to, const void* from, std::size_t bytes) override {
      ++counts_.uploads;
      inner_->upload(to, from, bytes);
    }
    void download(void* to, const std::byte* from, std::size_t bytes) override {
      ++counts_.others;
      inner_->download(to, from, bytes);
    }
    void load(const kv_copy& copy) override { one(copy, &cuda::stream::load); }
    void store(const kv_copy& copy) override { one(copy, &cuda::stream::store); }
    void wait(const event_ptr& e) override {
      ++counts_.others;
      inner_->wait(e);
    }
    event_ptr record() override {
      ++counts_.others;
      return inner_->record();
    }
    void synchronize() override {
      ++counts_.others;
      inner_->synchronize();
    }

   private:
    void one(const kv_copy& copy, void (cuda::stream::*way)(const kv_copy&)) {
      ++counts_.copies;
      (inner_.get()->*way)(copy);
    }
    std::unique_ptr<cuda::stream> inner_;
    counts& counts_;
    const bool graphs_;
  };
  counts& counts_;
  const bool graphs_;
  std::unique_ptr<cuda::accelerator> inner_;
};

}  // namespace mooncaf::testing
