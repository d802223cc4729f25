#include "storage/files/partial_files.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "storage/file_slice.hpp"

namespace mooncaf {

namespace fs = std::filesystem;

namespace {

error about(const std::string& path) { return {ec::io_error, path + ": " + errno_text()}; }

bool sync(const std::string& path) {
  const unique_fd fd{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  return fd && ::fsync(fd.get()) == 0;
}

}  // namespace

std::string partial_files::draft_of(std::size_t file) const {
  const auto& name = manifest_->files()[file].name;
  return manifest_->folder() ? draft() + "/" + name : draft();
}

result<partial_files> partial_files::open(std::string path, const file_manifest& manifest, bool whole) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  path = fs::absolute(path).string();
  partial_files made{std::move(path), manifest};
  if (auto ok = made.make(whole); !ok) return fail(ok.error());
  return made;
}

// Room is taken at once, so that a disk that is too small says so before anything has come.
result<void> partial_files::make(bool whole) {
  std::error_code failed;
  if (fs::exists(path_, failed)) return fail(ec::already_exists, path_ + " is there already");
  const auto slice = file_slice::data_of(path_);
  if (!fs::exists(draft(), failed) && fs::exists(slice, failed)) {
    fs::remove(file_slice::note_of(path_), failed);
    if (std::rename(slice.c_str(), draft().c_str()) != 0) return fail(about(slice));
  }
  resumed_ = fs::exists(draft(), failed);
  fs::create_directories(fs::path{draft()}.parent_path(), failed);
  if (manifest_->folder()) fs::create_directories(draft(), failed);
  if (failed) return fail(ec::io_error, draft() + ": " + failed.message());
  for (std::size_t i = 0; i < manifest_->files().size(); ++i) {
    const auto name = draft_of(i);
    if (manifest_->folder()) fs::create_directories(fs::path{name}.parent_path(), failed);
    unique_fd fd{::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)};
    const auto bytes = static_cast<off_t>(manifest_->files()[i].bytes);
    if (!fd || ::ftruncate(fd.get(), bytes) != 0) return fail(about(name));
    if (whole && bytes > 0 && ::fallocate(fd.get(), 0, 0, bytes) != 0 && errno != EOPNOTSUPP)
      return fail(about(name));
    if (i == 0) lock_ = std::move(fd);
  }
  if (lock_ && ::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0)
    return fail(ec::already_exists, draft() + " is being fetched by another process");
  return {};
}

bool partial_files::read(std::size_t part, std::span<std::byte> into) const {
  const auto p = manifest_->part(part);
  const unique_fd fd{::open(draft_of(p.file).c_str(), O_RDONLY | O_CLOEXEC)};
  for (std::size_t done = 0; done < into.size();) {
    const auto n =
        fd ? ::pread(fd.get(), into.data() + done, into.size() - done, static_cast<off_t>(p.offset + done))
           : -1;
    if (n <= 0) return false;
    done += static_cast<std::size_t>(n);
  }
  return true;
}

result<void> partial_files::write(std::size_t part, std::span<const std::byte> bytes) const {
  return write(manifest_->part(part), bytes);
}

result<void> partial_files::write(const file_range& p, std::span<const std::byte> bytes) const {
  const auto name = draft_of(p.file);
  const unique_fd fd{::open(name.c_str(), O_WRONLY | O_CLOEXEC)};
  for (std::size_t done = 0; done < bytes.size();) {
    const auto n =
        fd ? ::pwrite(fd.get(), bytes.data() + done, bytes.size() - done, static_cast<off_t>(p.offset + done))
           : -1;
    if (n < 0) return fail(about(name));
    done += static_cast<std::size_t>(n);
  }
  // The disk begins at once, so that little is left for the end.
  ::sync_file_range(fd.get(), static_cast<off_t>(p.offset), static_cast<off_t>(p.bytes),
                    SYNC_FILE_RANGE_WRITE);
  return {};
}

result<void> partial_files::finish() { return place(path_); }

// The note is written before its slice has its name, so that no slice is without one.
result<void> partial_files::finish_slice(const std::vector<bool>& here) {
  file_slice slice;
  for (const auto& file : manifest_->files()) slice.add_file(file.name, file.bytes);
  for (std::size_t i = 0; i < here.size(); ++i)
    if (here[i]) slice.add(manifest_->part(i));
  if (auto ok = slice.write(path_); !ok) return ok;
  return place(file_slice::data_of(path_));
}

result<void> partial_files::place(const std::string& at) {
  for (std::size_t i = 0; i < manifest_->files().size(); ++i)
    if (!sync(draft_of(i))) return fail(about(draft_of(i)));
  std::error_code failed;
  if (fs::exists(at, failed)) return fail(ec::already_exists, at + " has come meanwhile");
  if (std::rename(draft().c_str(), at.c_str()) != 0) return fail(about(at));
  const auto folder = fs::path{at}.parent_path();
  sync(folder.empty() ? "." : folder.string());
  return {};
}

}  // namespace mooncaf
