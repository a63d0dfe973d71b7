/*
 * gorovod.h: the C interface of libgorovod.so.
 *
 * The horovod_* functions are Horovod's own. The gorovod_* functions submit
 * collectives and wait for them. All functions may be called from any thread.
 * None may be called in a forked child of the process that loaded the library:
 * there, each returns its error value at once and gorovod_last_error() says so.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GOROVOD_H
#define GOROVOD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Status codes, as in Horovod. */
enum {
  GOROVOD_OK = 0,
  GOROVOD_UNKNOWN_ERROR = 1,      /* the job has failed, for example because a rank died, or has been shut down */
  GOROVOD_PRECONDITION_ERROR = 2, /* the ranks disagree, or horovod_init has not been called */
  GOROVOD_ABORTED = 3,            /* not executed: the process set is gone, or there is no such reduction */
  GOROVOD_INVALID_ARGUMENT = 4,   /* refused on this rank */
  GOROVOD_IN_PROGRESS = 5,
  GOROVOD_STORAGE_ERROR = 6       /* a file cannot be written or read, or is damaged; an addition */
};

/* Element types, as in Horovod; those from GOROVOD_BFLOAT16 on are additions. Host memory moves floats of 8 bits, and
 * combines none. */
enum {
  GOROVOD_UINT8 = 0, GOROVOD_INT8 = 1, GOROVOD_UINT16 = 2, GOROVOD_INT16 = 3,
  GOROVOD_INT32 = 4, GOROVOD_INT64 = 5, GOROVOD_FLOAT16 = 6, GOROVOD_FLOAT32 = 7,
  GOROVOD_FLOAT64 = 8, GOROVOD_BOOL = 9, GOROVOD_BFLOAT16 = 10, GOROVOD_FLOAT8_E4M3FN = 11,
  GOROVOD_FLOAT8_E5M2 = 12
};

/* Operations (Horovod's request types; those from GOROVOD_REDUCE on are additions). GATHER and SCATTER
 * are an ALLTOALL of which all members name the same root_rank; a NAMED_BARRIER is a barrier with a name, whose input is
 * empty. */
enum {
  GOROVOD_ALLREDUCE = 0, GOROVOD_ALLGATHER = 1, GOROVOD_BROADCAST = 2,
  GOROVOD_JOIN = 3, GOROVOD_ALLTOALL = 5, GOROVOD_BARRIER = 6, GOROVOD_REDUCESCATTER = 7,
  GOROVOD_REDUCE = 68, GOROVOD_GATHER = 69, GOROVOD_SCATTER = 70, GOROVOD_NAMED_BARRIER = 71
};

/* Reduce operations. Those up to 5 are Horovod's; those of bits are additions, for integers and bool. */
enum {
  GOROVOD_AVERAGE = 0, GOROVOD_SUM = 1, GOROVOD_ADASUM = 2,
  GOROVOD_MIN = 3, GOROVOD_MAX = 4, GOROVOD_PRODUCT = 5,
  GOROVOD_BAND = 6, GOROVOD_BOR = 7, GOROVOD_BXOR = 8
};

/* The form in which an allreduce travels between hosts: unchanged, as 16 bits a number, or as 8 bits a number with a
 * common scale of 32. Partial sums keep the tensor's own type. Only sums and averages of float32 and float64 heed it;
 * of float32 for INT8 and FP8. With these each rank keeps the errors of a tensor by its name, and adds them to the next
 * allreduce of that name; less than 16 KiB travel unchanged. */
enum {
  GOROVOD_WIRE_NONE = 0, GOROVOD_WIRE_FP16 = 1, GOROVOD_WIRE_BF16 = 2, GOROVOD_WIRE_INT8 = 3, GOROVOD_WIRE_FP8 = 4
};

/* Errors of the process-set functions, as in Horovod. */
enum {
  HOROVOD_PROCESS_SET_ERROR_INIT = -1,
  HOROVOD_PROCESS_SET_ERROR_DYNAMIC = -2,
  HOROVOD_PROCESS_SET_ERROR_UNKNOWN_SET = -3,
  HOROVOD_PROCESS_SET_ERROR_FOREIGN_SET = -4,
  HOROVOD_PROCESS_SET_ERROR_SHUTDOWN = -5,
  HOROVOD_PROCESS_SET_ERROR_EXISTING_SET = -6
};

/* Lifecycle and topology. Ranks and sizes are -1 before horovod_init. */

/* Joins the job that the environment describes, and blocks until all its processes have come, at most
 * HOROVOD_GLOO_TIMEOUT_SECONDS. False: gorovod_last_error() has the reason. A further call without horovod_shutdown
 * returns true at once. ranks are those of MPI_COMM_WORLD that take part, in a job that MPI starts; elsewhere they are
 * ignored. The process sets stand one after the other in process_set_ranks, each as long as process_set_sizes says. */
