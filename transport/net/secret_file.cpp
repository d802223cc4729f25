#include "transport/net/secret_file.hpp"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <pwd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "runtime/base/posix.hpp"
#include "transport/net/kept_file.hpp"

namespace mooncaf {

namespace {

constexpr std::size_t size_max = 4096;

/// Makes the file whole or not at all, and keeps one that another process has made meanwhile.
result<void> make_secret_file(const std::string& path) {
  const auto problem = [] { return fail(ec::io_error, errno_text()); };
  const auto folder = std::filesystem::path{path}.parent_path();
  std::error_code failed;
  std::filesystem::create_directories(folder.parent_path(), failed);
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    return fail(ec::io_error, folder.string() + ": " + errno_text());
  auto text = cluster_secret::make_text();
  if (!text) return fail(text.error());
  *text += '\n';
  auto draft = path + ".XXXXXX";
  const unique_fd file{::mkostemp(draft.data(), O_CLOEXEC)};  // of mode 0600
  if (!file) return problem();
  result<void> made;
  const auto put = ::write(file.get(), text->data(), text->size());
  if (put >= 0 && put != static_cast<ssize_t>(text->size())) errno = ENOSPC;
  if (put != static_cast<ssize_t>(text->size())) made = problem();
  OPENSSL_cleanse(text->data(), text->size());
  if (made && ::link(draft.c_str(), path.c_str()) != 0 && errno != EEXIST) made = problem();
  ::unlink(draft.c_str());
  return made;
}

bool same_file(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino && a.st_size == b.st_size &&
         a.st_mtim.tv_sec == b.st_mtim.tv_sec && a.st_mtim.tv_nsec == b.st_mtim.tv_nsec &&
         a.st_ctim.tv_sec == b.st_ctim.tv_sec && a.st_ctim.tv_nsec == b.st_ctim.tv_nsec;
}

}  // namespace

result<std::vector<cluster_secret>> secret_file::read(const std::string& path) {
  auto text = read_kept_file(path, size_max, "cluster secret file");
  if (!text) return fail(text.error());
  const auto refused = [&](const std::string& why) {
    OPENSSL_cleanse(text->data(), text->size());
    return fail(ec::invalid_argument, "cluster secret file " + path + ": " + why);
  };
  std::vector<cluster_secret> all;
  std::string_view left = *text;
  while (!left.empty()) {
    const auto line = left.substr(0, left.find('\n'));
    left.remove_prefix(std::min(line.size() + 1, left.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    auto secret = cluster_secret::from_text(line);
    if (!secret) return refused(secret.error().detail);
    all.push_back(std::move(*secret));
  }
  if (all.empty()) return refused(cluster_secret::from_text({}).error().detail);
  if (all.size() > secrets_max)
    return refused(std::to_string(all.size()) + " lines; there may be " + std::to_string(secrets_max) +
                   ", each a secret");
  OPENSSL_cleanse(text->data(), text->size());
  return all;
}

result<std::shared_ptr<const secret_file>> secret_file::open(const std::string& path, complaint complain) {
  if (path.empty()) {
    const auto own = own_path();
    return own ? open_or_make(*own, std::move(complain)) : fail(own.error());
  }
  const std::shared_ptr<secret_file> made{new secret_file(path, std::move(complain))};
  if (::stat(path.c_str(), &made->seen_) != 0) made->seen_ = {};  // the reader says why
  auto all = read(path);
  if (!all) return fail(all.error());
  made->secrets_ = std::move(*all);
  return made;
}

result<std::shared_ptr<const secret_file>> secret_file::open_or_make(const std::string& path,
                                                                     complaint complain) {
  if (::access(path.c_str(), F_OK) != 0) {
    if (auto made = make_secret_file(path); !made)
      return fail(ec::io_error,
                  "cannot make the cluster secret file " + path + ": " + made.error().detail +
                      "; give --cluster-secret-file FILE, with the same secret for all processes");
  }
  return open(path, std::move(complain));
}

std::vector<cluster_secret> secret_file::secrets() const {
  std::lock_guard lock{mutex_};
  struct stat now {};
  // Between two halves of a replacement that is not atomic there may be no file; it is looked for the next time.
  if (::stat(path_.c_str(), &now) != 0 || same_file(now, seen_)) return secrets_;
  seen_ = now;
  if (auto all = read(path_)) secrets_ = std::move(*all);
  else if (complain_) complain_(all.error());
  return secrets_;
}

result<std::string> secret_file::own_path() {
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

std::string key_ring::own() const {
  if (!file_) return key_;
  const auto key = file_->secrets().front().derive(key_);
  return {reinterpret_cast<const char*>(key.data()), key.size()};
}

std::vector<std::string> key_ring::accepted() const {
  if (!file_) return {key_};
  std::vector<std::string> all;
  for (const auto& secret : file_->secrets()) {
    const auto key = secret.derive(key_);
    all.emplace_back(reinterpret_cast<const char*>(key.data()), key.size());
  }
  return all;
}

}  // namespace mooncaf
