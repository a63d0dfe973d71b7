/*
 * A stand-in for libnccl.so.2: making and ending communicators.
 *
 *   STANDIN_MEETING       the folder where members meet
 *   STANDIN_NCCL_VERSION  the version that ncclGetVersion tells; 22703 if unset
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "comm.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int live;
static char last_error[256];

static void expect_no_comms(void) {
  if (atomic_load(&open_groups) != 0) report("leak: a thread has not ended its group with ncclGroupEnd");
  if (live != 0) report("leak: %d communicators have neither been destroyed nor aborted", live);
}

/* The bell of a meeting. */

uint32_t heard(struct comm *c) { return atomic_load(&c->meeting->bell); }

void ring(struct comm *c) {
  atomic_fetch_add(&c->meeting->bell, 1);
  syscall(SYS_futex, &c->meeting->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Sleeps until a member rings after heard, or for 20 ms, because a member may be aborted without a ring. */
void listen(struct comm *c, uint32_t heard) {
  struct timespec most = {0, 20000000};
  syscall(SYS_futex, &c->meeting->bell, FUTEX_WAIT, heard, &most, NULL, 0);
}

void pause_randomly(void) {
  if (draw(2) == 0) usleep(draw(most_delay() + 1));
}

void fail(struct comm *c, int code, const char *text) {
  snprintf(c->error, sizeof c->error, "%s", text);
  snprintf(last_error, sizeof last_error, "%s", text);
  atomic_store(&c->state, code);
}

/* The fault of a call on a communicator. A call that hangs does so until the abort. */
int call_fault(const char *function, struct comm *c) {
  int what = fault(function);
  if (what != FAULT_HANG) return what;
  while (c == NULL || !atomic_load(&c->aborted)) usleep(1000);
  return ncclSystemError;
}

struct comm *comm_of(const char *call, ncclComm_t comm) {
  struct comm *c = check_handle(call, comm, COMM);
  if (atomic_load(&c->state) == ncclInProgress)
    report("%s: the communicator is still in progress: ncclCommGetAsyncError has not said ncclSuccess", call);
  if (c->finalizing) report("%s: use of a communicator after ncclCommFinalize", call);
  return c;
}

/* Threads in the background. */

struct task {
  struct comm *comm;
  void (*run)(struct comm *, void *);
  void *argument;
};

static void *run_task(void *argument) {
  struct task t = *(struct task *)argument;
  free(argument);
  pause_randomly();
  t.run(t.comm, t.argument);
  int busy = ncclInProgress;
  atomic_compare_exchange_strong(&t.comm->state, &busy, ncclSuccess);
  lock();
  atomic_fetch_sub(&t.comm->working, 1);
  changed();
  unlock();
  return NULL;
}

void in_background(struct comm *c, void (*run)(struct comm *, void *), void *argument) {
  struct task *t = malloc(sizeof *t);
  *t = (struct task){c, run, argument};
  atomic_store(&c->state, ncclInProgress);
  atomic_fetch_add(&c->working, 1);
  pthread_t thread;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  if (pthread_create(&thread, NULL, run_task, t) != 0) report("a thread cannot be made");
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_detach(thread);
}

void settle(struct comm *c) {
  while (atomic_load(&c->state) == ncclInProgress && !atomic_load(&c->aborted)) usleep(100);
}

static ncclResult_t begun(struct comm *c) {
  if (!c->blocking) return atomic_load(&c->state) == ncclInProgress && draw(2) ? ncclInProgress : ncclSuccess;
  if (group_depth > 0) {
    add_started(c);
    return ncclSuccess;
  }
  settle(c);
  return atomic_load(&c->state);
}

/* Joining a meeting. */

static void duplicate(struct comm *c) {
  for (int i = 0; i < c->size; i++)
    for (int j = 0; j < i; j++)
      if (c->meeting->members[i].device == c->meeting->members[j].device) {
        char text[200];
        snprintf(text, sizeof text, "Duplicate GPU detected : rank %d and rank %d both on CUDA device %x000", j, i,
                 c->meeting->members[i].device + 1);
        fail(c, ncclInvalidUsage, text);
      }
}

static void open_meeting(struct comm *c, char path[512]) {
  const char *folder = getenv("STANDIN_MEETING");
  if (folder == NULL) report("STANDIN_MEETING is not set: the folder where members of communicators meet");
  snprintf(path, 512, "%s/%s", folder, c->name);
  c->mapped = sizeof *c->meeting + ROOM * c->size * (c->size + 1);
  int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ftruncate(fd, c->mapped) != 0) report("a meeting at %s: %m", path);
  c->meeting = mmap(NULL, c->mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  close(fd);
  if (c->meeting == MAP_FAILED) report("a meeting at %s: %m", path);
}

static void meet(struct comm *c, void *unused) {
  (void)unused;
  char path[512];
  open_meeting(c, path);
  uint32_t size = 0;
  if (!atomic_compare_exchange_strong(&c->meeting->size, &size, (uint32_t)c->size) && size != (uint32_t)c->size)
    report("communicator %s: this member says that there are %d, and another one %u", c->name, c->size, size);
  struct member *me = &c->meeting->members[c->rank];
  me->device = (uint32_t)c->device->number;
  if (atomic_exchange(&me->joined, 1) != 0) report("communicator %s: two members are rank %d", c->name, c->rank);
  ring(c);
  for (int i = 0; i < c->size; i++)
    for (uint32_t h = heard(c); !atomic_load(&c->meeting->members[i].joined); h = heard(c)) {
      if (atomic_load(&c->aborted)) return;
      listen(c, h);
    }
  if (c->rank == 0) unlink(path); /* all have opened it */
  duplicate(c);
}

static void meet_never(struct comm *c, void *unused) {
  (void)unused;
  while (!atomic_load(&c->aborted)) usleep(1000);
}

static bool is_blocking(const char *call, const ncclConfig_t *config) {
  if (config == NULL) return true;
  if (config->magic != 0xcafebeef) report("%s: the config's magic is %#x", call, config->magic);
  if (config->size < CONFIG_BYTES) report("%s: the config says %zu bytes, too few", call, config->size);
  if (config->version < 21400) report("%s: the config says version %u", call, config->version);
  if (config->blocking != 0 && config->blocking != 1 && config->blocking != INT_MIN)
    report("%s: the config says blocking = %d", call, config->blocking);
  if (config->size < sizeof(ncclConfig_t)) return config->blocking != 0;
  if (config->minCTAs != INT_MIN && config->minCTAs <= 0) report("%s: the config says minCTAs = %d", call, config->minCTAs);
  if (config->maxCTAs != INT_MIN && config->maxCTAs <= 0) report("%s: the config says maxCTAs = %d", call, config->maxCTAs);
  return config->blocking != 0;
}

static struct comm *new_comm(struct device *d, int size, int rank, bool blocking) {
  struct comm *c = new_handle(sizeof *c, COMM);
  c->device = d;
  c->size = size;
  c->rank = rank;
  c->blocking = blocking;
  live++;
  at_leak_check(expect_no_comms);
  return c;
}

API ncclResult_t ncclGetVersion(int *version) {
  const char *text = getenv("STANDIN_NCCL_VERSION");
  *version = text != NULL ? atoi(text) : 22703;
  return call_fault("ncclGetVersion", NULL);
}

API ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  int what = call_fault("ncclGetUniqueId", NULL);
  if (what > 0) return what;
  if (getrandom(id, sizeof *id, 0) != sizeof *id) return ncclSystemError;
  return ncclSuccess;
}

/* The name depends on all bytes of the id, so a member with a damaged id meets nobody. */
static void name_after(struct comm *c, const ncclUniqueId *id) {
  uint64_t a = 14695981039346656037u, b = 0;
  for (size_t i = 0; i < sizeof *id; i++) {
    a = (a ^ (unsigned char)id->internal[i]) * 1099511628211u;
    b = (b + (unsigned char)id->internal[i] + 1) * 0x9e3779b97f4a7c15u;
  }
  snprintf(c->name, sizeof c->name, "%016llx%016llx", (unsigned long long)a, (unsigned long long)b);
}

API ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id, int rank, ncclConfig_t *config) {
  int what = fault("ncclCommInitRankConfig");
  if (what > 0) return what;
  bool blocking = is_blocking("ncclCommInitRankConfig", config);
  if (size < 1 || size > MAX_MEMBERS || rank < 0 || rank >= size) return ncclInvalidArgument;
  lock();
  struct device *d = current_device();
  struct comm *c = d == NULL ? NULL : new_comm(d, size, rank, blocking);
  unlock();
  if (c == NULL) return ncclUnhandledCudaError;
  name_after(c, &id);
  in_background(c, what == 0 ? meet : meet_never, NULL);
  *comm = c;
  return begun(c);
}

