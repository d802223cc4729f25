#pragma once
// Questions about many objects, as a client of the store asks them.

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "storage/objects/wire/shard_links.hpp"
#include "storage/objects/wire/store_wire.hpp"

namespace mooncaf {

inline void put_keys(byte_writer& out, std::span<const std::string_view> keys) {
  out.put(static_cast<std::uint32_t>(keys.size()));
  for (const auto key : keys) out.put_text(key);
}

/// Splits items that do not fit one question. @param one  answers for a part of the items
template <class Result, class Item, class Ask>
std::vector<Result> in_batches(std::span<const Item> items, const Ask& one) {
  if (items.size() <= store_wire::batch_max) return one(items);
  std::vector<Result> all;
  for (std::size_t at = 0; at < items.size(); at += store_wire::batch_max) {
    const auto part = one(items.subspan(at, std::min<std::size_t>(store_wire::batch_max, items.size() - at)));
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

struct key_question {
  store_wire::op what;
  std::optional<bool> force;  ///< stands before the keys in questions that have it
};

/// One question about many keys: each shard is asked about its own.
/// @param links  gets `shard_dialer::links`, or an error. @param take  reads the answer for one key.
/// @param refuse  makes a result of a code.
template <class Result, class Links, class Take, class Refuse>
std::vector<Result> ask_about(const Links& links, const key_question& question,
                              std::span<const std::string_view> all, const Take& take, const Refuse& refuse) {
  return in_batches<Result>(all, [&](std::span<const std::string_view> keys) {
    const auto to = links();
    if (!to) return std::vector<Result>(keys.size(), refuse(store_wire::code_of(to.error())));
    std::vector<Result> results(keys.size());
    const auto ask = [&](const shard_part& part, byte_writer& out) {
      if (question.force) out.put(static_cast<std::uint8_t>(*question.force));
      out.put(static_cast<std::uint32_t>(part.size));
      for (std::size_t i = 0; i < part.size; ++i) out.put_text(keys[part.at(i)]);
    };
    const auto hear = [&](const shard_part& part, const shard_links::answer& answer) {
      byte_reader in{answer ? std::span<const std::byte>{*answer} : std::span<const std::byte>{}};
      in.get<std::uint32_t>();
      for (std::size_t i = 0; i < part.size; ++i) {
        auto& one = results[part.at(i)];
        if (answer) one = take(in);
        if (!answer || !in.ok())
          one = refuse(answer ? store_code::internal : store_wire::code_of(answer.error()));
      }
    };
    (*to)->ask(question.what, (*to)->parts(keys.size(), [&](std::size_t i) { return keys[i]; }), ask, hear);
    return results;
  });
}

}  // namespace mooncaf
