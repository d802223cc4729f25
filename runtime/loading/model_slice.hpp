#pragma once
// Which bytes of a model's files a process reads: so a host gets no more than its processes need.
//
//   options ── use_of ──► model_use ─┐
//   bytes that are there ────────────┴─ wish_of ──► bytes that must be there, too ──► a fetch brings them, and asks again
//
// A fetch knows at first how long the files are. Their directories tell where tensors lie, and the model's own loader which
// of them a stage or a rank reads.

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "config/options.hpp"
#include "runtime/base/file_range.hpp"
#include "runtime/base/result.hpp"
#include "runtime/loading/served_model.hpp"

namespace mooncaf {

/// The part of its model that a process reads.
struct model_use {
  bool weights = false;       ///< beyond shape and vocabulary
  stage_share share{};        ///< … of which stages and ranks
  std::uint32_t devices = 1;  ///< … on so many devices
  bool whole = true;          ///< … which is all of them

  friend bool operator==(const model_use&, const model_use&) = default;
};

model_use use_of(const options& o);

/// A file as it lies on this host, perhaps with holes.
struct model_file {
  std::string name;  ///< below the folder; of a file alone: empty
  std::span<const std::byte> bytes;
};

struct model_wish {
  std::vector<file_range> ranges;   ///< are read
  std::vector<file_range> samples;  ///< are read to tell the model from others
};

/// Looks at nothing that is not there.
/// @param has  whether bytes are there
/// @param name  of file or folder, for error texts
/// @returns bytes that must be there before more can be told, or, once all of them are there, all that the uses need
/// @error as of the files' readers; `ec::invalid_argument` as `load_served_model`
result<model_wish> wish_of(const std::vector<model_file>& files, const std::string& name,
                           std::span<const model_use> uses,
                           const std::function<bool(const file_range&)>& has);

/// Whether a host's slice of PATH (`file_slice`) has all that the uses need.
/// @error `ec::not_found`: no, and how much is there; as `file_slice::read` and `wish_of`
result<void> check_slice(const std::string& path, std::span<const model_use> uses);

}  // namespace mooncaf
