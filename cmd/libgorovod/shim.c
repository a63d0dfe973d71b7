/*
 * The exported functions. Each is C, so that a forked child of the process that
 * loaded the library is refused before it enters Go: a Go runtime does not survive
 * a fork, and a call into it could hang for ever.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE /* for dladdr */
#include "entry.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include "_cgo_export.h"

/* What the library keeps for each thread. Not a __thread variable: Go's own thread
 * local puts all of the library's into the static TLS block, of which a process
 * that loads libraries late has little left. */
struct thread {
  char reason[REASON_BYTES]; /* for its last failure */
  bool submits;              /* it has submitted an operation */
};

static pthread_key_t thread_key;
static struct thread no_memory;

static struct thread *this_thread(void) {
  struct thread *t = pthread_getspecific(thread_key);
  if (t == NULL) {
    t = calloc(1, sizeof *t);
    if (t == NULL || pthread_setspecific(thread_key, t) != 0) {
      free(t);
      return &no_memory;
    }
  }
  return t;
}

char *reason_of_thread(void) { return this_thread()->reason; }

char *fresh_reason(void) {
  char *buf = reason_of_thread();
  buf[0] = 0;
  return buf;
}

const char *shim_library(void) {
  Dl_info where;
  return dladdr((void *)shim_library, &where) != 0 ? where.dli_fname : NULL;
}

/* ---- fork ------------------------------------------------------------- */

static pid_t home; /* the process that loaded the library */

/* A page that is 1 here and that the kernel sets to 0 in a child, so that a check costs
 * no system call. NULL if the kernel (before 4.14) cannot do that. */
static const volatile unsigned char *here;

enum { MAX_FDS = 1 << 16 };
static unsigned char tracked[MAX_FDS];

void shim_track_fd(int fd, int open) {
  if (fd >= 0 && fd < MAX_FDS) tracked[fd] = (unsigned char)open;
}

/* The child must not keep the engine's connections open: when this rank dies, peers
 * would not see their end. close() is async-signal-safe. */
static void in_child(void) {
  for (int fd = 0; fd < MAX_FDS; fd++) {
    if (tracked[fd]) {
      tracked[fd] = 0;
      close(fd);
    }
  }
}

__attribute__((constructor)) static void remember_home(void) {
  pthread_key_create(&thread_key, free);
  if (shim_no_room()) {
    static const volatile unsigned char nowhere = 0;
    here = &nowhere;
    return;
  }
  home = getpid();
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  unsigned char *p = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p != MAP_FAILED) {
    if (madvise(p, page, MADV_WIPEONFORK) == 0) {
      *p = 1;
      here = p;
    } else {
      munmap(p, page);
    }
  }
  pthread_atfork(NULL, NULL, in_child);
}

/* Whether calls may enter Go's runtime: it runs, and this is no forked child. */
static int at_home(void) { return here != NULL ? *here : getpid() == home; }

int is_child(void) {
  if (at_home()) return 0;
  if (shim_no_room()) {
    shim_explain_no_room(reason_of_thread(), REASON_BYTES);
    return 1;
  }
  EXPLAIN(
      "Horovod cannot be used in a forked child (pid %ld) of the process that loaded it (pid %ld): "
           "call it in the parent, or start this process with exec (multiprocessing start method \"spawn\").",
           (long)getpid(), (long)home);
  return 1;
}

/* ---- lifecycle and topology ------------------------------------------- */

bool horovod_init(const int *ranks, int nranks, const int *set_ranks, const int *set_sizes, int nsets) {
  char *reason = fresh_reason();
  if (is_child()) return false;
  return goInit((int *)ranks, nranks, (int *)set_ranks, (int *)set_sizes, nsets, reason) != 0;
}

bool horovod_init_multi_comm(void *comm, int ncomms, const int *set_ranks, const int *set_sizes, int nsets) {
  char *reason = fresh_reason();
  if (is_child()) return false;
  if (comm == NULL || ncomms < 1) {
    EXPLAIN("no communicator is given");
  } else if (goInitMultiComm(comm, ncomms, (int *)set_ranks, (int *)set_sizes, nsets, reason) != 0) {
    return true;
  }
  goPrintError(reason_of_thread());
  return false;
}

/* A child, whose atexit handlers run, too, leaves its parent's engine alone. */
void horovod_shutdown(void) {
  if (at_home()) goShutdown();
}

int horovod_is_initialized(void) { return at_home() && goIsInitialized(); }

#define TOPOLOGY(name, which) \
  int name(void) { return is_child() ? -1 : goTopology(which); }
