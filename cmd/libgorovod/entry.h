/*
 * What an exported function does before it enters Go's runtime. shim.c has the definitions.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GOROVOD_ENTRY_H
#define GOROVOD_ENTRY_H

#include <stdio.h>

#include "shim.h"

#pragma GCC visibility push(hidden) /* so that shim.c can inline its own */

/* The calling thread's buffer for the reason for its last failure, of REASON_BYTES. */
char *reason_of_thread(void);

/* Forgets the last failure, and returns the buffer for the next reason. */
char *fresh_reason(void);

#define EXPLAIN(...) snprintf(reason_of_thread(), REASON_BYTES, __VA_ARGS__)

/* Whether the caller must not enter Go's runtime: it is a forked child, or the runtime was not started. Explains why. */
int is_child(void);

/* Notes that this thread submits operations. */
void note_submitter(void);

#pragma GCC visibility pop

#endif
