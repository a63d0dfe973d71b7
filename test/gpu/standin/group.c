/*
 * Calls of NCCL's operations, and groups. At the end of the outermost group its calls on one communicator become one
 * piece of work on their stream. If the communicator is non-blocking, that happens at times later, in the background.
 * If a call of a group fails, the group fails, and none of its calls is issued.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Thread_local int group_depth;
_Atomic int open_groups;
static _Thread_local struct item *items;
static _Thread_local int item_count, item_room;
static _Thread_local struct comm *started[64];
static _Thread_local int started_count;
static _Thread_local int group_fault, group_error;

static const char *names[] = {"ncclAllReduce", "ncclBroadcast", "ncclReduce", "ncclAllGather", "ncclReduceScatter",
                              "ncclSend", "ncclRecv"};

const char *name_of_terms(const struct terms *t, char text[TEXT]) {
  static const char *types[] = {"int8", "uint8", "int32", "uint32", "int64", "uint64",
                                "float16", "float32", "float64", "bfloat16", "fp8 e4m3", "fp8 e5m2"};
  static const char *ops[] = {"sum", "product", "max", "min", "average", "scaled sum"};
  snprintf(text, TEXT, "%s of %llu x %s, %s, root %d", names[t->collective], (unsigned long long)t->count, types[t->type],
           ops[t->op], t->root);
  return text;
}

void add_started(struct comm *c) {
  if (started_count == 64) report("more than 64 communicators in a group");
  started[started_count++] = c;
}

/* The bytes that a call reads and writes. */
struct use {
  CUdeviceptr from, to;
  size_t read, written;
};

static struct use use_of(const struct item *i) {
  const struct comm *c = i->comm;
  size_t n = i->terms.count * size_of_type(i->terms.type), all = n * c->size;
  bool root = i->terms.root == c->rank;
  switch (i->terms.collective) {
    case BROADCAST: return (struct use){i->from, i->to, root ? n : 0, n};
    case REDUCE: return (struct use){i->from, i->to, n, root ? n : 0};
    case ALL_GATHER: return (struct use){i->from, i->to, n, all};
    case REDUCE_SCATTER: return (struct use){i->from, i->to, all, n};
    case SEND: return (struct use){i->from, 0, n, 0};
    case RECV: return (struct use){0, i->to, 0, n};
  }
  return (struct use){i->from, i->to, n, n};
}

static bool overlap(CUdeviceptr a, size_t n, CUdeviceptr b, size_t m) { return n > 0 && m > 0 && a < b + m && b < a + n; }

/* Checks that input and output share no memory, or are in place in NCCL's way. */
static void check_place(const struct item *i) {
  struct use u = use_of(i);
  size_t part = i->terms.count * size_of_type(i->terms.type) * i->comm->rank;
  CUdeviceptr to = u.to, from = u.from;
  if (i->terms.collective == ALL_GATHER) to += part;
  if (i->terms.collective == REDUCE_SCATTER) from += part;
  if (from != to && overlap(u.from, u.read, u.to, u.written))
    report("%s: its input and its output overlap, and are not in place", names[i->terms.collective]);
}

/* Checks two calls of a group, because nothing orders these. */
static void check_apart(const struct item *a, const struct item *b) {
  struct use u = use_of(a), v = use_of(b);
  if (overlap(u.to, u.written, v.from, v.read) || overlap(u.to, u.written, v.to, v.written) ||
      overlap(u.from, u.read, v.to, v.written))
    report("race: %s and %s of one group use the same memory, and one of them writes it",
           names[a->terms.collective], names[b->terms.collective]);
}

static void note_uses(struct group *g, struct stream *s) {
  for (int i = 0; i < g->count; i++) {
    struct use u = use_of(&g->items[i]);
    const char *name = names[g->items[i].terms.collective];
    check_place(&g->items[i]);
    for (int j = 0; j < i; j++) check_apart(&g->items[i], &g->items[j]);
    access_device(s, u.from, u.read, false, name, s->device);
    access_device(s, u.to, u.written, true, name, s->device);
  }
}

/* Checks that groups of two communicators on one device are ordered. Kernels of two communicators may keep each other
 * from the device, so only events or the host can ensure that they run one after the other. Then members with different
 * orders hang, with any timing. */
static void check_order(struct comm *c, struct stream *s) {
  struct device *d = c->device;
  if (c->size == 1) return;
  if (d->group.comm != NULL && d->group.comm != c && !stream_knows(s, d->group.actor, d->group.time))
    report("race: groups of two communicators, %p and %p, on device %d are not ordered by any event", d->group.comm,
           (void *)c, d->ordinal);
  d->group.comm = c;
  d->group.actor = s->actor;
  d->group.time = s->clock.at[s->actor];
}

/* Puts a group onto its stream. */
static void issue(struct comm *c, void *argument) {
  struct group *g = argument;
  lock();
  if (atomic_load(&c->aborted)) {
    unlock();
    free(g);
    return;
  }
  struct stream *s = check_handle("an operation of NCCL in the background", g->items[0].stream, STREAM);
  begin(s);
  check_order(c, s);
  note_uses(g, s);
  if (c->last != NULL) wait_for(s, c->last, c->last_number); /* the group waits, but no clock learns of that */
  atomic_fetch_add(&c->working, 1);
  struct work *w = enqueue(s, run_group);
  w->argument = g;
  c->last = s;
  c->last_number = s->issued;
  c->last_clock = s->clock;
  unlock();
}