TOPOLOGY(horovod_rank, 0)
TOPOLOGY(horovod_size, 1)
TOPOLOGY(horovod_local_rank, 2)
TOPOLOGY(horovod_local_size, 3)
TOPOLOGY(horovod_cross_rank, 4)
TOPOLOGY(horovod_cross_size, 5)

bool horovod_is_homogeneous(void) { return !is_child() && goIsHomogeneous() != 0; }

int horovod_start_timeline(const char *file_name, bool mark_cycles) {
  char *reason = fresh_reason();
  if (is_child()) return -1;
  return goStartTimeline((char *)file_name, mark_cycles, reason);
}

int horovod_stop_timeline(void) {
  char *reason = fresh_reason();
  if (is_child()) return -1;
  return goStopTimeline(reason);
}

enum { MPI_BUILT, MPI_ENABLED, MPI_THREADS, GLOO_ENABLED };
int horovod_mpi_threads_supported(void) { return horovod_is_initialized() ? goMPI(MPI_THREADS) : -1; }
bool horovod_mpi_enabled(void) { return at_home() && goMPI(MPI_ENABLED) != 0; }
bool horovod_mpi_built(void) { return at_home() && goMPI(MPI_BUILT) != 0; }
/* The native transports take Gloo's place. */
bool horovod_gloo_enabled(void) { return !at_home() || goMPI(GLOO_ENABLED) != 0; }
bool horovod_gloo_built(void) { return true; }
int horovod_nccl_built(void) { return at_home() ? goNCCLBuilt() : 0; }
bool horovod_ddl_built(void) { return false; }
bool horovod_ccl_built(void) { return false; }
/* Only NCCL carries device memory. */
bool horovod_cuda_built(void) { return horovod_nccl_built() != 0; }
bool horovod_rocm_built(void) { return false; }

int horovod_reduce_op_average(void) { return GOROVOD_AVERAGE; }
int horovod_reduce_op_sum(void) { return GOROVOD_SUM; }
int horovod_reduce_op_adasum(void) { return GOROVOD_ADASUM; }
int horovod_reduce_op_min(void) { return GOROVOD_MIN; }
int horovod_reduce_op_max(void) { return GOROVOD_MAX; }
int horovod_reduce_op_product(void) { return GOROVOD_PRODUCT; }

/* ---- process sets ------------------------------------------------------ */

int horovod_add_process_set(const int *ranks, int nranks) {
  char *reason = fresh_reason();
  if (is_child()) return HOROVOD_PROCESS_SET_ERROR_INIT;
  return goAddProcessSet((int *)ranks, nranks, reason);
}

int horovod_remove_process_set(int id) {
  char *reason = fresh_reason();
  if (is_child()) return HOROVOD_PROCESS_SET_ERROR_INIT;
  return goRemoveProcessSet(id, reason);
}

int gorovod_keep_process_sets(void) {
  char *reason = fresh_reason();
  if (is_child()) return HOROVOD_PROCESS_SET_ERROR_INIT;
  return goKeepProcessSets(reason);
}

int gorovod_add_process_set_of_the_rest(const int *ranks, int nranks) {
  char *reason = fresh_reason();
  if (is_child()) return HOROVOD_PROCESS_SET_ERROR_INIT;
  return goAddProcessSetOfTheRest((int *)ranks, nranks, reason);
}

int horovod_process_set_rank(int id) { return is_child() ? HOROVOD_PROCESS_SET_ERROR_INIT : goProcessSetRank(id); }

int horovod_process_set_size(int id) { return is_child() ? HOROVOD_PROCESS_SET_ERROR_INIT : goProcessSetRanks(id, NULL); }

int horovod_process_set_included(int id) {
  if (id == 0) return 1; /* as in Horovod, even before init */
  return is_child() ? HOROVOD_PROCESS_SET_ERROR_INIT : goProcessSetIncluded(id);
}

int horovod_number_of_process_sets(void) { return is_child() ? 1 : goProcessSetIDs(NULL); }

void horovod_process_set_ids(int *ids) {
  if (is_child())
    ids[0] = 0;
  else
    goProcessSetIDs(ids);
}

int horovod_process_set_ranks(int id, int *ranks) {
  int n = is_child() ? HOROVOD_PROCESS_SET_ERROR_INIT : goProcessSetRanks(id, ranks);
  return n < 0 ? n : 0;
}

int horovod_comm_process_set(void *comm) {
  if (is_child() || !goIsInitialized()) return HOROVOD_PROCESS_SET_ERROR_INIT;
  int id = goCommProcessSet((uintptr_t)comm);
  return id >= 0 ? id : HOROVOD_PROCESS_SET_ERROR_UNKNOWN_SET;
}

