#pragma once
// A model's files from the hosts that have them: what `mooncaf up` has agents do, and `mooncaf weights` a person.

#include <functional>
#include <string>
#include <vector>

#include "runtime/base/result.hpp"
#include "runtime/base/units.hpp"
#include "runtime/loading/model_slice.hpp"
#include "storage/files/file_fetch.hpp"

namespace mooncaf::launch {

/// Offers a model until no fetch has said for `idle` that it goes on.
/// @param fetches  so many, whose end is the offer's; 0: any number
/// @param host  numeric address of this process. @param ready  is told the port, once
/// @error as `file_offer::start`
result<void> offer_weights(const std::string& path, const key_ring& secret, const std::string& host,
                           std::uint16_t port, duration idle, std::size_t fetches,
                           const std::function<void(std::uint16_t port)>& ready);

/// For `file_fetch_options::wanted`: the part that processes with these options read. Nothing: all.
/// @param name  of the model, for error texts
std::function<wish_fn(const file_manifest&)> wanted_by(std::vector<model_use> uses, std::string name);

/// "42 % of 4.6 GB, 950 MB/s", at most four times a second and at the end.
class weights_progress {
 public:
  explicit weights_progress(std::function<void(const std::string&)> say) : say_(std::move(say)) {}
  void operator()(const fetch_progress& now);

 private:
  std::function<void(const std::string&)> say_;
  time_point begin_ = clock_type::now(), said_{};
};

}  // namespace mooncaf::launch
