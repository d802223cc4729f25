#include "runtime/compute/shared_exchange.hpp"

#include <chrono>

#include "gpu/device_failure.hpp"

namespace mooncaf {

namespace {

constexpr auto look = std::chrono::seconds(1);  ///< a rank that fails ends the flags, so nothing is looked at

}  // namespace

class shared_end final : public rank_exchange {
 public:
  using rank_exchange::slot_for;

  shared_end(std::shared_ptr<shared_exchange> of, std::uint32_t rank) : x_(std::move(of)), rank_(rank) {}

  tensor_part part() const noexcept override { return {rank_, x_->ranks_}; }

  bool goes_on(bool said) override {
    auto& words = x_->words_[rank_];
    ++words;
    if (rank_ == 0) {
      x_->goes_on_.store(said, std::memory_order_relaxed);
      x_->word_.raise(words);
      return said;
    }
    x_->await(x_->word_, words);
    return x_->goes_on_.load(std::memory_order_relaxed);
  }

 private:
  std::size_t room() const noexcept override { return x_->slot_floats_; }

  void swap(std::span<const tensor> parts) override {
    const auto turn = x_->given_[rank_].raised() + 1;
    pack(parts[rank_], x_->slot(turn, rank_));
    x_->given_[rank_].raise(turn);
    for (std::uint32_t r = 0; r < x_->ranks_; ++r) {
      if (r == rank_) continue;
      x_->await(x_->given_[r], turn);
      unpack(x_->slot(turn, r), parts[r]);
    }
  }

  std::shared_ptr<shared_exchange> x_;
  const std::uint32_t rank_;
};

shared_exchange::shared_exchange(std::uint32_t ranks, std::size_t widest_row, bool far)
    : ranks_(ranks),
      slot_floats_(shared_end::slot_for(widest_row, ranks)),
      far_(far),
      slots_(2 * ranks * slot_floats_),
      given_(std::make_unique<turn_flag[]>(ranks)),
      words_(ranks) {}

std::shared_ptr<shared_exchange> shared_exchange::make(std::uint32_t ranks, std::size_t widest_row,
                                                       bool far) {
  return std::shared_ptr<shared_exchange>(new shared_exchange(ranks, widest_row, far));
}

std::shared_ptr<rank_exchange> shared_exchange::end(std::uint32_t rank) {
  return std::make_shared<shared_end>(shared_from_this(), rank);
}

void shared_exchange::await(turn_flag& f, std::uint32_t at_least) const {
  for (;;) {
    const auto how = f.await(at_least, look);
    if (how == turn_flag::outcome::raised) return;
    if (how == turn_flag::outcome::ended) throw device_failure(why_, false);
  }
}

void shared_exchange::abandon(const std::string& why) {
  {
    const std::lock_guard lock{mutex_};
    if (!why_.empty()) return;
    why_ = why;
  }
  for (std::uint32_t r = 0; r < ranks_; ++r) given_[r].end();
  word_.end();
}

void shared_exchange::renew() {
  for (std::uint32_t r = 0; r < ranks_; ++r) {
    given_[r].renew();
    words_[r] = 0;
  }
  word_.renew();
  why_.clear();
}

}  // namespace mooncaf