/* ---- operations -------------------------------------------------------- */

/* The part of the op that every caller has: the first version ended here. */
#define FIRST_SIZE offsetof(gorovod_op, splits)

/* Returns an op of this version's size: the caller's; if its size differs, a copy
 * in *room. NULL if it is no op. */
static const gorovod_op *complete(const gorovod_op *op, gorovod_op *room) {
  if (op == NULL) {
    EXPLAIN("the op must not be NULL");
    return NULL;
  }
  if (op->size == sizeof *op) return op;
  if (op->size < FIRST_SIZE) {
    EXPLAIN("op->size is %u, at least %zu is needed", op->size, FIRST_SIZE);
    return NULL;
  }
  /* A caller built for a later version may have more fields; those unknown here must be unused. */
  for (size_t i = sizeof *room; i < op->size; i++) {
    if (((const unsigned char *)op)[i]) {
      EXPLAIN("byte %zu of the op is set, but this version (%s) knows %zu only", i, goVersion(), sizeof *room);
      return NULL;
    }
  }
  memset(room, 0, sizeof *room);
  memcpy(room, op, op->size < sizeof *room ? op->size : sizeof *room);
  return room;
}

/* Whether a thread other than the main one has submitted an operation. */
static bool others_submit;

/* The system call is the thread's first time's. */
void note_submitter(void) {
  struct thread *t = this_thread();
  if (t->submits) return;
  t->submits = true;
  if (syscall(SYS_gettid) != home) __atomic_store_n(&others_submit, true, __ATOMIC_RELAXED);
}

bool shim_others_submit(void) { return __atomic_load_n(&others_submit, __ATOMIC_RELAXED); }

/* Marks the operation as in progress; a refusal changes that. */
static void begin(const gorovod_op *op) {
  if (op->status != NULL) __atomic_store_n(op->status, GOROVOD_IN_PROGRESS, __ATOMIC_RELEASE);
}

/* Prepares to submit *op, and makes it one of this version's size. Returns a status. */
static int prepare(const gorovod_op **op, gorovod_op *room, int64_t *handle) {
  if (is_child()) return GOROVOD_PRECONDITION_ERROR;
  if (handle == NULL) {
    EXPLAIN("handle must not be NULL");
    return GOROVOD_INVALID_ARGUMENT;
  }
  *handle = 0;
  *op = complete(*op, room);
  if (*op == NULL) return GOROVOD_INVALID_ARGUMENT;
  begin(*op);
  note_submitter();
  return GOROVOD_OK;
}

int gorovod_enqueue(const gorovod_op *op, int64_t *handle) {
  char *reason = fresh_reason();
  gorovod_op room;
  int status = prepare(&op, &room, handle);
  return status != GOROVOD_OK ? status : goEnqueue((gorovod_op *)op, handle, reason);
}

int gorovod_run(const gorovod_op *op, int64_t timeout_ms, int64_t *handle) {
  char *reason = fresh_reason();
  gorovod_op room;
  int status = prepare(&op, &room, handle);
  return status != GOROVOD_OK ? status : goRun((gorovod_op *)op, timeout_ms, handle, reason);
}

int gorovod_enqueue_group(const char *name, const gorovod_op *const *ops, int n, int64_t *handles) {
  char *reason = fresh_reason();
  if (is_child()) return GOROVOD_PRECONDITION_ERROR;
  if (n < 0 || (n > 0 && (ops == NULL || handles == NULL))) {
    EXPLAIN("ops and handles must not be NULL, and n not negative");
    return GOROVOD_INVALID_ARGUMENT;
  }
  int others = 0; /* ops of another version's size */
  for (int i = 0; i < n; i++) {
    handles[i] = 0;
    others += ops[i] == NULL || ops[i]->size != sizeof(gorovod_op);
  }
  /* Their complete copies, and a list of pointers in place of the caller's. */
  gorovod_op *room = NULL;
  const gorovod_op **known = NULL;
  int status = GOROVOD_OK;
  if (others > 0) {
    room = calloc((size_t)others + 1, sizeof *room);
    known = calloc((size_t)n, sizeof *known);
    if (room == NULL || known == NULL) {
      EXPLAIN("no memory for %d operations", n);
      status = GOROVOD_UNKNOWN_ERROR;
    }
    for (int i = 0, copied = 0; i < n && status == GOROVOD_OK; i++) {
      known[i] = complete(ops[i], &room[copied]);
      if (known[i] == NULL) status = GOROVOD_INVALID_ARGUMENT;
      copied += known[i] == &room[copied];
    }
    ops = known;
  }
  for (int i = 0; i < n && status == GOROVOD_OK; i++) begin(ops[i]);
  note_submitter();
  if (status == GOROVOD_OK) status = goEnqueueGroup((char *)name, (gorovod_op **)ops, n, handles, reason);
  free(room);
  free(known);
  return status;
}

