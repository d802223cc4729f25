#pragma once
// Moves bytes between memory of this process and memory of others, one-sidedly, by the address of a peer and
// plain addresses in it, as Mooncake's TransferEngine does, over mooncaf's transports.
//
//   move(target, …) ──► known peer? ──no──► ask its endpoint: data plane and regions
//                           │yes                        │
//                           ▼                           ▼
//                     data_plane: shared memory (managed buffers of the same host), RDMA, TCP
//
// No actor, no signal handler, nothing on standard output.

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/base/result.hpp"
#include "storage/arena.hpp"
#include "storage/engine/engine_endpoint.hpp"
#include "storage/offset_allocator.hpp"
#include "transport/data_plane.hpp"

namespace mooncaf {

/// Purpose for which the engines' key is derived from the cluster's secret (`cluster_secret::derive`).
inline constexpr std::string_view engine_key_purpose = "transfer engine v1";

struct transfer_engine_options {
  key_ring secret;
  std::string host = "127.0.0.1";        ///< numeric address; where others reach this process
  std::uint16_t port = 0;                ///< of the endpoint; see `engine_endpoint::open`
  bool rdma = false;                     ///< where there is a device
  std::uint64_t arena_bytes = 64 * MiB;  ///< managed buffers are cut out of arenas of this size, or larger
};

/// Bytes to move: plain addresses, here and there.
struct engine_piece {
  std::uint64_t local = 0, remote = 0, bytes = 0;
};

struct engine_word {
  std::string name, text;
};

/// @thread  All functions may be called from any thread; a thread that waits holds no lock meanwhile.
class transfer_engine {
 public:
  static result<std::unique_ptr<transfer_engine>> start(transfer_engine_options options);
  ~transfer_engine();  ///< waits for transfers under way

  /// The endpoint's port: HOST:PORT is this engine's name.
  std::uint16_t port() const noexcept { return endpoint_->port(); }

  /// Offers memory of this process to peers that know the secret, and lets it be the local side of transfers.
  /// It must stay until it is taken back. @error `ec::already_exists` if it overlaps with memory on offer,
  /// `ec::invalid_argument`
  result<void> offer(std::uint64_t address, std::uint64_t bytes);
  /// @error `ec::not_found` if no offered memory begins there; as `data_plane::unregister_region`
  result<void> take_back(std::uint64_t address);

  /// A buffer of the engine's own memory, which is offered, and which processes of this host map.
  /// @error `ec::out_of_space`, `ec::invalid_argument` for none
  result<std::uint64_t> allocate(std::uint64_t bytes);
  /// @error `ec::not_found`
  result<void> release(std::uint64_t address);

  /// Moves the pieces; a failure may leave some of them moved. Waits for the end. Memory of this process that
  /// is not offered is registered for the time of the transfer.
  /// @param target  HOST:PORT of an engine. @error `ec::not_found` for addresses that the peer does not
  /// offer; errors of `ask_engine` and of transfers.
  result<void> move(transfer_op op, const std::string& target, const std::vector<engine_piece>& pieces,
                    duration limit);
  /// The same without waiting. @returns a number for `ended`. @error as `move`, if it cannot begin
  result<std::uint64_t> begin(transfer_op op, const std::string& target,
                              const std::vector<engine_piece>& pieces, duration limit);
  enum class state { running, done, failed, unknown };
  /// A transfer that has ended is forgotten when that was told. @param wait  until it has.
  state ended(std::uint64_t number, bool wait);

  /// Where the first region that the peer offers begins. @error as `ask_engine`; `ec::not_found` if it offers
  /// none
  result<std::uint64_t> first_address(const std::string& target);
  /// Whether an engine that knows the secret answers there.
  result<void> probe(const std::string& target);
  /// Gives a word to the program behind that engine.
  result<void> notify(const std::string& target, const engine_word& word);
  /// Words that came, oldest first; the newest 65,536.
  std::vector<engine_word> take_words();

 private:
  struct offered {
    region_id region;
    std::uint64_t bytes = 0;
    bool managed = false;
  };
  struct pool {
    arena memory;
    offset_allocator space;
  };
  using regions = std::vector<region_id>;
  struct outcome {
    bool ended = false, good = false;
    regions borrowed;  ///< for the time of the transfer
  };
  transfer_engine(transfer_engine_options options) : options_(std::move(options)) {}
  result<announcement> describe(const std::string& target, bool again);
  result<transfer> prepare(transfer_op op, const announcement& peer, const std::vector<engine_piece>& pieces,
                           duration limit, regions& borrowed);
  void unregister(const regions& borrowed);
  result<completion> attempt(transfer_op op, const std::string& target,
                             const std::vector<engine_piece>& pieces, duration limit, bool again);
  result<slice> local_slice(std::uint64_t address, std::uint64_t bytes, regions& borrowed);
  result<void> add(std::uint64_t address, std::uint64_t bytes, int fd, bool managed);
  void heard(engine_word word);

  transfer_engine_options options_;
  std::mutex mutex_;  // guards everything up to `plane_`
  std::condition_variable changed_;
  std::map<std::uint64_t, offered> offered_;  ///< by where it begins
  std::vector<std::unique_ptr<pool>> pools_;
  std::unordered_map<std::uint64_t, std::pair<std::size_t, std::uint32_t>> buffers_;  ///< pool, handle
  std::unordered_map<std::string, announcement> peers_;
  std::unordered_map<std::uint64_t, outcome> under_way_;
  std::vector<engine_word> words_;
  std::uint64_t next_ = 1;
  std::unique_ptr<data_plane> plane_;
  std::unique_ptr<engine_endpoint> endpoint_;  // first to go: it asks for all of the above
};

}  // namespace mooncaf
