// What posting one slice costs the processor: instructions of `queue_pair` beside a loop that calls
// ibv_post_send and ibv_poll_cq itself, on the same device. The device is made up: it completes every order
// at once and touches no memory, so that what is left is the posting path. To be run under callgrind, twice,
// since the difference is what slices cost:
//
//   for n in 100000 200000; do for who in ours bare; do
//     valgrind --tool=callgrind --callgrind-out-file=/dev/null mooncaf_rdma_posting_bench $who $n; done; done
//
// Without callgrind it prints nanoseconds per slice.

#include <infiniband/verbs.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "transport/rdma/queue_pair.hpp"

// ---- the device: the functions of libibverbs that a queue pair needs, in place of the library's own ----

namespace {

constexpr unsigned ring = 4096;
std::array<std::uint64_t, ring> finished;  // signalled orders
std::uint64_t head = 0;
std::uint64_t tail = 0;
::ibv_context* the_context = nullptr;

int post_send(::ibv_qp*, ::ibv_send_wr* wr, ::ibv_send_wr**) {
  for (; wr; wr = wr->next)
    if (wr->send_flags & IBV_SEND_SIGNALED) finished[head++ % ring] = wr->wr_id;
  return 0;
}
int post_recv(::ibv_qp*, ::ibv_recv_wr*, ::ibv_recv_wr**) { return 0; }
int poll_cq(::ibv_cq*, int max, ::ibv_wc* out) {
  int n = 0;
  for (; n < max && tail != head; ++n) {
    out[n].wr_id = finished[tail++ % ring];
    out[n].status = IBV_WC_SUCCESS;
  }
  return n;
}
int req_notify(::ibv_cq*, int) { return 0; }

template <class T>
T* made() {
  auto* object = static_cast<T*>(std::calloc(1, sizeof(T)));
  object->context = the_context;
  return object;
}

}  // namespace

#undef ibv_reg_mr
#undef ibv_query_port
extern "C" {
int ibv_close_device(::ibv_context*) { return 0; }
int ibv_dealloc_pd(::ibv_pd* p) { return std::free(p), 0; }
int ibv_destroy_comp_channel(::ibv_comp_channel* c) { return std::free(c), 0; }
::ibv_cq* ibv_create_cq(::ibv_context*, int, void*, ::ibv_comp_channel*, int) { return made<::ibv_cq>(); }
int ibv_destroy_cq(::ibv_cq* c) { return std::free(c), 0; }
::ibv_qp* ibv_create_qp(::ibv_pd*, ::ibv_qp_init_attr*) { return made<::ibv_qp>(); }
int ibv_destroy_qp(::ibv_qp* q) { return std::free(q), 0; }
int ibv_modify_qp(::ibv_qp*, ::ibv_qp_attr*, int) { return 0; }
::ibv_mr* ibv_reg_mr(::ibv_pd*, void*, std::size_t, int) { return made<::ibv_mr>(); }
::ibv_mr* ibv_reg_mr_iova2(::ibv_pd*, void*, std::size_t, std::uint64_t, unsigned) {
  return made<::ibv_mr>();
}
int ibv_dereg_mr(::ibv_mr* m) { return std::free(m), 0; }
int ibv_query_port(::ibv_context*, std::uint8_t, ::_compat_ibv_port_attr* out) {
  auto* port = reinterpret_cast<::ibv_port_attr*>(out);
  port->state = IBV_PORT_ACTIVE;
  port->active_mtu = IBV_MTU_4096;
  port->gid_tbl_len = 1;
  port->link_layer = IBV_LINK_LAYER_ETHERNET;
  return 0;
}
::ssize_t _ibv_query_gid_table(::ibv_context*, ::ibv_gid_entry* out, std::size_t, std::uint32_t,
                               std::size_t) {
  *out = {};
  out->port_num = 1;
  out->gid_type = IBV_GID_TYPE_ROCE_V2;
  out->gid.raw[15] = 1;
  return 1;
}
}

// ---- the two loops ----

using namespace mooncaf;

namespace {

constexpr unsigned batch = 64;  // slices that the transport posts between two looks at its completions

struct counter final : queue_pair_owner {
  void on_done(const rdma_item&) override { ++done; }
  void on_message(std::span<const std::byte>) override {}
  std::uint64_t done = 0;
};

std::uint64_t ours(queue_pair& pair, std::uint64_t slices) {
  counter c;
  for (std::uint64_t n = 0; n < slices; n += batch) {
    for (unsigned i = 0; i < batch; ++i)
      pair.add({false, reinterpret_cast<std::byte*>(0x1000), 1, n, 2, 65536},
               {.id = transfer_id{1}, .piece = i, .bytes = 65536});
    if (!pair.flush() || !pair.poll(c)) std::abort();
  }
  return c.done;
}

std::uint64_t bare(::ibv_qp* qp, ::ibv_cq* cq, unsigned signal_every, std::uint64_t slices) {
  std::uint64_t done = 0;
  std::array<::ibv_send_wr, batch> orders;
  std::array<::ibv_sge, batch> parts;
  for (std::uint64_t n = 0; n < slices; n += batch) {
    for (unsigned i = 0; i < batch; ++i) {
      parts[i] = {0x1000, 65536, 1};
      auto& w = orders[i];
      w = {};
      w.wr_id = n + i;
      w.sg_list = &parts[i];
      w.num_sge = 1;
      w.opcode = IBV_WR_RDMA_WRITE;
      w.wr.rdma.remote_addr = n;
      w.wr.rdma.rkey = 2;
      w.next = i + 1 < batch ? &orders[i + 1] : nullptr;
      if ((i + 1) % signal_every == 0) w.send_flags = IBV_SEND_SIGNALED;
    }
    ::ibv_send_wr* bad = nullptr;
    if (::ibv_post_send(qp, orders.data(), &bad) != 0) std::abort();
    ::ibv_wc wc[32];
    const int got = ::ibv_poll_cq(cq, 32, wc);
    for (int i = 0; i < got; ++i) done = wc[i].wr_id + 1;
  }
  return done;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const std::uint64_t slices = std::strtoull(argv[2], nullptr, 10) / batch * batch;
  ::ibv_context context{};
  the_context = &context;
  context.ops.post_send = post_send;
  context.ops.post_recv = post_recv;
  context.ops.poll_cq = poll_cq;
  context.ops.req_notify_cq = req_notify;
  rdma_options options;
  local_rail rail;
  rail.device = std::make_shared<rdma_device>();
  rail.device->name = "none";
  rail.device->context.reset(&context);
  rail.device->domain.reset(made<::ibv_pd>());
  rail.device->events.reset(made<::ibv_comp_channel>());
  rail.device->limits.max_qp_wr = 4096;
  rail.device->limits.phys_port_cnt = 1;
  auto pair = queue_pair::make(rail, options);
  if (!pair || !(*pair)->connect((*pair)->endpoint())) return 1;
  auto* qp = made<::ibv_qp>();
  auto* cq = made<::ibv_cq>();
  const auto begin = clock_type::now();
  const auto done =
      std::string_view{argv[1]} == "ours" ? ours(**pair, slices) : bare(qp, cq, options.signal_every, slices);
  const auto took = to_seconds(clock_type::now() - begin);
  std::printf("%s: %llu slices, %.1f ns each\n", argv[1], static_cast<unsigned long long>(done),
              took * 1e9 / static_cast<double>(done));
  std::free(qp);
  std::free(cq);
  return done == slices ? 0 : 1;
}
