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
  GOROVOD_UNKNOWN_ERROR = 1,      /* execution failed, a rank died, shut down */
  GOROVOD_PRECONDITION_ERROR = 2, /* ranks disagree; not initialised */
  GOROVOD_ABORTED = 3,
  GOROVOD_INVALID_ARGUMENT = 4,
  GOROVOD_IN_PROGRESS = 5
};

/* Element types, as in Horovod; GOROVOD_BFLOAT16 is an addition. */
enum {
  GOROVOD_UINT8 = 0, GOROVOD_INT8 = 1, GOROVOD_UINT16 = 2, GOROVOD_INT16 = 3,
  GOROVOD_INT32 = 4, GOROVOD_INT64 = 5, GOROVOD_FLOAT16 = 6, GOROVOD_FLOAT32 = 7,
  GOROVOD_FLOAT64 = 8, GOROVOD_BOOL = 9, GOROVOD_BFLOAT16 = 10
};

/* Operations (Horovod's request types). */
enum {
  GOROVOD_ALLREDUCE = 0, GOROVOD_ALLGATHER = 1, GOROVOD_BROADCAST = 2,
  GOROVOD_JOIN = 3, GOROVOD_ALLTOALL = 5, GOROVOD_BARRIER = 6, GOROVOD_REDUCESCATTER = 7
};

/* Reduce operations, as in Horovod. */
enum {
  GOROVOD_AVERAGE = 0, GOROVOD_SUM = 1, GOROVOD_ADASUM = 2,
  GOROVOD_MIN = 3, GOROVOD_MAX = 4, GOROVOD_PRODUCT = 5
};

/* How an allreduce travels between hosts: as it is, or in 16 bits a number, while
 * sums are made in the tensor's own type. It has an effect on sums and averages of
 * float32 and float64. */
enum { GOROVOD_WIRE_NONE = 0, GOROVOD_WIRE_FP16 = 1, GOROVOD_WIRE_BF16 = 2 };

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
bool horovod_init(const int *ranks, int nranks, const int *process_set_ranks,
                  const int *process_set_sizes, int num_process_sets);
/* comm is an array of ncomms MPI_Comm. The ranks are the processes of the first, whatever the environment
 * says; each other one, of some of these, makes a process set. MPI must be initialised. If it fails,
 * it prints why, too. */
bool horovod_init_multi_comm(void *comm, int ncomms, const int *process_set_ranks_via_ranks,
                             const int *process_set_sizes_via_ranks,
                             int num_process_sets_via_ranks);
void horovod_shutdown(void);
int horovod_is_initialized(void);
int horovod_rank(void);
int horovod_size(void);
int horovod_local_rank(void);
int horovod_local_size(void);
int horovod_cross_rank(void);
int horovod_cross_size(void);
bool horovod_is_homogeneous(void);
int horovod_start_timeline(const char *file_name, bool mark_cycles);
int horovod_stop_timeline(void);
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

/* Process sets. Set 0 is the world. */
int horovod_add_process_set(const int *ranks, int nranks);
int horovod_remove_process_set(int id);
int horovod_process_set_rank(int id);
int horovod_process_set_size(int id);
int horovod_process_set_included(int id);
int horovod_number_of_process_sets(void);
void horovod_process_set_ids(int *ids);
int horovod_process_set_ranks(int id, int *ranks);
/* comm is an MPI_Comm: an int of MPICH's is passed as a pointer. */
int horovod_comm_process_set(void *comm);

/* The caller will wait for the operation at once: no background thread is woken for it. */
#define GOROVOD_WILL_WAIT 1u
/* The handle is released when the operation has ended well, and an output that the engine
 * owns with it: only *status tells of that, so it is needed. After a failure the handle stays. */
#define GOROVOD_RELEASE_IF_OK 2u

/*
 * One operation. Zero the struct, set size to sizeof(gorovod_op), then what is
 * needed. Fields may be appended in later versions; size tells which are there.
 */
