#include "transport/net/secret.hpp"

#include <fcntl.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <pwd.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <system_error>

#include "runtime/base/posix.hpp"
#include "transport/net/kept_file.hpp"

namespace mooncaf {

namespace {

constexpr std::size_t size_max = 4096;

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blank = " \t\r\n";
  const auto first = text.find_first_not_of(blank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blank) - first + 1);
}

std::string message_of(int number) { return std::generic_category().message(number); }

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

result<void> write_random(int fd) {
  unsigned char bytes[32];
  if (::getrandom(bytes, sizeof bytes, 0) != sizeof bytes) return fail(ec::io_error, message_of(errno));
  std::string text;
  for (const auto byte : bytes) {
    constexpr char digits[] = "0123456789abcdef";
    text += {digits[byte >> 4], digits[byte & 15]};
  }
  text += '\n';
  const auto put = ::write(fd, text.data(), text.size());
  const int problem = put < 0 ? errno : ENOSPC;
  const bool whole = put == static_cast<ssize_t>(text.size());
  OPENSSL_cleanse(text.data(), text.size());
  OPENSSL_cleanse(bytes, sizeof bytes);
  if (!whole) return fail(ec::io_error, message_of(problem));
  return {};
}

/// Makes the file whole or not at all, and keeps one that another process has made meanwhile.
result<void> make_secret_file(const std::string& path) {
  const auto folder = std::filesystem::path{path}.parent_path();
  std::error_code failed;
  std::filesystem::create_directories(folder.parent_path(), failed);
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return fail(ec::io_error, folder.string() + ": " + message_of(errno));
  }
  auto draft = path + ".XXXXXX";
  const unique_fd file{::mkostemp(draft.data(), O_CLOEXEC)};  // of mode 0600
  if (!file) return fail(ec::io_error, message_of(errno));
  auto written = write_random(file.get());
  if (written && ::link(draft.c_str(), path.c_str()) != 0 && errno != EEXIST) {
    written = fail(ec::io_error, message_of(errno));
  }
  ::unlink(draft.c_str());
  return written;
}

}  // namespace

cluster_secret::cluster_secret(std::string_view text) : bytes_(text.begin(), text.end()) {}

cluster_secret::~cluster_secret() {
  if (!bytes_.empty()) OPENSSL_cleanse(bytes_.data(), bytes_.size());
}

result<cluster_secret> cluster_secret::from_text(std::string_view text) {
  const auto secret = trimmed(text);
  if (secret.size() < bytes_min) {
    return fail(ec::invalid_argument, "the cluster secret has " + std::to_string(secret.size()) +
                                          " bytes, at least " + std::to_string(bytes_min) +
                                          " are needed; `openssl rand -base64 32` makes a good one");
  }
  return cluster_secret{secret};
}

result<std::string> read_kept_file(const std::string& path, std::size_t bytes_max, const std::string& what) {
  const auto refused = [&](ec code, const std::string& why) {
    return fail(code, what + " " + path + ": " + why);
  };
  const unique_fd file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  struct stat seen {};
  if (!file || ::fstat(file.get(), &seen) != 0) return refused(ec::io_error, message_of(errno));
  if (auto kept = check_kept(seen); !kept) return refused(kept.error().code, kept.error().detail);
  std::string text(bytes_max + 1, '\0');
  const auto got = ::read(file.get(), text.data(), text.size());
  if (got < 0) return refused(ec::io_error, message_of(errno));
  if (static_cast<std::size_t>(got) > bytes_max) {
    OPENSSL_cleanse(text.data(), text.size());
    return refused(ec::invalid_argument,
                   "more than " + std::to_string(bytes_max) + " bytes; that is no " + what);
  }
  text.resize(static_cast<std::size_t>(got));
  return text;
}

result<cluster_secret> cluster_secret::from_file(const std::string& path) {
  auto text = read_kept_file(path, size_max, "cluster secret file");
  if (!text) return fail(text.error());
  auto secret = from_text(*text);
  OPENSSL_cleanse(text->data(), text->size());
  if (!secret) return fail(secret.error().code, "cluster secret file " + path + ": " + secret.error().detail);
  return secret;
}

result<cluster_secret> cluster_secret::from_file_or_new(const std::string& path) {
  if (::access(path.c_str(), F_OK) != 0) {
    if (auto made = make_secret_file(path); !made) {
      return fail(ec::io_error,
                  "cannot make the cluster secret file " + path + ": " + made.error().detail +
                      "; give --cluster-secret-file FILE, with the same secret for all processes");
    }
  }
  return from_file(path);
}

result<std::string> cluster_secret::default_path() {
  constexpr const char* name = "/mooncaf/cluster.secret";
  // The XDG standard says that a relative path is to be ignored.
  if (const char* config = std::getenv("XDG_CONFIG_HOME"); config != nullptr && config[0] == '/') {
    return std::string{config} + name;
  }
  const char* home = std::getenv("HOME");
  if (home == nullptr || home[0] != '/') {
    const auto* user = ::getpwuid(::geteuid());
    home = user != nullptr ? user->pw_dir : nullptr;
  }
  if (home == nullptr || home[0] != '/') {
    return fail(ec::not_found,
                "no home directory to keep the cluster secret in: give --cluster-secret-file FILE");
  }
  return std::string{home} + "/.config" + name;
}

cluster_secret::key cluster_secret::derive(std::string_view purpose) const {
  const std::unique_ptr<EVP_KDF, decltype(&EVP_KDF_free)> kdf{EVP_KDF_fetch(nullptr, "HKDF", nullptr),
                                                              EVP_KDF_free};
  const std::unique_ptr<EVP_KDF_CTX, decltype(&EVP_KDF_CTX_free)> context{EVP_KDF_CTX_new(kdf.get()),
                                                                          EVP_KDF_CTX_free};
  char digest[] = "SHA256";
  char salt[] = "mooncaf cluster secret";
  std::string info{purpose};
  auto secret = bytes_;  // the parameter list wants mutable bytes
  const OSSL_PARAM params[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, secret.data(), secret.size()),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, salt, sizeof salt - 1),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, info.data(), info.size()),
      OSSL_PARAM_construct_end(),
  };
  key out{};
  const bool derived = context && EVP_KDF_derive(context.get(), out.data(), out.size(), params) == 1;
  OPENSSL_cleanse(secret.data(), secret.size());
  // A key of zeros would let everyone in.
  if (!derived) std::abort();
  return out;
}

}  // namespace mooncaf
