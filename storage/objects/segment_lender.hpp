#pragma once
// Lends memory of this process to the store, for as long as the object lives.

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "runtime/base/result.hpp"
#include "storage/objects/directory_link.hpp"
#include "transport/data_plane.hpp"

namespace mooncaf {

struct segment_lender_options {
  directory_address directory;
  std::string name;  ///< of the segment; unique in the store
  std::uint64_t bytes = 0;
  bool tcp = true;                        ///< other hosts reach it
  std::string listen_host = "127.0.0.1";  ///< of the data plane
  std::uint16_t data_port = 0;
  std::string advertised_host;
  std::function<void(std::string_view)> log;  ///< one line for each change; called on the lender's thread
};

/// When the directory is lost, the segment's contents are, too: it is offered again, with fresh memory, to
/// the directory that comes back. So nobody who still knows places in the old memory can touch what lies in
/// the new.
/// @thread  construction and destruction only; works on a thread of its own
class segment_lender {
 public:
  /// Mounts the segment. @error those of `directory_link::connect`; `ec::already_exists` if the name is
  /// taken; `ec::out_of_space`, `ec::io_error` for the memory and the ports.
  static result<std::unique_ptr<segment_lender>> start(segment_lender_options options);
  ~segment_lender();

 private:
  struct mounted;
  explicit segment_lender(segment_lender_options options);
  result<std::unique_ptr<mounted>> mount() const;
  void keep();
  bool wait(duration d);

  segment_lender_options options_;
  std::unique_ptr<mounted> mounted_;  // keeper's thread
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stopping_ = false;
  std::thread keeper_;
};

}  // namespace mooncaf
