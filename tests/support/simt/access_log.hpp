#pragma once
// Who touched what, and when: what races are found with.

#include <cstddef>
#include <cstdint>

namespace mooncaf::simt {

/// When an access happens: the launch's first block and this one, counted since the machine began; barriers
/// of the block so far; and the thread.
struct moment {
  std::uint32_t launch = 1;
  std::uint32_t block = 1;
  std::uint32_t barrier = 0;
  std::uint32_t thread = 0;
};

/// Of each two bytes of a memory, the last write and who has read since. Two bytes are one place: threads
/// that write neighbouring single bytes count as racing.
class access_log {
 public:
  /// Address range for `bytes` of memory, from the system as it is used.
  explicit access_log(std::size_t bytes);
  ~access_log();
  access_log(const access_log&) = delete;
  access_log& operator=(const access_log&) = delete;

  /// As `moment::thread`: any thread, by an operation that no other of its kind comes between.
  static constexpr std::uint32_t atomically = ~std::uint32_t{0} - 2;

  enum class verdict { fine, races_with_write, races_with_read, on_its_way };

  verdict read(std::size_t at, std::size_t bytes, const moment& now, std::uint32_t& other);
  verdict write(std::size_t at, std::size_t bytes, const moment& now, std::uint32_t& other);
  /// An asynchronous copy's target: nobody may touch it until `land`.
  verdict begin_copy(std::size_t at, std::size_t bytes, const moment& now, std::uint32_t& other);
  void land(std::size_t at, std::size_t bytes, const moment& now);
  /// Whether this block has written all of it.
  bool written(std::size_t at, std::size_t bytes, const moment& now) const;

 private:
  static constexpr std::uint32_t several = ~std::uint32_t{0};
  static constexpr std::uint32_t in_flight = several - 1;

  struct mark {
    std::uint32_t block;  ///< 0: none; `several`: more than one of the launch whose number `barrier` is then
    std::uint32_t barrier;  ///< `in_flight`: an asynchronous copy that was not waited for
    std::uint32_t thread;   ///< `several` of this block since this barrier
  };
  struct cell {
    mark write, read;
  };

  static bool conflicts(const mark& m, const moment& now);
  cell* cells_ = nullptr;
  std::size_t count_;
};

/// Where an address lies: in which log, and where there. No log: in the thread's own memory.
struct access_place {
  access_log* log = nullptr;
  std::size_t at = 0;
  bool shared = false;
};

}  // namespace mooncaf::simt
