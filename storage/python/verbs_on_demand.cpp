// libibverbs, looked for when the first of its functions is called: the package is loaded where it is not
// installed, and then there is no RDMA device.

#include <dlfcn.h>
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdint>
#include <type_traits>

// The header wraps these.
#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr

namespace {

void* look_up(const char* name) {
  static void* const library = ::dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
  return library ? ::dlsym(library, name) : nullptr;
}

template <class Function>
Function* find(Function*, const char* name) {
  return reinterpret_cast<Function*>(look_up(name));
}

/// The answer of a function that is not there.
template <class T>
T absent() {
  errno = ENOSYS;
  if constexpr (std::is_pointer_v<T>) return nullptr;
  else if constexpr (!std::is_void_v<T>) return T{ENOSYS};
}

}  // namespace

// Defines a function of the library by its declaration in the header.
#define MOONCAF_VERB(result, name, parameters, arguments) \
  extern "C" result name parameters {                     \
    static const auto there = find(&name, #name);         \
    return there ? there arguments : absent<result>();    \
  }

MOONCAF_VERB(void, ibv_ack_async_event, (ibv_async_event * event), (event))
MOONCAF_VERB(void, ibv_ack_cq_events, (ibv_cq * cq, unsigned int n), (cq, n))
MOONCAF_VERB(ibv_pd*, ibv_alloc_pd, (ibv_context * context), (context))
MOONCAF_VERB(int, ibv_close_device, (ibv_context * context), (context))
MOONCAF_VERB(ibv_comp_channel*, ibv_create_comp_channel, (ibv_context * context), (context))
MOONCAF_VERB(ibv_cq*, ibv_create_cq,
             (ibv_context * context, int entries, void* own, ibv_comp_channel* channel, int vector),
             (context, entries, own, channel, vector))
MOONCAF_VERB(ibv_qp*, ibv_create_qp, (ibv_pd * pd, ibv_qp_init_attr* how), (pd, how))
MOONCAF_VERB(int, ibv_dealloc_pd, (ibv_pd * pd), (pd))
MOONCAF_VERB(int, ibv_dereg_mr, (ibv_mr * mr), (mr))
MOONCAF_VERB(int, ibv_destroy_comp_channel, (ibv_comp_channel * channel), (channel))
MOONCAF_VERB(int, ibv_destroy_cq, (ibv_cq * cq), (cq))
MOONCAF_VERB(int, ibv_destroy_qp, (ibv_qp * qp), (qp))
MOONCAF_VERB(void, ibv_free_device_list, (ibv_device * *list), (list))
MOONCAF_VERB(int, ibv_get_async_event, (ibv_context * context, ibv_async_event* event), (context, event))
MOONCAF_VERB(int, ibv_get_cq_event, (ibv_comp_channel * channel, ibv_cq** cq, void** own), (channel, cq, own))
MOONCAF_VERB(ibv_device**, ibv_get_device_list, (int* n), (n))
MOONCAF_VERB(const char*, ibv_get_device_name, (ibv_device * device), (device))
MOONCAF_VERB(int, ibv_modify_qp, (ibv_qp * qp, ibv_qp_attr* attributes, int mask), (qp, attributes, mask))
MOONCAF_VERB(ibv_context*, ibv_open_device, (ibv_device * device), (device))
MOONCAF_VERB(int, ibv_query_device, (ibv_context * context, ibv_device_attr* attributes),
             (context, attributes))
MOONCAF_VERB(int, ibv_query_port,
             (ibv_context * context, std::uint8_t port, _compat_ibv_port_attr* attributes),
             (context, port, attributes))
MOONCAF_VERB(ssize_t, _ibv_query_gid_table,
             (ibv_context * context, ibv_gid_entry* entries, size_t n, std::uint32_t flags, size_t size),
             (context, entries, n, flags, size))
MOONCAF_VERB(ibv_mr*, ibv_reg_dmabuf_mr,
             (ibv_pd * pd, std::uint64_t offset, size_t n, std::uint64_t iova, int fd, int access),
             (pd, offset, n, iova, fd, access))
MOONCAF_VERB(ibv_mr*, ibv_reg_mr, (ibv_pd * pd, void* address, size_t n, int access),
             (pd, address, n, access))
MOONCAF_VERB(ibv_mr*, ibv_reg_mr_iova2,
             (ibv_pd * pd, void* address, size_t n, std::uint64_t iova, unsigned int access),
             (pd, address, n, iova, access))
MOONCAF_VERB(const char*, ibv_wc_status_str, (ibv_wc_status status), (status))
