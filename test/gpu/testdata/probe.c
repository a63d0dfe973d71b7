/*
 * Programs that try the stand-in: probe CASE RANK SIZE. Each case is right or makes one mistake. The test knows the
 * report that the stand-in has to make.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../standin/abi.h"

static int rank, size;
static CUcontext context;

#define OK(call)                                                          \
  do {                                                                    \
    int code_ = (call);                                                   \
    if (code_ != 0) {                                                     \
      fprintf(stderr, "line %d: %s: %d\n", __LINE__, #call, code_);       \
      exit(1);                                                            \
    }                                                                     \
  } while (0)
#define EXPECT(condition)                                                 \
  do {                                                                    \
    if (!(condition)) {                                                   \
      fprintf(stderr, "line %d: not so: %s\n", __LINE__, #condition);     \
      exit(1);                                                            \
    }                                                                     \
  } while (0)

static void begin_on(int ordinal) {
  CUdevice device;
  OK(cuInit(0));
  OK(cuDeviceGet(&device, ordinal));
  OK(cuDevicePrimaryCtxRetain(&context, device));
  OK(cuCtxSetCurrent(context));
}

static CUstream stream(void) {
  CUstream s;
  OK(cuStreamCreateWithPriority(&s, 1, -5));
  return s;
}

static CUevent event(void) {
  CUevent e;
  OK(cuEventCreate(&e, 2));
  return e;
}

static CUdeviceptr memory(size_t bytes) {
  CUdeviceptr p;
  OK(cuMemAlloc_v2(&p, bytes));
  return p;
}

/* The unique id, which rank 0 hands over in a file. */
static ncclUniqueId shared_id(const char *name) {
  ncclUniqueId id;
  char path[512], made[520];
  snprintf(path, sizeof path, "%s/id-%s", getenv("STANDIN_MEETING"), name);
  snprintf(made, sizeof made, "%s.new", path);
  if (rank == 0) {
    OK(ncclGetUniqueId(&id));
    int fd = open(made, O_CREAT | O_WRONLY, 0600);
    EXPECT(write(fd, &id, sizeof id) == sizeof id);
    close(fd);
    OK(rename(made, path));
    return id;
  }
  int fd;
  while ((fd = open(path, O_RDONLY)) < 0) usleep(1000);
  EXPECT(read(fd, &id, sizeof id) == sizeof id);
  close(fd);
  return id;
}

static ncclConfig_t config(int blocking) {
  return (ncclConfig_t){sizeof(ncclConfig_t), 0xcafebeef, 21400, blocking, INT_MIN, INT_MIN, INT_MIN, NULL};
}

static int state(ncclComm_t c) {
  int s = ncclInProgress;
  OK(ncclCommGetAsyncError(c, &s));
  return s;
}

static void ready(ncclComm_t c) {
  while (state(c) == ncclInProgress) usleep(100);
  OK(state(c));
}

/* A communicator whose other member never joins. */
static ncclComm_t lonely(void) {
  begin_on(0);
  ncclComm_t c;
  ncclConfig_t how = config(0);
  int code = ncclCommInitRankConfig(&c, 2, shared_id("lonely"), 0, &how);
  EXPECT(code == ncclSuccess || code == ncclInProgress);
  return c;
}

/* A call that may go on in the background. */
#define GO(call)                                        \
  do {                                                  \
    int went_ = (call);                                 \
    if (went_ != ncclInProgress) OK(went_);             \
    ready(c);                                           \
  } while (0)

static ncclComm_t start(int blocking) {
  begin_on(rank);
  ncclComm_t c;
  ncclConfig_t how = config(blocking);
  int code = ncclCommInitRankConfig(&c, size, shared_id("world"), rank, &how);
  EXPECT(code == ncclSuccess || code == ncclInProgress);
  return c;
}

static ncclComm_t world(void) {
  ncclComm_t c = start(0);
  ready(c);
  return c;
}

static void end(ncclComm_t c) {
  int code = ncclCommFinalize(c);
  EXPECT(code == ncclSuccess || code == ncclInProgress);
  ready(c);
  OK(ncclCommDestroy(c));
}

/* Order. Each case leaves out one part. */

enum { ALL = 0, NO_READY = 1, NO_DONE = 2, NO_SEEN = 3, LATE_READY = 4, EARLY_DONE = 5, FREED_EARLY = 6 };

/* The steps of a carrier: the caller's kernel, its event, the operation on a stream of its own, its event, the
 * caller. */
