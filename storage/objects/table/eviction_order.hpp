#pragma once
// Which object to give up next. Bookkeeping over numbers: no memory, no keys, no clock.
//
// Objects form chains by the parents that their writers named. An engine that reads prefixes cannot use an
// object whose parent is gone, so an object is never given up before its children.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "storage/eviction.hpp"
#include "storage/objects/table/reuse_odds.hpp"

namespace mooncaf {

/// The ends of all chains, in the order in which they go.
///
/// `cost_aware` learns from all objects how likely one that was used so often is wanted again once it has
/// lain unused for so long; it remembers for a while how often an object was used that is gone. The object
/// goes for which these odds, times the cost of recomputing one byte of it, are least.
///
/// @thread  not synchronised.  @cost O(log n) a change, O(1) for the next one; 56 bytes an object, 24 where
/// it may be given up, and 64 to 128 for memory of gone objects, once one has been given up.
/// @source  hits for the space and time that they take as in N. Beckmann et al., LHD: Improving Cache Hit
/// Rate by Maximizing Hit Density, NSDI 2018; remembered uses as in N. Megiddo, D. Modha, ARC, FAST 2003.
class eviction_order {
 public:
  using handle = std::uint32_t;
  static constexpr handle none = ~handle{0};
  enum class standing : std::uint8_t {
    held,   ///< not to be given up
    plain,  ///< may be
    soft,   ///< may be, after all that are plain
  };

  explicit eviction_order(eviction_policy rule = eviction_policy::lru);

  /// A new object, held, used once. @param name  a hash of its key.
  /// @param worth  cost of recomputing a byte of it, in any unit that all objects share; zero: unknown, it
  /// counts as the average of the others.
  /// @param depth  objects before it in its chain.
  /// @param owner  the tenant's number; small numbers, from zero.
  handle add(std::uint64_t name, double worth, std::uint32_t depth, std::uint32_t owner = 0);
  /// The child is useless without the parent. Ignored if the parent does not come before it in a chain: links
  /// never form a circle.
  void link(handle child, handle parent);
  /// The object was read or written. @param counts  false for a part of an earlier use.
  void use(handle h, bool counts);
  void stand(handle h, standing s);
  /// The object has children that other shards know, and is not given up as long as that is so.
  void follow(handle h, bool followed);
  bool followed(handle h) const noexcept { return nodes_[h].followed; }
  /// @param evicted  to make room for others, so that it may come back.
  void erase(handle h, bool evicted);

  /// The object that goes next; `none` if all are held or have children.
  handle victim() const;
  /// The same among one owner's.
  handle victim_of(std::uint32_t owner) const;
  standing standing_of(handle h) const noexcept { return nodes_[h].stands; }
  std::uint32_t depth(handle h) const noexcept { return nodes_[h].depth; }
  std::uint32_t uses(handle h) const noexcept { return nodes_[h].uses; }
  std::uint32_t children(handle h) const noexcept { return nodes_[h].children; }
  double worth(handle h) const noexcept { return nodes_[h].worth; }
  /// Objects that were put again not long after they were given up.
  std::uint64_t regretted() const noexcept { return regretted_; }

  /// Recounts everything. For tests.
  bool consistent() const;

 private:
  static constexpr std::size_t worth_classes = 8, orders = reuse_odds::kinds * worth_classes;
  struct rank {
    std::uint64_t high = 0, low = 0;
    friend bool operator<(const rank& a, const rank& b) noexcept {
      return a.high != b.high ? a.high < b.high : a.low < b.low;
    }
  };
  struct waiting {
    rank when;
    handle who;
  };
  struct node {
    std::uint64_t name = 0;
    std::uint64_t used = 0, counted = 0;  ///< when last, in uses of all
    handle parent = none;
    std::uint32_t children = 0, depth = 0, uses = 0;
    std::uint32_t place = none;  ///< in the heap of its tenant's order
    std::uint32_t owner = 0;
    float worth = 0;
    standing stands = standing::held;
    bool there = false;
    bool followed = false;
    std::uint8_t worth_class = 0;
  };
  /// Memory of a gone object, until another one takes the slot.
  struct memory {
    std::uint32_t tag = 0, uses = 0;
    std::uint64_t counted = 0;
  };
  using heap = std::vector<waiting>;

  rank rank_of(const node& n) const noexcept;
  using tiers = std::array<std::array<heap, orders>, 2>;  ///< plain, soft
  heap& heap_of(const node& n) { return heaps_[n.owner][n.stands == standing::soft][order_of(n)]; }
  std::size_t order_of(const node& n) const noexcept;
  void refresh(handle h);
  void push(heap& in, handle h);
  void take_out(heap& in, std::size_t at);
  void put(heap& in, std::size_t at, const waiting& w);
  void settle(heap& in, std::size_t at, const waiting& w);
  void unlink(handle h);
  struct candidate {
    handle who = none;
    double loss = 0;
    rank when;
  };
  void consider(const std::array<heap, orders>& among, candidate& best) const;
  memory& slot(std::uint64_t name) { return gone_[name & (gone_.size() - 1)]; }
  /// Gives an object that comes again the uses that were remembered of it.
  void remind_of(node& n);
  void make_room_to_remember();
  std::uint8_t worth_class(double worth) const noexcept;

  eviction_policy rule_;
  std::vector<node> nodes_;
  std::vector<handle> unused_;
  std::vector<tiers> heaps_;  ///< by owner
  std::vector<memory> gone_;  ///< a power of two of slots, or none until something is gone
  reuse_odds odds_;
  std::uint64_t clock_ = 0, regretted_ = 0, there_ = 0;
  double worth_sum_ = 0;
  std::uint64_t worth_count_ = 0;
};

}  // namespace mooncaf
