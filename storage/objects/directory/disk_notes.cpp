#include "storage/objects/directory/disk_notes.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstdio>
#include <cstring>
#include <filesystem>

#include "runtime/base/replace_file.hpp"

namespace mooncaf {

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t magic = 0x3173'6574'6f6e'646full;  // "odnotes1"
constexpr unsigned probes = 6;
constexpr std::size_t header_bytes = 64;
constexpr std::uint64_t bits = (disk_notes::page_bytes - header_bytes) * 8;
enum field : std::size_t { magic_at, disk_at, keys_at, all_at };

std::uint64_t get(std::span<const std::byte> page, field f) {
  std::uint64_t n = 0;
  std::memcpy(&n, page.data() + 8 * f, sizeof n);
  return n;
}

void put(std::span<std::byte> page, field f, std::uint64_t n) {
  std::memcpy(page.data() + 8 * f, &n, sizeof n);
}

/// Place of a key's i-th bit.
std::uint64_t bit_of(std::uint64_t key, unsigned i) {
  const std::uint64_t step = (key >> 32 | key << 32) | 1;
  return (key + i * step) % bits;
}

std::string hex(std::uint64_t n) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(n));
  return text;
}

std::uint64_t number_in(const std::string& text) {
  try {
    std::size_t used = 0;
    const auto n = std::stoull(text, &used, 16);
    return used == text.size() ? n : 0;
  } catch (const std::exception&) {
    return 0;
  }
}

error failed(const std::string& path) {
  return {errno == ENOSPC ? ec::out_of_space : ec::io_error, path + ": " + errno_text()};
}

}  // namespace

disk_notes::~disk_notes() {
  for (auto& [disk, p] : pages_)
    if (p.in_memory.empty()) ::munmap(p.bytes.data(), p.bytes.size());
}

result<std::unique_ptr<disk_notes>> disk_notes::open(std::string folder, std::uint64_t store) {
  auto made = std::make_unique<disk_notes>(store);
  made->folder_ = std::move(folder);
  std::error_code none;
  if (!fs::exists(made->folder_, none)) return made;
  if (auto ok = made->make_folder(); !ok) return fail(ok.error());
  for (const auto& entry : fs::directory_iterator{made->folder_, none}) {
    if (entry.path().extension() != ".away") continue;
    const auto disk = number_in(entry.path().stem().string());
    auto mapped = made->map(disk, false);
    if (!mapped) continue;  // notes that cannot be read do not count, nor does their SSD
    made->pages_[disk] = {{}, *mapped, true};
  }
  return made;
}

result<void> disk_notes::forget(const std::string& folder) {
  std::error_code none;
  if (!fs::exists(folder + "/store", none)) return {};
  disk_notes ours{1};
  ours.folder_ = folder;
  if (auto ok = ours.make_folder(); !ok) return ok;
  for (const auto& entry : fs::directory_iterator{folder, none})
    if (entry.path().extension() == ".away") fs::remove(entry.path(), none);
  std::error_code why;
  fs::remove(folder + "/store", why);
  return why ? fail(ec::io_error, folder + "/store: " + why.message()) : result<void>{};
}

