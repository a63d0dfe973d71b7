/*
 * What the Go side and the C side know of each other. The C side loads a libmpi at
 * run time and calls it through its binary interface, of which there are three:
 *
 *   Open MPI          a handle is the address of an object that the library exports
 *   MPICH             a handle is an int with a fixed value (Intel MPI, MVAPICH, Cray)
 *   MPI 5's standard  a handle is a pointer with a small fixed value (libmpi_abi.so)
 *
 * The Go side sees handles as uintptr_t, whatever they are.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GOROVOD_LIBMPI_H
#define GOROVOD_LIBMPI_H

#include <stdint.h>

enum { GV_REASON_BYTES = 512 };

enum gv_abi { GV_OPEN_MPI = 1, GV_MPICH = 2, GV_STANDARD = 3 };

/* The functions that are looked up, all of MPI 3.0. The first ones may be called before MPI is
 * initialised and after it has been finalized. */
#define GV_FUNCTIONS(X)                                                                                              \
  X(Initialized) X(Finalized) X(Get_library_version) X(Error_string) X(Init_thread) X(Query_thread) X(Finalize)      \
  X(Comm_rank) X(Comm_size) X(Comm_idup) X(Comm_free) X(Comm_set_errhandler) X(Comm_group) X(Comm_create_group)      \
  X(Group_incl) X(Group_size) X(Group_translate_ranks) X(Group_free) X(Op_create) X(Test) X(Isend) X(Irecv)          \
  X(Ibarrier) X(Ibcast) X(Iallreduce) X(Iallgatherv) X(Ialltoallv) X(Ireduce_scatter)

#define GV_NUMBER(name) GV_##name,
enum gv_function { GV_FUNCTIONS(GV_NUMBER) GV_FUNCTION_COUNT, GV_LAST_AT_ANY_TIME = GV_Init_thread };
#undef GV_NUMBER

/* A code that no MPI has: the call was not made, because MPI has been finalized. */
enum { GV_FINALIZED = -1 };

/* Element types and operations, in the order of package tensor. For the types that MPI
 * lacks, float16, bfloat16 and bool, unsigned integers of the same size stand in. */
enum { GV_DTYPES = 11, GV_OPS = 9 };

/* A loaded libmpi. */
struct gv_library {
  enum gv_abi abi;
  void *function[GV_FUNCTION_COUNT];
  uintptr_t world, null, byte, errors_return; /* null: MPI_COMM_NULL */
  uintptr_t dtype[GV_DTYPES];
  uintptr_t op[GV_OPS]; /* 0 where MPI has none */
  void *status_ignore;
  int thread_single, thread_serialized, thread_multiple;
};

/* One call of a libmpi: the function, the arguments, of which each function has some, and
 * the results. */
struct gv_call {
  enum gv_function what;
  uintptr_t in, out; /* no pointers, because Go would follow those that an earlier call has left here */
  int64_t count; /* elements, or ranks in a list */
  uintptr_t comm, dtype, op;
  int peer, tag; /* peer: the root of a broadcast */
  int *counts, *places, *recv_counts, *recv_places;
  int dtype_number, op_number; /* Op_create, in the order of package tensor */

  uintptr_t request; /* Test gets it, and clears it when it has ended */
  uintptr_t made;    /* a new communicator or operation */
  int result, second;
  int code; /* MPI's */
};

/* Loads name. If name is NULL, it takes the library that is initialised in this process; else one that suits the
 * launcher, preferably one that the process has loaded; else any. Returns 0, or -1 and the reason in why. path is what
 * was loaded. */
int gv_load(struct gv_library *library, const char *name, char path[GV_REASON_BYTES], char why[GV_REASON_BYTES]);

/* Whether a libmpi of this process has been initialised, whichever it is. */
int gv_in_use(void);

/* Makes the call, and leaves its results in it. */
void gv_run(const struct gv_library *library, struct gv_call *call);

/* The two forms of gv_run: handles are pointers, or ints. */
void gv_run_pointer(const struct gv_library *library, struct gv_call *call);
void gv_run_int(const struct gv_library *library, struct gv_call *call);

/* The function that combines elements for MPI where MPI cannot; NULL where there is none. */
typedef void gv_reducer(void *in, void *inout, int *count, void *datatype);
gv_reducer *gv_reducer_of(int dtype_number, int op_number);

/* Lets every signal's handler run on the alternate stack, as Go needs it. */
void gv_signals_on_alternate_stack(void);

/* Has goMPIAtExit called when the process ends, but not in a forked child. */
void gv_at_exit(void);

/* Ends the process with the code that C's exit was given, without the remaining handlers of exit. Returns if that code
 * is not known. */
void gv_exit_now(void);

/* Notes that this thread calls MPI_Finalize. */
void gv_note_finalizing(void);

/* Halts the thread that calls MPI_Finalize, for ever. Returns 1 if it has halted within a second, otherwise 0. */
int gv_halt_finalizing(void);

/* A communicator's handle from a program's array of MPI_Comm, and from an argument. */
uintptr_t gv_handle_at(const struct gv_library *library, const void *array, int index);
uintptr_t gv_handle_of(const struct gv_library *library, uintptr_t argument);

#endif