bool horovod_init(const int *ranks, int nranks, const int *process_set_ranks,
                  const int *process_set_sizes, int num_process_sets);
/* comm is an array of ncomms MPI_Comm. The processes of the first one are the ranks, whatever the environment
 * says. Each other one makes a process set of some of these ranks. MPI must be initialised. On failure the
 * function also prints the reason. */
bool horovod_init_multi_comm(void *comm, int ncomms, const int *process_set_ranks_via_ranks,
                             const int *process_set_sizes_via_ranks,
                             int num_process_sets_via_ranks);
/* Leaves the job without waiting for the others: operations that this rank has not submitted fail everywhere. */
void horovod_shutdown(void);
int horovod_is_initialized(void);
int horovod_rank(void);
int horovod_size(void);
int horovod_local_rank(void);
int horovod_local_size(void);
int horovod_cross_rank(void);
int horovod_cross_size(void);
bool horovod_is_homogeneous(void); /* whether all hosts have as many ranks */
/* Rank 0 writes a timeline to the file from now on. 1: all is well. -1: horovod_init has not been called. -2:
 * HOROVOD_TIMELINE was not set before it. -3: the file; gorovod_last_error() has the reason. */
int horovod_start_timeline(const char *file_name, bool mark_cycles);
int horovod_stop_timeline(void); /* as horovod_start_timeline, but 1 instead of -2 */
/* What this library has been built with, and what carries the job. */
int horovod_mpi_threads_supported(void);
bool horovod_mpi_enabled(void);
bool horovod_mpi_built(void);
bool horovod_gloo_enabled(void);
bool horovod_gloo_built(void);
int horovod_nccl_built(void);
bool horovod_ddl_built(void);
bool horovod_ccl_built(void);
bool horovod_cuda_built(void);
bool horovod_rocm_built(void);
int horovod_reduce_op_average(void);
int horovod_reduce_op_sum(void);
int horovod_reduce_op_adasum(void);
int horovod_reduce_op_min(void);
int horovod_reduce_op_max(void);
int horovod_reduce_op_product(void);

/* Process sets. Set 0 is the world. Errors are HOROVOD_PROCESS_SET_ERROR_…. All ranks of the job call
 * horovod_add_process_set, which returns the new set's id, and horovod_remove_process_set, which returns id. Both block
 * until they have. */
int horovod_add_process_set(const int *ranks, int nranks);
int horovod_remove_process_set(int id);
/* From this call on, a rank that shuts down in good order ends only the world and the process sets that it is in. Every
 * rank calls it after horovod_init, before any rank shuts down. Returns 0, or one of the errors. */
int gorovod_keep_process_sets(void);
/* horovod_add_process_set that also works after gorovod_keep_process_sets and the shutdown of other ranks. From then on
 * it does not wait for the other ranks. The ranks that are left make all such calls in the same order, and only for
 * sets of ranks that are left: nothing checks that. */
int gorovod_add_process_set_of_the_rest(const int *ranks, int nranks);
int horovod_process_set_rank(int id); /* this rank's number among the members */
int horovod_process_set_size(int id);
int horovod_process_set_included(int id);       /* 1: this rank is a member; 0: it is not */
int horovod_number_of_process_sets(void);
void horovod_process_set_ids(int *ids);            /* fills horovod_number_of_process_sets() numbers */
int horovod_process_set_ranks(int id, int *ranks); /* fills horovod_process_set_size(id) numbers, and returns how many */
/* The id of the process set whose ranks are those of comm, an MPI_Comm. MPICH's, an int, is passed as a pointer. */
int horovod_comm_process_set(void *comm);

/* The caller will wait for the operation at once, so the engine wakes no background thread for it. */
#define GOROVOD_WILL_WAIT 1u
/* If the operation succeeds, the engine releases the handle, and an output that the engine owns. The op must have
 * *status, since nothing else tells of the end. After a failure the handle stays. */
#define GOROVOD_RELEASE_IF_OK 2u
/* The calling thread does nothing else before the operation has ended, though it may wait elsewhere than in
 * gorovod_wait. From this the engine finds ranks whose main threads wait for one another. */
#define GOROVOD_HOLDS_CALLER 4u
/* input and output are copies, in host memory, of a device's memory. Such ranks may meet ranks whose tensors are on
 * devices, and neither may meet a rank whose tensor is in host memory of its own. */
#define GOROVOD_COPIED 8u
/* Of an allgather: the caller is going to add up what the members contribute, such as the values of sparse tensors. So
 * GOROVOD_NAN_CHECK looks at the input, if it is in host memory. */
#define GOROVOD_ADDS_UP 16u

