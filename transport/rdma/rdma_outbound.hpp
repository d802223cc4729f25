#pragma once
// All that this node has under way to one peer over RDMA: the initiator's end of a link.
//
// A transfer is cut into pieces, which stripe over the rails: each run of 16 goes to the near rail with the
// fewest bytes under way. A notice follows the pieces it tells of on the same queue pair, hence is received
// after they are in memory; the initiator waits for no completion in between.
//
//   pieces posted ─► notices ─► acknowledged   (write)
//   pieces posted ─► completed                 (read)
//
// When a rail breaks, its pieces go over the others, but only after the peer has said that its end of the
// broken queue pair is gone (no late packet lands) and what became of the transfer (what landed is not
// written again).
//
//   rail:  idle ─► connecting ─► up ─► retiring ─► idle (with back-off)
//   link:  open ─► ending (goodbye, the peer drops its queue pairs) ─► over

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "transport/outbound_book.hpp"
#include "transport/rdma/control_link.hpp"
#include "transport/rdma/queue_pair.hpp"
#include "transport/rdma/rail_health.hpp"
#include "transport/rdma/rdma_node.hpp"

namespace mooncaf {

/// @thread  the transport's loop
class rdma_outbound : public std::enable_shared_from_this<rdma_outbound> {
 public:
  using event_handler = std::function<void(rdma_outbound&)>;

  /// @param on_ended  called once when the link takes no more transfers
  /// @param on_over   called once when it has completed the last of them
  rdma_outbound(rdma_node& shared, std::shared_ptr<const peer_info> peer, event_handler on_ended,
                event_handler on_over);

  result<void> open();
  void submit(transfer what, completion_handler on_done);
  void cancel(transfer_id id);
  /// Takes completions, posts pieces. @returns true if there was something to do.
  bool poll();
  void arm();
  /// Deadlines, back-offs and lost peers. @returns true while something is under way.
  bool tick(time_point now);
  /// Ends the link: transfers under way complete with `why` once the peer has confirmed that nothing can
  /// land.
  void end(const error& why);
  /// Ends it without waiting for the peer.
  void end_now(const error& why);
  void port_changed(const local_rail& rail);
  bool idle() const noexcept { return book_.idle(); }
  node_id peer() const noexcept { return peer_->address.node; }
  /// Learns regions that were announced after the link was made. @returns false if the address is another
  /// one.
  bool update(const std::shared_ptr<const peer_info>& peer);

 private:
  struct piece {
    std::byte* local = nullptr;
    const registered_region* registered = nullptr;  // alive: transfers hold their regions
    slice remote;
    std::uint32_t link_number = 0;  // queue pair that carried it last; 0: none
    bool delivered = false;         // write: its notice was received; read: it is here
  };
  // Orders with the NICs hold it, and rails being retired that carried some of it.
  struct job : outbound_job {
    std::vector<piece> pieces;
    bool summed = false;                         // its pieces carry checksums: not for device memory
    std::uint32_t next = 0;                      // first piece that was never posted
    std::uint32_t to_repeat = 0;                 // pieces in `repeats_`
    std::uint32_t retiring = 0;                  // rails being retired that carried some of it
    std::uint32_t delivered = 0;                 // read
    std::map<std::size_t, rdma_notice> notices;  // by rail, not yet sent
    bool touched = false;
    bool queued = false;  // in `orders_`
    bool asking = false;  // waits for the peer's answer about it
    bool lost = false;    // fault injection: a piece never leaves
    time_point hold_until{};
    std::vector<std::pair<std::vector<std::byte>, verbs_memory>> altered;  // fault injection

    std::size_t piece_count() const noexcept { return pieces.size(); }
    bool all_posted() const noexcept { return next == pieces.size() && to_repeat == 0 && !lost; }
  };
  enum class rail_stage : std::uint8_t { idle, connecting, up, retiring };
  struct rail final : queue_pair_owner {
    rail(rdma_outbound& o, std::size_t n, const rdma_options& options)
        : owner(o), index(n), health(options.rail_retry_after, options.rail_retry_max) {}
    void on_done(const rdma_item& item) override { owner.on_item_done(*this, item); }
    void on_message(std::span<const std::byte> message) override { owner.on_message(message); }

