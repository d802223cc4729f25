#include "runtime/sim/trace_source.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>

#include "runtime/base/hash.hpp"

namespace mooncaf::sim {

namespace {

class memory_source final : public trace_source {
 public:
  memory_source(const std::vector<workload_record>& records, std::uint32_t copies)
      : records_(records), copies_(copies) {}

  result<bool> next(workload_record& out) override {
    if (at_ == records_.size()) {
      ++copy_;
      at_ = 0;
    }
    if (copy_ >= copies_ || records_.empty()) return false;
    out = records_[at_++];
    if (copy_ > 0) {
      const auto span = records_.back().timestamp_ms + 1;
      out.timestamp_ms += static_cast<std::int64_t>(copy_) * span;
      for (auto& id : out.hash_ids) id += std::uint64_t{copy_} << 40;
    }
    return true;
  }
  double share_given() const override {
    const auto all = static_cast<double>(records_.size()) * copies_;
    return all == 0 ? 1
                    : (static_cast<double>(copy_) * static_cast<double>(records_.size()) +
                       static_cast<double>(at_)) /
                          all;
  }

 private:
  const std::vector<workload_record>& records_;
  std::uint32_t copies_;
  std::size_t at_ = 0;
  std::uint32_t copy_ = 0;
};

struct closer {
  void operator()(std::FILE* f) const noexcept {
    if (f != nullptr && f != stdin) std::fclose(f);
  }
};

class file_source final : public trace_source {
 public:
  file_source(std::FILE* file, std::string name, const trace_format& format)
      : file_(file),
        name_(std::move(name)),
        format_(format),
        reader_({name_, format.trace_block_tokens, 1u << 30, true},
                [this](trace_record&& r) { ready_.push_back(std::move(r)); }),
        piece_(std::size_t{1} << 20) {
    struct stat about {};
    if (::fstat(::fileno(file), &about) == 0 && S_ISREG(about.st_mode)) {
      size_ = static_cast<double>(about.st_size);
    }
  }

  result<bool> next(workload_record& out) override {
    while (at_ == ready_.size()) {
      if (ended_) return false;
      ready_.clear();
      at_ = 0;
      if (auto more = refill(); !more) {
        // Good lines before a bad one have been read but the trace as a whole is refused.
        ended_ = true;
        return fail(more.error());
      }
    }
    std::swap(out, ready_[at_++]);
    if (format_.block_tokens > 0) reblock(out, format_.trace_block_tokens, format_.block_tokens);
    return true;
  }
  std::uint32_t block_tokens() const override {
    return format_.block_tokens > 0 ? format_.block_tokens : format_.trace_block_tokens;
  }
  double share_given() const override {
    if (size_ <= 0) return -1;
    const double kept = ready_.empty() ? 0
                                       : latest_ * static_cast<double>(ready_.size() - at_) /
                                             static_cast<double>(ready_.size());
    return std::clamp((read_ - kept) / size_, 0.0, 1.0);
  }

 private:
  result<void> refill() {
    const auto n = std::fread(piece_.data(), 1, piece_.size(), file_.get());
    latest_ = static_cast<double>(n);
    read_ += latest_;
    if (n > 0) {
      if (auto fed = reader_.feed({piece_.data(), n}); !fed) return fed;
      return find_blocks();
    }
    ended_ = true;
    if (std::ferror(file_.get()) != 0) {
      return fail(ec::io_error, "cannot read " + name_ + ": " + std::strerror(errno));
    }
    if (auto rest = reader_.finish(); !rest) return fail(rest.error());
    return find_blocks();
  }

  /// The first lines say how long a block is; the others are held to it.
  result<void> find_blocks() {
    if (format_.trace_block_tokens > 0 || ready_.empty()) return {};
    const auto& possible = reader_.possible_blocks();
    format_.trace_block_tokens = likely_block_tokens(possible, format_.block_tokens);
    if (format_.trace_block_tokens == 0) {
      return fail(ec::corrupt, name_ + ": its lengths leave blocks of " + std::to_string(possible.least) +
                                   " to " + std::to_string(possible.most) +
                                   " tokens possible; --trace-block-tokens says which");
    }
    reader_.expect_blocks(format_.trace_block_tokens);
    return {};
  }

  std::unique_ptr<std::FILE, closer> file_;
  std::string name_;
  trace_format format_;
  trace_reader reader_;
  std::vector<char> piece_;
  std::vector<trace_record> ready_;
  std::size_t at_ = 0;
  double size_ = 0, read_ = 0, latest_ = 0;  // bytes: of the file, read, of the latest piece
  bool ended_ = false;
};

}  // namespace

std::unique_ptr<trace_source> replay_of(const std::vector<workload_record>& records, std::uint32_t copies) {
  return std::make_unique<memory_source>(records, copies);
}

void reblock(workload_record& record, std::uint32_t from, std::uint32_t to) {
  if (from == to) return;
  const auto count = (std::uint64_t{record.input_tokens} + to - 1) / to;
  std::vector<std::uint64_t> ids(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto last = std::min((i + 1) * to, std::uint64_t{record.input_tokens}) - 1;
    const std::array parts{record.hash_ids[last / from], i};
    ids[i] = hash_bytes128(std::as_bytes(std::span{parts})).low;
  }
  record.hash_ids = std::move(ids);
}

std::uint32_t likely_block_tokens(const block_range& possible, std::uint32_t wanted) {
  constexpr std::uint32_t mooncakes = 512, longest = 65'536;
  if (wanted > 0 && possible.holds(wanted)) return wanted;
  if (possible.holds(mooncakes)) return mooncakes;
  for (std::uint32_t size = 1; size <= longest; size *= 2) {
    if (possible.holds(size)) return size;
  }
  return possible.least == possible.most ? static_cast<std::uint32_t>(possible.least) : 0;
}

result<std::unique_ptr<trace_source>> open_trace(const std::string& path, const trace_format& format) {
  auto* file = path == "-" ? stdin : std::fopen(path.c_str(), "rb");
  if (file == nullptr) return fail(ec::io_error, "cannot open " + path + ": " + std::strerror(errno));
  return std::make_unique<file_source>(file, path == "-" ? "standard input" : path, format);
}

result<std::vector<workload_record>> load_trace(const std::string& path, const trace_format& format) {
  auto source = open_trace(path, format);
  if (!source) return fail(source.error());
  std::vector<workload_record> all;
  for (workload_record record;;) {
    const auto more = (*source)->next(record);
    if (!more) return fail(more.error());
    if (!*more) return all;
    all.push_back(record);
  }
}

}  // namespace mooncaf::sim
