/*
 * One rank that submits tensors of the stand-in's devices to libgorovod: library CASE, started by horovodrun. All
 * numbers are small integers, so all results are exact.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <pthread.h>

#include "rank.h"

/* The contents of memory of the device, copied by the caller's stream. */
static const float *contents(CUdeviceptr p, int n) {
  float *host = pinned((size_t)n + 1);
  if (n > 0) OK(cuMemcpyDtoHAsync_v2(host, p, sizeof(float) * (size_t)n, stream));
  OK(cuStreamSynchronize(stream));
  return host;
}

static int64_t shapes[16][1];
static int shapes_used;

static gorovod_op make(int type, const char *name, int n, CUdeviceptr in, CUdeviceptr out) {
  gorovod_op op;
  memset(&op, 0, sizeof op);
  op.size = sizeof op;
  op.type = type;
  op.name = name;
  op.dtype = GOROVOD_FLOAT32;
  op.reduce_op = GOROVOD_SUM;
  op.device = device;
  op.device_stream = (uintptr_t)stream;
  op.ndim = 1;
  op.shape = shapes[shapes_used++ % 16];
  *(int64_t *)op.shape = n;
  op.prescale = op.postscale = 1.0;
  op.input = (void *)in;
  op.output = (void *)out;
  return op;
}

static int ended(int64_t h) {
  int status;
  do status = gorovod_wait(h, 100);
  while (status == GOROVOD_IN_PROGRESS);
  return status;
}

/* Expects that an operation ends well. The caller's stream waits for the result, the caller does not. */
static void finish(int64_t h) {
  EXPECT(ended(h) == GOROVOD_OK);
  EXPECT(gorovod_await_on_stream(h, (uintptr_t)stream) == GOROVOD_OK);
}

static int64_t submit(const gorovod_op *op) {
  int64_t h = 0;
  EXPECT(gorovod_enqueue(op, &h) == GOROVOD_OK);
  return h;
}

static void run(const gorovod_op *op) {
  int64_t h = submit(op);
  finish(h);
  EXPECT(gorovod_release(h) == GOROVOD_OK);
}

static void reductions(void) {
  CUdeviceptr in = numbers(N, rank), out = memory(N * 4);
  gorovod_op op = make(GOROVOD_ALLREDUCE, "sum", N, in, out);
  run(&op);
  const float *y = contents(out, N), *x = contents(in, N);
  for (int i = 0; i < N; i++) EXPECT(y[i] == sum(i) && x[i] == (float)(i % 7 + rank));

  op = make(GOROVOD_ALLREDUCE, "in place", N, in, in);
  op.prescale = 0.5, op.postscale = 4;
  run(&op);
  y = contents(in, N);
  for (int i = 0; i < N; i++) EXPECT(y[i] == 2 * sum(i));

  op = make(GOROVOD_ALLREDUCE, "max", N, numbers(N, rank), out);
  op.reduce_op = GOROVOD_MAX;
  run(&op);
  y = contents(out, N);
  for (int i = 0; i < N; i++) EXPECT(y[i] == (float)(i % 7 + size - 1));

  op = make(GOROVOD_ALLREDUCE, "average", N, numbers(N, size * rank), out);
  op.reduce_op = GOROVOD_AVERAGE;
  run(&op);
  y = contents(out, N);
  for (int i = 0; i < N; i++) { /* NCCL multiplies by 1 / size, which it rounds */
    float wanted = (float)(i % 7 + size * (size - 1) / 2), off = y[i] - wanted;
    EXPECT((off < 0 ? -off : off) <= 1e-6f * wanted);
  }

  op = make(GOROVOD_REDUCE, "to one", N, numbers(N, rank), rank == size - 1 ? out : 0);
  op.root_rank = size - 1;
  run(&op);
  if (rank == size - 1) {
    y = contents(out, N);
    for (int i = 0; i < N; i++) EXPECT(y[i] == sum(i));
  }

  op = make(GOROVOD_REDUCESCATTER, "rows", 7 * size + 1, numbers(7 * size + 1, rank), out); /* the first has 8 rows */
  run(&op);
  int first = rank == 0 ? 0 : 7 * rank + 1, rows = rank == 0 ? 8 : 7;
  y = contents(out, rows);
  for (int i = 0; i < rows; i++) EXPECT(y[i] == sum(first + i));

  /* NCCL has no bitwise operation, so this goes through host memory */
  op = make(GOROVOD_ALLREDUCE, "bits", N, numbers(N, 0), out);
  op.dtype = GOROVOD_INT32, op.reduce_op = GOROVOD_BOR;
  run(&op);
  y = contents(out, N);
  for (int i = 0; i < N; i++) EXPECT(y[i] == (float)(i % 7));
}

