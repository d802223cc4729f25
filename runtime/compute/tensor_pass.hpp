#pragma once
// A stage computed by a tensor group: each rank has a share of every layer's heads, widths and vocabulary
// (runtime/model/tensor_part.hpp), and all compute the same pass at the same time.

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/model/group_exchange.hpp"
#include "runtime/model/pass_stage.hpp"

namespace mooncaf {

/// The first rank computes on the caller's thread and alone asks and delivers; the others have threads of their own.
/// KV heads of all ranks lie in the same blocks. Of far ranks each tells of its layers: the caller hears of one, on any of
/// these threads and of one at a time, once all have told of it.
class tensor_pass final : public pass_stage {
 public:
  /// @param ranks  in order, with ends of `exchange`. @param layout  of whole blocks of the stage's layers.
  /// @error `ec::invalid_argument` if they are not the shares of one stage.
  static result<std::unique_ptr<tensor_pass>> make(std::vector<std::unique_ptr<pass_stage>> ranks,
                                                   std::shared_ptr<group_exchange> exchange,
                                                   const kv_layout& layout, std::size_t vocab_size);
  ~tensor_pass() override;

  result<void> run(const stage_work& work) override;
  layer_range layers() const noexcept override { return ranks_.front().pass->layers(); }
  const kv_layout& layout() const noexcept override { return layout_; }
  bool chooses() const noexcept override { return false; }  // no device of the host's memory does

 private:
  struct rank {
    std::unique_ptr<pass_stage> pass;
    // What the pass under way is for this rank.
    std::vector<batch_item> items;
    std::vector<std::byte*> blocks;
    std::vector<float> to, logits;  ///< of ranks but the first: computed, and read by nobody
    stage_work work;
    bool busy = false;
    result<void> outcome;
    std::thread thread;
  };

  tensor_pass(std::shared_ptr<group_exchange> exchange, const kv_layout& layout, std::size_t vocab_size)
      : exchange_(std::move(exchange)), layout_(layout), vocab_size_(vocab_size) {}
  void hand_out(rank& to, std::uint32_t index, const stage_work& work) const;
  /// What of the work only a group in one memory does in the middle of a pass.
  result<void> prepare(stage_work& work);
  result<void> run_all();
  void serve(rank& self);

  std::shared_ptr<group_exchange> exchange_;
  const kv_layout layout_;
  const std::size_t vocab_size_;
  std::vector<rank> ranks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::mutex telling_;
  std::vector<std::uint32_t> told_;  ///< by layer of the stage: far ranks that have told of it
};

}  // namespace mooncaf