/*
 * One operation. Zero the struct, set size to sizeof(gorovod_op), then the fields that
 * you need. Later versions may append fields; size tells which are there.
 */
typedef struct gorovod_op {
  uint32_t size;
  uint32_t flags;       /* GOROVOD_WILL_WAIT, GOROVOD_RELEASE_IF_OK, GOROVOD_HOLDS_CALLER, GOROVOD_COPIED, GOROVOD_ADDS_UP */
  int32_t type;         /* GOROVOD_ALLREDUCE, … */
  int32_t dtype;        /* GOROVOD_FLOAT32, … */
  int32_t reduce_op;    /* GOROVOD_SUM, … (allreduce, reducescatter, reduce) */
  int32_t root_rank;    /* world rank, also in a process set (broadcast, reduce) */
  int32_t process_set;  /* 0: the world */
  int32_t device;       /* -1: host memory; from 0 on: the CUDA device, as this process counts, of input and output */
  int32_t priority;     /* must be 0 */
  int32_t ndim;         /* 0 for a scalar */
  double prescale;      /* set 1.0 for no scaling: 0 multiplies by 0 */
  double postscale;
  const int64_t *shape; /* ndim lengths; copied */
  /* NUL-terminated UTF-8; copied. NULL for barrier and join. In a group NULL makes the name of the i-th of n
   * operations, from 1, GROUP_iofn. Otherwise NULL lets the engine name the operation: the seventh allreduce
   * without a name on its process set is allreduce.noname.7. At the end of a join all members count from 1 again. */
  const char *name;
  /* Contiguous data. It must stay valid and untouched until the operation is done. Other operations may read it
   * meanwhile. If an operation writes memory that another one in progress reads or writes, it fails on all ranks, as
   * GOROVOD_INVALID_ARGUMENT on this one. Three kinds may share memory, and run one after the other: operations of
   * one stream, broadcasts of one process set from one root, and equal allreduces in place with AVERAGE, MIN, MAX, BAND
   * or BOR without factors. */
  const void *input;
  /* Allreduce and broadcast: as large as input. It may equal input, but not overlap with it.
   * Reducescatter: room for this member's rows. These are shape[0] / size, and one more for the first
   * shape[0] % size members. It may be these rows of input itself, which stays as it is elsewhere. Or NULL.
   * Reduce: on the root as for allreduce; that of the other ranks may be NULL, and stays as it is.
   * Allgather and alltoall: NULL. For NULL the engine calls alloc, or owns the output itself. The input of an allgather
   * may be this member's rows of what alloc returns. */
  void *output;
  /* Optional: allocates the output once its shape is known. A NULL result fails the operation. It runs on a thread
   * of the engine or of a waiter, and must not call this library. */
  void *(*alloc)(void *context, size_t bytes, int ndim, const int64_t *shape);
  /* Optional: the engine polls it, and does not read the input before it returns non-zero. */
  int (*ready)(void *context);
  /* Optional: the engine calls it once when the operation has ended, on a thread of its own, with no lock held. It
   * may submit operations. reason is valid during the call. */
  void (*done)(void *context, int64_t handle, int status, const char *reason);
  void *context; /* handed to the three functions above */
  /* Alltoall: how many rows go to each member. nsplits is the size of the process
   * set, or 0 for the same number to all. Copied. */
  const int32_t *splits;
  int32_t nsplits;
  int32_t wire; /* GOROVOD_WIRE_NONE, … (allreduce); none: what GOROVOD_COMPRESSION says */
  /* Optional: GOROVOD_IN_PROGRESS from the submission until the operation has ended and its result is there; then
   * how it ended. The engine writes it last of all. So the caller sees without a call when all memory is its own
   * again. */
  int32_t *status;
  /* 0, or a stream of the process set: all members submit a stream's operations in one order. If an operation and
   * an earlier one of its stream use the same memory in a way that input forbids, it starts when the earlier one has
   * ended, and fails if that one has failed. */
  int64_t stream;
  /* Optional: the addresses of which input and output are copies, such as a GPU's. They are only compared: what input
   * says of memory that operations share holds for them in place of input and output. If output_of is given it
   * holds until the handle is released, since the caller brings the result there after the operation. */
  const void *input_of;
  const void *output_of;
  /* Of memory of a device: the CUDA stream (cudaStream_t) that makes the input and last used the output; 0 for the
   * default stream. The operation begins after all work that the stream has now, and neither the caller nor the stream
   * waits. ready is NULL, and alloc returns memory of the device. If the engine makes the output, it is there, too:
   * gorovod_take_output, then gorovod_free_on_device. */
  uintptr_t device_stream;
} gorovod_op;

