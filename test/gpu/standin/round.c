/*
 * The work of a group on its stream. The collectives of a group are a round of the communicator:
 *
 *   1. wait until all members have consumed the round before
 *   2. put the terms and the inputs into this member's room, and say that the round is posted
 *   3. wait until all have posted; compare the terms with everyone's
 *   4. compute the outputs from all rooms, and say that the round is consumed
 *
 * Messages go through a box for each pair of members. A send ends when the receiver has taken the message: nothing is
 * buffered.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *room(struct comm *c, int member) { return (char *)(c->meeting + 1) + ROOM * member; }

static char *box(struct comm *c, int from, int to) { return room(c, c->size + from * c->size + to); }

static char *gpu(CUdeviceptr address) {
  lock();
  char *a = alias(address);
  unlock();
  return a;
}

/* Waits until all members have posted or consumed a round. Returns false if the communicator is aborted. */
static bool all_at(struct comm *c, bool posted, uint64_t round) {
  for (int i = 0; i < c->size; i++) {
    struct member *m = &c->meeting->members[i];
    for (uint32_t h = heard(c); atomic_load(posted ? &m->posted : &m->consumed) < round; h = heard(c)) {
      if (atomic_load(&c->aborted)) return false;
      listen(c, h);
    }
  }
  return !atomic_load(&c->aborted);
}

static size_t input_size(const struct item *i) {
  size_t n = i->terms.count * size_of_type(i->terms.type);
  if (i->terms.collective == BROADCAST && i->terms.root != i->comm->rank) return 0;
  return i->terms.collective == REDUCE_SCATTER ? n * i->comm->size : n;
}

static void post(struct group *g) {
  struct comm *c = g->comm;
  struct member *me = &c->meeting->members[c->rank];
  size_t used = 0;
  me->items = 0;
  for (int k = 0; k < g->count; k++) {
    struct item *i = &g->items[k];
    if (i->terms.collective >= SEND) continue;
    size_t n = input_size(i);
    if (me->items == MAX_ITEMS || used + n > ROOM) report("a group is too large for the stand-in");
    me->terms[me->items++] = i->terms;
    i->place = used;
    if (n > 0) {
      char *at = room(c, c->rank) + used, *from = gpu(i->from);
      memcpy(at, from, n);
      if (i->terms.op == ncclUserOps && i->terms.collective != ALL_GATHER)
        reduce_into(i->terms.type, ncclUserOps, i->factor, true, at, from, n / size_of_type(i->terms.type));
    }
    /* Places are the same on all members, so each member leaves room for elements that it does not send. */
    size_t n_all = i->terms.count * size_of_type(i->terms.type);
    used += i->terms.collective == REDUCE_SCATTER ? n_all * c->size : n_all;
  }
  atomic_store(&me->posted, g->round);
  ring(c);
}

static void compare(struct group *g) {
  struct comm *c = g->comm;
  struct member *me = &c->meeting->members[c->rank];
  char a[TEXT], b[TEXT];
  for (int r = 0; r < c->size; r++) {
    struct member *m = &c->meeting->members[r];
    for (uint64_t k = 0; k < me->items && k < m->items; k++)
      if (memcmp(&me->terms[k], &m->terms[k], sizeof m->terms[k]) != 0)
        report("the members differ in round %llu of a communicator, call %llu: rank %d has %s, and rank %d has %s",
               (unsigned long long)g->round, (unsigned long long)k, c->rank, name_of_terms(&me->terms[k], a), r,
               name_of_terms(&m->terms[k], b));
    if (me->items != m->items)
      report("the members differ in round %llu of a communicator: rank %d has %llu calls in the group, and rank %d %llu",
             (unsigned long long)g->round, c->rank, (unsigned long long)me->items, r, (unsigned long long)m->items);
  }
}

static void reduce_all(struct item *i, char *to, size_t offset) {
  struct comm *c = i->comm;
  int op = i->terms.op == ncclUserOps ? ncclSum : i->terms.op; /* the inputs are scaled already */
  double factor = 1;
  if (op == ncclAvg && average_before(i->terms.type, c->size, &factor)) op = ncclUserOps;
  for (int r = 0; r < c->size; r++)
    reduce_into(i->terms.type, op, factor, r == 0, to, room(c, r) + i->place + offset, i->terms.count);
  if (op == ncclAvg) finish_average(i->terms.type, to, i->terms.count, c->size);
}

