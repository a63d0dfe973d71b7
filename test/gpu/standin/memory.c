/*
 * Memory of devices, which the CPU must not touch. It is mapped twice: without any permission at the address that the
 * program gets, and elsewhere for the simulated GPU. Each piece of memory has a list of the accesses that later ones
 * must know.
 *
 * Pinned memory of the host is mapped twice, too. Until the host has learned that a copy is over, the CPU has no access
 * to memory that the copy writes, and cannot write memory that the copy reads.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "driver.h"

struct access {
  uintptr_t from, to;
  int actor;
  uint64_t time;
  bool write;
  struct stream *stream;
  const char *call;
};

struct memory {
  uintptr_t address;
  size_t size, mapped;
  struct device *device; /* NULL: the host's, pinned */
  char *alias;
  bool guarded; /* pinned memory that is kept from the CPU */
  struct access *accesses;
  int count, room;
};

static struct memory *memories;
static int memory_count, memory_room, guarded_count;
static struct range {
  uintptr_t from, to;
} *freed;
static int freed_count, freed_room;

static size_t total_memory(void) {
  const char *text = getenv("STANDIN_MEMORY");
  return text != NULL ? strtoull(text, NULL, 10) : (size_t)1 << 30;
}

static struct memory *find(uintptr_t address) {
  for (int i = 0; i < memory_count; i++)
    if (address >= memories[i].address && address < memories[i].address + memories[i].size) return &memories[i];
  return NULL;
}

static struct memory *add_memory(void) {
  if (memory_count == memory_room)
    memories = realloc(memories, (memory_room = memory_room * 2 + 64) * sizeof *memories);
  struct memory *m = &memories[memory_count++];
  memset(m, 0, sizeof *m);
  return m;
}

static void remove_memory(struct memory *m) {
  guarded_count -= m->guarded;
  if (freed_count == freed_room) freed = realloc(freed, (freed_room = freed_room * 2 + 64) * sizeof *freed);
  freed[freed_count++] = (struct range){m->address, m->address + m->size};
  free(m->accesses);
  *m = memories[--memory_count];
}

static void no_memory(const char *call, uintptr_t address, size_t size) {
  for (int i = freed_count; i-- > 0;)
    if (address >= freed[i].from && address < freed[i].to)
      report("%s: use of memory after it was freed: %zu bytes at %#zx", call, size, (size_t)address);
  report("%s: %zu bytes at %#zx are no memory of a device", call, size, (size_t)address);
}

/* Accesses. */

static void forget(struct memory *m) {
  int kept = 0;
  for (int i = 0; i < m->count; i++)
    if (!host_knows(m->accesses[i].actor, m->accesses[i].time)) m->accesses[kept++] = m->accesses[i];
  m->count = kept;
}

static void check(struct memory *m, const struct stream *s, const struct access *a) {
  for (int i = 0; i < m->count; i++) {
    const struct access *b = &m->accesses[i];
    if (b->to <= a->from || a->to <= b->from || !(a->write || b->write)) continue;
    if (s->clock.at[b->actor] >= b->time) continue;
    uintptr_t from = a->from > b->from ? a->from : b->from, to = a->to < b->to ? a->to : b->to;
    report("race: %s of %s on stream %p and %s of %s on stream %p are not ordered by any event: "
           "%zu bytes at %#zx, %zu into a piece of %zu bytes",
           b->write ? "a write" : "a read", b->call, (void *)b->stream, a->write ? "a write" : "a read", a->call,
           (void *)a->stream, (size_t)(to - from), (size_t)from, (size_t)(from - m->address), m->size);
  }
}

/* Removes accesses that the new one knows and covers, because they tell nothing more to later ones. */
static void cover(struct memory *m, const struct stream *s, const struct access *a) {
  int kept = 0;
  for (int i = 0; i < m->count; i++) {
    const struct access *b = &m->accesses[i];
    bool covered = b->from >= a->from && b->to <= a->to && s->clock.at[b->actor] >= b->time;
    if (!(covered && (a->write || (!b->write && b->actor == a->actor)))) m->accesses[kept++] = *b;
  }
  m->count = kept;
}

static void note(struct memory *m, struct stream *s, uintptr_t address, size_t size, bool write, const char *call) {
  struct access a = {address, address + size, s->actor, s->clock.at[s->actor], write, s, call};
  forget(m);
  check(m, s, &a);
  cover(m, s, &a);
  if (m->count == m->room) m->accesses = realloc(m->accesses, (m->room = m->room * 2 + 8) * sizeof a);
  m->accesses[m->count++] = a;
}