/* Expects and takes an output that the engine has made. */
static void expect_taken(int64_t h, int n, float (*want)(int)) {
  void *data = NULL;
  int ndim = 0;
  int64_t shape[1] = {-1};
  EXPECT(gorovod_output(h, &data, 1, &ndim, shape) == GOROVOD_OK && ndim == 1 && shape[0] == n);
  EXPECT(gorovod_take_output(h, &data) == GOROVOD_OK);
  const float *y = contents((CUdeviceptr)data, n);
  for (int i = 0; i < n; i++) EXPECT(y[i] == want(i));
  gorovod_free_on_device(device, data);
}

/* Rank r has 3 * r rows. */
static float gathered(int i) {
  int r = 1;
  for (; i >= 3 * r; r++) i -= 3 * r;
  return (float)(i % 7 + r);
}

/* Each rank sends one row to rank 0, two to rank 1, and so on. Row i is i % 7 + 10 * rank. */
static float exchanged(int i) {
  int from = i / (rank + 1), row = rank * (rank + 1) / 2 + i % (rank + 1);
  return (float)(row % 7 + 10 * from);
}

static void movements(void) {
  CUdeviceptr x = numbers(N, 10 * rank);
  gorovod_op op = make(GOROVOD_BROADCAST, "all get", N, x, x);
  op.root_rank = size - 1;
  run(&op);
  const float *y = contents(x, N);
  for (int i = 0; i < N; i++) EXPECT(y[i] == (float)(i % 7 + 10 * (size - 1)));

  op = make(GOROVOD_ALLGATHER, "all rows", 3 * rank, numbers(3 * rank, rank), 0);
  int64_t h = submit(&op);
  finish(h);
  expect_taken(h, 3 * size * (size - 1) / 2, gathered);
  EXPECT(gorovod_release(h) == GOROVOD_OK);

  op = make(GOROVOD_ALLGATHER, "not taken", 4, numbers(4, rank), 0);
  run(&op);
  op = make(GOROVOD_ALLGATHER, "nothing", 0, numbers(0, rank), 0);
  run(&op);

  int32_t splits[16];
  for (int i = 0; i < size; i++) splits[i] = i + 1;
  int total = size * (size + 1) / 2;
  op = make(GOROVOD_ALLTOALL, "exchange", total, numbers(total, 10 * rank), 0);
  op.splits = splits, op.nsplits = size;
  h = submit(&op);
  finish(h);
  int32_t received[16];
  EXPECT(gorovod_received_splits(h, 16, received) == size && received[size - 1] == rank + 1);
  expect_taken(h, size * (rank + 1), exchanged);
  EXPECT(gorovod_release(h) == GOROVOD_OK);
}

enum { MANY = 8 };

static void groups(const char *name) {
  gorovod_op ops[MANY];
  const gorovod_op *list[MANY];
  int64_t handles[MANY];
  for (int i = 0; i < MANY; i++) {
    CUdeviceptr x = numbers(100 * i, rank);
    ops[i] = make(GOROVOD_ALLREDUCE, NULL, 100 * i, x, x);
    list[i] = &ops[i];
  }
  EXPECT(gorovod_enqueue_group(name, list, MANY, handles) == GOROVOD_OK);
  for (int i = 0; i < MANY; i++) {
    finish(handles[i]);
    const float *y = contents((CUdeviceptr)ops[i].output, 100 * i);
    for (int j = 0; j < 100 * i; j++) EXPECT(y[j] == sum(j));
    EXPECT(gorovod_release(handles[i]) == GOROVOD_OK);
  }
}

