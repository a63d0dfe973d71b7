/*
 * The end of MPI: when C's exit calls it, and how a thread is taken out of it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "libmpi.h"

#include "_cgo_export.h"

static pid_t home;

#ifdef __GLIBC__
static int exit_code;

static void at_exit(int code, void *unused) {
  (void)unused;
  exit_code = code;
  if (getpid() == home) goMPIAtExit();
}

void gv_at_exit(void) {
  home = getpid();
  on_exit(at_exit, NULL);
}

void gv_exit_now(void) {
  fflush(NULL);
  _exit(exit_code);
}
#else
static void at_exit(void) {
  if (getpid() == home) goMPIAtExit();
}

void gv_at_exit(void) {
  home = getpid();
  atexit(at_exit);
}

void gv_exit_now(void) {}
#endif

static atomic_long finalizing; /* the thread, as the kernel numbers it; 0: none */
static atomic_int halted;

void gv_note_finalizing(void) { atomic_store(&finalizing, syscall(SYS_gettid)); }

static void halt(int sig) {
  (void)sig;
  atomic_store(&halted, 1);
  for (;;) pause();
}

int gv_halt_finalizing(void) {
  const int sig = SIGRTMAX - 1; /* MPI does not use it, and the process ends soon */
  struct sigaction a = {.sa_handler = halt, .sa_flags = SA_ONSTACK};
  sigfillset(&a.sa_mask);
  long thread = atomic_load(&finalizing);
  if (thread == 0 || sigaction(sig, &a, NULL) != 0 || syscall(SYS_tgkill, getpid(), thread, sig) != 0) return 0;
  for (int ms = 0; ms < 1000 && !atomic_load(&halted); ms++) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  return atomic_load(&halted);
}