/*
 * Submits op and returns at once. On success *handle > 0 names it until it is
 * released. Otherwise returns a status code, and gorovod_last_error() the reason.
 */
int gorovod_enqueue(const gorovod_op *op, int64_t *handle);
/*
 * Submits n operations of one type and process set, all of them or none. None starts before
 * all are ready on every member. name is the group's. If it is NULL, no operation may have a name
 * either, and the engine names the group, such as grouped_allreduce.noname.7.
 * A barrier or join cannot be in a group.
 */
int gorovod_enqueue_group(const char *name, const gorovod_op *const *ops, int n, int64_t *handles);
/* Sets done as if it had been in the op: the engine calls it once when the operation has ended, at once if it has
 * ended already. Call this at most once for each handle. */
int gorovod_on_done(int64_t handle, void (*done)(void *context, int64_t handle, int status, const char *reason),
                    void *context);
/* Memory for an output whose size the caller knows. */
typedef struct gorovod_memory {
  void *data;
  size_t bytes;
} gorovod_memory;
/* An op's alloc whose context is a gorovod_memory: the output goes there. If the output has another size, the
 * operation fails on this rank. */
void *gorovod_given_output(void *context, size_t bytes, int ndim, const int64_t *shape);
/* Work of a device. query(event) returns pending until the work is done; the engine calls it on any thread. For
 * example, query is cudaEventQuery and pending is cudaErrorNotReady. */
typedef struct gorovod_event {
  int (*query)(void *event);
  void *event;
  int pending;
} gorovod_event;
/* An op's ready whose context is a gorovod_event, which must stay valid until the operation has ended. Any result of
 * query but pending counts as done. So the next use of the device reports an error of the device. If the library of
 * query has a function …ThreadExchangeStreamCaptureMode, as CUDA's and HIP's have, query is called in the relaxed mode:
 * so it does not break the capture of a graph on another thread. */
int gorovod_event_complete(void *context);
/* GOROVOD_IN_PROGRESS, or how the operation ended. An unknown handle: GOROVOD_INVALID_ARGUMENT. For a caller that
 * asks again and again without sleep, its thread does a step of the engine's work each time. */
int gorovod_poll(int64_t handle);
/* As gorovod_poll, but waits up to timeout_ms for the end (< 0: without limit). Meanwhile the
 * caller's thread works for the engine. On failure gorovod_last_error() has the reason. */
int gorovod_wait(int64_t handle, int64_t timeout_ms);
/*
 * gorovod_enqueue and gorovod_wait in one call, for less than the two cost. op has the flags GOROVOD_WILL_WAIT and
 * GOROVOD_RELEASE_IF_OK, and no done. Returns
 *   GOROVOD_OK           it has succeeded; there is no handle, and *handle is 0
 *   another status code  if *handle is 0, op was refused. Otherwise *handle names the operation, which has failed, or goes
 *                        on for longer than timeout_ms: GOROVOD_IN_PROGRESS. It is released as GOROVOD_RELEASE_IF_OK says.
 */
int gorovod_run(const gorovod_op *op, int64_t timeout_ms, int64_t *handle);
/* Describes the output of a finished allgather, alltoall or reducescatter: *data (NULL if alloc made it), the
 * number of dimensions, and up to max_ndim lengths. Valid until the release. */
int gorovod_output(int64_t handle, void **data, int max_ndim, int *ndim, int64_t *shape);
/* Takes the engine-owned output out of the handle; the caller frees it with gorovod_free. */
int gorovod_take_output(int64_t handle, void **data);
/* After an alltoall: fills up to n with the rows from each member; returns the size
 * of the set, or -1 with an error. */
int gorovod_received_splits(int64_t handle, int n, int32_t *splits);
/*
 * Whether this process is to submit tensors of a CUDA device with that number in gorovod_op's device; else as copies in
 * host memory, with GOROVOD_COPIED. It says what GOROVOD_GPU asks for, and where that is auto, what this process can. The
 * first device that is asked for is the only one. Ranks may differ. The first call starts CUDA.
 */
int gorovod_takes_device(int device);
/* After an operation on memory of a device has ended well: has a stream of the caller wait until the result is there,
 * without waiting itself. With HOROVOD_ENABLE_ASYNC_COMPLETION=1 that may be later than the operation's end. Until then
 * the operation may use its memory. */
int gorovod_await_on_stream(int64_t handle, uintptr_t stream);
/* Waits until devices have done all operations that have ended for the caller. With HOROVOD_ENABLE_ASYNC_COMPLETION=1
 * that may be later than their end. GOROVOD_OK: their results are right. GOROVOD_IN_PROGRESS: timeout_ms passed first
 * (negative: no limit). GOROVOD_UNKNOWN_ERROR: the job has failed meanwhile, and results may be wrong, though
 * gorovod_await_on_stream has succeeded. So call it before you keep what an elastic job is to go back to. A device that
 * takes longer than four times HOROVOD_GLOO_TIMEOUT_SECONDS fails the job. */
