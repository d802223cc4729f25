#pragma once
// One process under construction, at work and taken down: what `serve` runs.

#include <atomic>
#include <caf/actor_system.hpp>
#include <memory>
#include <optional>
#include <vector>

#include "actors/api_server.hpp"
#include "actors/cluster/link.hpp"
#include "actors/cluster/shutdown.hpp"
#include "actors/cluster/system.hpp"
#include "actors/metrics/metrics_endpoint.hpp"
#include "actors/node.hpp"
#include "actors/prefill_worker.hpp"
#include "actors/process/far_group.hpp"
#include "actors/store/store_share.hpp"
#include "config/exit_codes.hpp"
#include "runtime/compute/landing_board.hpp"
#include "runtime/loading/modelled.hpp"
#include "runtime/model/calibration.hpp"
#include "runtime/sched/transfer_price.hpp"
#include "storage/rocksdb_tier.hpp"
#include "storage/tiered_store.hpp"

namespace mooncaf {

/// Members die in reverse order: the actors' memory outlives the actors.
class process {
 public:
  explicit process(const options& opts);

  /// Builds, serves until a stop signal, and takes everything down. @returns the exit status.
  int run();

 private:
  result<void> build();
  /// The same, with exceptions of the standard library, for want of memory or threads, as an error.
  result<void> build_with_what_there_is();
  void introduce();
  result<void> open_secret();
  result<void> check();
  /// Notes with which status a step that failed ends the process.
  result<void> step(exit_code code, result<void> outcome);
  result<void> spawn_conductor();
  /// Ends what is under way here, or hands it over, before the process leaves (`drain_core`).
  void drain();
  void flush();
  shutdown_result stop();
  const options& opts() const { return context_->opts; }
  /// The model of this cluster, for nodes that come with another one.
  std::string model_text() const;
  std::string layout_text() const;
  bool computes() const { return opts().cluster.prefill || opts().cluster.decode; }
  bool holds_blocks() const { return serves_model(opts()) && (computes() || opts().cluster.cache); }

  result<void> take_profile();
  result<void> load_model();
  result<void> adopt(served_model&& loaded, const kv_layout& layout);
  result<void> open_memory();
  result<void> open_data_plane();
  /// Checks shared memory where the options cannot: it depends on the arena, and on a NIC being there.
  result<void> check_shared_memory();
  result<void> open_ssd(std::vector<ssd_block>& found);
  result<tiered_store> open_store();
  result<void> spawn_shard();
  result<void> spawn_workers();
  /// Meets the engine that the process stands for, and times it.
  result<void> spawn_engine();
  /// Opens the memory of a device that has its own, as KV blocks.
  result<void> open_device_memory();
  void reach_device_memory();
  result<std::unique_ptr<forward_pass>> make_pass(worker_role role) const;
  result<std::shared_ptr<engine>> make_engine(worker_role role) const;
  /// How long it takes: measured, or as the profile says.
  result<std::vector<timing_sample>> calibrate(worker_role role) const;
  /// An actor of this process that ends by a failure takes the process along: half a node would only fail
  /// requests.
  void must_live(const char* what, const caf::actor& handle);
  template <class Actor, class... Args>
  auto spawn_vital(const char* what, Args&&... args) {
    auto handle = system_->spawn<Actor>(std::forward<Args>(args)...);
    must_live(what, caf::actor_cast<caf::actor>(handle));
    return handle;
  }
  /// A worker's device has failed. The worker gives its requests back and takes no more; a process that has
  /// nothing else to do ends, so that it is started again. @thread  the worker's.
  void device_lost(worker_role role, const std::string& why);
  void add_worker(worker_role role, caf::actor handle, std::uint32_t capacity,
                  std::vector<timing_sample> samples);
  result<void> open_link();
  result<void> find_ranks();
  /// @thread  of the link
  void rank_lost(const std::string& rank);
  /// Whether the process has something left to do when its workers cannot compute any more.
  bool lives_without_workers() const;
  /// As a rank: computes for whoever greets it.
  result<void> serve_leader();
  result<void> join();
  result<void> open_http();
  result<void> open_metrics();
  void list_targets();
  result<void> open_directory();
  result<void> mount_segment(std::uint16_t control_port);
  /// Has the shard do without so much of the memory that its blocks share with objects. @thread  the segment's
  std::optional<boundary_report> ask_blocks(const cache_shard_actor& shard, std::uint64_t withheld);
  /// Where a directory answers that was heard of over `--join`.
  void directory_found(const node_info& conductor);
  worker_links next_links();
  executor_actor new_executor();

  std::shared_ptr<node_context> context_;
  exit_code refused_ = exit_code::failed;      ///< why `build` failed, if it did
  std::shared_ptr<const secret_file> secret_;  ///< there is one before anything is opened
  std::optional<sim::profile> modelled_;       ///< the device computes nothing
  cluster_config config_;
  std::unique_ptr<caf::actor_system> system_;
  std::optional<cluster_link> link_;
  std::shared_ptr<landing_board> board_ = std::make_shared<landing_board>();
  far_group group_;
  std::shared_ptr<rocksdb_tier> ssd_;
  std::shared_ptr<store_share> objects_;
  transfer_price disk_price_;
  local_actors local_;
  node_info info_;
  std::vector<caf::actor> roots_;
  std::vector<executor_actor> executors_;
  executor_actor coupled_;
  std::shared_ptr<device_health> health_ = std::make_shared<device_health>();
  std::atomic<std::size_t> lost_workers_ = 0;
  std::unique_ptr<api_server> http_;
  /// Where the process is scraped.
  struct {
    std::unique_ptr<http_server> server;
    std::shared_ptr<scrape_list> list = std::make_shared<scrape_list>();
  } metrics_port_;
};

}  // namespace mooncaf
