#include "runtime/engines/kv_news.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <msgpack.hpp>
#include <string_view>
#include <utility>

namespace mooncaf {

namespace {

using msgpack::object;

/// Of a message; far beyond what an engine publishes after one step.
constexpr std::size_t most_elements = 1 << 22;
constexpr std::size_t deepest = 16;

struct malformed {
  const char* what;
};

bool is_nil(const object& o) { return o.type == msgpack::type::NIL; }

std::string_view text_of(const object& o, const char* what) {
  if (o.type != msgpack::type::STR) throw malformed{what};
  return {o.via.str.ptr, o.via.str.size};
}

std::int64_t whole_of(const object& o, const char* what) {
  if (o.type == msgpack::type::POSITIVE_INTEGER && o.via.u64 <= std::numeric_limits<std::int64_t>::max())
    return static_cast<std::int64_t>(o.via.u64);
  if (o.type == msgpack::type::NEGATIVE_INTEGER) return o.via.i64;
  throw malformed{what};
}

std::span<const object> list_of(const object& o, const char* what) {
  if (o.type != msgpack::type::ARRAY) throw malformed{what};
  return {o.via.array.ptr, o.via.array.size};
}

hash128 name_of(const object& o) {
  if (o.type == msgpack::type::POSITIVE_INTEGER || o.type == msgpack::type::NEGATIVE_INTEGER)
    return {0, o.via.u64};
  if (o.type != msgpack::type::BIN) throw malformed{"a block's hash is neither bytes nor a number"};
  std::array<std::uint64_t, 2> words{};
  const auto bytes = std::min<std::size_t>(o.via.bin.size, sizeof words);
  std::copy_n(o.via.bin.ptr, bytes, reinterpret_cast<char*>(words.data()));
  return {words[0], words[1]};
}

std::vector<hash128> names_of(const object& o) {
  std::vector<hash128> out;
  for (const auto& hash : list_of(o, "block_hashes is no list")) out.push_back(name_of(hash));
  return out;
}

/// An event's fields by name, whichever of both forms it has.
class fields {
 public:
  fields(const object& event, std::span<const std::string_view> order) : event_(event), order_(order) {}

  /// Null if it is not there.
  const object* find(std::string_view name) const {
    if (event_.type == msgpack::type::ARRAY) {
      const auto at = static_cast<std::size_t>(std::ranges::find(order_, name) - order_.begin()) + 1;
      return at < event_.via.array.size ? &event_.via.array.ptr[at] : nullptr;
    }
    for (std::uint32_t i = 0; i < event_.via.map.size; ++i) {
      const auto& entry = event_.via.map.ptr[i];
      if (entry.key.type == msgpack::type::STR && text_of(entry.key, "") == name) return &entry.val;
    }
    return nullptr;
  }
  const object& at(std::string_view name, const char* missing) const {
    const auto* found = find(name);
    if (found == nullptr) throw malformed{missing};
    return *found;
  }
  bool has(std::string_view name) const {
    const auto* found = find(name);
    return found != nullptr && !is_nil(*found);
  }