static void on_host(const char *name) {
  static float x[N];
  for (int i = 0; i < N; i++) x[i] = (float)(i % 7 + rank);
  gorovod_op op = make(GOROVOD_ALLREDUCE, name, N, (CUdeviceptr)x, (CUdeviceptr)x);
  op.device = -1, op.device_stream = 0;
  run(&op);
  for (int i = 0; i < N; i++) EXPECT(x[i] == sum(i));
}

/* Waits until all ranks are here. */
static void meet(void) {
  gorovod_op barrier = make(GOROVOD_BARRIER, NULL, 0, 0, 0);
  barrier.device = -1, barrier.device_stream = 0;
  run(&barrier);
}

static void everything(void) {
  for (int round = 0; round < 4; round++) { /* the engine knows the names from the second round on */
    reductions();
    movements();
    groups("group");
    on_host("on host");
    meet();
  }
}

/* Rank 0 has its tensors as copies in host memory, so those of all ranks go through host memory. */
static void copies(void) {
  for (int round = 0; round < 3; round++) {
    float *host = pinned(N);
    for (int i = 0; i < N; i++) host[i] = (float)(i % 7 + rank);
    gorovod_op op = make(GOROVOD_ALLREDUCE, "mixed", N, numbers(N, rank), memory(N * 4));
    CUdeviceptr out = (CUdeviceptr)op.output;
    if (rank == 0) {
      op.device = -1, op.device_stream = 0, op.flags = GOROVOD_COPIED;
      op.input = op.output = host;
    }
    run(&op);
    const float *y = rank == 0 ? host : contents(out, N);
    for (int i = 0; i < N; i++) EXPECT(y[i] == sum(i));
  }
}

/* Rank 0 has its tensor in host memory. That is an error on all ranks, and the next operation works. */
static void mixed(void) {
  static float host[N];
  gorovod_op op = make(GOROVOD_ALLREDUCE, "mixed", N, numbers(N, rank), memory(N * 4));
  if (rank == 0) {
    op.device = -1, op.device_stream = 0;
    op.input = op.output = host;
  }
  int64_t h = submit(&op);
  EXPECT(ended(h) == GOROVOD_PRECONDITION_ERROR);
  EXPECT(strstr(gorovod_last_error(), "Mismatched ALLREDUCE CPU/GPU device selection") != NULL);
  EXPECT(gorovod_release(h) == GOROVOD_OK);
  groups(NULL);
}

/* Tries what GOROVOD_GPU allows. takes: whether the program is to submit tensors of the device; refused: a part of the
 * reason why these are refused, or NULL. */
static void mode(int takes, const char *refused) {
  EXPECT(gorovod_takes_device(device) == takes);
  gorovod_op op = make(GOROVOD_ALLREDUCE, "x", N, numbers(N, rank), memory(N * 4));
  if (refused == NULL) {
    everything();
    return;
  }
  int64_t h = 0;
  EXPECT(gorovod_enqueue(&op, &h) == GOROVOD_INVALID_ARGUMENT);
  EXPECT(strstr(gorovod_last_error(), refused) != NULL);
  on_host("still works");
}

/* A rank's device is decided, and its tensor is on another one. */
static void elsewhere(void) {
  EXPECT(gorovod_takes_device(device) == 1);
  EXPECT(gorovod_takes_device(device + size) == 0);
  gorovod_op op = make(GOROVOD_ALLREDUCE, "x", N, numbers(N, rank), memory(N * 4));
  int64_t h = 0;
  if (rank == 0) {
    op.device = device + size;
    EXPECT(gorovod_enqueue(&op, &h) == GOROVOD_INVALID_ARGUMENT);
  } else {
    h = submit(&op);
    EXPECT(ended(h) == GOROVOD_INVALID_ARGUMENT || ended(h) == GOROVOD_PRECONDITION_ERROR);
    EXPECT(gorovod_release(h) == GOROVOD_OK);
    (void)gorovod_wait(h, 0);
  }
  groups("goes on");
}

