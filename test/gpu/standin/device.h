/*
 * The simulated GPUs of a process: the interface between the stand-in for the driver and that for NCCL.
 *
 * Order is checked when work is enqueued, not when it runs, so the result does not depend on timing. An actor is a
 * stream, or the host. Each actor has a vector clock. Work on a stream knows all that the host knows, and all work for
 * which the stream waits. Of two accesses to the same bytes, of which one writes, the later must know the earlier. All
 * host threads count as one actor, whose calls are in the order in which they arrive. So races among host threads are
 * not found here.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef STANDIN_DEVICE_H
#define STANDIN_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "abi.h"

enum { ACTORS = 256, HOST = 0, MAX_DEVICES = 16, TEXT = 160 };

struct clock {
  uint64_t at[ACTORS];
};

struct device {
  int ordinal; /* in this process */
  int number;  /* on this machine */
  bool made;   /* its primary context */
  struct stream *default_stream;
  size_t used;
  struct { /* the last group of a communicator with other members */
    const void *comm;
    int actor;
    uint64_t time;
  } group;
};

struct context {
  struct device device;
};

/* The first field of a handle. Handles are never freed, so that check_handle sees the use of a dead one. */
enum kind { STREAM = 0x5157ea, EVENT = 0xe7e47, COMM = 0xc0aa };
struct handle {
  enum kind kind;
  bool dead;
  const char *killer; /* the call that ended it */
};

/* Work of a stream. The stream's thread calls run without the lock. */
struct work {
  struct work *next;
  struct stream *after; /* wait until this stream has done after_number */
  uint64_t after_number;
  void (*run)(struct work *);
  void *argument;
  CUdeviceptr to, from;
  void *host_to;
  const void *host_from;
  size_t size;
  int kind, value;
  unsigned delay;
};

struct stream {
  struct handle handle;
  struct device *device;
  bool blocking; /* ordered with the default stream */
  bool is_default;
  int capturing;
  bool captures_globally; /* then other threads are restricted, too */
  int actor;
  struct clock clock;
  struct work *first, **last;
  uint64_t issued, done;
};

struct event {
  struct handle handle;
  struct device *device;
  struct stream *stream; /* of the last record, or NULL */
  uint64_t number;
  struct clock clock;
};

/* report.c. A report ends the process with status 99. */
__attribute__((noreturn, format(printf, 1, 2))) API void report(const char *format, ...);
API uint64_t draw(uint64_t below); /* the next number of the seed */
API unsigned most_delay(void);     /* microseconds */
/* Counts a call. Returns 0, the code that the call has to return, or one of the following. */
enum { FAULT_HANG = -1, FAULT_STUCK = -2, FAULT_WRONG = -3, FAULT_SKIP = -4, FAULT_ASYNC = -1000 }; /* FAULT_ASYNC - code */
API int fault(const char *function);

/* The lock of all state of the stand-in, and waiting for a change of that state. */
API void lock(void);
API void unlock(void);
API void wait_change(void);
API void changed(void);
#define LEAVE(code) return unlock(), (code)

/* stream.c, with the lock held. */
extern _Thread_local int capture_mode; /* of this thread: 0 is global, 1 of this thread only, 2 relaxed */
API void *new_handle(size_t size, enum kind kind);
API void *check_handle(const char *call, void *handle, enum kind kind);
API struct stream *stream_of(const char *call, CUstream stream); /* NULL: there is no context */
API struct device *current_device(void);
/* Begins the stream's next point in time, to which the work and the accesses of a call belong. */
API void begin(struct stream *s);
API struct work *enqueue(struct stream *s, void (*run)(struct work *));
API void wait_for(struct stream *s, struct stream *other, uint64_t number);
API void host_learns(const struct clock *c);
API void host_waits(struct stream *s, uint64_t number);
/* Waits for all present work of the streams of a device. The host's clock does not learn of it. */
API void device_waits(const struct device *d);
API bool stream_knows(const struct stream *s, int actor, uint64_t time);

/* memory.c, with the lock held. */
API void access_device(struct stream *s, CUdeviceptr address, size_t size, bool write, const char *call, struct device *d);
API void *alias(CUdeviceptr address);
void access_host(struct stream *s, const void *address, size_t size, bool write, const char *call);
bool is_pinned(const void *address, size_t size);
void catch_faults(void);
void expect_no_memory(void);

API void at_leak_check(void (*check)(void));

#endif