 private:
  const object& event_;
  std::span<const std::string_view> order_;
};

constexpr std::array<std::string_view, 11> stored_order{"block_hashes",
                                                        "parent_block_hash",
                                                        "token_ids",
                                                        "block_size",
                                                        "lora_id",
                                                        "medium",
                                                        "lora_name",
                                                        "extra_keys",
                                                        "group_idx",
                                                        "kv_cache_spec_kind",
                                                        "kv_cache_spec_sliding_window"};
constexpr std::array<std::string_view, 3> removed_order{"block_hashes", "medium", "group_idx"};

std::string_view kind_of(const object& event) {
  if (event.type == msgpack::type::ARRAY && event.via.array.size > 0)
    return text_of(event.via.array.ptr[0], "an event's kind is no text");
  if (event.type == msgpack::type::MAP) {
    const fields all{event, {}};
    return text_of(all.at("type", "an event has no type"), "an event's kind is no text");
  }
  throw malformed{"an event is neither a map nor a list"};
}

/// Of a model with several kinds of layers the group with whole contexts is the first.
bool is_of_a_window(const fields& event) {
  if (event.has("kv_cache_spec_sliding_window")) return true;
  const auto* group = event.find("group_idx");
  return group != nullptr && !is_nil(*group) && whole_of(*group, "group_idx is no number") > 0;
}

/// The salt of a prompt's first block, and how many blocks need nothing else.
void read_extra_keys(const fields& event, kv_news& out) {
  out.plain = event.has("lora_name") || event.has("lora_id") ? 0 : out.blocks.size();
  const auto* extra = event.find("extra_keys");
  if (out.plain == 0 || extra == nullptr || is_nil(*extra)) return;
  const auto of_blocks = list_of(*extra, "extra_keys is no list");
  for (std::size_t i = 0; i < std::min(of_blocks.size(), out.blocks.size()); ++i) {
    if (is_nil(of_blocks[i])) continue;
    const auto keys = list_of(of_blocks[i], "extra_keys of a block are no list");
    if (keys.empty()) continue;
    if (i == 0 && !out.parent && keys.size() == 1 && keys[0].type == msgpack::type::STR) {
      out.salt = text_of(keys[0], "");
      continue;
    }
    out.plain = i;
    return;
  }
}

kv_news stored_of(const fields& event) {
  kv_news out;
  out.blocks = names_of(event.at("block_hashes", "BlockStored has no block_hashes"));
  if (event.has("parent_block_hash")) out.parent = name_of(*event.find("parent_block_hash"));
  const auto size =
      whole_of(event.at("block_size", "BlockStored has no block_size"), "block_size is no number");
  if (size <= 0 || size > std::numeric_limits<std::int32_t>::max())
    throw malformed{"block_size is out of range"};
  out.block_tokens = static_cast<std::uint32_t>(size);
  for (const auto& token :
       list_of(event.at("token_ids", "BlockStored has no token_ids"), "token_ids is no list")) {
    const auto id = whole_of(token, "a token's id is no number");
    if (id < 0 || id > std::numeric_limits<std::int32_t>::max())
      throw malformed{"a token's id is out of range"};
    out.tokens.push_back(static_cast<std::int32_t>(id));
  }
  if (out.tokens.size() != out.blocks.size() * out.block_tokens)
    throw malformed{"token_ids are not block_size for each of block_hashes"};
  read_extra_keys(event, out);
  return out;
}

std::optional<kv_news> event_of(const object& event) {
  const auto kind = kind_of(event);
  if (kind == "AllBlocksCleared") {
    kv_news out;
    out.what = block_change::removed;
    out.all = true;
    return out;
  }
  const bool stored = kind == "BlockStored";
  if (!stored && kind != "BlockRemoved") return std::nullopt;
  const fields all{event, stored ? std::span<const std::string_view>{stored_order}
                                 : std::span<const std::string_view>{removed_order}};
  if (is_of_a_window(all)) return std::nullopt;
  kv_news out;
  if (stored) {
    out = stored_of(all);
  } else {
    out.what = block_change::removed;
    out.blocks = names_of(all.at("block_hashes", "BlockRemoved has no block_hashes"));
  }
  if (all.has("medium")) out.medium = text_of(*all.find("medium"), "medium is no text");
  return out;
}

}  // namespace

result<std::vector<kv_news>> read_kv_news(std::span<const std::byte> bytes) {
  try {
    const msgpack::unpack_limit limit(most_elements, most_elements, most_elements, most_elements,
                                      most_elements, deepest);
    std::size_t end = 0;
    const auto whole = msgpack::unpack(reinterpret_cast<const char*>(bytes.data()), bytes.size(), end,
                                       nullptr, nullptr, limit);
    if (end != bytes.size()) throw malformed{"there is more behind its end"};
    const auto batch = list_of(whole.get(), "it is no list");
    if (batch.size() < 2) throw malformed{"it has no events"};
    std::vector<kv_news> out;
    for (const auto& event : list_of(batch[1], "its events are no list"))
      if (auto one = event_of(event)) out.push_back(std::move(*one));
    return out;
  } catch (const malformed& m) {
    return fail(ec::corrupt, std::string{"KV events of the engine: "} + m.what);
  } catch (const msgpack::unpack_error& e) {
    return fail(ec::corrupt, std::string{"KV events of the engine are no MessagePack: "} + e.what());
  }
}

}  // namespace mooncaf
