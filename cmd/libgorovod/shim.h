/* The interface between the Go side and the C side of the library. */
#ifndef GOROVOD_SHIM_H
#define GOROVOD_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../../include/gorovod.h"

/* Size in bytes of a thread's buffer for the reason for its last failure. */
#define REASON_BYTES 8192

/* Remembers a descriptor that a forked child must close, or forgets it. */
void shim_track_fd(int fd, int open);

/* Whether a thread other than the main one has submitted an operation. */
bool shim_others_submit(void);

/* The file of this library; NULL if it is not known. */
const char *shim_library(void);

/* Whether the runtime was not started, because a limit on the address space leaves no room for it. */
bool shim_no_room(void);
/* Why not, as the reason for a refusal. */
void shim_explain_no_room(char *buf, size_t bytes);
/* Undoes the runtime's work before its first thread, which is not started. */
void shim_stay_out(void);
/* Notes whether a thread of the runtime could be started: 0 or an errno. */
void shim_thread_started(int error);

/* Calls the functions of a gorovod_op. */
void *shim_call_alloc(void *(*alloc)(void *, size_t, int, const int64_t *), void *context,
                      size_t bytes, int ndim, const int64_t *shape);
/* Whether alloc is gorovod_given_output, so that its memory is known. */
bool shim_gives_output(void *(*alloc)(void *, size_t, int, const int64_t *));
int shim_call_ready(int (*ready)(void *), void *context);
/* Calls the function set by gorovod_on_low_memory, if any. Returns at once while an earlier call runs. */
void shim_release_memory(int device);
void shim_call_done(void (*done)(void *, int64_t, int, const char *), void *context,
                    int64_t handle, int status, const char *reason);

#endif