int gorovod_settle(int64_t timeout_ms);
/* Frees an output that gorovod_take_output has taken from an operation on that device: NULL, if it was empty. It may wait
 * for the device. */
void gorovod_free_on_device(int device, void *data);
/* As gorovod_free_on_device, for an output of so many bytes that nobody uses any more when a stream of the caller has done
 * the work that it has now. It does not wait: the engine may keep the memory for other outputs. */
void gorovod_free_on_stream(int device, void *data, size_t bytes, uintptr_t stream);
/* The engine calls release when a device has no memory for what the engine needs. release gives back what the caller keeps
 * unused, then the engine tries again. It runs on a thread of the engine, one call at a time, and must not call this
 * library: gorovod_on_low_memory would wait for itself. All operations of the process wait for release. After 5 s they go
 * on, and until it has returned the engine goes without it. NULL: there is no such function. The call returns when the
 * function before is not running any more. */
void gorovod_on_low_memory(void (*release)(int device));
/* The operation's name, which the engine may have given; empty for an unknown handle. Valid until this thread's next
 * call, as the text of gorovod_last_error, which it replaces. */
const char *gorovod_name(int64_t handle);
/* After a join: the world rank that joined last, or -1 with an error. */
int gorovod_last_joined(int64_t handle);
void gorovod_free(void *data);
/*
 * Messages between two ranks, apart from the collectives. Messages of one sender
 * with one tag arrive in order. Both block, at most timeout_ms (< 0: without
 * limit) and return GOROVOD_IN_PROGRESS when the time is over. gorovod_send returns when
 * the caller may reuse data. label is any number of the caller's; it travels with the message. gorovod_recv
 * stores the message's length in *received and its label in *label (either may be NULL). If the message is
 * longer than bytes, gorovod_recv returns GOROVOD_INVALID_ARGUMENT, stores both nevertheless, and keeps the message.
 * A message that was sent before its sender has shut down still comes. After that a call that concerns this rank fails
 * with GOROVOD_UNKNOWN_ERROR, and gorovod_recv_any once all other ranks have shut down.
 */
int gorovod_send(int to, uint32_t tag, uint16_t label, const void *data, size_t bytes, int64_t timeout_ms);
int gorovod_recv(int from, uint32_t tag, void *data, size_t bytes, size_t *received, uint16_t *label,
                 int64_t timeout_ms);
/* As gorovod_recv, from any rank that has sent a message with this tag; *from (may be NULL) is that rank. */
int gorovod_recv_any(uint32_t tag, void *data, size_t bytes, int *from, size_t *received, uint16_t *label,
                     int64_t timeout_ms);
/* As gorovod_recv_any, from any of these ranks; NULL and 0 stand for all. */
int gorovod_recv_among(const int *ranks, int count, uint32_t tag, void *data, size_t bytes, int *from,
                       size_t *received, uint16_t *label, int64_t timeout_ms);
/*
 * For a job that horovodrun has not started: rank 0 serves the rendezvous at the address host, on a port
 * that the system chooses. Before horovod_init the ranks set HOROVOD_RANK, HOROVOD_SIZE and so on,
 * HOROVOD_GLOO_RENDEZVOUS_ADDR and _PORT, and HOROVOD_SECRET_KEY, which is key in hexadecimal. The
 * process serves until it ends or calls this again.
 */
int gorovod_serve(const char *host, const void *key, size_t key_bytes, int size, int *port);
/*
 * Sparse tables: rows of float32 under keys of 64 bits, divided among the members of a process set by their keys. A pull
 * brings the rows of a batch's distinct keys, and makes rows that the table lacks. A push changes rows by their gradients,
 * at the member that has them, as the table's optimizer does: gradients of the members are added in the order of their
 * ranks. Pulls and pushes are operations of the process set, named for the table: all members submit as many, and one of
 * each kind may be in progress for a table. A member that has joined goes on serving its rows. To have the same bits in
 * each run, let no pull and push of a table be in progress at a time.
 *
 *   gorovod_table_create -> gorovod_lookup -> gorovod_pull -> gorovod_push -> gorovod_lookup_release
 */