typedef struct gorovod_op {
  uint32_t size;
  uint32_t flags;       /* GOROVOD_WILL_WAIT, GOROVOD_RELEASE_IF_OK */
  int32_t type;         /* GOROVOD_ALLREDUCE, … */
  int32_t dtype;        /* GOROVOD_FLOAT32, … */
  int32_t reduce_op;    /* GOROVOD_SUM, … (allreduce, reducescatter) */
  int32_t root_rank;    /* world rank, also in a process set (broadcast) */
  int32_t process_set;  /* 0: the world */
  int32_t device;       /* -1: host memory, the only one now */
  int32_t priority;     /* must be 0 */
  int32_t ndim;         /* 0 for a scalar */
  double prescale;      /* 0 is taken as it stands: set 1.0 for no scaling */
  double postscale;
  const int64_t *shape; /* ndim lengths; copied */
  /* NUL-terminated UTF-8; copied. NULL for barrier and join, and in a group, where
   * the i-th of n operations, from 1, is then called GROUP_iofn. NULL otherwise: the engine
   * names the operation, such as allreduce.noname.7 if it is the seventh allreduce without a
   * name on its process set. At the end of a join all members count from 1 again. */
  const char *name;
  /* Contiguous data; must stay valid and untouched until the operation is done. Other operations may read it
   * meanwhile; one that writes what another one in progress reads or writes fails on all ranks, as
   * GOROVOD_INVALID_ARGUMENT on this one, unless both are of one stream. Broadcasts of one process set from one root
   * may share memory, and so may equal allreduces in place with AVERAGE, MIN or MAX without factors: they run one
   * after the other. */
  const void *input;
  /* Same size as input for allreduce and broadcast; may equal input, not overlap with it. This member's
   * rows for reducescatter: shape[0] / size, and one more for the first
   * shape[0] % size members. NULL for allgather and alltoall, and if wanted for
   * reducescatter: the engine then calls alloc, or owns the output itself. */
  void *output;
  /* Optional: allocates the output once its shape is known; NULL result fails the
   * operation. Called on a thread of the engine, or of a waiter; may not call back. */
  void *(*alloc)(void *context, size_t bytes, int ndim, const int64_t *shape);
  /* Optional: the input may not be read before this returns non-zero. Polled. */
  int (*ready)(void *context);
  /* Optional: called once when the operation has ended, on a thread of its own,
   * with no lock held; may submit operations. reason is valid during the call. */
  void (*done)(void *context, int64_t handle, int status, const char *reason);
  void *context; /* handed to the three functions above */
  /* Alltoall: how many rows go to each member. nsplits is the size of the process
   * set, or 0 for the same number to all. Copied. */
  const int32_t *splits;
  int32_t nsplits;
  int32_t wire; /* GOROVOD_WIRE_NONE, … (allreduce); none: what GOROVOD_COMPRESSION says */
  /* Optional: from the submission on this is GOROVOD_IN_PROGRESS, until the operation has
   * ended and its result is there: then, how it ended. The engine writes it last of
   * all, so that it tells without a call when all memory is the caller's again. */
  int32_t *status;
  /* Other than 0: a stream of the process set, whose operations all members submit in one order. One that uses
   * memory of an earlier one of its stream that has not ended, in a way that input forbids, starts when that one has
   * ended, and fails if that one has failed. */
  int64_t stream;
} gorovod_op;

/*
 * Submits op and returns at once. On success *handle > 0 names it until it is
 * released. Otherwise returns a status code, and gorovod_last_error() the reason.
 */
int gorovod_enqueue(const gorovod_op *op, int64_t *handle);
/*
 * Submits n operations of one type and process set, of which none starts before
 * all are ready on every member: either all of them or none. name is the group's; NULL, where
 * no operation may have a name either: the engine names it, such as grouped_allreduce.noname.7.
 * A barrier or join cannot be in a group.
 */
int gorovod_enqueue_group(const char *name, const gorovod_op *const *ops, int n, int64_t *handles);
/* Has done called once when the operation has ended, on a thread of its own, as if it had been
 * in the op; at once if it has ended. One such call for each handle. */