static void carry(int without) {
  ncclComm_t c = world();
  CUstream caller = stream(), own = stream();
  CUevent before = event(), after = event();
  CUdeviceptr a = memory(4096);
  OK(standinLaunch(STANDIN_FILL, a, 0, 4096, 1, 2000, caller));
  if (without == LATE_READY) OK(cuStreamWaitEvent(own, before, 0));
  OK(cuEventRecord(before, caller));
  if (without != NO_READY && without != LATE_READY) OK(cuStreamWaitEvent(own, before, 0));
  if (without == EARLY_DONE) OK(cuEventRecord(after, own));
  GO(ncclAllReduce((void *)a, (void *)a, 4096, ncclUint8, ncclSum, c, own));
  if (without != EARLY_DONE) OK(cuEventRecord(after, own));
  if (without == FREED_EARLY) OK(cuMemFree_v2(a));
  if (without != NO_DONE) OK(cuStreamWaitEvent(caller, after, 0));
  OK(standinLaunch(STANDIN_FILL, a, 0, 1, 9, 0, caller));
  unsigned char host[4096];
  OK(cuMemcpyDtoHAsync_v2(host, a, 4096, without == NO_SEEN ? own : caller));
  EXPECT(host[0] == 9 && host[1] == size && host[4095] == size);
  end(c);
  OK(cuMemFree_v2(a));
  OK(cuEventDestroy_v2(before));
  OK(cuEventDestroy_v2(after));
  OK(cuStreamDestroy_v2(caller));
  OK(cuStreamDestroy_v2(own));
  standinExpectNothing();
}

static void order(void) { carry(ALL); }
static void no_ready_wait(void) { carry(NO_READY); }
static void no_done_wait(void) { carry(NO_DONE); }
static void read_elsewhere(void) { carry(NO_SEEN); }
static void wait_before_record(void) { carry(LATE_READY); }
static void record_before_operation(void) { carry(EARLY_DONE); }
static void free_in_use(void) { carry(FREED_EARLY); }

/* The event is recorded while NCCL still issues in the background. */
static void record_in_progress(void) {
  ncclComm_t c = world();
  CUstream own = stream(), caller = stream();
  CUevent after = event();
  CUdeviceptr a = memory(64);
  for (;;) {
    int code = ncclAllReduce((void *)a, (void *)a, 64, ncclUint8, ncclSum, c, own);
    OK(cuEventRecord(after, own));
    if (code == ncclInProgress) ready(c);
    OK(cuStreamWaitEvent(caller, after, 0));
    OK(standinLaunch(STANDIN_FILL, a, 0, 64, 1, 0, caller));
    OK(cuStreamSynchronize(caller));
  }
}

static void call_in_progress(void) {
  ncclComm_t c = lonely();
  CUdeviceptr a = memory(64);
  ncclAllReduce((void *)a, (void *)a, 64, ncclUint8, ncclSum, c, stream());
}

/* A kernel writes a buffer while the operation before still reads it. */
static void reuse_buffer(void) {
  begin_on(0);
  CUdeviceptr a = memory(64), b = memory(64);
  CUstream s = stream(), t = stream();
  OK(standinLaunch(STANDIN_COPY, a, b, 64, 0, 0, s));
  OK(standinLaunch(STANDIN_FILL, b + 32, 0, 32, 0, 0, t));
}

static void reads_share(void) {
  begin_on(0);
  CUdeviceptr a = memory(64), b = memory(64), d = memory(64);
  OK(cuMemcpyDtoDAsync_v2(a, d, 64, stream()));
  OK(cuMemcpyDtoDAsync_v2(b, d, 64, stream()));
}

/* A wait is for the event's last record at the time of the call. */
static void event_recorded_again(void) {
  begin_on(0);
  CUdeviceptr a = memory(64);
  CUstream s = stream(), t = stream(), u = stream();
  CUevent e = event();
  OK(standinLaunch(STANDIN_FILL, a, 0, 64, 1, 0, s));
  OK(cuEventRecord(e, s));
  OK(cuEventRecord(e, t)); /* now it tells nothing about s */
  OK(cuStreamWaitEvent(u, e, 0));
  OK(standinLaunch(STANDIN_FILL, a, 0, 64, 2, 0, u));
}

static void default_stream(void) {
  begin_on(0);
  CUdeviceptr a = memory(64);
  CUstream s;
  OK(cuStreamCreate(&s, 0)); /* ordered with the default stream */
  OK(standinLaunch(STANDIN_FILL, a, 0, 64, 1, 500, NULL));
  OK(standinLaunch(STANDIN_FILL, a, 0, 64, 2, 500, s));
  OK(standinLaunch(STANDIN_FILL, a, 0, 64, 3, 0, NULL));
  unsigned char host[64];
  OK(cuMemcpyDtoH_v2(host, a, 64));
  EXPECT(host[5] == 3);
  OK(standinLaunch(STANDIN_FILL, a, 0, 64, 3, 0, NULL));
  OK(standinLaunch(STANDIN_FILL, a, 0, 64, 3, 0, stream())); /* not ordered */
}