typedef struct gorovod_table {
  uint32_t size;        /* sizeof(gorovod_table); zero the struct first */
  int32_t process_set;
  const char *name;     /* UTF-8, of its own in the process set */
  int64_t keys;         /* 0: every key is possible; otherwise those from 0 to keys - 1 */
  uint64_t seed;        /* new rows depend on it, the name and the key alone */
  int32_t dim;          /* the length of a row */
  const char *init;     /* of new rows: "normal" (also for NULL), "uniform" or "zeros" */
  const char *optimizer; /* "sgd", "adagrad", "rowwise_adagrad", "adam" or "ftrl" */
  float scale;          /* the standard deviation, or the bound of "uniform"; below 0: 1 / sqrt(dim) */
  /* The optimizer's; below 0: its default. A push has a learning rate of its own. */
  float rate, epsilon, initial_accumulator, beta1, beta2, beta, l1, l2;
  /* Which keys have rows. 0 everywhere: each key, from its first pull on, for ever. A pull counts once for a key, however
   * many ranks ask for it. */
  uint32_t admit_after; /* the number of the pull to train with which a key gets its row; before, it reads as zeros */
  uint32_t evict_idle;  /* for how many pushes a row stays that nobody pulls or changes */
  uint32_t evict_keep;  /* rows with as many pulls stay all the same; 0: none */
  int64_t max_rows;     /* about how many rows all ranks keep together: the last used ones */
  int64_t number;       /* what *table becomes, from gorovod_table_reserve; 0: a new number */
} gorovod_table;
/* Makes a table. All members of its process set call it with equal descriptions, and it blocks until they have. *table > 0
 * names it until the process set or the job ends. */
int gorovod_table_create(const gorovod_table *description, int64_t *table);
/* A number for a table that is made later, and again in each world of an elastic job. Each rank has its own. Until the table
 * is made, calls with its number fail as for an unknown one. It may have the number of a table whose world has ended. */
int64_t gorovod_table_reserve(void);
/* How many rows this rank has; -1 for an unknown table. */
int64_t gorovod_table_rows(int64_t table);
/* The length of a table's rows; -1 for an unknown table. */
int gorovod_table_dim(int64_t table);
/* Finds the distinct keys of a batch of n keys, and writes for each key the place of its row among theirs to index. If
 * padding is not NULL, *padding is a key that has no row: its place is *distinct. A key out of range is no error here:
 * the lookup's pull fails with it, on all ranks. *lookup > 0 keeps a copy of the keys until its release. */
int gorovod_lookup(int64_t table, const int64_t *keys, int64_t n, const int64_t *padding, int64_t *index, int64_t *distinct,
                   int64_t *lookup);
/* Has the pulls and pushes of a lookup fail from now on: here as GOROVOD_INVALID_ARGUMENT with this reason, and on the other
 * ranks, which learn it, too. For a caller that cannot use the rows, or has no proper gradients. The first reason stays. */
int gorovod_lookup_refuse(int64_t lookup, const char *reason);
/* Submits the pulls of n lookups of tables of one process set, as a group if there are several, with one exchange for all.
 * rows[i] has room for the distinct keys of lookups[i]. Wait for the handles by gorovod_wait, and release them. flags:
 * GOROVOD_WILL_WAIT, GOROVOD_LOOKS. */
#define GOROVOD_LOOKS 32u /* make no rows: those that the table lacks read as they would be made */
int gorovod_pull(int n, const int64_t *lookups, float *const *rows, uint32_t flags, int64_t *handles);
/* Submits the pushes of n lookups, as gorovod_pull: gradients[i] has those of the distinct keys. All ranks give the same
 * learning rate. flags: GOROVOD_WILL_WAIT. */
int gorovod_push(int n, const int64_t *lookups, const float *const *gradients, float rate, uint32_t flags, int64_t *handles);
/* Forgets a lookup. Its operations go on. */
void gorovod_lookup_release(int64_t lookup);
/* Saves a table to a directory that all members name, and that all their hosts share, or makes a table that of a save, of
 * any number of ranks. All members call it between two pushes, and it blocks. A failure is one on all members. A save is
 * whole or absent: an earlier one in the directory stays until the new one is whole. A save that is damaged or of another
 * table leaves the table as it is. No pull may be in progress at a load. */
int gorovod_table_save(int64_t table, const char *directory);
int gorovod_table_load(int64_t table, const char *directory);
/* Saves a table beside the checkpoints (GOROVOD_CHECKPOINT_DIR), for a commit of an elastic job, and loads such a save. part
 * is 0 for the commit itself, and counts what is saved between it and the next one. number is -1 before the first
 * commit. All ranks call them. Saves stay until no rank and no checkpoint can need them. */
int gorovod_table_commit(int64_t table, int64_t number, int part);
int gorovod_table_restore(int64_t table, int64_t number, int part);
/* How many pushes the table has had, those before its last load among them; -1 for an unknown table. */
int64_t gorovod_table_pushes(int64_t table);
/* Copies this rank's rows: those of the slots from *slot on, as many whole slots as have at most n rows, and returns how
 * many rows it has copied. *slot becomes the first slot that is left, 4096 at the end. If slot *slot alone has more than
 * n rows, the result is minus their number. It is GOROVOD_TABLE_UNKNOWN for bad arguments. Row i has keys[i], and its
 * numbers from weights[dim * i] on. The rows of a slot ascend by their keys. */
