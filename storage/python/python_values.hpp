#pragma once
// Arguments and answers of the extension's calls: memory, keys, how to put, errors.

#include <pybind11/pybind11.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "storage/objects/terms/object_terms.hpp"
#include "storage/python/interpreter_lock.hpp"
#include "transport/net/secret_file.hpp"

namespace mooncaf {

namespace py = pybind11;

/// Why one store or engine last refused something, in words; its callers get a code alone. @thread any
class last_error {
 public:
  void note(const error& why) {
    std::lock_guard lock{mutex_};
    text_ = to_string(why);
  }
  std::string text() const {
    std::lock_guard lock{mutex_};
    return text_;
  }

 private:
  mutable std::mutex mutex_;
  std::string text_;
};

/// A proof that this process knows the cluster's secret. @thread any
/// @param file  empty: the user's own secret, which is made if there is none.
inline result<key_ring> key_for(std::string_view purpose, const std::string& file) {
  auto opened = secret_file::open(file);
  if (!opened) return fail(opened.error());
  return key_ring{std::move(*opened), std::string{purpose}};
}

inline std::vector<std::string_view> views(const std::vector<std::string>& keys) {
  return {keys.begin(), keys.end()};
}

/// Keys as callers have them, text or bytes, read where they lie. @thread  made and ended with the GIL
class key_views {
 public:
  /// One. @throws py::type_error for anything else
  static key_views of(const py::handle& one) {
    key_views k;
    k.add(one);
    return k;
  }
  /// All of an iterable. Held, so that its items stay while others may change it.
  static key_views of_all(const py::object& many) {
    if (PyUnicode_Check(many.ptr()) || PyBytes_Check(many.ptr())) throw py::type_error("keys is a list");
    key_views k;
    k.given_ = py::tuple(many);
    k.views_.reserve(k.given_.size());
    for (const auto& one : k.given_) k.add(one);
    return k;
  }
  std::span<const std::string_view> views() const { return views_; }
  std::size_t size() const { return views_.size(); }
  std::string_view operator[](std::size_t i) const { return views_[i]; }

 private:
  void add(const py::handle& one) {
    if (PyBytes_Check(one.ptr())) return take_bytes(one);
    if (!PyUnicode_Check(one.ptr()))
      throw py::type_error(std::string{"a key is str or bytes, not "} + Py_TYPE(one.ptr())->tp_name);
    Py_ssize_t size = 0;
    if (const char* text = PyUnicode_AsUTF8AndSize(one.ptr(), &size)) {  // kept by the text itself
      views_.emplace_back(text, static_cast<std::size_t>(size));
      return;
    }
    PyErr_Clear();
    made_.push_back(one.attr("encode")("utf-8", "surrogateescape"));
    take_bytes(made_.back());
  }
  void take_bytes(const py::handle& one) {
    views_.emplace_back(PyBytes_AS_STRING(one.ptr()), static_cast<std::size_t>(PyBytes_GET_SIZE(one.ptr())));
  }

  py::tuple given_;
  std::vector<py::object> made_;
  std::vector<std::string_view> views_;
};

/// The transfer engine's class, for `mooncaf.engine`.
void add_engine(py::module_& m);

/// Whether this process may read, or write, the first and the last byte of each: of a device's memory, or of
/// none, it may not. Where the kernel does not say, yes. Where they are to be written, they are rewritten
/// with their own values.
inline bool all_there(std::span<const std::span<std::byte>> memory, bool writable = false) {
  constexpr std::size_t at_once = 512;
  std::byte seen[2 * at_once];
  for (std::size_t from = 0; from < memory.size(); from += at_once) {
    const auto some = memory.subspan(from, std::min(at_once, memory.size() - from));
    std::vector<::iovec> ends;
    for (const auto& m : some) {
      ends.push_back({m.data(), 1});
      ends.push_back({m.data() + m.size() - 1, 1});
    }
    const ::iovec to{seen, ends.size()};
    const auto refused = [&](ssize_t got) {
      return got < 0 ? errno == EFAULT : static_cast<std::size_t>(got) != ends.size();
    };
    if (refused(::process_vm_readv(::getpid(), &to, 1, ends.data(), ends.size(), 0))) return false;
    if (writable && refused(::process_vm_writev(::getpid(), &to, 1, ends.data(), ends.size(), 0)))
      return false;
  }
  return true;
}

/// A run of memory of this process; nothing for one that cannot be: the address zero, no bytes, past the end.
inline std::optional<std::span<std::byte>> memory_at(std::uint64_t address, std::int64_t size) {
  if (address == 0 || size <= 0 || static_cast<std::uint64_t>(size) > ~std::uint64_t{0} - address)
    return std::nullopt;
  return std::span{reinterpret_cast<std::byte*>(address), static_cast<std::size_t>(size)};
}

/// One run for each key, all looked at by as few system calls as it takes.
/// @param writable  they are to be written.
/// @returns empty ones where there is no such memory, or it may not be touched.
/// @throws  py::type_error for anything but a number of 64 bits
inline std::vector<std::span<std::byte>> runs_at(const py::object& addresses, const py::object& sizes,
                                                 bool writable = false) {
  const py::tuple at{addresses}, lengths{sizes};
  if (at.size() != lengths.size()) throw py::value_error("as many sizes as addresses");
  std::vector<std::span<std::byte>> runs(at.size()), there;
  try {
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const auto run = memory_at(at[i].cast<std::uint64_t>(), lengths[i].cast<std::int64_t>());
      if (run) there.push_back(runs[i] = *run);
    }
  } catch (const py::cast_error&) {
    throw py::type_error("addresses and sizes are numbers of 64 bits");
  }
  if (all_there(there, writable)) return runs;
  for (auto& run : runs)
    if (!run.empty() && !all_there({&run, 1}, writable)) run = {};
  return runs;
}

