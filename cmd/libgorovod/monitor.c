/*
 * Go's monitor thread (sysmon), which must not take the program's core.
 *
 * After each call from C into Go that thread looks at the caller every 20 us, for
 * 10 ms: some 60 times. If the program computes on every core, each look interrupts
 * it, and together the looks cost a few per cent of a training step. So the monitor's
 * timers get a slack: the kernel may delay a look by that time, and does it together
 * with other interrupts.
 *
 * A thread inherits the timer slack of the thread that starts it. Only Go's runtime in
 * this library starts its threads by the pthread_create below. The first thread runs
 * Go's main goroutine. The second is the monitor, which that goroutine starts before it
 * does anything else.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>

#include "shim.h"

#ifdef __linux__
#include <sys/prctl.h>

enum { MONITOR_SLACK = 5 * 1000 * 1000 }; /* nanoseconds */

typedef int creator(void *thread, const void *attributes, void *(*run)(void *), void *argument);

/* Not the declaration in <pthread.h>, whose function other libraries can see. */
__attribute__((visibility("hidden"))) creator pthread_create;

/* create, for a thread with the given timer slack. */
static int with_slack(int wanted, creator *create, void *thread, const void *attributes, void *(*run)(void *), void *argument) {
  int own = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
  if (own > 0) prctl(PR_SET_TIMERSLACK, (unsigned long)wanted, 0, 0, 0);
  int error = create(thread, attributes, run, argument);
  if (own > 0) prctl(PR_SET_TIMERSLACK, (unsigned long)own, 0, 0, 0);
  return error;
}

/* pthread_create; but the first thread is not started if the runtime has no room. */
static int start(void *thread, const void *attributes, void *(*run)(void *), void *argument) {
  /* The first call, in Go's constructor, finds it: a later one would wait for the loader. */
  static _Atomic(creator *) real;
  static atomic_int started, usual;
  creator *create = atomic_load(&real);
  if (create == NULL) {
    create = (creator *)dlsym(RTLD_DEFAULT, "pthread_create");
    if (create == NULL) return EAGAIN;
    atomic_store(&real, create);
  }
  int slack = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
  if (atomic_fetch_add(&started, 1) == 1) {
    atomic_store(&usual, slack);
    return with_slack(MONITOR_SLACK, create, thread, attributes, run, argument);
  }
  /* The monitor also starts threads, when one in C leaves work behind. They get no slack. */
  if (slack == MONITOR_SLACK && atomic_load(&usual) > 0)
    return with_slack(atomic_load(&usual), create, thread, attributes, run, argument);
  return create(thread, attributes, run, argument);
}

int pthread_create(void *thread, const void *attributes, void *(*run)(void *), void *argument) {
  if (shim_no_room()) {
    shim_stay_out();
    return 0;
  }
  int error = start(thread, attributes, run, argument);
  shim_thread_started(error);
  return error;
}
#endif