#define GOROVOD_TABLE_SLOTS 4096
#define GOROVOD_TABLE_UNKNOWN INT64_MIN
int64_t gorovod_table_copy(int64_t table, int32_t *slot, int64_t n, int64_t *keys, float *weights);
/*
 * Elastic jobs. The driver, in the launcher, gives each process its place at every horovod_init. A process commits
 * its state now and then. Commits have numbers from 0 on, the same on all ranks. The process with the newest commit
 * becomes rank 0 of the next world.
 */
enum {
  GOROVOD_NOT_ELASTIC = 0,
  GOROVOD_ELASTIC_MEMBER = 1,
  GOROVOD_ELASTIC_DISMISSED = 2, /* the job has no place for this process any more: the process must end, with code 0 */
  GOROVOD_ELASTIC_ABANDONED = 3  /* the launcher is gone: the process must end */
};
/* What this process is; GOROVOD_NOT_ELASTIC before horovod_init. */
int gorovod_elastic(void);
/* The driver's news of the hosts since the last horovod_init; each call takes it away. 0 nothing, 1 some hosts go, 2
 * some have come, 3 both. *stamp is the time in seconds, greater each time. */
int gorovod_elastic_updates(int64_t *stamp);
/* Waits until gorovod_elastic_updates has news, and returns 1; 0 after timeout_ms (< 0: without limit); -1 if no news
 * can come, because the job is not elastic or the launcher is gone. One thread at a time may call it. */
int gorovod_elastic_await(int64_t timeout_ms);
/* This process holds the state of a commit. */
void gorovod_elastic_committed(int64_t number);
/* This process has the same state as all others, and needs no other after the next horovod_init. */
void gorovod_elastic_intact(void);
/* 0 if every rank called gorovod_elastic_intact before the last horovod_init. */
int gorovod_elastic_needs_sync(void);
/* 1 if this process must write the state of commit number to a disk (GOROVOD_CHECKPOINT_DIR, _EVERY). With final,
 * every commit counts, not only each GOROVOD_CHECKPOINT_EVERY-th. With a negative number: 1 if the job writes commits
 * at all, the same on all ranks. */
int gorovod_checkpoint_due(int64_t number, int final);
/* Writes the state of a commit. The file is complete or not there. Blocks until the disk has it. While the job runs, a
 * full disk, or any failure in a directory that has worked for this process, is a warning, and the result is 0. */
int gorovod_checkpoint_save(int64_t number, const void *data, size_t bytes);
/* Reads the newest intact state; *number is -1 if there is none. The caller frees *data with gorovod_free. */
int gorovod_checkpoint_load(int64_t *number, void **data, size_t *bytes);
/*
 * This rank's program has failed, for example by an exception that nobody catches. Every operation that is pending
 * or that a rank submits later, on every rank, fails and names this rank and reason ("raised ValueError: …"). So
 * does the launcher. The function does nothing before horovod_init and after a failure.
 */
void gorovod_fail(const char *reason);
/* The failure, of this rank or another, that has ended the operations of this process; empty if there is none. Valid
 * until this thread's next call, as the text of gorovod_last_error, which it replaces. */
const char *gorovod_failure(void);
/* Forgets the handle. An operation in progress goes on, and its result is dropped. */
int gorovod_release(int64_t handle);
/* The reason of this thread's last failed call; empty if none. Valid until the next call. */
const char *gorovod_last_error(void);
/* This library's version, such as "0.1.0". */
const char *gorovod_version(void);
/*
 * The facts of the operations, as JSON, for front ends: an object of lists. Each member of a list has a name and
 * the number that gorovod_op takes for it. Later versions may add fields.
 *   element_types  bytes: the size of one element
 *   reduce_ops
 *   wires          types: the element_types whose sums and averages have that form; keeps: whether ranks keep errors
 *   operations     reduce_ops: the numbers that it takes, each with the element_types that it can combine; output:
 *                  "nothing", "like input", "on root only", "of all" ranks' rows, "sent" rows, or this rank's
 *                  "own rows"; rooted: whether root_rank means something
 */
const char *gorovod_facts(void);
/* Writes to the file descriptor out, as lines for people, what this process has of CUDA. It starts CUDA. CUDA's and NCCL's
 * libraries may hang or end the process, so each call into them is written to the descriptor calls before it is made, as a
 * line "gorovod calls FUNCTION of FILE". */
