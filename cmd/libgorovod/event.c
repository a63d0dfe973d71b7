/*
 * Asking a device whether work is done, without breaking the capture of a graph.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE /* for dladdr */
#include "shim.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

/* The function that sets the thread's interaction with captures, in the library of an event's query, or NULL. */
static int (*exchange_beside(int (*query)(void *)))(int *) {
  static _Atomic uintptr_t known, found; /* there is one library of a device in a process */
  uintptr_t at = (uintptr_t)query;
  if (known == at) return (int (*)(int *))found;
  Dl_info where;
  void *library = NULL, *exchange = NULL;
  if (dladdr((void *)at, &where) != 0) library = dlopen(where.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  static const char *const names[] = {"cudaThreadExchangeStreamCaptureMode", "hipThreadExchangeStreamCaptureMode",
                                      "cuThreadExchangeStreamCaptureMode"};
  for (size_t i = 0; library != NULL && exchange == NULL && i < sizeof names / sizeof *names; i++) {
    exchange = dlsym(library, names[i]);
  }
  if (library != NULL) dlclose(library);
  found = (uintptr_t)exchange;
  known = at;
  return (int (*)(int *))exchange;
}

/* A question breaks the capture of another thread, and is answered by an error, unless this thread's mode is relaxed. */
int gorovod_event_complete(void *context) {
  enum { RELAXED = 2 };
  const gorovod_event *event = context;
  int (*exchange)(int *) = exchange_beside(event->query);
  int mode = RELAXED;
  if (exchange != NULL) exchange(&mode);
  int answer = event->query(event->event);
  if (exchange != NULL) exchange(&mode);
  return answer != event->pending;
}
