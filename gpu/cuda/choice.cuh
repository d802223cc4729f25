#pragma once
// Chooses tokens: one block of threads per row of logits. gpu/token_choice.hpp defines the choice; here
// weights are integers, 2^-34 being 1, so that threads may add them up in any order.

#include "gpu/cuda/kernel_params.hpp"
#include "gpu/cuda/simt.hpp"

namespace mooncaf::cuda {

using namespace mooncaf::simt;

inline constexpr unsigned choice_warps = choice_threads / warp_threads;

/// Shared memory of a block's threads.
struct choice_room {
  std::uint64_t parts[choice_warps];
  std::uint64_t masses[256];  ///< by digit, as `counts`
  std::uint32_t counts[256];
  std::uint64_t rest;
  std::uint32_t digit;
  std::uint32_t taken;
  float before;
};

MOONCAF_DEVICE bool is_finite(float x) { return (bits_of(x) & 0x7F800000u) != 0x7F800000u; }

/// Sorts as the numbers do, from 1 for the least; 0 for NaN. Both zeros are one.
MOONCAF_DEVICE std::uint32_t order_key(float x) {
  const std::uint32_t bits = bits_of(x + 0.0f);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return 0;
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
MOONCAF_DEVICE float number_of(std::uint32_t key) {
  return float_from_bits((key & 0x80000000u) != 0 ? key & 0x7FFFFFFFu : ~key);
}
inline constexpr std::uint32_t least_key = 0x007FFFFFu;  ///< of minus infinity

MOONCAF_DEVICE std::uint64_t units_of(float weight) {
  return static_cast<std::uint64_t>(weight * 17179869184.0f);
}

/// Values that a thread asks memory for before it looks at the first.
inline constexpr unsigned values_ahead = 8;

/// visit(value, i) for all entries of a row; a thread's in ascending order.
template <class Visit>
MOONCAF_DEVICE void each_entry(const float* row, std::uint32_t n, const Visit& visit) {
  MOONCAF_ROLLED
  for (unsigned first = thread_index(); first < n; first += values_ahead * choice_threads) {
    float values[values_ahead];
    MOONCAF_UNROLL
    for (unsigned j = 0; j < values_ahead; ++j)
      values[j] = first + j * choice_threads < n ? row[first + j * choice_threads] : 0;
    MOONCAF_UNROLL
    for (unsigned j = 0; j < values_ahead; ++j)
      if (first + j * choice_threads < n) visit(values[j], first + j * choice_threads);
  }
}

/// Combined over the block, equal in all threads.
template <class Join>
MOONCAF_DEVICE std::uint64_t combined(choice_room& room, std::uint64_t x, const Join& join) {
  for (unsigned mask = warp_threads / 2; mask != 0; mask /= 2) x = join(x, shuffle_xor(x, mask));
  sync_block();
  if (thread_index() % warp_threads == 0) room.parts[thread_index() / warp_threads] = x;
  sync_block();
  x = room.parts[0];
  MOONCAF_ROLLED
  for (unsigned i = 1; i < choice_warps; ++i) x = join(x, room.parts[i]);
  return x;
}
/// Sum of amount(value, i) over the row.
template <class Amount>
MOONCAF_DEVICE std::uint64_t sum_of(choice_room& room, const float* row, std::uint32_t n,
                                    const Amount& amount) {
  std::uint64_t sum = 0;
  each_entry(row, n, [&](float x, std::uint32_t i) { sum += amount(x, i); });
  return combined(room, sum, [](std::uint64_t a, std::uint64_t b) { return a + b; });
}

struct best_entry {
  float value;  ///< minus infinity if there is none
  std::uint32_t id;
};
/// The largest of all values times `factor`, of equals the first.
MOONCAF_DEVICE best_entry best_of(choice_room& room, const float* row, std::uint32_t n, float factor) {
  std::uint64_t best = 0;
  each_entry(row, n, [&](float x, std::uint32_t i) {
    const std::uint32_t key = order_key(x * factor);
    const std::uint64_t mine = std::uint64_t{key} << 32 | ~i;
    best = key != 0 && mine > best ? mine : best;
  });
  best = combined(room, best, [](std::uint64_t a, std::uint64_t b) { return a > b ? a : b; });
  if (best == 0) return {number_of(least_key), 0};
  return {number_of(static_cast<std::uint32_t>(best >> 32)), ~static_cast<std::uint32_t>(best)};
}

/// The first i where the sum of amounts up to it is more than `target`, which is less than that of all.
template <class Amount>
MOONCAF_DEVICE std::uint32_t place_of(choice_room& room, const float* row, std::uint32_t n,
                                      std::uint64_t target, const Amount& amount) {
  const unsigned warp = thread_index() / warp_threads, lane = thread_index() % warp_threads;
  std::uint32_t begin = 0, end = n;
  MOONCAF_ROLLED
  while (end - begin > warp_threads) {
    const auto each = (end - begin + choice_warps - 1) / choice_warps;
    const auto part = (each + warp_threads - 1) / warp_threads * warp_threads;
    const auto first = begin + warp * part, last = first + part < end ? first + part : end;
    std::uint64_t sum = 0;
    MOONCAF_UNROLL_BY(8)
    for (unsigned i = first + lane; i < last; i += warp_threads) sum += amount(row[i], i);
    for (unsigned mask = warp_threads / 2; mask != 0; mask /= 2) sum += shuffle_xor(sum, mask);
    sync_block();
    if (lane == 0) room.parts[warp] = sum;
    sync_block();
    unsigned at = 0;
    MOONCAF_ROLLED
    for (; at + 1 < choice_warps && target >= room.parts[at]; ++at) target -= room.parts[at];
    begin += at * part;
    end = begin + part < end ? begin + part : end;
  }
  std::uint32_t found = begin;
  MOONCAF_ROLLED
  for (; found + 1 < end; ++found) {
    const std::uint64_t here = amount(row[found], found);
    if (target < here) break;
    target -= here;
  }
  return found;
}

/// Where a set of best entries ends: larger keys belong to it, equal ones up to an id.
struct choice_border {
  std::uint32_t key;
  std::uint32_t last;
};
MOONCAF_DEVICE bool within(const choice_border& b, std::uint32_t key, std::uint32_t id) {
  return key > b.key || (key == b.key && id <= b.last);
}

/// The border of the smallest set of best entries whose amounts come to `wanted`, at least 1 and at most all.
/// Digit by digit of the key, from the top: amounts by digit tell in which one the border lies.
/// @param amount  of an entry, 0 where it does not count; depends on the key alone
template <class Sum, class Key, class Amount>
MOONCAF_DEVICE choice_border border_of(choice_room& room, Sum* bins, const float* row, std::uint32_t n,
                                       std::uint64_t wanted, const Key& key, const Amount& amount) {
  const unsigned t = thread_index();
  std::uint32_t prefix = 0;
  std::uint64_t ties = 0;
  MOONCAF_ROLLED
  for (int shift = 24; shift >= 0; shift -= 8) {
    if (t < 256) bins[t] = 0;
    sync_block();
    each_entry(row, n, [&](float x, std::uint32_t i) {
      const auto mine = static_cast<Sum>(amount(x, i));
      const std::uint32_t k = key(x, i);
      if (mine != 0 && (std::uint64_t{k} >> (shift + 8)) == prefix)
        add_atomically(&bins[k >> shift & 255u], mine);
    });
    sync_block();
    if (t < 256) {
      std::uint64_t above = 0;
      MOONCAF_ROLLED
      for (unsigned i = 255; i > t; --i) above += bins[i];
      if (above < wanted && wanted <= above + bins[t]) {
        room.digit = t;
        room.rest = wanted - above;
      }
    }
    sync_block();
    prefix = prefix << 8 | room.digit;
    wanted = room.rest;
    ties = bins[room.digit];
    sync_block();
  }
  // Ties have equal amounts: so many of them are within.
  const auto tied = [&](float x, std::uint32_t i) {
    return key(x, i) == prefix && amount(x, i) != 0 ? std::uint64_t{1} : 0;
  };
  const auto count = sum_of(room, row, n, tied);
  const auto each = ties / count;
  const auto some = (wanted + each - 1) / each;
  if (some == count) return {prefix, n - 1};
  return {prefix, place_of(room, row, n, some - 1, tied)};
}

MOONCAF_DEVICE std::uint64_t above_least(float x) { return order_key(x) > least_key ? 1 : 0; }

/// The likeliest entries of a row, in no order.
MOONCAF_DEVICE void list_best(choice_room& room, const float* row, std::uint32_t n, candidate* to,
                              std::uint32_t wanted) {
  const auto key = [](float x, std::uint32_t) { return order_key(x); };
  const auto one = [](float x, std::uint32_t) { return above_least(x); };
  const auto there = sum_of(room, row, n, one);
  const auto some = there < wanted ? static_cast<std::uint32_t>(there) : wanted;
  for (unsigned i = some + thread_index(); i < wanted; i += choice_threads) to[i] = {0, -1};
  if (some == 0) return;
  const auto border = border_of(room, room.counts, row, n, some, key, one);
  sync_block();
  if (thread_index() == 0) room.taken = 0;
  sync_block();
  each_entry(row, n, [&](float x, std::uint32_t i) {
    if (above_least(x) != 0 && within(border, order_key(x), i))
      to[add_atomically(&room.taken, 1u)] = {x, static_cast<std::int32_t>(i)};
  });
}

/// Narrows the row by borders, first of top-k, then of top-p, and walks what is left up to the draw. Weights are whole
/// numbers, so that every sum is exact whichever thread adds first; greedy rows are read once.
MOONCAF_DEVICE std::uint32_t choose_one(choice_room& room, const float* row, std::uint32_t n,
                                        const row_choice& how) {
  const float factor = how.per_degree;
  const auto best = best_of(room, row, n, factor);
  if (how.greedy != 0 || !is_finite(best.value)) return best.id;
  const float top = best.value, nats = how.nats;
  choice_border likeliest{0, n};
  if (how.top_k != 0 && how.top_k < n) {
    const auto key = [=](float x, std::uint32_t) { return order_key(x * factor); };
    const auto one = [=](float x, std::uint32_t) { return above_least(x * factor); };
    if (sum_of(room, row, n, one) > how.top_k)
      likeliest = border_of(room, room.counts, row, n, how.top_k, key, one);
  }
  const auto weight = [=](float x, std::uint32_t i) {
    const float w = entry_weight(x * factor - top, nats);
    return within(likeliest, order_key(x * factor), i) ? w : 0.0f;
  };
  choice_border heaviest{0, n};
  if (how.top_p < 1) {
    const auto key = [=](float x, std::uint32_t i) { return bits_of(weight(x, i)); };
    const auto units = [=](float x, std::uint32_t i) { return units_of(weight(x, i)); };
    const double needed = static_cast<double>(how.top_p) * static_cast<double>(sum_of(room, row, n, units));
    auto wanted = static_cast<std::uint64_t>(needed);
    if (static_cast<double>(wanted) < needed) ++wanted;
    heaviest = border_of(room, room.masses, row, n, wanted, key, units);
  }
  const auto kept = [=](float x, std::uint32_t i) {
    const float w = weight(x, i);
    return within(heaviest, bits_of(w), i) ? units_of(w) : 0;
  };
  const auto all = sum_of(room, row, n, kept);
  const auto target = static_cast<std::uint64_t>(how.u * static_cast<double>(all));
  return place_of(room, row, n, target < all ? target : all - 1, kept);
}

}  // namespace mooncaf::cuda

/// grid: choices
MOONCAF_KERNEL(mooncaf_choose, mooncaf::cuda::choose_params, mooncaf::cuda::choice_threads) {
  using namespace mooncaf::cuda;
  MOONCAF_SHARED(choice_room, shared, 1);
  choice_room& room = *shared;
  const row_choice& how = p.choices[block_x()];
  float* row = p.logits + how.row * p.stride;
  auto& out = p.out[block_x()];
  if (how.describe != 0) {
    const float top = best_of(room, row, p.cols, 1).value;
    std::uint64_t weights = 0;
    if (is_finite(top))
      weights = sum_of(room, row, p.cols, [=](float x, std::uint32_t) {
        return units_of(mooncaf::entry_weight(x - top, mooncaf::all_nats));
      });
    if (thread_index() == 0) {
      out.peak = top;
      out.weights = static_cast<double>(weights) / 17179869184.0;
    }
    if (how.tops != 0) list_best(room, row, p.cols, p.tops + how.first_top, how.tops);
    sync_block();
  }
  MOONCAF_ROLLED
  for (unsigned i = thread_index(); i < how.edits; i += choice_threads) {
    const auto& edit = p.edits[how.first_edit + i];
    p.raw[how.first_edit + i] = row[edit.id];
    row[edit.id] = mooncaf::edited(row[edit.id], edit);
  }
  sync_block();
  const auto id = choose_one(room, row, p.cols, how);
  if (thread_index() == 0) room.before = row[id];
  sync_block();
  MOONCAF_ROLLED
  for (unsigned i = thread_index(); i < how.edits; i += choice_threads)
    if (p.edits[how.first_edit + i].id == static_cast<std::int32_t>(id))
      room.before = p.raw[how.first_edit + i];
  sync_block();
  if (thread_index() != 0) return;
  out.id = static_cast<std::int32_t>(id);
  out.logit = room.before;
}
