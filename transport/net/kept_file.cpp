#include "transport/net/kept_file.hpp"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>

#include "runtime/base/posix.hpp"

namespace mooncaf {

namespace {

/// Checks that only this user, root and a group of their choice can have read or written the file.
result<void> check_kept(const struct stat& file) {
  char mode[8];
  std::snprintf(mode, sizeof mode, "%04o", static_cast<unsigned>(file.st_mode & 07777));
  if ((file.st_mode & (S_IRWXO | S_IWGRP)) != 0) {
    return fail(ec::unauthenticated, std::string{"mode "} + mode +
                                         " lets other users read or change it, so it is no secret; chmod 600 "
                                         "it, and make a new one if others may have read it");
  }
  if (file.st_uid != ::geteuid() && file.st_uid != 0) {
    return fail(ec::unauthenticated, "belongs to user " + std::to_string(file.st_uid) +
                                         ", not to this process's user (" + std::to_string(::geteuid()) +
                                         ") or root; whoever owns it could join the cluster");
  }
  return {};
}

}  // namespace

result<std::string> read_kept_file(const std::string& path, std::size_t bytes_max, const std::string& what) {
  const auto refused = [&](ec code, const std::string& why) {
    return fail(code, what + " " + path + ": " + why);
  };
  const unique_fd file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  struct stat seen {};
  if (!file || ::fstat(file.get(), &seen) != 0) return refused(ec::io_error, errno_text());
  if (auto kept = check_kept(seen); !kept) return refused(kept.error().code, kept.error().detail);
  std::string text(bytes_max + 1, '\0');
  const auto got = ::read(file.get(), text.data(), text.size());
  if (got < 0) return refused(ec::io_error, errno_text());
  if (static_cast<std::size_t>(got) > bytes_max) {
    OPENSSL_cleanse(text.data(), text.size());
    return refused(ec::invalid_argument,
                   "more than " + std::to_string(bytes_max) + " bytes; that is no " + what);
  }
  text.resize(static_cast<std::size_t>(got));
  return text;
}

}  // namespace mooncaf