int gorovod_on_done(int64_t handle, void (*done)(void *, int64_t, int, const char *), void *context) {
  char *reason = fresh_reason();
  if (is_child()) return GOROVOD_PRECONDITION_ERROR;
  if (done == NULL) {
    EXPLAIN("done must not be NULL");
    return GOROVOD_INVALID_ARGUMENT;
  }
  return goOnDone(handle, (void *)done, context, reason);
}

void *gorovod_given_output(void *context, size_t bytes, int ndim, const int64_t *shape) {
  const gorovod_memory *given = context;
  (void)ndim, (void)shape;
  return given->bytes == bytes ? given->data : NULL;
}

bool shim_gives_output(void *(*alloc)(void *, size_t, int, const int64_t *)) { return alloc == gorovod_given_output; }

int gorovod_poll(int64_t handle) { return gorovod_wait(handle, 0); }

int gorovod_wait(int64_t handle, int64_t timeout_ms) {
  char *reason = fresh_reason();
  if (is_child()) return GOROVOD_PRECONDITION_ERROR;
  return goWait(handle, timeout_ms, reason);
}

int gorovod_output(int64_t handle, void **data, int max_ndim, int *ndim, int64_t *shape) {
  char *reason = fresh_reason();
  if (is_child()) return GOROVOD_PRECONDITION_ERROR;
  return goOutput(handle, data, max_ndim, ndim, shape, reason);
}

int gorovod_take_output(int64_t handle, void **data) {
  char *reason = fresh_reason();
  if (is_child()) return GOROVOD_PRECONDITION_ERROR;
  return goTakeOutput(handle, data, reason);
}

int gorovod_received_splits(int64_t handle, int n, int32_t *splits) {
  char *reason = fresh_reason();
  if (is_child()) return -1;
  return goReceivedSplits(handle, n, splits, reason);
}

int gorovod_last_joined(int64_t handle) {
  char *reason = fresh_reason();
  if (is_child()) return -1;
  return goLastJoined(handle, reason);
}

int gorovod_takes_device(int device) { return !is_child() && goTakesDevice(device); }

int gorovod_await_on_stream(int64_t handle, uintptr_t stream) {
  char *reason = fresh_reason();
  if (is_child()) return GOROVOD_PRECONDITION_ERROR;
  return goAwaitOnStream(handle, stream, reason);
}

int gorovod_settle(int64_t timeout_ms) {
  char *reason = fresh_reason();
  if (is_child()) return GOROVOD_PRECONDITION_ERROR;
  return goSettle(timeout_ms, reason);
}

void gorovod_free_on_device(int device, void *data) {
  if (data != NULL && at_home()) goFreeOnDevice(device, data);
}

void gorovod_free_on_stream(int device, void *data, size_t bytes, uintptr_t stream) {
  if (data != NULL && at_home()) goFreeOnStream(device, data, bytes, stream);
}

static pthread_mutex_t releasing = PTHREAD_MUTEX_INITIALIZER; /* held while release_memory runs */
static void (*release_memory)(int device);

void gorovod_on_low_memory(void (*release)(int device)) {
  if (!at_home()) return; /* in a child, the mutex may stay locked for ever */
  pthread_mutex_lock(&releasing);
  release_memory = release;
  pthread_mutex_unlock(&releasing);
}

void shim_release_memory(int device) {
  if (pthread_mutex_trylock(&releasing) != 0) return; /* release_memory may wait long for a lock of the interpreter */
  if (release_memory != NULL) release_memory(device);
  pthread_mutex_unlock(&releasing);
}

const char *gorovod_name(int64_t handle) {
  char *name = fresh_reason();
  if (!is_child()) goName(handle, name);
  return name;
}

int gorovod_send(int to, uint32_t tag, uint16_t label, const void *data, size_t bytes, int64_t timeout_ms) {
  char *reason = fresh_reason();
  if (is_child()) return GOROVOD_PRECONDITION_ERROR;
  return goSend(to, tag, label, (void *)data, bytes, timeout_ms, reason);
}

int gorovod_recv(int from, uint32_t tag, void *data, size_t bytes, size_t *received, uint16_t *label,
                 int64_t timeout_ms) {
  char *reason = fresh_reason();
  if (is_child()) return GOROVOD_PRECONDITION_ERROR;
  size_t length = 0;
  uint16_t its = 0;
  int status = goRecv(&from, tag, data, bytes, &length, &its, timeout_ms, reason);
  if (received != NULL) *received = length;
  if (label != NULL) *label = its;
  return status;
}

