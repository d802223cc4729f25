#pragma once
// The directory of the object store that a conductor's process carries.
//
//   conductors   A leads           B stands by       C stands by            holders, clients
//   directories  serves ◄──────────────────────────────────────────────── know all three seats, ask at each
//                A is killed       B leads
//                                  opens, as soon as most processes
//                                  have heard who leads  ◄─ announce ──── what lies in their memory, and on SSDs
//
// It serves for as long as its conductor may lead, and answers nothing after that, not even what it was asked before:
// so no two directories of a cluster serve at once. One that opens knows nothing but what holders announce. Its folder
// has notes of SSDs that were away (`disk_notes`); they count where no other conductor led since they were made.

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>

#include "config/options.hpp"
#include "runtime/base/host_port.hpp"
#include "runtime/base/lead_right.hpp"
#include "runtime/base/result.hpp"
#include "storage/objects/directory/directory_shards.hpp"

namespace mooncaf {

/// @thread  All functions may be called from any thread, the destructor from none of its own.
class carried_directory {
 public:
  /// @param alone  there is no other conductor: it serves from now on. Else it begins with `lead`.
  /// @param key  what the store's clients prove that they know.
  /// @error those of `directory_shards::start` and `store::directory_settings`
  static result<std::unique_ptr<carried_directory>> open(const host_port& at, key_ring key,
                                                         const store_options& chosen, bool alone);
  ~carried_directory();

  const host_port& at() const noexcept { return at_; }
  bool serves() const;
  last_lead last() const noexcept { return last_; }
  /// Its conductor may lead, or may no more. Returns at once.
  void lead(const lead_right& right);

 private:
  carried_directory(host_port at, directory_server_options options, std::uint32_t shards);
  result<void> start();
  result<void> start_under_right();
  void keep();

  host_port at_;
  directory_server_options options_;
  const std::uint32_t shards_;
  const last_lead last_;
  mutable std::mutex mutex_;  // guards everything below
  std::condition_variable changed_;
  lead_right right_;
  bool stopping_ = false;
  std::unique_ptr<directory_shards> directory_;
  std::uint64_t serving_ = 0;                 ///< the term under which that was opened
  std::uint64_t numbered_ = 0;                ///< … the clock that its numbers began with
  std::shared_ptr<serving_right> serves_by_;  ///< that it looks at
  std::thread keeper_;
};

}  // namespace mooncaf
