#pragma once
// The file of a cluster's secret, and the keys that a protocol makes of it.
//
// A secret is changed without ending a process: each reads the file anew once it has been replaced. A file may hold
// several secrets, one a line. A process proves that it knows the first, and lets in who knows any of them; so the new
// one is added to all files, then stands first in all, and then the old one goes (`mooncaf rotate-secret`). Links that
// stand are not asked again.

#include <sys/stat.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/base/result.hpp"
#include "transport/net/secret.hpp"

namespace mooncaf {

/// @thread any
class secret_file {
 public:
  /// So many secrets may stand in one file.
  static constexpr std::size_t secrets_max = 4;
  using complaint = std::function<void(const error&)>;

  /// @param path  empty: the user's own (`own_path`), which is made if there is none: 32 random bytes, readable by its
  ///   owner alone, in a folder of mode 0700. Of several processes that start at once, one makes it and all read the same.
  /// @param complain  called, by any thread, once for each replacement that is of no use; until a better one comes the
  ///   secrets that were read before stay.
  /// @error  as `read`
  static result<std::shared_ptr<const secret_file>> open(const std::string& path, complaint complain = {});

  /// The same for a path that is given, which is made if there is none.
  static result<std::shared_ptr<const secret_file>> open_or_make(const std::string& path,
                                                                 complaint complain = {});

  /// Reads a file that only this user, root and at most a group may read.
  /// @error `ec::io_error` with path and errno; `ec::unauthenticated` if others may read or change the file,
  ///   or another user owns it; `ec::invalid_argument` as `cluster_secret::from_text`, or for too many of them.
  static result<std::vector<cluster_secret>> read(const std::string& path);

  /// Where the processes of one user find the secret of that user's clusters on this machine:
  /// $XDG_CONFIG_HOME/mooncaf/cluster.secret, by default ~/.config/mooncaf/cluster.secret.
  /// @error `ec::not_found` if the user has no home directory; names the option to give instead.
  static result<std::string> own_path();

  /// What the file holds now, one at least.
  std::vector<cluster_secret> secrets() const;

 private:
  secret_file(std::string path, complaint complain)
      : path_(std::move(path)), complain_(std::move(complain)) {}

  const std::string path_;
  const complaint complain_;
  mutable std::mutex mutex_;
  mutable struct stat seen_ {};  ///< of what was read last, or refused
  mutable std::vector<cluster_secret> secrets_;
};

/// The keys of one protocol: one that never changes, or those of a file's secrets for one purpose.
/// @thread any
class key_ring {
 public:
  key_ring() = default;
  key_ring(std::string key) : key_(std::move(key)) {}
  key_ring(const char* key) : key_(key) {}
  /// @param purpose  as for `cluster_secret::derive`
  key_ring(std::shared_ptr<const secret_file> file, std::string purpose)
      : key_(std::move(purpose)), file_(std::move(file)) {}

  bool empty() const noexcept { return key_.empty(); }
  /// What this process proves to others that it knows.
  std::string own() const;
  /// A peer that knows one of them is let in; its own first.
  std::vector<std::string> accepted() const;

 private:
  std::string key_;  ///< with a file: the purpose
  std::shared_ptr<const secret_file> file_;
};

}  // namespace mooncaf