int gorovod_recv_any(uint32_t tag, void *data, size_t bytes, int *from, size_t *received, uint16_t *label,
                     int64_t timeout_ms) {
  return gorovod_recv_among(NULL, 0, tag, data, bytes, from, received, label, timeout_ms);
}

int gorovod_recv_among(const int *ranks, int count, uint32_t tag, void *data, size_t bytes, int *from,
                       size_t *received, uint16_t *label, int64_t timeout_ms) {
  char *reason = fresh_reason();
  if (is_child()) return GOROVOD_PRECONDITION_ERROR;
  if (count < 0 || (count == 0) != (ranks == NULL)) {
    EXPLAIN("ranks and count must name at least one rank, or be NULL and 0");
    return GOROVOD_INVALID_ARGUMENT;
  }
  int sender = -1;
  size_t length = 0;
  uint16_t its = 0;
  int status = goRecvAny((int *)ranks, count, tag, data, bytes, &sender, &length, &its, timeout_ms, reason);
  if (from != NULL) *from = sender;
  if (received != NULL) *received = length;
  if (label != NULL) *label = its;
  return status;
}

int gorovod_serve(const char *host, const void *key, size_t key_bytes, int size, int *port) {
  char *reason = fresh_reason();
  if (is_child()) return GOROVOD_PRECONDITION_ERROR;
  if (host == NULL || key == NULL || port == NULL) {
    EXPLAIN("host, key and port must not be NULL");
    return GOROVOD_INVALID_ARGUMENT;
  }
  return goServe((char *)host, (void *)key, key_bytes, size, port, reason);
}

void gorovod_fail(const char *reason) {
  if (is_child() || reason == NULL) return;
  goFail((char *)reason);
}

const char *gorovod_failure(void) {
  char *reason = fresh_reason();
  if (!is_child()) goFailure(reason);
  return reason;
}

void gorovod_free(void *data) { free(data); }

int gorovod_release(int64_t handle) {
  char *reason = fresh_reason();
  if (is_child()) return GOROVOD_PRECONDITION_ERROR;
  return goRelease(handle, reason);
}

const char *gorovod_last_error(void) { return reason_of_thread(); }

const char *gorovod_version(void) { return is_child() ? "" : goVersion(); }

const char *gorovod_facts(void) { return is_child() ? "" : goFacts(); }

void gorovod_cuda_report(int out, int calls) {
  if (!is_child()) goCUDAReport(out, calls);
}

void gorovod_nccl_report(int out, int calls) {
  if (!is_child()) goNCCLReport(out, calls);
}

int gorovod_await_nccl_built(int64_t timeout_ms) { return is_child() ? 0 : goAwaitNCCLBuilt(timeout_ms); }

int gorovod_usable_nccl(int calls) { return is_child() ? 0 : goUsableNCCL(calls); }

int64_t gorovod_share(int64_t rows, int rank, int size) { return is_child() ? -1 : goShare(rows, rank, size); }

int64_t gorovod_share_begin(int64_t rows, int rank, int size) {
  return is_child() ? -1 : goShareBegin(rows, rank, size);
}

void gorovod_digest(const void *data, size_t bytes, uint64_t digest[2]) {
  if (is_child()) {
    digest[0] = digest[1] = 0;
    return;
  }
  goDigest((void *)data, bytes, digest);
}

int gorovod_consistency_steps(void) { return is_child() ? 0 : goConsistencySteps(); }

char *gorovod_metrics(void) {
  char *reason = fresh_reason();
  return is_child() ? NULL : goMetrics(reason);
}

int gorovod_count_samples(int64_t samples) {
  if (is_child() || samples < 0) return -1;
  return goCountSamples(samples);
}

int gorovod_offer_stack(const uint64_t facts[8], const char *file, const char *function) {
  return is_child() ? -1 : goOfferStack((uint64_t *)facts, (char *)file, (char *)function);
}

int gorovod_counters(int64_t *values, int n) {
  if (is_child()) return 0;
  return goCounters(values, n);
}

/* ---- calls back -------------------------------------------------------- */

void *shim_call_alloc(void *(*alloc)(void *, size_t, int, const int64_t *), void *context, size_t bytes, int ndim,
                      const int64_t *shape) {
  return alloc(context, bytes, ndim, shape);
}

int shim_call_ready(int (*ready)(void *), void *context) { return ready(context); }

void shim_call_done(void (*done)(void *, int64_t, int, const char *), void *context, int64_t handle, int status,
                    const char *why) {
  done(context, handle, status, why);
}
