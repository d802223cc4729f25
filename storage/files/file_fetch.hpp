#pragma once
// Fetches a model's files from sources that have them, in parts, each of which is checked before it is kept.
//
//   sources ──► manifests, of one shape ──► part_schedule ──► threads: move a part, hash it, write it ──► partial_files
//                                              ▲                    │ another hash, or no answer
//                                              └────────────────────┘
//
// What has come is offered to others that fetch the same, of whom the sources know.

#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/file_range.hpp"
#include "runtime/base/result.hpp"
#include "runtime/base/units.hpp"
#include "storage/files/file_manifest.hpp"
#include "transport/net/secret_file.hpp"

namespace mooncaf {

/// Purpose for which sources and fetches derive their key from the cluster's secret (`cluster_secret::derive`).
inline constexpr std::string_view weights_key_purpose = "weights v1";

/// What is wanted of the files, as far as that can be told yet.
struct file_wish {
  std::vector<file_range> ranges;   ///< come in parts, each of which is checked
  std::vector<file_range> samples;  ///< come as they are; short
};
/// Tells it from what has come. @param drafts  of all files, in the manifest's order; what has not come reads as zeros.
/// @param has  whether bytes have come
using wish_fn = std::function<result<file_wish>(const std::vector<std::span<const std::byte>>& drafts,
                                                const std::function<bool(const file_range&)>& has)>;

struct file_fetch_options {
  key_ring secret;  ///< as the sources' (`weights_key_purpose`)
  std::vector<std::string>
      sources;  ///< HOST:PORT of a `file_offer` each; the first that answers says what the content is
  std::string destination;         ///< a path that is not there yet; `.part` is added to it meanwhile
  std::string host = "127.0.0.1";  ///< numeric address of this process, for links
  std::size_t threads = 0;         ///< parts under way at once; 0: as many as the processors suggest
  duration limit = std::chrono::seconds(30);    ///< for one part
  duration meeting = std::chrono::seconds(2);   ///< a source may take so long to tell who else fetches
  std::uint64_t seed = std::random_device{}();  ///< hosts that fetch the same take parts in different orders
  /// For a slice (`file_slice`): asked again once its ranges have come, until it wants no others. Nothing: all is wanted.
  /// Gets names and sizes first.
  std::function<wish_fn(const file_manifest&)> wanted;
};

struct fetch_progress {
  std::uint64_t total = 0;    ///< bytes that are wanted, as far as is known
  std::uint64_t found = 0;    ///< were there, of an earlier fetch
  std::uint64_t fetched = 0;  ///< have come
};

struct fetch_report {
  fetch_progress bytes;
  std::vector<std::uint64_t> came_from;  ///< parts by source
  std::uint64_t from_fetches = 0;        ///< parts that came from others that fetch the same
  std::vector<std::string> dropped;      ///< sources that were given up, and why
};

/// Blocks until all is there that is wanted. Called again after a failure, it goes on with the parts that are there.
/// @param tell  called now and then, by any thread, by one at a time
/// @error `ec::already_exists` as `partial_files::open`; `ec::io_error` of the disk; `ec::unavailable` if no source is
///   left: the detail names each and its trouble
result<fetch_report> fetch_files(const file_fetch_options& options,
                                 const std::function<void(const fetch_progress&)>& tell);

}  // namespace mooncaf