void access_device(struct stream *s, CUdeviceptr address, size_t size, bool write, const char *call, struct device *d) {
  if (size == 0) return;
  struct memory *m = find(address);
  if (m == NULL || m->device == NULL) no_memory(call, address, size);
  if (address + size > m->address + m->size)
    report("%s: %zu bytes at %#zx reach beyond their piece of memory, which has %zu from there", call, size,
           (size_t)address, (size_t)(m->address + m->size - address));
  if (m->device != d)
    report("%s: memory of device %d on a stream of device %d", call, m->device->ordinal, d->ordinal);
  note(m, s, address, size, write, call);
}

/* Keeps the pages of accesses from the CPU. A page is kept as a whole. */
static void guard_from(const struct memory *m, bool writes) {
  for (int i = 0; i < m->count; i++) {
    const struct access *a = &m->accesses[i];
    if (a->write != writes) continue;
    uintptr_t from = a->from / 4096 * 4096, to = (a->to + 4095) / 4096 * 4096;
    mprotect((void *)from, to - from, writes ? PROT_NONE : PROT_READ);
  }
}

static void guard(struct memory *m) {
  mprotect((void *)m->address, m->mapped, PROT_READ | PROT_WRITE);
  guard_from(m, false);
  guard_from(m, true);
  guarded_count += (m->count > 0) - m->guarded;
  m->guarded = m->count > 0;
}

void unguard(void) {
  for (int i = 0; i < memory_count && guarded_count > 0; i++)
    if (memories[i].guarded) {
      int before = memories[i].count;
      forget(&memories[i]);
      if (memories[i].count != before) guard(&memories[i]);
    }
}

void access_host(struct stream *s, const void *address, size_t size, bool write, const char *call) {
  struct memory *m = find((uintptr_t)address);
  if (m == NULL) return;
  note(m, s, (uintptr_t)address, size, write, call);
  guard(m);
}

bool is_pinned(const void *address, size_t size) {
  struct memory *m = find((uintptr_t)address);
  return m != NULL && m->device == NULL && (uintptr_t)address + size <= m->address + m->size;
}

void *alias(CUdeviceptr address) {
  struct memory *m = find(address);
  return m == NULL ? NULL : m->alias + (address - m->address);
}

/* The CPU touches memory of a device. */

static struct sigaction before[2];

static void on_fault(int number, siginfo_t *info, void *context) {
  uintptr_t at = (uintptr_t)info->si_addr;
  for (int i = 0; i < memory_count; i++) /* without the lock, for which a handler must not wait */
    if (memories[i].device != NULL && at >= memories[i].address && at < memories[i].address + memories[i].mapped)
      report("the CPU touches memory of device %d at %#zx, %zu into a piece of %zu bytes", memories[i].device->ordinal,
             (size_t)at, (size_t)(at - memories[i].address), memories[i].size);
  for (int i = 0; i < memory_count; i++)
    if (memories[i].guarded && at >= memories[i].address && at < memories[i].address + memories[i].mapped)
      report("race: the CPU touches pinned memory that %s on a stream still uses, for all that the host knows: at %#zx, "
             "%zu into a piece of %zu bytes", memories[i].accesses[0].call, (size_t)at,
             (size_t)(at - memories[i].address), memories[i].size);
  for (int i = 0; i < freed_count; i++)
    if (at >= freed[i].from && at < freed[i].to)
      report("the CPU touches memory of a device that was freed, at %#zx", (size_t)at);
  struct sigaction *old = &before[number == SIGBUS];
  if (old->sa_flags & SA_SIGINFO && old->sa_sigaction != NULL) return old->sa_sigaction(number, info, context);
  if (old->sa_handler != SIG_DFL && old->sa_handler != SIG_IGN) return old->sa_handler(number);
  signal(number, SIG_DFL); /* the instruction runs again, and ends the process */
}

void catch_faults(void) {
  struct sigaction mine = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
  sigaction(SIGSEGV, &mine, &before[0]);
  sigaction(SIGBUS, &mine, &before[1]);
}

/* The interface. */

