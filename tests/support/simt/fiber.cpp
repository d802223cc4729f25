#include "tests/support/simt/fiber.hpp"

#include <sys/mman.h>

#include <new>

#if !defined(__x86_64__)
#error "fibers switch stacks in the assembler of x86-64"
#endif

// void mooncaf_switch(void** save, void* to): keeps what a function must keep on this stack, and continues on
// another.
asm(R"(
.text
.type mooncaf_switch, @function
mooncaf_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.type mooncaf_begin, @function
mooncaf_begin:
  movq %r12, %rdi
  callq *%r13
  ud2
)");

extern "C" void mooncaf_switch(void** save, void* to);
extern "C" void mooncaf_begin();

namespace mooncaf::simt {

fiber::fiber() {
  void* at = ::mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) throw std::bad_alloc{};
  stack_ = static_cast<std::byte*>(at);
}

fiber::~fiber() { ::munmap(stack_, stack_bytes); }

void fiber::start(void (*main)(void*), void* argument) {
  auto** top = reinterpret_cast<void**>(stack_ + stack_bytes);
  *--top = nullptr;  // a call finds the stack 16-byte aligned
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(mooncaf_begin);
  *--top = nullptr;                        // rbp
  *--top = nullptr;                        // rbx
  *--top = argument;                       // r12
  *--top = reinterpret_cast<void*>(main);  // r13
  *--top = nullptr;                        // r14
  *--top = nullptr;                        // r15
  at_ = top;
}

void fiber::resume(void** back) { mooncaf_switch(back, at_); }

void fiber::leave(void* back) { mooncaf_switch(&at_, back); }

}  // namespace mooncaf::simt