/* The last rank joins at once, and has zeros in what the others reduce. */
static void joins(void) {
  int64_t h;
  gorovod_op join = make(GOROVOD_JOIN, NULL, 0, 0, 0);
  join.device = -1, join.device_stream = 0;
  if (rank < size - 1) {
    gorovod_op op = make(GOROVOD_ALLREDUCE, "without one", N, numbers(N, rank), memory(N * 4));
    run(&op);
    const float *y = contents((CUdeviceptr)op.output, N);
    for (int i = 0; i < N; i++) EXPECT(y[i] == (float)((size - 1) * (i % 7) + (size - 1) * (size - 2) / 2));
  }
  h = submit(&join);
  EXPECT(ended(h) == GOROVOD_OK);
  EXPECT(gorovod_release(h) == GOROVOD_OK);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Rank 0 dies while the operation of the other ranks waits for it in NCCL, or before that. Their operation ends with an
 * error that names rank 0. In the second case rank 0 first waits a second, so that the others can leave the barrier and
 * submit. */
static void dies(const char *how) {
  groups("before");
  meet();
  gorovod_op op = make(GOROVOD_ALLREDUCE, "last", N, numbers(N, rank), memory(N * 4));
  if (rank == 0 && strcmp(how, "before") == 0) {
    sleep(1);
    raise(SIGKILL);
  }
  if (rank == 0) standinFaults("ncclAllReduce:1:die");
  double began = now();
  int64_t h = submit(&op);
  EXPECT(ended(h) == GOROVOD_UNKNOWN_ERROR);
  EXPECT(strstr(gorovod_last_error(), "rank 0") != NULL);
  fprintf(stderr, "survived after %.2f s: %.60s\n", now() - began, gorovod_last_error());
  EXPECT(gorovod_release(h) == GOROVOD_OK);
  horovod_shutdown();
  exit(7);
}

/* Rank 0 has no memory for an output. The operation fails there, and on no other rank. */
static void fails_alone(const char *name) {
  int32_t splits[16];
  for (int i = 0; i < size; i++) splits[i] = i + 1;
  int total = size * (size + 1) / 2;
  gorovod_op op = make(GOROVOD_ALLTOALL, name, total, numbers(total, 10 * rank), 0);
  op.splits = splits, op.nsplits = size;
  if (rank == 0) standinFaults("cuMemAlloc_v2:1:2,cuMemAlloc_v2:2:2"); /* once more after gorovod_on_low_memory */
  int64_t h = submit(&op);
  if (rank == 0) {
    EXPECT(ended(h) == GOROVOD_UNKNOWN_ERROR);
    EXPECT(strstr(gorovod_last_error(), "output of") != NULL);
  } else {
    finish(h);
    expect_taken(h, size * (rank + 1), exchanged);
  }
  EXPECT(gorovod_release(h) == GOROVOD_OK);
}

static void no_memory(void) {
  groups("before");
  fails_alone("exchange");
  groups("after");
}

static _Atomic int let_go, releases;

static void hold_on(int device) {
  (void)device;
  releases++;
  while (!let_go) usleep(1000);
}

/* The program's function for low memory does not return. The engine waits for it only once. */
static void holds_on(void) {
  groups("before");
  if (rank == 0) gorovod_on_low_memory(hold_on);
  for (int i = 0; i < 2; i++) {
    meet();
    double began = now();
    fails_alone(i == 0 ? "first" : "second");
    double took = now() - began;
    if (rank == 0) EXPECT(releases == 1 && (i == 0 ? took > 4.5 : took < 4));
  }
  let_go = 1;
  gorovod_on_low_memory(NULL); /* waits until hold_on has returned */
  groups("after");
}

/* A call of NCCL hangs on rank 0, on the thread that drives. The failure of rank 1 has to end it. */
static void hangs(void) {
  groups("before");
  meet();
  gorovod_op op = make(GOROVOD_ALLREDUCE, "last", N, numbers(N, rank), memory(N * 4));
  if (rank == 0) standinFaults("ncclAllReduce:1:hang");
  int64_t h = submit(&op);
  if (rank == 1) {
    sleep(1);
    gorovod_fail("gives up");
  }
  EXPECT(ended(h) == GOROVOD_UNKNOWN_ERROR);
  EXPECT(strstr(gorovod_last_error(), "gives up") != NULL);
  fprintf(stderr, "rank %d was let go\n", rank);
  horovod_shutdown();
  exit(7);
}

/* The process ends while operations are in flight, by a return that skips the shutdown, or in order. The other rank may
 * be gone already. The barrier ends well even then: a rank that has left the barrier has done all that the other rank
 * needs, and there is no third rank that could end the job first. */
static void leaves(const char *how) {
  groups("before");
  meet();
  for (int i = 0; i < 4; i++) {
    char name[16];
    snprintf(name, sizeof name, "last %d", i);
    gorovod_op op = make(GOROVOD_ALLREDUCE, name, N, numbers(N, rank), memory(N * 4));
    int64_t h;
    (void)gorovod_enqueue(&op, &h);
  }
  if (strcmp(how, "shutdown") == 0) horovod_shutdown();
}

/* Rank 0's stream is busy for longer than the engine ever waits for a device without a reason. The operation has ended for
 * the program, which then leaves, or removes the process set. The result is right all the same. Ranks that are early remove
 * the set before they wait for their part. */
static void backlog(const char *how) {
  int set = 0;
  bool removes = strncmp(how, "remove", 6) == 0, early = strcmp(how, "remove early") == 0 && rank > 0;
  if (removes) EXPECT((set = horovod_add_process_set(NULL, 0)) > 0);
  CUdeviceptr first = numbers(N, rank), other = memory(4);
  gorovod_op op = make(GOROVOD_ALLREDUCE, "first", N, first, first);
  op.process_set = set;
  run(&op);
  meet();
  double began = now();
  if (rank == 0) OK(standinLaunch(STANDIN_FILL, other, 0, 4, 1, 4000000, stream));
  CUdeviceptr x = numbers(N, rank);
  op = make(GOROVOD_ALLREDUCE, "x", N, x, x);
  op.process_set = set;
  int64_t h = submit(&op);
  if (!early) finish(h);
  EXPECT(now() - began < 3);
  if (removes) EXPECT(horovod_remove_process_set(set) == set);
  else horovod_shutdown();
  if (early) finish(h);
  const float *y = contents(x, N);
  for (int i = 0; i < N; i++) EXPECT(y[i] == sum(i));
  EXPECT(gorovod_release(h) == GOROVOD_OK);
  if (removes) groups("after");
}

/* Operations end before the device has done them. gorovod_settle waits for that: no stream of the program does. After the
 * death of rank 0 it fails. */
static void settles(void) {
  CUdeviceptr x = numbers(N, rank);
  gorovod_op op = make(GOROVOD_ALLREDUCE, "x", N, x, x);
  int64_t h = submit(&op);
  EXPECT(ended(h) == GOROVOD_OK);
  EXPECT(gorovod_settle(-1) == GOROVOD_OK);
  const float *y = contents(x, N);
  for (int i = 0; i < N; i++) EXPECT(y[i] == sum(i));
  EXPECT(gorovod_release(h) == GOROVOD_OK);
  if (rank == 0) standinFaults("ncclAllReduce:1:die");
  op = make(GOROVOD_ALLREDUCE, "last", N, x, x);
  h = submit(&op);
  finish(h);
  EXPECT(gorovod_settle(-1) == GOROVOD_UNKNOWN_ERROR);
  EXPECT(strstr(gorovod_last_error(), "rank 0") != NULL);
  EXPECT(gorovod_settle(-1) == GOROVOD_UNKNOWN_ERROR);
  EXPECT(gorovod_release(h) == GOROVOD_OK);
  fprintf(stderr, "rank %d survived\n", rank);
  horovod_shutdown();
  EXPECT(gorovod_settle(-1) == GOROVOD_OK); /* there is nothing to wait for */
  exit(7);
}

/* A kernel of NCCL does not end after its operation has ended for the program. A rank that leaves, a process set that is
 * removed, or gorovod_settle ends the job after four times the deadline, and the result is refused. */
static void never(const char *how) {
  int set = 0;
  bool removes = strcmp(how, "remove") == 0;
  if (removes) EXPECT((set = horovod_add_process_set(NULL, 0)) > 0);
  CUdeviceptr x = numbers(N, rank);
  gorovod_op op = make(GOROVOD_ALLREDUCE, "first", N, x, x);
  op.process_set = set;
  run(&op);
  meet();
  if (rank == 0) standinFaults("ncclAllReduce:1:stuck");
  op = make(GOROVOD_ALLREDUCE, "x", N, x, x);
  op.process_set = set;
  int64_t h = submit(&op);
  EXPECT(ended(h) == GOROVOD_OK);
  double began = now();
  if (removes) {
    EXPECT(horovod_remove_process_set(set) < 0);
  } else if (strcmp(how, "settle") == 0) {
    EXPECT(gorovod_settle(0) == GOROVOD_IN_PROGRESS);
    EXPECT(gorovod_settle(-1) == GOROVOD_UNKNOWN_ERROR);
  } else {
    horovod_shutdown();
  }
  double took = now() - began;
  EXPECT(took > 3.5 && took < 20);
  EXPECT(gorovod_await_on_stream(h, (uintptr_t)stream) == GOROVOD_UNKNOWN_ERROR);
  EXPECT(strstr(gorovod_last_error(), "has not done the operations") != NULL);
  horovod_shutdown();
  exit(7);
}

static void *takes_device(void *unused) {
  (void)unused;
  gorovod_takes_device(device);
  return NULL;
}

/* Returns on rank 0 at once, and on the others when rank 0 has called it, too: a failure after it comes too late for what
 * rank 0 has done before. */
static void afterRank0(void) {
  char path[4096];
  snprintf(path, sizeof path, "%s/rank0", getenv("STANDIN_MEETING"));
  if (rank == 0) {
    FILE *file = fopen(path, "w");
    EXPECT(file != NULL && fclose(file) == 0);
  }
  while (access(path, F_OK) != 0) usleep(1000);
}

/* CUDA does not return from making rank 0's context, on a thread of the program. The failure of rank 1 is noticed all the
 * same, and rank 0 can leave. */
static void opens(void) {
  meet();
  pthread_t thread;
  if (rank == 0) {
    standinFaults("cuDevicePrimaryCtxRetain:1:hang");
    EXPECT(pthread_create(&thread, NULL, takes_device, NULL) == 0);
    sleep(1);
  }
  meet();
  afterRank0();
  double began = now();
  if (rank == 1) gorovod_fail("gives up");
  static float x[N];
  gorovod_op op = make(GOROVOD_ALLREDUCE, "x", N, (CUdeviceptr)x, (CUdeviceptr)x);
  op.device = -1, op.device_stream = 0;
  int64_t h;
  if (gorovod_enqueue(&op, &h) == GOROVOD_OK) EXPECT(ended(h) == GOROVOD_UNKNOWN_ERROR);
  EXPECT(strstr(gorovod_last_error(), "gives up") != NULL);
  horovod_shutdown();
  EXPECT(now() - began < 10);
  fprintf(stderr, "rank %d has left\n", rank);
  _exit(7); /* the thread hangs for ever */
}

int main(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "";
  const char *how = argc > 2 ? argv[2] : NULL;
  begin();
  if (strcmp(what, "everything") == 0) mode(1, NULL);
  else if (strcmp(what, "staged") == 0) mode(0, NULL);
  else if (strcmp(what, "refused") == 0) mode(1, how);
  else if (strcmp(what, "copies") == 0) copies();
  else if (strcmp(what, "mixed") == 0) mixed();
  else if (strcmp(what, "elsewhere") == 0) elsewhere();
  else if (strcmp(what, "joins") == 0) joins();
  else if (strcmp(what, "no memory") == 0) no_memory();
  else if (strcmp(what, "holds on") == 0) holds_on();
  else if (strcmp(what, "dies") == 0) dies(how);
  else if (strcmp(what, "hangs") == 0) hangs();
  else if (strcmp(what, "leaves") == 0) leaves(how);
  else if (strcmp(what, "opens") == 0) opens();
  else if (strcmp(what, "backlog") == 0) backlog(how);
  else if (strcmp(what, "never") == 0) never(how);
  else if (strcmp(what, "settles") == 0) settles();
  else return 2;
  if (strcmp(what, "leaves") != 0) horovod_shutdown();
  return 0;
}
