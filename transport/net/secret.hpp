#pragma once
// The cluster secret, which a process must know to be let in. `secret_file.hpp` has the file of it.

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.hpp"

namespace mooncaf {

/// A shared secret, from which every protocol derives a key of its own: a key that leaks from one of them
/// opens no other. The bytes are wiped when the object dies.
class cluster_secret {
 public:
  /// Shortest secret that is accepted. A handshake can be guessed at offline, so a password will not do; 32
  /// random bytes in base64 will.
  static constexpr std::size_t bytes_min = 16;

  using key = std::array<unsigned char, 32>;

  /// Takes the bytes of a secret; white space at both ends does not count, as editors add line ends.
  /// @error `ec::invalid_argument` if it is shorter than `bytes_min`.
  static result<cluster_secret> from_text(std::string_view text);

  /// A new one: 32 random bytes as 64 hexadecimal digits. @error `ec::io_error` if the system has none.
  static result<std::string> make_text();

  cluster_secret(const cluster_secret&) = default;
  cluster_secret& operator=(const cluster_secret&) = default;
  cluster_secret(cluster_secret&&) noexcept = default;
  cluster_secret& operator=(cluster_secret&&) noexcept = default;
  ~cluster_secret();

  /// Key for one purpose, e.g. "control plane v1". @source HKDF with SHA-256, RFC 5869.
  key derive(std::string_view purpose) const;

 private:
  explicit cluster_secret(std::string_view text);

  std::vector<unsigned char> bytes_;
};

}  // namespace mooncaf
