#pragma once
// The news of its prefix cache that an engine publishes over ZeroMQ, in the form of vLLM (vllm.distributed.kv_events):
// a MessagePack list [seconds, [event, …], rank]. An event is a map with its kind under "type" or, from older
// versions, a list that begins with it. Facts of the format are vLLM's; SGLang writes the same one.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/block_news.hpp"
#include "runtime/base/hash.hpp"
#include "runtime/base/result.hpp"

namespace mooncaf {

/// One change of an engine's prefix cache.
struct kv_news {
  block_change what = block_change::stored;  ///< … each behind the one before it, or `removed`
  bool all = false;                          ///< `removed`: every block that the engine holds
  /// The engine's own names, made of the first 16 bytes of its hashes, or of the number that it has in their place.
  std::vector<hash128> blocks;
  std::string medium;  ///< where: "GPU", "CPU" or what else it is called; empty: not told
  // ---- of stored blocks ----
  std::optional<hash128> parent;     ///< the block before the first; none: that one begins a prompt
  std::vector<std::int32_t> tokens;  ///< of all the blocks together
  std::uint32_t block_tokens = 0;    ///< > 0: of each
  std::string salt;                  ///< `cache_salt` of the request; of blocks that begin a prompt
  /// So many of the first blocks follow from their tokens and the salt alone: no picture and no adapter is in them.
  std::size_t plain = 0;
};

/// News that were published together.
/// Events about groups of layers that hold a window of the context only are left out: such blocks do not make a
/// prefix. So are kinds that are not known.
/// @param bytes  of one message. @error `ec::corrupt` with the reason; nothing is taken then.
result<std::vector<kv_news>> read_kv_news(std::span<const std::byte> bytes);

}  // namespace mooncaf