int gorovod_on_done(int64_t handle, void (*done)(void *context, int64_t handle, int status, const char *reason),
                    void *context);
/* Memory for an output whose size is known before. */
typedef struct gorovod_memory {
  void *data;
  size_t bytes;
} gorovod_memory;
/* An op's alloc whose context is a gorovod_memory: the output goes there, and the operation fails
 * on this rank if it has not that size. */
void *gorovod_given_output(void *context, size_t bytes, int ndim, const int64_t *shape);
/* Something that a device has yet to do. query(event) returns pending until it is done, and may be called on
 * any thread: cudaEventQuery and cudaErrorNotReady, for example. */
typedef struct gorovod_event {
  int (*query)(void *event);
  void *event;
  int pending;
} gorovod_event;
/* An op's ready whose context is a gorovod_event, which must stay valid until the operation has ended. Whatever else
 * query returns counts as done, so that an error of the device is told by whoever uses it next. */
int gorovod_event_complete(void *context);
/* GOROVOD_IN_PROGRESS, or how the operation ended. An unknown handle: GOROVOD_INVALID_ARGUMENT. */
int gorovod_poll(int64_t handle);
/* As gorovod_poll, but waits up to timeout_ms for the end (< 0: without limit). The
 * caller's thread works for the engine meanwhile. On failure gorovod_last_error()
 * tells the reason. */
int gorovod_wait(int64_t handle, int64_t timeout_ms);
/* Describes the output of a finished allgather, alltoall or reducescatter: *data (NULL if alloc made it), the
 * number of dimensions, and up to max_ndim lengths. Valid until the release. */
int gorovod_output(int64_t handle, void **data, int max_ndim, int *ndim, int64_t *shape);
/* Takes the engine-owned output out of the handle; the caller frees it with gorovod_free. */
int gorovod_take_output(int64_t handle, void **data);
/* After an alltoall: fills up to n with the rows from each member; returns the size
 * of the set, or -1 with an error. */
int gorovod_received_splits(int64_t handle, int n, int32_t *splits);
/* The operation's name, which the engine may have given; empty for an unknown handle. As gorovod_last_error
 * otherwise, whose value it replaces. */
const char *gorovod_name(int64_t handle);
/* After a join: the world rank that joined last, or -1 with an error. */
int gorovod_last_joined(int64_t handle);
void gorovod_free(void *data);
/*
 * Messages between two ranks, apart from the collectives. Messages of one sender
 * with one tag arrive in order. Both block, at most timeout_ms (< 0: without
 * limit) and return GOROVOD_IN_PROGRESS when the time is over. gorovod_send returns when
 * data may be reused; label is the caller's, and travels with the message. gorovod_recv
 * stores the message's length in *received and its label in *label (either may be NULL); one
 * that is longer than bytes is GOROVOD_INVALID_ARGUMENT, and is kept: these tell of it all the same.
 */
int gorovod_send(int to, uint32_t tag, uint16_t label, const void *data, size_t bytes, int64_t timeout_ms);
int gorovod_recv(int from, uint32_t tag, void *data, size_t bytes, size_t *received, uint16_t *label,
                 int64_t timeout_ms);
/* As gorovod_recv, from whichever rank has sent a message with this tag; *from (may be NULL) is that rank. */
int gorovod_recv_any(uint32_t tag, void *data, size_t bytes, int *from, size_t *received, uint16_t *label,
                     int64_t timeout_ms);
/*
 * For a job that horovodrun has not started: rank 0 serves the rendezvous, on a port
 * of the address host that the system chooses. Its ranks then set HOROVOD_RANK, HOROVOD_SIZE and so
 * on, HOROVOD_GLOO_RENDEZVOUS_ADDR and _PORT, and HOROVOD_SECRET_KEY, which is key in hexadecimal, before
 * horovod_init. It is served until the process ends or calls this again.
 */