    rdma_outbound& owner;
    const std::size_t index;  // among the local rails
    std::size_t remote = 0;   // among the peer's
    rail_stage stage = rail_stage::idle;
    std::uint32_t number = 0;
    std::unique_ptr<queue_pair> pair;
    std::uint64_t outstanding_bytes = 0;
    std::set<transfer_id> stranded;
    time_point give_up_at = time_point::max();  // connecting, retiring
    rail_health health;
    bool cut = false;  // fault injection: to be broken
  };
  struct mapped_region {
    std::uint64_t access_key = 0;
    bool pending = true;
    error refusal;
    std::uint64_t base = 0;
    std::uint64_t length = 0;
    std::vector<std::uint32_t> keys;
  };
  /// The goodbye: the peer has yet to say that it has dropped its queue pairs.
  struct farewell {
    error cause;
    time_point until = time_point::max();
  };
  enum class step : std::uint8_t { posted, waits, dropped };

  // Rails (rdma_outbound_rails.cpp).
  void pair_rails();
  bool connect_rails(time_point now);
  void connect_rail(rail& r, time_point now);
  void on_rail_connected(const rdma_control& c);
  void rail_failed(rail& r, const error& why, bool tell_peer);
  void strand_jobs(rail& r);
  void on_rail_retired(const rdma_control& c);
  void retired(rail& r);
  void repeat_lost(job& j);
  void check_hope();
  rail* by_number(std::uint32_t number);
  rail* choose_rail(const job& j, const piece& p, const mapped_region& m, bool& hopeless);
  bool key_pair(const rail& r, const piece& p, const mapped_region& m, std::uint32_t& local,
                std::uint32_t& remote) const;

  // Transfers (rdma_outbound.cpp).
  void on_control(const rdma_control& c);
  void on_link_broken(const error& why);
  void on_map_reply(const rdma_control& c);
  void on_query_reply(const rdma_control& c);
  void on_item_done(rail& r, const rdma_item& item);
  void on_message(std::span<const std::byte> message);
  void start(job& j);
  void enqueue(job& j);
  result<void> cut(job& j) const;
  bool pump();
  step post_next();
  mapped_region* ask_for(region_id region);
  const mapped_region* mapped(job& j, const piece& p);
  step apply_fault(job& j, std::uint32_t index, rail& r, bool& corrupt);
  void post(job& j, std::uint32_t index, rail& r, const mapped_region& m, bool corrupt);
  std::byte* altered_copy(job& j, const piece& p, const rail& r, std::uint32_t& key);
  void send_notices(job& j, bool all);
  void flush_rails();
  void request_end(job& j, ec why);
  void tell_done();
  void complete_all(const error& why, bool confirmed);

  rdma_node& shared_;
  node_state& node_;
  std::shared_ptr<const peer_info> peer_;
  event_handler on_ended_;
  event_handler on_over_;
  std::shared_ptr<control_link> control_;
  std::vector<std::unique_ptr<rail>> rails_;
  std::uint32_t next_number_ = 1;
  std::unordered_map<region_id, mapped_region> mapped_;

  outbound_book<job> book_;
  std::deque<transfer_id> orders_;  // with pieces that were never posted
  std::deque<std::pair<transfer_id, std::uint32_t>> repeats_;
  std::set<transfer_id> unsent_notices_;
  error last_rail_error_{ec::unavailable, "no rail of this node matches one of the peer's"};
  std::optional<farewell> ending_;
  bool over_ = false;
  bool ever_connected_ = false;  // some queue pair of the peer may take bytes of ours
  std::uint64_t completions_ = 0;
};

}  // namespace mooncaf