static struct group *gather(struct comm *c) {
  struct group *g = calloc(1, sizeof *g + item_count * sizeof *items);
  g->comm = c;
  g->fault = group_fault;
  for (int i = 0; i < item_count; i++) {
    if (items[i].comm != c) continue;
    if (g->count > 0 && g->items[0].stream != items[i].stream)
      report("two streams in one group of a communicator: the stand-in has no such thing");
    if (items[i].terms.collective < SEND) g->round = c->rounds + 1;
    g->items[g->count++] = items[i];
  }
  if (g->round != 0) c->rounds++;
  return g;
}

static ncclResult_t issue_all(void) {
  ncclResult_t result = ncclSuccess;
  for (int i = 0; i < item_count; i++) {
    struct comm *c = items[i].comm;
    bool seen = false;
    for (int j = 0; j < i; j++) seen |= items[j].comm == c;
    if (seen) continue;
    struct group *g = gather(c);
    if (!c->blocking && draw(3) == 0) {
      in_background(c, issue, g);
      result = ncclInProgress;
    } else {
      issue(c, g);
    }
  }
  item_count = 0;
  group_fault = 0;
  return result;
}

API ncclResult_t ncclGroupStart(void) {
  int what = call_fault("ncclGroupStart", NULL);
  if (what > 0) return what;
  group_depth++;
  atomic_fetch_add(&open_groups, 1);
  return ncclSuccess;
}

static ncclResult_t end_group(void) {
  ncclResult_t result = issue_all();
  for (int i = 0; i < started_count; i++) {
    settle(started[i]);
    if (result == ncclSuccess) result = atomic_load(&started[i]->state);
  }
  started_count = 0;
  return result;
}

API ncclResult_t ncclGroupEnd(void) {
  if (group_depth == 0) report("ncclGroupEnd without ncclGroupStart on this thread");
  int what = call_fault("ncclGroupEnd", item_count > 0 ? items[0].comm : NULL);
  if (what < 0) group_fault = what;
  atomic_fetch_sub(&open_groups, 1);
  if (what > 0) group_error = what;
  if (--group_depth > 0) return what > 0 ? what : ncclSuccess;
  if (group_error != 0) {
    what = group_error;
    item_count = started_count = group_fault = group_error = 0;
    return what;
  }
  return end_group();
}

/* Notes that a call has failed, and with it its group. */
static ncclResult_t failed(int code) {
  if (group_depth > 0) group_error = code;
  return code;
}

static ncclResult_t call(enum collective collective, const void *from, void *to, size_t count, int type, int op, int root,
                         ncclComm_t comm, CUstream stream) {
  const char *name = names[collective];
  int what = call_fault(name, comm);
  if (what > 0) return failed(what);
  lock();
  struct comm *c = comm_of(name, comm);
  struct stream *s = stream_of(name, stream);
  if (s == NULL) report("%s: no context is current on this thread", name);
  if (s->device != c->device)
    report("%s: a stream of device %d for a communicator of device %d", name, s->device->ordinal, c->device->ordinal);
  struct item i = {.terms = {collective, type, op, root, count}, .peer = root, .comm = c, .stream = s,
                   .from = (CUdeviceptr)(uintptr_t)from, .to = (CUdeviceptr)(uintptr_t)to};
  bool bad = type < 0 || type >= ncclTypes || root < 0 || root >= c->size || op < 0 || op >= ncclUserOps + MAX_SCALES;
  if (!bad && op >= ncclUserOps) {
    if (c->factor_types[op - ncclUserOps] != type + 1)
      report("%s: operation %d has been destroyed, or is of another type", name, op);
    i.factor = c->factors[op - ncclUserOps];
    i.terms.op = ncclUserOps;
    bad = c->size == 1 && type >= ncclFloat8e4m3; /* like NCCL 2.30 */
  }
  int state = atomic_load(&c->state);
  int capturing = s->capturing;
  unlock();
  if (bad) return failed(ncclInvalidArgument);
  if (state != ncclSuccess) return failed(state);
  if (capturing) report("%s on a stream that captures a graph: the stand-in has no such thing", name);
  if (item_count == item_room) items = realloc(items, (item_room = item_room * 2 + 16) * sizeof *items);
  items[item_count++] = i;
  if (what < 0) group_fault = what;
  return group_depth > 0 ? ncclSuccess : issue_all();
}

API ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, CUstream stream) {
  return call(ALL_REDUCE, from, to, count, type, op, 0, comm, stream);
}

API ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                               CUstream stream) {
  return call(BROADCAST, from, to, count, type, 0, root, comm, stream);
}

API ncclResult_t ncclReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                            ncclComm_t comm, CUstream stream) {
  return call(REDUCE, from, to, count, type, op, root, comm, stream);
}

API ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm,
                               CUstream stream) {
  return call(ALL_GATHER, from, to, count, type, 0, 0, comm, stream);
}

API ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                   ncclComm_t comm, CUstream stream) {
  return call(REDUCE_SCATTER, from, to, count, type, op, 0, comm, stream);
}

API ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, CUstream stream) {
  return call(SEND, from, NULL, count, type, 0, peer, comm, stream);
}

API ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, CUstream stream) {
  return call(RECV, NULL, to, count, type, 0, peer, comm, stream);
}
