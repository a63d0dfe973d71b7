/*
 * Communicators of the stand-in for libnccl.so.2. The members of a communicator are processes of one machine. They
 * share a file in the folder STANDIN_MEETING, with a name from the unique id. Each member has a place there for its
 * calls, and for its data.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef STANDIN_COMM_H
#define STANDIN_COMM_H

#include <stdatomic.h>
#include <stdbool.h>

#include "device.h"

enum { MAX_MEMBERS = 16, MAX_ITEMS = 1024, MAX_SCALES = 64 };
#define ROOM ((size_t)192 << 20) /* for one member's data of a group, or for one message; the file has holes */

enum collective { ALL_REDUCE, BROADCAST, REDUCE, ALL_GATHER, REDUCE_SCATTER, SEND, RECV };

/* The part of a call that must be the same on all members. */
struct terms {
  int32_t collective, type, op, root;
  uint64_t count;
};

/* One call, as part of a group. */
struct item {
  struct terms terms;
  double factor; /* of a scaled sum */
  int peer;
  bool over; /* the message has been sent or received */
  CUdeviceptr from, to;
  size_t place; /* offset of this member's elements in its room */
  struct comm *comm;
  struct stream *stream;
};

struct message {
  _Atomic uint64_t sent, taken;
  uint64_t count;
  int32_t type;
};

struct member {
  _Atomic uint32_t joined, finalized;
  uint32_t device;
  _Atomic uint64_t posted, consumed, split;
  int32_t color, key;
  uint64_t items;
  struct terms terms[MAX_ITEMS];
  struct message messages[MAX_MEMBERS]; /* to each member */
};

struct meeting {
  _Atomic uint32_t bell; /* a futex: rung at each step */
  _Atomic uint32_t size;
  struct member members[MAX_MEMBERS];
};

struct comm {
  struct handle handle;
  char name[128];
  int rank, size;
  bool blocking, finalizing;
  struct device *device;
  struct meeting *meeting;
  size_t mapped;
  _Atomic int state;   /* ncclInProgress until the work in the background is done */
  _Atomic bool aborted;
  _Atomic int working; /* threads in the background, and groups on streams */
  uint64_t rounds, children, splits;
  struct stream *last; /* the stream of the last group, and the group's number there */
  uint64_t last_number;
  struct clock last_clock;
  double factors[MAX_SCALES];
  int factor_types[MAX_SCALES];
  char error[256];
};

/* comm.c */
struct comm *comm_of(const char *call, ncclComm_t comm); /* with the lock held; it is ready for calls */
void ring(struct comm *c);
void listen(struct comm *c, uint32_t heard);
uint32_t heard(struct comm *c);
void fail(struct comm *c, int code, const char *text);
/* Runs work on a thread of its own, while the communicator is in progress. */
void in_background(struct comm *c, void (*run)(struct comm *, void *), void *argument);
void settle(struct comm *c); /* waits while the communicator is in progress */
int call_fault(const char *function, struct comm *c);
void pause_randomly(void);

/* group.c */
extern _Thread_local int group_depth;
extern _Atomic int open_groups; /* of all threads */
void add_started(struct comm *c);
const char *name_of_terms(const struct terms *t, char text[TEXT]);

/* round.c */
struct group {
  struct comm *comm;
  uint64_t round; /* 0: the group has only messages */
  int count;
  int fault;
  struct item items[];
};
void run_group(struct work *w);

/* reduce.c */
size_t size_of_type(int type);
/* to = to op from, on the bytes of count elements. The elements of the first member are only scaled and copied. */
void reduce_into(int type, int op, double factor, bool first, void *to, const void *from, size_t count);
/* Like NCCL, an average multiplies floating-point numbers by a factor of their type before it adds them, and divides
 * integers afterwards. */
bool average_before(int type, int members, double *factor);
void finish_average(int type, void *to, size_t count, int members);
double scale_of(int type, const void *factor);

#endif
