#pragma once
// What a fetch has of the files so far, offered to others that fetch the same.

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "storage/engine/transfer_engine.hpp"
#include "storage/files/file_manifest.hpp"
#include "storage/files/partial_files.hpp"
#include "storage/mapped_file.hpp"

namespace mooncaf {

/// A source as `file_offer` is one, with a map of its parts. The hashes are those of its own sources; each block of them
/// is offered with its first part.
/// @thread  Functions may be called from any thread once it is made.
class draft_offer {
 public:
  /// @param engine  has offered nothing yet, and ends before this. @param files  whose drafts are there
  /// @error `ec::io_error`: a draft cannot be mapped; as `transfer_engine::offer`
  result<void> start(transfer_engine& engine, const file_manifest& manifest, const partial_files& files);

  /// Of each file what has come, and zeros.
  std::vector<std::span<const std::byte>> bytes() const;
  /// A part is asked for, has come, or has not.
  void is(std::size_t part, part_holding now);
  /// What the parts of a block must be: those of `hashes_per_block` parts from `first` on.
  void knows(std::size_t first, const std::vector<hash128>& hashes);

 private:
  transfer_engine* engine_ = nullptr;
  std::vector<mapped_file> drafts_;  ///< not of empty files
  std::vector<std::size_t> files_;   ///< … and which they are
  std::size_t count_ = 0;            ///< of all files
  std::vector<std::byte> described_, map_, hashes_;
  std::mutex mutex_;           // guards everything below
  std::vector<bool> offered_;  ///< blocks of hashes
};

}  // namespace mooncaf