/// Memory that an operation works on: given as (address, size), or as an object with the buffer protocol,
/// which is held.
struct pieces {
  std::vector<std::span<std::byte>> spans;
  std::vector<py::buffer_info> held;
  bool valid = true;

  void add(const py::handle& part, bool writable) {
    if (py::isinstance<py::tuple>(part)) {
      const auto pair = part.cast<std::pair<py::int_, py::int_>>();
      const auto address = pair.first.cast<std::uint64_t>();
      const auto size = pair.second.cast<std::int64_t>();
      const auto run = memory_at(address, size);
      if (run) spans.push_back(*run);
      else valid = false;
      return;
    }
    held.push_back(py::reinterpret_borrow<py::buffer>(part).request(writable));
    const auto& b = held.back();
    py::ssize_t expected = b.itemsize;  // C order, without gaps
    for (auto d = b.ndim; d-- > 0; expected *= b.shape[static_cast<std::size_t>(d)])
      if (b.strides[static_cast<std::size_t>(d)] != expected && b.shape[static_cast<std::size_t>(d)] > 1)
        throw py::type_error("the buffer is not contiguous");
    spans.emplace_back(static_cast<std::byte*>(b.ptr), static_cast<std::size_t>(b.size * b.itemsize));
  }
  std::uint64_t bytes() const {
    std::uint64_t n = 0;
    for (const auto& s : spans) n += s.size();
    return n;
  }
};

inline std::vector<pieces> take(const py::list& all, std::size_t count, bool writable) {
  if (all.size() != count) throw py::value_error("as many lists of parts as keys");
  std::vector<pieces> taken(count);
  try {
    for (std::size_t i = 0; i < count; ++i) {
      for (const auto& part : all[i].cast<py::list>()) taken[i].add(part, writable);
      if (taken[i].held.empty()) taken[i].valid = taken[i].valid && all_there(taken[i].spans, writable);
    }
  } catch (const py::cast_error&) {
    throw py::type_error("addresses and sizes are numbers of 64 bits");
  }
  return taken;
}

/// A put's policy, as Python gives it.
struct how {
  std::uint32_t replicas;
  bool hard, soft;
  std::uint64_t soft_ms;
  std::vector<std::string> preferred, groups, parents;
  std::vector<double> costs;
  std::uint64_t ttl_ms;  ///< 0: no limit

  std::optional<put_policy> policy() const {
    constexpr std::uint64_t longest = 24ull * 3600 * 1000;
    constexpr std::uint64_t oldest = 10ull * 365 * longest;
    if (soft_ms > longest || ttl_ms > oldest || preferred.size() > 64) return std::nullopt;
    put_policy p;
    p.replicas = replicas;
    p.hard_pin = hard;
    p.soft_pin = soft;
    p.soft_pin_for = std::chrono::milliseconds(soft_ms);
    p.ttl = std::chrono::milliseconds(ttl_ms);
    p.preferred = preferred;
    return p;
  }
  bool fits(std::size_t keys) const {
    const auto one_each = [&](const auto& all) { return all.empty() || all.size() == keys; };
    return one_each(groups) && one_each(parents) && one_each(costs);
  }
  object_ties ties(std::size_t i) const {
    object_ties t;
    if (!groups.empty()) t.group = groups[i];
    if (!parents.empty()) t.parent = parents[i];
    if (!costs.empty()) t.cost = costs[i];
    return t;
  }
};

/// An object's bytes: a copy of the caller's own.
struct buffer_handle {
  py::bytes data;
  char* begin() const { return PyBytes_AS_STRING(data.ptr()); }
  py::ssize_t size() const { return PyBytes_GET_SIZE(data.ptr()); }
};

}  // namespace mooncaf
