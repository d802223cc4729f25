#pragma once
// Which of many links gives way when there is no room: SIEVE (Zhang et al., NSDI 2024). Newcomers enter at
// the head; a hand walks from the tail to the head, spares once each entry used since it last came by, and
// takes the first other one. Unlike LRU a use moves nothing.

#include <iterator>
#include <list>
#include <optional>
#include <unordered_map>

namespace mooncaf {

/// Order of eviction over keys. @thread  not synchronised
template <class Key>
class sieve {
 public:
  /// A use; unknown keys enter.
  void touch(const Key& key) {
    if (const auto it = places_.find(key); it != places_.end()) {
      it->second->visited = true;
      return;
    }
    queue_.push_front({key, false});
    places_[key] = queue_.begin();
  }
  void erase(const Key& key) {
    const auto it = places_.find(key);
    if (it == places_.end()) return;
    if (hand_ == it->second) hand_ = towards_head(it->second);
    queue_.erase(it->second);
    places_.erase(it);
  }
  std::size_t size() const noexcept { return queue_.size(); }

  /// Takes out the next victim among the entries that may go; none if nothing may.
  template <class MayGo>
  std::optional<Key> evict(MayGo&& may_go) {
    // Two rounds: the first may spare everything.
    for (std::size_t steps = 2 * queue_.size(); steps-- > 0;) {
      if (hand_ == queue_.end()) hand_ = std::prev(queue_.end());
      const auto at = hand_;
      if (!at->visited && may_go(at->key)) {
        const Key key = at->key;
        erase(key);
        return key;
      }
      at->visited = false;
      hand_ = towards_head(at);
    }
    return {};
  }

 private:
  struct entry {
    Key key;
    bool visited;
  };
  using place = typename std::list<entry>::iterator;
  place towards_head(place at) { return at == queue_.begin() ? queue_.end() : std::prev(at); }

  std::list<entry> queue_;  // newest first
  std::unordered_map<Key, place> places_;
  place hand_ = queue_.end();  // end: starts at the tail
};

}  // namespace mooncaf
