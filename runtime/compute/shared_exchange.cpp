#include "runtime/compute/shared_exchange.hpp"

#include <algorithm>
#include <cstring>

#include "gpu/device_failure.hpp"

namespace mooncaf {

namespace {

constexpr auto look = std::chrono::seconds(1);  ///< a rank that fails ends the flags, so nothing is looked at
/// Of a slot: rows of a long prompt go in pieces that stay in the second-level cache.
constexpr std::size_t least_slot_floats = 128 * 1024;

void copy_columns(const float* from, std::size_t from_stride, float* to, std::size_t to_stride,
                  std::size_t rows, std::size_t columns) noexcept {
  for (std::size_t r = 0; r < rows; ++r)
    std::memcpy(to + r * to_stride, from + r * from_stride, columns * sizeof(float));
}

}  // namespace

class shared_end final : public rank_exchange {
 public:
  shared_end(std::shared_ptr<shared_exchange> of, std::uint32_t rank) : x_(std::move(of)), rank_(rank) {}

  tensor_part part() const noexcept override { return {rank_, x_->ranks_}; }

  void gather(tensor t) override {
    const auto columns = (t.cols + x_->ranks_ - 1) / x_->ranks_;
    const auto most = columns == 0 ? 1 : std::max<std::size_t>(1, x_->slot_floats_ / columns);
    std::size_t begin = 0;
    do {
      const auto rows = std::min(most, t.rows - begin);
      piece(rows_of(t, begin, rows));
      begin += rows;
    } while (begin < t.rows);
  }

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
  void piece(tensor t) {
    const auto turn = x_->given_[rank_].raised() + 1;
    const auto own = part().share(t.cols);
    copy_columns(t.data + own.first, t.stride, x_->slot(turn, rank_), own.count, t.rows, own.count);
    x_->given_[rank_].raise(turn);
    for (std::uint32_t r = 0; r < x_->ranks_; ++r) {
      if (r == rank_) continue;
      x_->await(x_->given_[r], turn);
      const auto other = tensor_part{r, x_->ranks_}.share(t.cols);
      copy_columns(x_->slot(turn, r), other.count, t.data + other.first, t.stride, t.rows, other.count);
    }
  }

  std::shared_ptr<shared_exchange> x_;
  const std::uint32_t rank_;
};

shared_exchange::shared_exchange(std::uint32_t ranks, std::size_t widest_row)
    : ranks_(ranks),
      slot_floats_(std::max(least_slot_floats, (widest_row + ranks - 1) / ranks)),
      slots_(2 * ranks * slot_floats_),
      given_(std::make_unique<turn_flag[]>(ranks)),
      words_(ranks) {}

std::shared_ptr<shared_exchange> shared_exchange::make(std::uint32_t ranks, std::size_t widest_row) {
  return std::shared_ptr<shared_exchange>(new shared_exchange(ranks, widest_row));
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