static struct memory *map_twice(size_t size, int outside, struct device *d) {
  size_t mapped = (size + 4095) / 4096 * 4096;
  int fd = memfd_create("device", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, mapped) != 0) report("memory cannot be made: %m");
  void *address = mmap(NULL, mapped, outside, MAP_SHARED, fd, 0);
  char *alias = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (address == MAP_FAILED || alias == MAP_FAILED) report("memory cannot be mapped: %m");
  memset(alias, 0xa5, mapped < 1 << 16 ? mapped : 1 << 16); /* what an earlier user may have left there */
  struct memory *m = add_memory();
  m->address = (uintptr_t)address;
  m->alias = alias;
  m->size = size;
  m->mapped = mapped;
  m->device = d;
  return m;
}

API CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t size) {
  ENTER(cuMemAlloc_v2);
  struct device *d = current_device();
  if (d == NULL) LEAVE(CUDA_ERROR_INVALID_CONTEXT);
  if (size == 0) LEAVE(CUDA_ERROR_INVALID_VALUE);
  if (d->used + size > total_memory()) LEAVE(CUDA_ERROR_OUT_OF_MEMORY);
  *address = map_twice(size, PROT_NONE, d)->address;
  d->used += size;
  LEAVE(0);
}

/* Like in the real driver, a call that frees waits for the device. The host learns that the memory is not in use. */
static struct memory *wait_unused(uintptr_t address) {
  struct device *current = current_device();
  if (current != NULL) device_waits(current);
  for (;;) {
    struct memory *m = find(address); /* again, because it moves while others have the lock */
    forget(m);
    if (m->count == 0) return m;
    struct stream *s = m->accesses[0].stream;
    host_waits(s, s->issued);
  }
}

API CUresult cuMemFree_v2(CUdeviceptr address) {
  ENTER(cuMemFree_v2);
  struct memory *m = find(address);
  if (m == NULL || m->device == NULL) no_memory("cuMemFree", address, 0);
  if (m->address != address) report("cuMemFree: %#zx is inside a piece of memory", (size_t)address);
  m = wait_unused(address);
  munmap(m->alias, m->mapped);
  /* The address stays taken, so that nobody else gets it. */
  mmap((void *)m->address, m->mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  m->device->used -= m->size;
  remove_memory(m);
  LEAVE(0);
}

API CUresult cuMemHostAlloc(void **address, size_t size, unsigned int flags) {
  ENTER(cuMemHostAlloc);
  (void)flags;
  if (current_device() == NULL) LEAVE(CUDA_ERROR_INVALID_CONTEXT);
  *address = (void *)map_twice(size, PROT_READ | PROT_WRITE, NULL)->address;
  LEAVE(0);
}

API CUresult cuMemFreeHost(void *address) {
  ENTER(cuMemFreeHost);
  struct memory *m = find((uintptr_t)address);
  if (m == NULL || m->device != NULL || m->address != (uintptr_t)address) report("cuMemFreeHost: %p is no pinned memory", address);
  m = wait_unused((uintptr_t)address);
  munmap(m->alias, m->mapped);
  mmap(address, m->mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  remove_memory(m);
  LEAVE(0);
}

API CUresult cuMemGetInfo_v2(size_t *left, size_t *total) {
  ENTER(cuMemGetInfo_v2);
  struct device *d = current_device();
  if (d == NULL) LEAVE(CUDA_ERROR_INVALID_CONTEXT);
  *total = total_memory();
  *left = *total - d->used;
  LEAVE(0);
}

API CUresult cuPointerGetAttribute(void *data, int attribute, CUdeviceptr address) {
  enum { MEMORY_TYPE = 2, ORDINAL = 9, HOST_TYPE = 1, DEVICE_TYPE = 2 };
  ENTER(cuPointerGetAttribute);
  struct memory *m = find(address);
  if (m == NULL) LEAVE(CUDA_ERROR_INVALID_VALUE);
  switch (attribute) {
    case MEMORY_TYPE: *(unsigned int *)data = m->device == NULL ? HOST_TYPE : DEVICE_TYPE; LEAVE(0);
    case ORDINAL: *(int *)data = m->device == NULL ? 0 : m->device->ordinal; LEAVE(0);
  }
  LEAVE(CUDA_ERROR_INVALID_VALUE);
}

void expect_no_memory(void) {
  for (int i = 0; i < memory_count; i++)
    report("leak: %zu bytes at %#zx of %s have not been freed", memories[i].size, (size_t)memories[i].address,
           memories[i].device == NULL ? "pinned host memory" : "device memory");
}