void gorovod_cuda_report(int out, int calls);
/* As gorovod_cuda_report, but writes what this process has of NCCL, and how it moves tensors of GPUs. */
void gorovod_nccl_report(int out, int calls);
/* As horovod_nccl_built, but returns -1 if the answer is not known within timeout_ms: ask again. CUDA's and NCCL's libraries
 * may hang; after HOROVOD_GLOO_TIMEOUT_SECONDS a line in the log names the call, and the answer is 0. */
int gorovod_await_nccl_built(int64_t timeout_ms);
/* The version code of the NCCL that collectives of this process can use, as horovod_nccl_built, or 0. Unlike that it starts
 * CUDA, so 0 also says that CUDA does not start, or sees no device. calls is as for gorovod_cuda_report. */
int gorovod_usable_nccl(int calls);
/* How many rows of a reducescatter of rows rows the given rank of a process set of that size gets; -1 for impossible
 * arguments. */
int64_t gorovod_share(int64_t rows, int rank, int size);
/* The first of those rows, counted from 0; -1 for impossible arguments. */
int64_t gorovod_share_begin(int64_t rows, int rank, int size);
/* A digest of 128 bits (XXH3) of memory, the same on every machine, for comparing what ranks have. It does not keep out
 * who wants two contents to look alike. */
void gorovod_digest(const void *data, size_t bytes, uint64_t digest[2]);
/* What all ranks have agreed on for GOROVOD_CONSISTENCY: after how many steps each a front end compares parameters; 0
 * for never, and before horovod_init. */
int gorovod_consistency_steps(void);
/*
 * What this rank has counted since horovod_init, as a JSON object; NULL before horovod_init. The caller frees the text
 * with gorovod_free. Later versions may add fields.
 *   rank, size
 *   bucket_bounds  the upper limits of a histogram's buckets in seconds. Histograms have one bucket more, of all that
 *                  took longer. Each bucket counts only what is not in the one before.
 *   collectives    a list: op, size_class (the largest size of the class), count, seconds, buckets and bytes of what
 *                  has been executed. Fused tensors are one collective. bus_bytes / seconds is the bus bandwidth.
 *   tensors        a list: op, dtype, process_set and count of the operations that the program submitted
 *   wire           a list: link (shm, tcp, mpi or nccl), nic (where it is known), size_class of the collectives, the
 *                  bytes that this rank has sent in them, and the seconds that they took
 *   tables         a list: name, process_set, rows and bytes of this rank's part of each sparse table (the last 64),
 *                  hottest (the share of its lookups that goes to the 16 hottest keys, an estimate), pulls, pull_seconds,
 *                  pushes, push_seconds, and the keys, distinct ones of each batch, that it has pulled
 *   negotiation    count, seconds and buckets: from a tensor's submission until all ranks have submitted it
 *   steps          count, seconds and buckets: from one reduction of the largest tensor whose name comes again and again
 *                  to the next one. A training loop has one in each step.
 *   samples        what gorovod_count_samples has counted
 *   wait_seconds   the time in which at least one tensor waited for other ranks
 *   waited_for     a list: rank and seconds, of which ranks were the last to submit what this rank waited for
 *   cache          hits and misses of the response cache
 *   fusion         collectives, tensors and bytes of what could fuse, and the threshold in bytes
 *   early          operations whose result came with the agreement on them, and how many bytes of a rank's small tensors
 *                  may travel so at a time
 *   nans           see gorovod_counters
 *   pending, oldest_pending_seconds
 *                  operations that have not ended, and the age of the oldest
 */
char *gorovod_metrics(void);
/* Counts samples that this rank has worked through, for gorovod_metrics and for those who watch the job. -1 if there is
 * no job, or if samples is below 0. It takes some nanoseconds. */
int gorovod_count_samples(int64_t samples);
/* For Python's front ends: says where CPython keeps the stack of the calling thread, so that those who watch the job see
 * where the program is while other ranks wait for it. facts are the major and minor version, the addresses of the
 * thread's PyThreadState, its ident, the addresses of the types code, str and bytes, and the line of the call in the
 * Python function that makes it. file is the last two parts of the path of that function, function its qualified name
 * (before 3.11 its name). The stack is read without the GIL, and never by a pointer. -1 if this build of Python is not
 * known. */
int gorovod_offer_stack(const uint64_t facts[8], const char *file, const char *function);
/* Counters for diagnosis: fills up to n, returns how many exist. Index: 0 driver wake-ups,
 * 1 operations executed, 2 batches executed, 3 requests sent, 4 cards marked, 5 bytes that compression keeps of tensors by their names,
 * 6 tensors that this rank contributed with a NaN or an infinity (only with GOROVOD_NAN_CHECK). */
int gorovod_counters(int64_t *values, int n);

#ifdef __cplusplus
}
#endif
#endif
