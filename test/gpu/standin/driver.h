/*
 * The interfaces among the files of the stand-in for libcuda.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef STANDIN_DRIVER_H
#define STANDIN_DRIVER_H

#include "device.h"

/* The first and the last line of each function: faults, and the lock. */
#define ENTER(function)                                            \
  int injected_ = enter_call(#function);                           \
  if (injected_ == FAULT_SKIP) return 0;                           \
  if (injected_ != 0) return injected_;                            \
  lock()

int enter_call(const char *function);
bool host_knows(int actor, uint64_t time);
struct stream *make_stream(struct device *d, bool blocking, bool is_default);
void expect_no_streams(void);
void unguard(void);

#endif