static void compute(struct item *i) {
  struct comm *c = i->comm;
  size_t n = i->terms.count * size_of_type(i->terms.type);
  char *to = n > 0 && i->to != 0 ? gpu(i->to) : NULL;
  if (to == NULL) return;
  switch (i->terms.collective) {
    case ALL_REDUCE: reduce_all(i, to, 0); break;
    case REDUCE:
      if (i->terms.root == c->rank) reduce_all(i, to, 0);
      break;
    case REDUCE_SCATTER: reduce_all(i, to, n * c->rank); break;
    case BROADCAST: memmove(to, room(c, i->terms.root) + i->place, n); break;
    case ALL_GATHER:
      for (int r = 0; r < c->size; r++) memcpy(to + n * r, room(c, r) + i->place, n);
  }
}

static bool run_round(struct group *g) {
  struct comm *c = g->comm;
  if (!all_at(c, false, g->round - 1)) return false;
  post(g);
  if (!all_at(c, true, g->round)) return false;
  compare(g);
  pause_randomly();
  for (int i = 0; i < g->count; i++)
    if (g->items[i].terms.collective < SEND) compute(&g->items[i]);
  atomic_store(&c->meeting->members[c->rank].consumed, g->round);
  ring(c);
  return true;
}

/* Messages. */

/* Takes the next step of a send: 1. the box is free, so put the message there; 2. the receiver has taken it. Returns
 * whether there was a step. */
static bool send_step(struct item *i) {
  struct comm *c = i->comm;
  struct message *m = &c->meeting->members[c->rank].messages[i->peer];
  size_t n = i->terms.count * size_of_type(i->terms.type);
  uint64_t sent = atomic_load(&m->sent), taken = atomic_load(&m->taken);
  if (i->place == 0 && sent == taken) {
    if (n > ROOM) report("a message is too large for the stand-in");
    m->count = i->terms.count;
    m->type = i->terms.type;
    if (n > 0) memcpy(box(c, c->rank, i->peer), gpu(i->from), n);
    i->place = sent + 1;
    atomic_store(&m->sent, sent + 1);
    ring(c);
    return true;
  }
  i->over = i->place != 0 && taken >= i->place;
  return i->over;
}

static bool receive_step(struct item *i) {
  struct comm *c = i->comm;
  struct message *m = &c->meeting->members[i->peer].messages[c->rank];
  uint64_t sent = atomic_load(&m->sent);
  if (sent == atomic_load(&m->taken)) return false;
  size_t n = i->terms.count * size_of_type(i->terms.type);
  if (m->count * size_of_type(m->type) != n || m->type != i->terms.type)
    report("rank %d receives %llu elements of type %d, and rank %d sends %llu of type %d", c->rank,
           (unsigned long long)i->terms.count, i->terms.type, i->peer, (unsigned long long)m->count, m->type);
  if (n > 0) memcpy(gpu(i->to), box(c, i->peer, c->rank), n);
  i->over = true;
  atomic_store(&m->taken, sent);
  ring(c);
  return true;
}

/* Of messages of one kind between one pair, only the first that is not over can go on. */
static bool is_next(struct group *g, int k) {
  for (int j = 0; j < k; j++) {
    struct item *i = &g->items[j];
    if (!i->over && i->terms.collective == g->items[k].terms.collective && i->peer == g->items[k].peer) return false;
  }
  return true;
}

static bool run_messages(struct group *g) {
  struct comm *c = g->comm;
  for (;;) {
    uint32_t h = heard(c);
    bool moved = false, left = false;
    for (int k = 0; k < g->count; k++) {
      struct item *i = &g->items[k];
      if (i->terms.collective < SEND || i->over) continue;
      left = true;
      if (is_next(g, k)) moved |= i->terms.collective == SEND ? send_step(i) : receive_step(i);
    }
    if (!left) return true;
    if (atomic_load(&c->aborted)) return false;
    if (!moved) listen(c, h);
  }
}

static void hang(struct group *g) {
  if (g->fault <= FAULT_ASYNC) fail(g->comm, FAULT_ASYNC - g->fault, "an error that the stand-in was asked for");
  while (!atomic_load(&g->comm->aborted)) usleep(500);
}

static void spoil(const struct item *i) {
  char *to = i->to != 0 ? gpu(i->to) : NULL;
  if (to != NULL) to[0] ^= 1;
}

void run_group(struct work *w) {
  struct group *g = w->argument;
  struct comm *c = g->comm;
  if (g->fault != 0 && g->fault != FAULT_WRONG) hang(g);
  if (!atomic_load(&c->aborted) && (g->round == 0 || run_round(g))) run_messages(g);
  if (g->fault == FAULT_WRONG) spoil(&g->items[0]);
  free(g);
  lock();
  atomic_fetch_sub(&c->working, 1);
  changed();
  unlock();
}
