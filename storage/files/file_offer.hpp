#pragma once
// A source of a model's files: offers them to processes that know the cluster's secret, for one-sided reading.

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/result.hpp"
#include "storage/engine/transfer_engine.hpp"
#include "storage/files/file_manifest.hpp"
#include "storage/files/peers_page.hpp"
#include "storage/mapped_file.hpp"

namespace mooncaf {

/// Files are mapped, so they must not be written into meanwhile, and hashed once in the order of their parts, which
/// begins at once and takes as long as reading them.
/// @thread  any
class file_offer {
 public:
  /// @param path  a file, or a folder with all that is in it, but for hidden files.
  /// @error `ec::not_found`, `ec::invalid_argument`, `ec::io_error` with the path; as `transfer_engine::start`
  static result<std::unique_ptr<file_offer>> start(const std::string& path, transfer_engine_options options);
  ~file_offer();

  std::uint16_t port() const noexcept { return engine_->port(); }
  std::uint64_t bytes() const noexcept { return manifest_.bytes(); }
  std::size_t files() const noexcept { return manifest_.files().size(); }
  struct news {
    bool any = false;       ///< a fetch has said something
    std::size_t ended = 0;  ///< fetches
  };
  /// Since the call before. Also tells fetches of one another: to be called often.
  news heard(time_point now);

 private:
  file_offer() = default;
  result<void> map(const std::string& path);
  result<void> offer();
  void hash();

  file_manifest manifest_;
  std::vector<mapped_file> mapped_;   ///< not the empty ones
  std::vector<std::byte> described_;  ///< the manifest as others read it
  peers_page fetches_;
  std::vector<std::byte> hashes_;       ///< of all parts; what is offered of it does not change any more
  std::vector<const std::byte*> base_;  ///< of each file, in the manifest's order
  std::unique_ptr<transfer_engine> engine_;
  std::atomic<bool> ending_{false};
  std::thread hasher_;
};

}  // namespace mooncaf