int gorovod_serve(const char *host, const void *key, size_t key_bytes, int size, int *port);
/*
 * Elastic jobs, whose driver in the launcher gives each process its place at every horovod_init. A process
 * keeps states, which it commits now and then, under numbers from 0 on that are the same on all ranks;
 * whoever has the newest commit becomes rank 0 of the next world.
 */
enum {
  GOROVOD_NOT_ELASTIC = 0,
  GOROVOD_ELASTIC_MEMBER = 1,
  GOROVOD_ELASTIC_DISMISSED = 2, /* there is no place for this process any more: it is to end, with code 0 */
  GOROVOD_ELASTIC_ABANDONED = 3  /* the launcher is gone: it is to end */
};
/* What this process is; GOROVOD_NOT_ELASTIC before horovod_init. */
int gorovod_elastic(void);
/* What the driver has said of the hosts since the last horovod_init, once: 0 nothing, 1 some are to go, 2
 * some have come, 3 both; *stamp is the time in seconds, greater each time. */
int gorovod_elastic_updates(int64_t *stamp);
/* Waits, on one thread at a time, until gorovod_elastic_updates has something to say, which is 1: at most timeout_ms,
 * then 0; a negative time is for ever. -1 if nothing will come, outside of elastic jobs or without the launcher. */
int gorovod_elastic_await(int64_t timeout_ms);
/* This process holds the state of a commit. */
void gorovod_elastic_committed(int64_t number);
/* This process has the same state as all others, and needs no other after the next horovod_init. */
void gorovod_elastic_intact(void);
/* 0 if all ranks that the last horovod_init has brought together have said that. */
int gorovod_elastic_needs_sync(void);
/* 1 if it is up to this process to write the state of a commit to a disk (GOROVOD_CHECKPOINT_DIR, _EVERY); final:
 * whatever commit it is. With a negative number: 1 if commits are written at all, the same on all ranks. */
int gorovod_checkpoint_due(int64_t number, int final);
/* Writes it, as a whole or not at all. Blocks until the disk has it. */
int gorovod_checkpoint_save(int64_t number, const void *data, size_t bytes);
/* Reads the newest state that was written as it was written; *number is -1 if there is none. The caller
 * frees *data with gorovod_free. */
int gorovod_checkpoint_load(int64_t *number, void **data, size_t *bytes);
/*
 * This rank's program has failed, as by an exception that nobody catches: every operation that is pending
 * or comes, on every rank, fails and names this rank and reason ("raised ValueError: …"), and so does the
 * launcher. Does nothing before horovod_init and after a failure.
 */
void gorovod_fail(const char *reason);
/* The failure, of this rank or another, that has ended the operations of this process; empty if there is none. As
 * gorovod_last_error otherwise, whose value it replaces. */
const char *gorovod_failure(void);
/* Forgets the handle. Of an operation in progress: it goes on, its result is dropped. */
int gorovod_release(int64_t handle);
/* The reason of this thread's last failed call; empty if none. Valid until the next call. */
const char *gorovod_last_error(void);
/* This library's version, such as "0.1.0". */
const char *gorovod_version(void);
/*
 * What there is to know of the operations, as JSON, for front ends: an object of lists, whose members have a name and
 * the number that gorovod_op takes for it. Fields may be added in later versions.
 *   element_types  bytes: of one element
 *   reduce_ops
 *   wires
 *   operations     reduce_ops: the numbers that it takes, each with the element_types that it can combine so; output:
 *                  "nothing", "like input", "of all" ranks' rows, "sent" rows, or this rank's "own rows"; rooted:
 *                  whether root_rank means something
 */
const char *gorovod_facts(void);
/* How many of the rows of a reducescatter are those of the given rank of a process set of that size; -1 for what
 * cannot be. */
int64_t gorovod_share(int64_t rows, int rank, int size);
/* Counters for diagnosis: fills up to n, returns how many exist. Index: 0 driver wake-ups,
 * 1 operations executed, 2 batches executed, 3 requests sent, 4 slots marked. */
int gorovod_counters(int64_t *values, int n);

#ifdef __cplusplus
}
#endif
#endif