static void pinned_reused(void) {
  begin_on(0);
  CUdeviceptr a = memory(64);
  void *h;
  OK(cuMemHostAlloc(&h, 64, 1));
  OK(cuMemcpyDtoHAsync_v2(h, a, 64, stream()));
  OK(cuMemcpyHtoDAsync_v2(memory(64), h, 64, stream()));
}

/* Memory and handles. */

static void touch(void) {
  begin_on(0);
  *(volatile char *)(memory(100) + 5) = 1;
}

static void touch_freed(void) {
  begin_on(0);
  CUdeviceptr a = memory(100);
  OK(cuMemFree_v2(a));
  fprintf(stderr, "%d\n", *(volatile char *)(a + 5));
}

static void beyond(void) {
  begin_on(0);
  cuMemsetD8Async(memory(100), 0, 101, stream());
}

static void not_device_memory(void) {
  begin_on(0);
  char here[8];
  cuMemsetD8Async((CUdeviceptr)(uintptr_t)here, 0, 8, stream());
}

static void freed_memory(void) {
  begin_on(0);
  CUdeviceptr a = memory(100);
  OK(cuMemFree_v2(a));
  cuMemsetD8Async(a, 0, 8, stream());
}

static void freed_event(void) {
  begin_on(0);
  CUevent e = event();
  OK(cuEventDestroy_v2(e));
  cuEventQuery(e);
}

static void freed_stream(void) {
  begin_on(0);
  CUstream s = stream();
  OK(cuStreamDestroy_v2(s));
  cuStreamSynchronize(s);
}

static void no_event(void) {
  begin_on(0);
  cuEventQuery((CUevent)(uintptr_t)0x1234560);
}

static void leak_event(void) {
  begin_on(0);
  event();
}

static void leak_stream(void) {
  begin_on(0);
  stream();
}

static void leak_memory(void) {
  begin_on(0);
  memory(10);
}

static void leak_comm(void) { world(); }

static void no_context(void) {
  CUstream s;
  CUdevice device;
  OK(cuInit(0));
  EXPECT(cuStreamCreateWithPriority(&s, 1, 0) == CUDA_ERROR_INVALID_CONTEXT);
  OK(cuDeviceGet(&device, 0));
  OK(cuDevicePrimaryCtxRetain(&context, device));
  EXPECT(cuStreamCreateWithPriority(&s, 1, 0) == CUDA_ERROR_INVALID_CONTEXT);
  OK(cuCtxPushCurrent_v2(context));
  OK(cuStreamCreateWithPriority(&s, 1, 0));
  OK(cuCtxPopCurrent_v2(NULL));
  CUevent e;
  EXPECT(cuEventCreate(&e, 2) == CUDA_ERROR_INVALID_CONTEXT);
}

static void no_init(void) {
  int count;
  EXPECT(cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED);
}