/// Makes the folder ours, and finds its number or gives it one.
result<void> disk_notes::make_folder() {
  if (lock_) return {};
  std::error_code why;
  fs::create_directories(folder_, why);
  if (why) return fail(ec::io_error, folder_ + ": " + why.message());
  ::chmod(folder_.c_str(), 0700);
  unique_fd lock{::open((folder_ + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)};
  if (!lock) return fail(failed(folder_ + "/lock"));
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0)
    return fail(ec::already_exists,
                folder_ + " is in use by another directory; give each one a --state of its own");
  const auto path = folder_ + "/store";
  char text[17] = {};
  const unique_fd old{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (old && ::read(old.get(), text, 16) == 16 && number_in(text) != 0) {
    store_ = number_in(text);
  } else if (auto written = replace_file(path, hex(store_), 0600); !written) {
    return written;
  }
  lock_ = std::move(lock);
  return {};
}

result<std::span<std::byte>> disk_notes::map(std::uint64_t disk, bool make) const {
  const auto path = folder_ + "/" + hex(disk) + ".away";
  const unique_fd fd{::open(path.c_str(), O_RDWR | O_CLOEXEC | (make ? O_CREAT : 0), 0600)};
  if (!fd) return fail(failed(path));
  struct ::stat is {};
  if (::fstat(fd.get(), &is) != 0) return fail(failed(path));
  if (!make && is.st_size != static_cast<off_t>(page_bytes)) return fail(ec::corrupt, path);
  // The whole file is allocated: a mapped page for which a full disk has no room would kill the process when
  // it is written to.
  errno = ::posix_fallocate(fd.get(), 0, page_bytes);
  if (errno != 0) return fail(failed(path));
  void* const at = ::mmap(nullptr, page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (at == MAP_FAILED) return fail(failed(path));
  const std::span<std::byte> page{static_cast<std::byte*>(at), page_bytes};
  if (!make && (get(page, magic_at) != magic || get(page, disk_at) != disk)) {
    ::munmap(at, page_bytes);
    return fail(ec::corrupt, path);
  }
  return page;
}

std::vector<std::uint64_t> disk_notes::known() const {
  std::vector<std::uint64_t> all;
  for (const auto& [disk, p] : pages_) all.push_back(disk);
  return all;
}

result<void> disk_notes::adopt(std::uint64_t disk) {
  result<void> written;
  if (!knows(disk)) {
    auto& p = pages_[disk];
    if (!folder_.empty()) written = make_folder();
    if (!folder_.empty() && written) {
      const auto mapped = map(disk, true);
      if (mapped) p.bytes = *mapped;
      else written = fail(mapped.error());
    }
    if (p.bytes.empty()) {
      p.in_memory.resize(page_bytes);
      p.bytes = p.in_memory;
    }
  }
  clear(disk);
  is_back(disk);
  return written;
}

void disk_notes::leave(std::uint64_t disk) {
  if (const auto found = pages_.find(disk); found != pages_.end()) found->second.away = true;
}

void disk_notes::is_back(std::uint64_t disk) {
  if (const auto found = pages_.find(disk); found != pages_.end()) found->second.away = false;
}

void disk_notes::drop(std::uint64_t disk) {
  const auto gone = pages_.extract(disk);
  if (gone.empty() || !gone.mapped().in_memory.empty()) return;
  ::munmap(gone.mapped().bytes.data(), gone.mapped().bytes.size());
  std::error_code none;
  fs::remove(folder_ + "/" + hex(disk) + ".away", none);
}

void disk_notes::clear(std::uint64_t disk) {
  const auto found = pages_.find(disk);
  if (found == pages_.end()) return;
  const auto page = found->second.bytes;
  const bool written = get(page, magic_at) != magic || get(page, keys_at) != 0 || get(page, all_at) != 0;
  if (!written) return;
  std::memset(page.data(), 0, page.size());
  put(page, disk_at, disk);
  put(page, magic_at, magic);
}

void disk_notes::note(disk_page& p, std::uint64_t key) {
  for (unsigned i = 0; i < probes; ++i) {
    const auto bit = bit_of(key, i);
    p.bytes[header_bytes + bit / 8] |= std::byte{1} << (bit % 8);
  }
  const auto keys = get(p.bytes, keys_at) + 1;
  put(p.bytes, keys_at, keys);
  if (keys > keys_max) put(p.bytes, all_at, 1);
}

void disk_notes::note(std::uint64_t key) {
  for (auto& [disk, p] : pages_)
    if (p.away) note(p, key);
}

void disk_notes::note(std::uint64_t disk, std::uint64_t key) {
  if (const auto found = pages_.find(disk); found != pages_.end()) note(found->second, key);
}

void disk_notes::note_all() {
  for (auto& [disk, p] : pages_) {
    if (!p.away) continue;
    put(p.bytes, keys_at, get(p.bytes, keys_at) + 1);
    put(p.bytes, all_at, 1);
  }
}

bool disk_notes::noted(std::uint64_t disk, std::uint64_t key) const {
  const auto found = pages_.find(disk);
  if (found == pages_.end() || get(found->second.bytes, all_at) != 0) return true;
  for (unsigned i = 0; i < probes; ++i) {
    const auto bit = bit_of(key, i);
    if ((found->second.bytes[header_bytes + bit / 8] & std::byte{1} << (bit % 8)) == std::byte{})
      return false;
  }
  return true;
}

}  // namespace mooncaf
