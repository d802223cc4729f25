#pragma once
// One source of a fetch: what it says that it has, and the hashes that are known of it so far.

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "storage/engine/transfer_engine.hpp"
#include "storage/files/file_manifest.hpp"

namespace mooncaf {

/// @thread  `move` and `hash` from any thread
class file_source {
 public:
  /// @param at  HOST:PORT of an offer, or of a fetch. @param limit  for one transfer
  file_source(transfer_engine& engine, std::string at, duration limit)
      : engine_(engine), at_(std::move(at)), limit_(limit) {}

  const std::string& at() const noexcept { return at_; }
  const file_manifest& manifest() const { return *manifest_; }
  bool described() const noexcept { return manifest_.has_value(); }

  /// Reads head, names and sizes. @error as `transfer_engine::move`, `file_manifest::parse`
  result<void> describe();
  /// Reads ranges into memory, one behind the other. @error as `transfer_engine::move`
  result<void> move(const std::vector<file_range>& ranges, std::uint64_t into);
  /// What a part of it must be. A source that has not hashed so far yet answers that it has not, and is waited for.
  /// @param patience  at most. @error `ec::timed_out`; as `transfer_engine::move`
  result<hash128> hash(std::size_t part, duration patience);
  /// What all parts of the block of that part must be, once `hash` has told one of them.
  std::vector<hash128> block_of(std::size_t part);
  bool tells_fetches() const noexcept { return head_.at.fetches != 0; }
  /// HOST:PORT of the fetches that it knows of; none where it does not tell, or just now cannot.
  std::vector<std::string> fetches();
  /// Of a source that fetches: a `part_holding` a part. @error as `transfer_engine::move`
  result<std::vector<std::byte>> holds();
  /// A word for the source.
  void tell(std::string_view what) { static_cast<void>(engine_.notify(at_, {"weights", std::string{what}})); }

 private:
  result<void> read(std::uint64_t address, std::span<std::byte> into);
  result<void> learn(std::size_t block);

  transfer_engine& engine_;
  const std::string at_;
  const duration limit_;
  file_manifest::head head_;
  std::optional<file_manifest> manifest_;
  std::mutex mutex_;         // guards everything below
  std::vector<bool> known_;  ///< blocks of hashes
  std::vector<hash128> hashes_;
};

}  // namespace mooncaf
