/*
 * The functions that the Go side calls. Each call that concerns a device runs in that device's context. Handles and
 * addresses are passed as uintptr_t, because Go would take pointers for its own.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GOROVOD_NCCL_CALLS_H
#define GOROVOD_NCCL_CALLS_H

#include "nccl.h"

/* Fills the table from an open library. Returns NULL, or the name of the first necessary function that the library
 * lacks. */
const char *gv_nccl_fill(struct gv_nccl *f, void *library);

/* Where a call is made. */
struct gv_place {
  const struct gv_nccl *nccl;
  const struct gv_cuda *cuda;
  uintptr_t context;
};

/* Calls add this to a code of CUDA's, so that it is greater than any code of NCCL's. */
enum { GV_CUDA_CODES = 1 << 20 };

/* Sets version to the version code. Returns an error also if the library has no such function. */
int gv_nccl_version(const struct gv_nccl *f, int *version);
int gv_nccl_unique_id(const struct gv_nccl *f, void *id);

/* These begin to make a communicator in the background. gv_nccl_state tells when it is ready. */
int gv_nccl_init(const struct gv_place *p, uintptr_t *comm, int size, const void *id, int rank);
int gv_nccl_split(const struct gv_place *p, uintptr_t comm, int color, int key, uintptr_t *made);
int gv_nccl_shrink(const struct gv_place *p, uintptr_t comm, int *without, int count, int abort, uintptr_t *made);

/* Sets *state to the present result of the work in the background. */
int gv_nccl_state(const struct gv_place *p, uintptr_t comm, int *state);

enum gv_end { GV_ABORT, GV_FINALIZE, GV_DESTROY };
int gv_nccl_end(const struct gv_place *p, uintptr_t comm, int how);

int gv_nccl_scale_create(const struct gv_place *p, uintptr_t comm, const void *factor, int dtype, int *op);
int gv_nccl_scale_destroy(const struct gv_place *p, uintptr_t comm, int op);

const char *gv_nccl_text(const struct gv_nccl *f, int code);
const char *gv_nccl_last_error(const struct gv_nccl *f, uintptr_t comm);

/* The steps of a program, in the order of Go's constants. */
enum gv_step_kind {
  GV_STEP_WAIT,
  GV_STEP_RECORD,
  GV_STEP_COPY,
  GV_STEP_COPY_FROM_HOST,
  GV_STEP_COPY_TO_HOST,
  GV_STEP_ZERO,
  GV_STEP_GROUP_START,
  GV_STEP_GROUP_END,
  GV_STEP_ALLREDUCE,
  GV_STEP_BROADCAST,
  GV_STEP_REDUCE,
  GV_STEP_ALLGATHER,
  GV_STEP_REDUCESCATTER,
  GV_STEP_SEND,
  GV_STEP_RECV,
};

struct gv_step {
  int32_t kind, dtype, op, peer;
  uint64_t from, to, count;
};

/* How far a program has run. */
struct gv_progress {
  int32_t next;    /* the next step */
  int32_t pending; /* NCCL still issues earlier steps */
  int32_t late;    /* an earlier step has failed, not the next one */
};

/* Runs a program on a stream, from its next step to its end, or until NCCL is busy in the background. Returns 0, or the
 * code with which the next step failed. */
int gv_nccl_run(const struct gv_place *p, uintptr_t comm, uintptr_t stream, const struct gv_step *steps, int count,
                struct gv_progress *progress);

#endif
