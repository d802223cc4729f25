#include "runtime/sim/trace_source.hpp"

#include <cerrno>
#include <cstring>

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
  file_source(std::FILE* file, std::string name, trace_options options)
      : file_(file),
        name_(std::move(name)),
        reader_(std::move(options), [this](trace_record&& r) { ready_.push_back(std::move(r)); }),
        piece_(std::size_t{1} << 20) {}

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
    return true;
  }

 private:
  result<void> refill() {
    const auto n = std::fread(piece_.data(), 1, piece_.size(), file_.get());
    if (n > 0) return reader_.feed({piece_.data(), n});
    ended_ = true;
    if (std::ferror(file_.get()) != 0) {
      return fail(ec::io_error, "cannot read " + name_ + ": " + std::strerror(errno));
    }
    if (auto rest = reader_.finish(); !rest) return fail(rest.error());
    return {};
  }

  std::unique_ptr<std::FILE, closer> file_;
  std::string name_;
  trace_reader reader_;
  std::vector<char> piece_;
  std::vector<trace_record> ready_;
  std::size_t at_ = 0;
  bool ended_ = false;
};

}  // namespace

std::unique_ptr<trace_source> replay_of(const std::vector<workload_record>& records, std::uint32_t copies) {
  return std::make_unique<memory_source>(records, copies);
}

result<std::unique_ptr<trace_source>> open_trace(const std::string& path, trace_options options) {
  auto* file = path == "-" ? stdin : std::fopen(path.c_str(), "rb");
  if (file == nullptr) return fail(ec::io_error, "cannot open " + path + ": " + std::strerror(errno));
  options.name = path == "-" ? "standard input" : path;
  return std::make_unique<file_source>(file, options.name, options);
}

result<std::vector<workload_record>> load_trace(const std::string& path, const trace_options& options) {
  auto source = open_trace(path, options);
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
