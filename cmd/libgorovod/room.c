/*
 * Room for Go's runtime. The runtime reserves much more address space than it uses. If a limit
 * (ulimit -v) denies that, it ends the process with a dump. It even starts with room for only half
 * of it, and then overwrites the process's memory at low addresses.
 *
 * So a constructor looks for room before the runtime's constructor runs. If there is none, the
 * runtime is not started, and each exported function is refused with the reason.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "shim.h"

enum {
  /* What the runtime reserves at its start on a 64-bit machine (585 MiB to find free pages, 512 MiB to find pages to
   * give back, an arena and its map), the C library's memory of its threads, and the engine's buffers. */
  WANTED_MIB = 1700,
  THREADS = 6,
  USUAL_STACK_MIB = 8,
};

static unsigned long long missing; /* how many MiB were missing; 0: there was room */
static struct sigaction before[NSIG]; /* set if there was no room */
static atomic_bool no_thread;         /* the last thread could not be started */

/* A limit in MiB; none if there is no limit. */
static unsigned long long limit_mib(int which, unsigned long long none) {
  struct rlimit most;
  if (getrlimit(which, &most) != 0 || most.rlim_cur == RLIM_INFINITY) return none;
  return (unsigned long long)most.rlim_cur >> 20;
}

static unsigned long long address_space_mib(void) { return limit_mib(RLIMIT_AS, 0); }

/* Constructors with a number run before those without, such as the runtime's. */
__attribute__((constructor(101))) static void look_for_room(void) {
  if (address_space_mib() == 0) return;
  unsigned long long wanted = WANTED_MIB + THREADS * limit_mib(RLIMIT_STACK, USUAL_STACK_MIB);
  void *p = mmap(NULL, (size_t)wanted << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p != MAP_FAILED) {
    munmap(p, (size_t)wanted << 20);
    return;
  }
  missing = wanted;
  for (int s = 1; s < NSIG; s++) sigaction(s, NULL, &before[s]);
}

bool shim_no_room(void) { return missing > 0; }

/* The runtime has set signal handlers before it starts its first thread. */
void shim_stay_out(void) {
  for (int s = 1; s < NSIG; s++) sigaction(s, &before[s], NULL);
}

#define ADVICE                                                                                             \
  "`ulimit -v unlimited` lifts the limit; to bound the memory that is used, take a cgroup (systemd-run -p " \
  "MemoryMax=..., docker run --memory)"

void shim_explain_no_room(char *buf, size_t bytes) {
  snprintf(buf, bytes,
           "gorovod's engine cannot start in this process: the limit on its address space is %llu MiB (ulimit -v), and the "
           "engine, with Go's runtime, needs %llu MiB beside all else, most of which it only reserves. " ADVICE,
           address_space_mib(), missing);
}

void shim_thread_started(int error) { atomic_store(&no_thread, error == EAGAIN); }

/* The abort of the runtime's C part, which other libraries do not see. That part has said that it cannot start a
 * thread, but not why. */
__attribute__((visibility("hidden"), noreturn)) void abort(void) {
  unsigned long long most = address_space_mib();
  if (most > 0 && atomic_load(&no_thread)) {
    fprintf(stderr, "gorovod: this process has no room for another thread: the limit on its address space is %llu MiB (ulimit -v). " ADVICE "\n", most);
    fflush(stderr);
    signal(SIGABRT, SIG_DFL); /* the runtime's handler would print its stacks */
  }
  void (*real)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, "abort");
  if (real != NULL) real();
  raise(SIGABRT);
  _Exit(128 + SIGABRT);
}