static void capturing(void) {
  begin_on(0);
  CUstream s = stream();
  int status;
  OK(cuStreamIsCapturing(s, &status));
  EXPECT(status == 0);
  OK(cuStreamBeginCapture_v2(s, 0));
  OK(cuStreamIsCapturing(s, &status));
  EXPECT(status == 1);
  EXPECT(cuMemsetD8Async(memory(8), 0, 8, s) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

static void other_device(void) {
  begin_on(0);
  CUdeviceptr a = memory(64);
  begin_on(1);
  cuMemsetD8Async(a, 0, 8, stream());
}

static void forked(void) {
  begin_on(0);
  pid_t child = fork();
  if (child == 0) {
    cuEventCreate(&(CUevent){0}, 2);
    _exit(0);
  }
  int status;
  waitpid(child, &status, 0);
  exit(WEXITSTATUS(status));
}

static void out_of_memory(void) {
  begin_on(0);
  CUdeviceptr a, b;
  OK(cuMemAlloc_v2(&a, 1000000));
  EXPECT(cuMemAlloc_v2(&b, 1000000) == CUDA_ERROR_OUT_OF_MEMORY);
  OK(cuMemFree_v2(a));
  OK(cuMemAlloc_v2(&b, 1000000));
}

/* A call that frees waits for the whole device. */
static void free_waits(void) {
  begin_on(0);
  CUdeviceptr a = memory(64), b = memory(64);
  void *h;
  OK(cuMemHostAlloc(&h, 64, 1));
  CUstream s = stream();
  for (int host = 0; host < 2; host++) {
    struct timespec before, after;
    clock_gettime(CLOCK_MONOTONIC, &before);
    OK(standinLaunch(STANDIN_FILL, a, 0, 64, 1, 50000, s));
    OK(host ? cuMemFreeHost(h) : cuMemFree_v2(b));
    clock_gettime(CLOCK_MONOTONIC, &after);
    EXPECT((after.tv_sec - before.tv_sec) * 1000000 + (after.tv_nsec - before.tv_nsec) / 1000 >= 50000);
  }
}

/* NCCL's rules. */

static void collective(ncclComm_t c, size_t count, int type, int op) {
  CUdeviceptr a = memory(1024);
  CUstream s = stream();
  GO(ncclAllReduce((void *)a, (void *)a, count, type, op, c, s));
  OK(cuStreamSynchronize(s));
}

static void differing_counts(void) { collective(world(), 10 + rank, ncclInt32, ncclSum); }
static void differing_types(void) { collective(world(), 10, rank ? ncclFloat32 : ncclInt32, ncclSum); }
static void differing_ops(void) { collective(world(), 10, ncclInt32, rank ? ncclMax : ncclSum); }

static void differing_order(void) {
  ncclComm_t c = world();
  CUdeviceptr a = memory(64);
  CUstream s = stream();
  for (int i = 0; i < 2; i++) {
    if ((i + rank) % 2)
      GO(ncclAllReduce((void *)a, (void *)a, 4, ncclInt32, ncclSum, c, s));
    else
      GO(ncclBroadcast((void *)a, (void *)a, 4, ncclInt32, 0, c, s));
  }
  OK(cuStreamSynchronize(s));
}

static void differing_roots(void) {
  ncclComm_t c = world();
  CUdeviceptr a = memory(64);
  CUstream s = stream();
  GO(ncclBroadcast((void *)a, (void *)a, 4, ncclInt32, rank, c, s));
  OK(cuStreamSynchronize(s));
}

static void differing_groups(void) {
  ncclComm_t c = world();
  CUdeviceptr a = memory(64), b = memory(64);
  CUstream s = stream();
  if (rank == 0) OK(ncclGroupStart());
  GO(ncclAllReduce((void *)a, (void *)a, 4, ncclInt32, ncclSum, c, s));
  GO(ncclAllReduce((void *)b, (void *)b, 4, ncclInt32, ncclSum, c, s));
  if (rank == 0) GO(ncclGroupEnd());
  OK(cuStreamSynchronize(s));
}

static void differing_messages(void) {
  ncclComm_t c = world();
  CUdeviceptr a = memory(64);
  CUstream s = stream();
  if (rank == 0)
    GO(ncclSend((void *)a, 4, ncclInt32, 1, c, s));
  else
    GO(ncclRecv((void *)a, 5, ncclInt32, 0, c, s));
  OK(cuStreamSynchronize(s));
}

static void group_not_open(void) {
  world();
  ncclGroupEnd();
}

static void *end_elsewhere(void *unused) {
  ncclGroupEnd();
  return unused;
}

static void group_on_two_threads(void) {
  world();
  OK(ncclGroupStart());
  pthread_t t;
  pthread_create(&t, NULL, end_elsewhere, NULL);
  pthread_join(t, NULL);
}

static void group_left_open(void) {
  ncclComm_t c = world();
  OK(ncclGroupStart());
  end(c);
}

static void shared_in_group(void) {
  ncclComm_t c = world();
  CUdeviceptr a = memory(64);
  CUstream s = stream();
  OK(ncclGroupStart());
  OK(ncclAllReduce((void *)a, (void *)a, 4, ncclInt32, ncclSum, c, s));
  OK(ncclAllReduce((void *)a, (void *)a, 4, ncclInt32, ncclSum, c, s));
  GO(ncclGroupEnd());
}

static void half_in_place(void) {
  ncclComm_t c = world();
  CUdeviceptr a = memory(64);
  GO(ncclAllReduce((void *)a, (void *)(a + 4), 4, ncclInt32, ncclSum, c, stream()));
}

static void bad_magic(void) {
  begin_on(0);
  ncclComm_t c;
  ncclConfig_t how = config(0);
  how.magic = 1;
  ncclCommInitRankConfig(&c, 1, shared_id("world"), 0, &how);
}

static void bad_size(void) {
  begin_on(0);
  ncclComm_t c;
  ncclConfig_t how = config(0);
  how.size = 8;
  ncclCommInitRankConfig(&c, 1, shared_id("world"), 0, &how);
}

static void bad_version(void) {
  begin_on(0);
  ncclComm_t c;
  ncclConfig_t how = config(0);
  how.version = 0;
  ncclCommInitRankConfig(&c, 1, shared_id("world"), 0, &how);
}

static void duplicate_device(void) {
  begin_on(0); /* on all ranks */
  ncclComm_t c;
  ncclConfig_t how = config(0);
  ncclCommInitRankConfig(&c, size, shared_id("world"), rank, &how);
  while (state(c) == ncclInProgress) usleep(100);
  EXPECT(state(c) == ncclInvalidUsage);
  EXPECT(strstr(ncclGetLastError(c), "Duplicate GPU detected") != NULL);
  OK(ncclCommAbort(c));
}

static void same_rank(void) {
  begin_on(rank);
  ncclComm_t c;
  ncclConfig_t how = config(0);
  ncclCommInitRankConfig(&c, size, shared_id("world"), 0, &how);
  ready(c);
}

static void after_abort(void) {
  ncclComm_t c = world();
  OK(ncclCommAbort(c));
  int s;
  ncclCommGetAsyncError(c, &s);
}

static void after_destroy(void) {
  ncclComm_t c = world();
  end(c);
  ncclCommAbort(c);
}

static void after_finalize(void) {
  ncclComm_t c = world();
  CUdeviceptr a = memory(64);
  ncclCommFinalize(c);
  ready(c);
  ncclAllReduce((void *)a, (void *)a, 4, ncclInt32, ncclSum, c, stream());
}

static void destroy_in_progress(void) {
  ncclCommDestroy(lonely());
}

static void freed_scale(void) {
  ncclComm_t c = world();
  CUdeviceptr a = memory(64);
  float two = 2;
  int op;
  OK(ncclRedOpCreatePreMulSum(&op, &two, ncclFloat32, 1, c));
  OK(ncclRedOpDestroy(op, c));
  ncclAllReduce((void *)a, (void *)a, 4, ncclFloat32, op, c, stream());
}

static void *abort_later(void *c) {
  usleep(50000);
  cuCtxSetCurrent(context);
  OK(ncclCommAbort(c));
  return NULL;
}

/* The other members never take part, so the operation ends by another thread's abort. */
static void abort_hanging(void) {
  ncclComm_t c = world();
  if (rank != 0) return;
  CUdeviceptr a = memory(64);
  CUstream s = stream();
  GO(ncclAllReduce((void *)a, (void *)a, 4, ncclInt32, ncclSum, c, s));
  usleep(20000);
  EXPECT(cuStreamQuery(s) == CUDA_ERROR_NOT_READY);
  pthread_t t;
  pthread_create(&t, NULL, abort_later, c);
  OK(cuStreamSynchronize(s));
  pthread_join(t, NULL);
}

/* A second communicator on the device of the first. */
static ncclComm_t second(ncclComm_t c) {
  ncclComm_t made = NULL;
  ncclConfig_t how = config(0);
  int code = ncclCommSplit(c, 0, rank, &made, &how);
  EXPECT(code == ncclSuccess || code == ncclInProgress);
  ready(c);
  while (*(ncclComm_t volatile *)&made == NULL) usleep(100);
  ready(made);
  return made;
}

static void two_comms(int ordered) {
  ncclComm_t c = world(), d = second(c);
  CUdeviceptr a = memory(64), b = memory(64);
  CUstream s = stream(), t = stream();
  GO(ncclAllReduce((void *)a, (void *)a, 4, ncclInt32, ncclSum, c, s));
  if (ordered) {
    CUevent e;
    OK(cuEventCreate(&e, 2));
    OK(cuEventRecord(e, s));
    OK(cuStreamWaitEvent(t, e, 0));
  }
  ncclComm_t first = c;
  c = d;
  GO(ncclAllReduce((void *)b, (void *)b, 4, ncclInt32, ncclSum, c, t));
  OK(cuStreamSynchronize(t));
  OK(cuStreamSynchronize(s));
  end(d);
  end(first);
}

static void unordered_comms(void) { two_comms(0); }
static void ordered_comms(void) { two_comms(1); }

static _Atomic int aborted;

static void *abort_first(void *c) {
  CUcontext context;
  OK(cuDevicePrimaryCtxRetain(&context, rank));
  OK(cuCtxSetCurrent(context));
  OK(ncclCommAbort(c));
  aborted = 1;
  return NULL;
}

/* An abort waits for the device, and so for the work of another communicator there. */
static void abort_waits(void) {
  ncclComm_t c = world(), d = second(c);
  if (rank != 0) return;
  CUdeviceptr a = memory(64), b = memory(64);
  CUstream s = stream(), t = stream();
  CUevent e;
  GO(ncclAllReduce((void *)a, (void *)a, 4, ncclInt32, ncclSum, c, s));
  OK(cuEventCreate(&e, 2));
  OK(cuEventRecord(e, s));
  OK(cuStreamWaitEvent(t, e, 0));
  ncclComm_t first = c;
  c = d;
  GO(ncclAllReduce((void *)b, (void *)b, 4, ncclInt32, ncclSum, c, t));
  pthread_t thread;
  pthread_create(&thread, NULL, abort_first, first);
  usleep(50000);
  EXPECT(!aborted);
  OK(ncclCommAbort(d));
  pthread_join(thread, NULL);
}

static void abort_init(void) {
  ncclComm_t c = lonely();
  usleep(10000);
  EXPECT(state(c) == ncclInProgress);
  OK(ncclCommAbort(c));
}

/* A send waits for its receiver, so two members that both send first never end. */
static void unbuffered_sends(void) {
  ncclComm_t c = world();
  CUdeviceptr a = memory(64), b = memory(64);
  CUstream s = stream();
  GO(ncclSend((void *)a, 4, ncclInt32, 1 - rank, c, s));
  GO(ncclRecv((void *)b, 4, ncclInt32, 1 - rank, c, s));
  usleep(100000);
  EXPECT(cuStreamQuery(s) == CUDA_ERROR_NOT_READY);
  OK(ncclCommAbort(c));
}

/* Results. */

static void put(CUdeviceptr to, const void *from, size_t n) { OK(cuMemcpyHtoD_v2(to, from, n)); }

static void expect_bytes(CUdeviceptr at, const void *want, size_t n, int line) {
  unsigned char got[256];
  OK(cuMemcpyDtoH_v2(got, at, n));
  if (memcmp(got, want, n) == 0) return;
  fprintf(stderr, "line %d: rank %d has", line, rank);
  for (size_t i = 0; i < n; i++) fprintf(stderr, " %02x", got[i]);
  fprintf(stderr, "\n");
  exit(1);
}
#define BYTES(at, ...)                                         \
  do {                                                         \
    static const unsigned char want_[] = {__VA_ARGS__};        \
    expect_bytes(at, want_, sizeof want_, __LINE__);           \
  } while (0)

/* Two ranks; the bits of 1.5 and 2.25 by type, and of their sum, mean, … */
static void arithmetic(void) {
  ncclComm_t c = world();
  CUstream s;
  OK(cuStreamCreate(&s, 0));
  CUdeviceptr a = memory(256);
#define REDUCE_TO(type, op, mine, yours, ...)                                                  \
  do {                                                                                         \
    typeof(mine) x_ = rank ? yours : mine;                                                     \
    put(a, &x_, sizeof x_);                                                                    \
    GO(ncclAllReduce((void *)a, (void *)a, 1, type, op, c, s));                                \
    OK(cuStreamSynchronize(s));                                                                \
    BYTES(a, __VA_ARGS__);                                                                     \
  } while (0)
  REDUCE_TO(ncclFloat32, ncclSum, 1.5f, 2.25f, 0, 0, 0x70, 0x40);                              /* 3.75 */
  REDUCE_TO(ncclFloat64, ncclAvg, 1.5, 2.5, 0, 0, 0, 0, 0, 0, 0, 0x40);                        /* 2 */
  REDUCE_TO(ncclBfloat16, ncclSum, (uint16_t)0x3fc0, (uint16_t)0x4010, 0x70, 0x40);            /* 1.5 + 2.25 */
  REDUCE_TO(ncclBfloat16, ncclSum, (uint16_t)0x3f80, (uint16_t)0x3b80, 0x80, 0x3f);            /* 1 + 2^-8: to even */
  REDUCE_TO(ncclFloat16, ncclProd, (uint16_t)0x3e00, (uint16_t)0x4080, 0xc0, 0x42);            /* 1.5 * 2.25 = 3.375 */
  REDUCE_TO(ncclFloat16, ncclSum, (uint16_t)0x0001, (uint16_t)0x0001, 0x02, 0x00);             /* subnormal */
  REDUCE_TO(ncclFloat16, ncclSum, (uint16_t)0x7bff, (uint16_t)0x7bff, 0x00, 0x7c);             /* infinity */
  REDUCE_TO(ncclFloat8e4m3, ncclSum, (uint8_t)0x3c, (uint8_t)0x41, 0x47);                      /* 1.5 + 2.25 = 3.75 */
  REDUCE_TO(ncclFloat8e4m3, ncclSum, (uint8_t)0x7e, (uint8_t)0x7e, 0x7e);                      /* 448: saturates */
  REDUCE_TO(ncclFloat8e5m2, ncclMax, (uint8_t)0x3e, (uint8_t)0xc0, 0x3e);                      /* max(1.5, -2) */
  REDUCE_TO(ncclFloat8e5m2, ncclSum, (uint8_t)0x3e, (uint8_t)0x40, 0x43);                      /* 1.5 + 2 = 3.5 */
  REDUCE_TO(ncclInt8, ncclSum, (int8_t)100, (int8_t)100, 0xc8);                                /* wraps */
  REDUCE_TO(ncclInt8, ncclMin, (int8_t)-1, (int8_t)1, 0xff);
  REDUCE_TO(ncclUint8, ncclMin, (uint8_t)255, (uint8_t)1, 0x01);
  REDUCE_TO(ncclInt32, ncclAvg, -3, -4, 0xfd, 0xff, 0xff, 0xff);                               /* -7 / 2 = -3 */
  REDUCE_TO(ncclUint64, ncclMax, (uint64_t)1 << 63, (uint64_t)1, 0, 0, 0, 0, 0, 0, 0, 0x80);
  float factor = rank ? 0.5f : 4;
  int op;
  OK(ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat32, 1, c));
  REDUCE_TO(ncclFloat32, op, 1.0f, 2.0f, 0, 0, 0xa0, 0x40);                                    /* 4 * 1 + 0.5 * 2 */
  OK(ncclRedOpDestroy(op, c));
}

static void collectives(void) {
  ncclComm_t c = world();
  CUstream s;
  OK(cuStreamCreate(&s, 0));
  CUdeviceptr a = memory(16), b = memory(16);
  unsigned char mine[4] = {rank + 1, rank + 11, 7, 7};
  put(a, mine, 4);
  GO(ncclBroadcast((void *)a, (void *)b, 2, ncclUint8, 1, c, s));
  OK(cuStreamSynchronize(s));
  BYTES(b, 2, 12);
  OK(ncclGroupStart());
  OK(ncclAllGather((void *)a, (void *)b, 2, ncclUint8, c, s));
  OK(ncclReduceScatter((void *)a, (void *)(b + 8), 1, ncclUint8, ncclSum, c, s));
  OK(ncclReduce((void *)(a + 2), (void *)(b + 12), 2, ncclUint8, ncclSum, 0, c, s));
  GO(ncclGroupEnd());
  OK(cuStreamSynchronize(s));
  BYTES(b, 1, 11, 2, 12);
  if (rank == 0)
    BYTES(b + 8, 3);
  else
    BYTES(b + 8, 23);
  if (rank == 0) BYTES(b + 12, 14, 14);
  OK(ncclGroupStart());
  for (int peer = 0; peer < size; peer++) {
    OK(ncclSend((void *)a, 2, ncclUint8, peer, c, s));
    OK(ncclRecv((void *)(b + 2 * peer), 2, ncclUint8, peer, c, s));
  }
  GO(ncclGroupEnd());
  OK(cuStreamSynchronize(s));
  BYTES(b, 1, 11, 2, 12);
  end(c);
}

/* Three ranks: halves, and survivors. */
static void split_and_shrink(void) {
  ncclComm_t c = world(), half = NULL, less = NULL;
  ncclConfig_t how = config(0);
  GO(ncclCommSplit(c, rank == 1 ? -1 : 5, -rank, &half, &how));
  EXPECT((half == NULL) == (rank == 1));
  CUstream s;
  OK(cuStreamCreate(&s, 0));
  CUdeviceptr a = memory(16);
  unsigned char mine[1] = {rank + 1};
  put(a, mine, 1);
  if (half != NULL) {
    ncclComm_t world_comm = c;
    c = half;
    ready(c);
    GO(ncclBroadcast((void *)a, (void *)a, 1, ncclUint8, 0, c, s)); /* from rank 2, whose key is less */
    OK(cuStreamSynchronize(s));
    BYTES(a, 3);
    end(c);
    c = world_comm;
  }
  if (rank == 2) {
    OK(ncclCommAbort(c));
    return;
  }
  GO(ncclAllReduce((void *)a, (void *)a, 4, ncclUint8, ncclMax, c, s)); /* hangs: rank 2 is gone */
  int gone = 2;
  GO(ncclCommShrink(c, &gone, 1, &less, &how, 1));
  ncclComm_t old = c;
  c = less;
  ready(c);
  put(a, mine, 1);
  GO(ncclAllReduce((void *)a, (void *)a, 1, ncclUint8, ncclSum, c, s));
  OK(cuStreamSynchronize(s));
  BYTES(a, 3); /* 1 + 2 */
  end(c);
  OK(ncclCommAbort(old));
}

static void blocking_world(void) {
  begin_on(rank);
  ncclComm_t c;
  OK(ncclCommInitRank(&c, size, shared_id("world"), rank));
  collective(c, 10, ncclInt32, ncclSum);
  OK(ncclCommDestroy(c));
}

/* Faults. */

static void fault_code(void) {
  begin_on(0);
  CUevent e;
  OK(cuEventCreate(&e, 2));
  EXPECT(cuEventCreate(&e, 2) == 999);
  OK(cuEventCreate(&e, 2));
}

static void fault_in_group(void) {
  ncclComm_t c = world();
  CUdeviceptr a = memory(64), b = memory(64);
  CUstream s = stream();
  unsigned char one = 1, two = 2;
  put(a, &one, 1);
  put(b, &two, 1);
  OK(ncclGroupStart());
  OK(ncclAllReduce((void *)a, (void *)b, 1, ncclUint8, ncclSum, c, s));
  EXPECT(ncclAllReduce((void *)a, (void *)(a + 1), 1, ncclUint8, ncclSum, c, s) == ncclSystemError);
  EXPECT(ncclGroupEnd() == ncclSystemError);
  OK(cuStreamSynchronize(s));
  BYTES(b, 2);
  GO(ncclAllReduce((void *)a, (void *)b, 1, ncclUint8, ncclSum, c, s));
  OK(cuStreamSynchronize(s));
  BYTES(b, 1);
}

static void fault_stuck(void) {
  ncclComm_t c = world();
  CUdeviceptr a = memory(64);
  CUstream s = stream();
  GO(ncclAllReduce((void *)a, (void *)a, 4, ncclInt32, ncclSum, c, s));
  usleep(30000);
  EXPECT(cuStreamQuery(s) == CUDA_ERROR_NOT_READY);
  OK(state(c));
  OK(ncclCommAbort(c));
  OK(cuStreamSynchronize(s));
}

static void fault_async(void) {
  ncclComm_t c = world();
  CUdeviceptr a = memory(64);
  CUstream s = stream();
  int code = ncclAllReduce((void *)a, (void *)a, 4, ncclInt32, ncclSum, c, s);
  EXPECT(code == 0 || code == ncclInProgress);
  while (state(c) == ncclSuccess || state(c) == ncclInProgress) usleep(100);
  EXPECT(state(c) == ncclRemoteError);
  OK(ncclCommAbort(c));
}

static void fault_hang(void) {
  ncclComm_t c = world();
  CUdeviceptr a = memory(64);
  pthread_t t;
  pthread_create(&t, NULL, abort_later, c);
  EXPECT(ncclAllReduce((void *)a, (void *)a, 4, ncclInt32, ncclSum, c, stream()) == ncclSystemError);
  pthread_join(t, NULL);
}

static void fault_die(void) {
  begin_on(0);
  event();
}

#define CASE(name) {#name, name}
static const struct {
  const char *name;
  void (*run)(void);
} cases[] = {
    CASE(order), CASE(no_ready_wait), CASE(no_done_wait), CASE(read_elsewhere), CASE(wait_before_record),
    CASE(record_before_operation), CASE(free_in_use), CASE(record_in_progress), CASE(call_in_progress),
    CASE(reuse_buffer), CASE(reads_share), CASE(event_recorded_again), CASE(default_stream), CASE(pinned_reused),
    CASE(touch), CASE(touch_freed), CASE(beyond), CASE(not_device_memory), CASE(freed_memory), CASE(freed_event),
    CASE(freed_stream), CASE(no_event), CASE(leak_event), CASE(leak_stream), CASE(leak_memory), CASE(leak_comm),
    CASE(no_context), CASE(no_init), CASE(capturing), CASE(other_device), CASE(forked), CASE(out_of_memory),
    CASE(free_waits),
    CASE(differing_counts), CASE(differing_types), CASE(differing_ops), CASE(differing_order), CASE(differing_roots),
    CASE(differing_groups), CASE(differing_messages), CASE(group_not_open), CASE(group_on_two_threads),
    CASE(group_left_open), CASE(shared_in_group), CASE(half_in_place), CASE(bad_magic), CASE(bad_size), CASE(bad_version),
    CASE(duplicate_device), CASE(same_rank), CASE(after_abort), CASE(after_destroy), CASE(after_finalize),
    CASE(destroy_in_progress), CASE(freed_scale), CASE(abort_hanging), CASE(unordered_comms),
    CASE(ordered_comms), CASE(abort_waits), CASE(abort_init), CASE(unbuffered_sends),
    CASE(arithmetic), CASE(collectives), CASE(split_and_shrink), CASE(blocking_world), CASE(fault_code),
    CASE(fault_in_group), CASE(fault_stuck), CASE(fault_async), CASE(fault_hang), CASE(fault_die),
};

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  rank = atoi(argv[2]);
  size = atoi(argv[3]);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    if (strcmp(cases[i].name, argv[1]) != 0) continue;
    cases[i].run();
    return 0;
  }
  return 2;
}