API ncclResult_t ncclCommInitRank(ncclComm_t *comm, int size, ncclUniqueId id, int rank) {
  return ncclCommInitRankConfig(comm, size, id, rank, NULL);
}

/* Split and shrink. Like the real library, they write the new handle late. */

struct birth {
  struct comm *child;
  ncclComm_t *where;
  int color, key;
};

static void split(struct comm *c, void *argument) {
  struct birth b = *(struct birth *)argument;
  free(argument);
  struct member *all = c->meeting->members, *me = &all[c->rank];
  me->color = b.color;
  me->key = b.key;
  atomic_store(&me->split, 2 * ++c->splits - 1);
  ring(c);
  for (int i = 0; i < c->size; i++)
    for (uint32_t h = heard(c); atomic_load(&all[i].split) < 2 * c->splits - 1; h = heard(c)) {
      if (atomic_load(&c->aborted)) return;
      listen(c, h);
    }
  struct comm *n = b.child;
  if (n != NULL) {
    for (int i = 0; i < c->size; i++) {
      if (all[i].color != b.color) continue;
      n->size++;
      if (all[i].key < b.key || (all[i].key == b.key && i < c->rank)) n->rank++;
    }
    snprintf(n->name, sizeof n->name, "%.90s.%llu.%d", c->name, (unsigned long long)c->splits, b.color);
  }
  atomic_store(&me->split, 2 * c->splits);
  ring(c);
  for (int i = 0; i < c->size; i++) /* no member writes its next color before all have read this one */
    for (uint32_t h = heard(c); atomic_load(&all[i].split) < 2 * c->splits; h = heard(c)) {
      if (atomic_load(&c->aborted)) return;
      listen(c, h);
    }
  if (n == NULL) return;
  in_background(n, meet, NULL);
  *(struct comm *volatile *)b.where = n;
  settle(n);
}

API ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *made, ncclConfig_t *config) {
  int what = call_fault("ncclCommSplit", comm);
  if (what > 0) return what;
  bool blocking = config == NULL ? comm->blocking : is_blocking("ncclCommSplit", config);
  if (color < -1) return ncclInvalidArgument;
  lock();
  struct comm *c = comm_of("ncclCommSplit", comm);
  int failed = atomic_load(&c->state);
  if (failed) LEAVE(failed);
  struct birth *b = calloc(1, sizeof *b);
  *b = (struct birth){color < 0 ? NULL : new_comm(c->device, 0, 0, blocking), made, color, key};
  unlock();
  *made = NULL;
  in_background(c, split, b);
  return begun(c);
}

static void stop_groups(struct comm *c) {
  atomic_store(&c->aborted, true);
  ring(c);
  lock();
  while (atomic_load(&c->working) > 0) wait_change();
  unlock();
}

static void shrink(struct comm *c, void *argument) {
  struct birth b = *(struct birth *)argument;
  free(argument);
  in_background(b.child, meet, NULL);
  *(struct comm *volatile *)b.where = b.child;
  while (atomic_load(&b.child->state) == ncclInProgress && !atomic_load(&c->aborted)) usleep(100);
}

API ncclResult_t ncclCommShrink(ncclComm_t comm, int *without, int count, ncclComm_t *made, ncclConfig_t *config, int flags) {
  int what = call_fault("ncclCommShrink", comm);
  if (what > 0) return what;
  bool blocking = config == NULL ? comm->blocking : is_blocking("ncclCommShrink", config);
  lock();
  struct comm *c = check_handle("ncclCommShrink", comm, COMM);
  if (!(flags & 1)) comm_of("ncclCommShrink", comm);
  unlock();
  unsigned gone = 0;
  for (int i = 0; i < count; i++) {
    if (without[i] < 0 || without[i] >= c->size) return ncclInvalidArgument;
    gone |= 1u << without[i];
  }
  if (count < 1 || gone >> c->rank & 1) return ncclInvalidArgument;
  if (flags & 1) {
    stop_groups(c);
    atomic_store(&c->aborted, false); /* the handle can still be aborted or destroyed */
    atomic_store(&c->state, ncclSuccess);
  }
  lock();
  struct comm *n = new_comm(c->device, c->size - __builtin_popcount(gone),
                            c->rank - __builtin_popcount(gone & ((1u << c->rank) - 1)), blocking);
  snprintf(n->name, sizeof n->name, "%.90s.shrunk%llu.%x", c->name, (unsigned long long)++c->children, gone);
  unlock();
  struct birth *b = calloc(1, sizeof *b);
  *b = (struct birth){n, made, 0, 0};
  *made = NULL;
  in_background(c, shrink, b);
  return begun(c);
}

/* Ends. The real library frees memory of the device then. Like it, destroy and abort wait for all streams of the
 * device, and so for other communicators, too. */

static void finalize(struct comm *c, void *unused) {
  (void)unused;
  lock();
  while (c->last != NULL && c->last->done < c->last_number && !atomic_load(&c->aborted)) wait_change();
  unlock();
  atomic_store(&c->meeting->members[c->rank].finalized, 1);
  ring(c);
  for (int i = 0; i < c->size; i++)
    for (uint32_t h = heard(c); !atomic_load(&c->meeting->members[i].finalized); h = heard(c)) {
      if (atomic_load(&c->aborted)) return;
      listen(c, h);
    }
}

API ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  int what = call_fault("ncclCommFinalize", comm);
  if (what > 0) return what;
  lock();
  struct comm *c = comm_of("ncclCommFinalize", comm);
  int failed = atomic_load(&c->state);
  if (failed) LEAVE(failed);
  c->finalizing = true;
  unlock();
  in_background(c, finalize, NULL);
  return begun(c);
}

static void bury(struct comm *c, const char *killer) {
  lock();
  if (c->handle.dead) report("%s: the communicator has been ended twice", killer);
  c->handle.dead = true;
  c->handle.killer = killer;
  live--;
  if (c->last != NULL) host_learns(&c->last_clock); /* the device is rid of its work */
  if (c->meeting != NULL && c->meeting != MAP_FAILED) munmap(c->meeting, c->mapped);
  c->meeting = NULL;
  unlock();
}

API ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  int what = call_fault("ncclCommDestroy", comm);
  if (what > 0) return what;
  lock();
  struct comm *c = check_handle("ncclCommDestroy", comm, COMM);
  if (atomic_load(&c->state) == ncclInProgress)
    report("ncclCommDestroy: the communicator is still in progress: ncclCommGetAsyncError has not said ncclSuccess");
  while (atomic_load(&c->working) > 0) wait_change();
  device_waits(c->device);
  unlock();
  bury(c, "ncclCommDestroy");
  return ncclSuccess;
}

API ncclResult_t ncclCommAbort(ncclComm_t comm) {
  int what = fault("ncclCommAbort");
  if (what > 0) return what;
  lock();
  struct comm *c = check_handle("ncclCommAbort", comm, COMM);
  bool meets = c->meeting != NULL;
  if (atomic_exchange(&c->aborted, true)) report("ncclCommAbort: two threads abort one communicator");
  unlock();
  if (meets) ring(c);
  lock();
  while (atomic_load(&c->working) > 0) wait_change();
  device_waits(c->device);
  unlock();
  bury(c, "ncclCommAbort");
  return ncclSuccess;
}

API ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state) {
  int what = call_fault("ncclCommGetAsyncError", comm);
  if (what > 0) return what;
  lock();
  struct comm *c = check_handle("ncclCommGetAsyncError", comm, COMM);
  *state = atomic_load(&c->state);
  unlock();
  return ncclSuccess;
}

API const char *ncclGetErrorString(ncclResult_t code) {
  static const char *texts[] = {
      "no error", "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
      "unhandled system error (run with NCCL_DEBUG=INFO for details)",
      "internal error - please report this issue to the NCCL developers",
      "invalid argument (run with NCCL_DEBUG=WARN for details)", "invalid usage (run with NCCL_DEBUG=WARN for details)",
      "remote process exited or there was a network error", "NCCL operation in progress"};
  return code >= 0 && code < 8 ? texts[code] : "unknown result code";
}

API const char *ncclGetLastError(ncclComm_t comm) { return comm != NULL && comm->error[0] ? comm->error : last_error; }

API ncclResult_t ncclCommCount(ncclComm_t comm, int *count) {
  lock();
  *count = comm_of("ncclCommCount", comm)->size;
  unlock();
  return ncclSuccess;
}

API ncclResult_t ncclCommUserRank(ncclComm_t comm, int *rank) {
  lock();
  *rank = comm_of("ncclCommUserRank", comm)->rank;
  unlock();
  return ncclSuccess;
}

API ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *factor, ncclDataType_t type, int residence,
                                          ncclComm_t comm) {
  int what = call_fault("ncclRedOpCreatePreMulSum", comm);
  if (what > 0) return what;
  if (type < 0 || type >= ncclTypes) return ncclInvalidArgument;
  if (residence != 1) report("ncclRedOpCreatePreMulSum: the stand-in takes factors in host memory only (1)");
  lock();
  struct comm *c = comm_of("ncclRedOpCreatePreMulSum", comm);
  int i = 0;
  while (i < MAX_SCALES && c->factor_types[i] != 0) i++;
  if (i == MAX_SCALES) report("leak: %d operations of ncclRedOpCreatePreMulSum live at a time", MAX_SCALES);
  c->factors[i] = scale_of(type, factor);
  c->factor_types[i] = type + 1;
  *op = ncclUserOps + i;
  unlock();
  return ncclSuccess;
}

API ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  int what = call_fault("ncclRedOpDestroy", comm);
  if (what > 0) return what;
  lock();
  struct comm *c = comm_of("ncclRedOpDestroy", comm);
  if (op < ncclUserOps || op >= ncclUserOps + MAX_SCALES || c->factor_types[op - ncclUserOps] == 0)
    report("ncclRedOpDestroy: there is no operation %d", op);
  c->factor_types[op - ncclUserOps] = 0;
  unlock();
  return ncclSuccess;
}
