/*
 * What the Go side calls. Each call that concerns a device runs in that device's context. Handles and addresses travel as
 * uintptr_t: Go would take them for pointers of its own.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GOROVOD_NCCL_CALLS_H
#define GOROVOD_NCCL_CALLS_H

#include "nccl.h"

/* Fills the table out of an open library. NULL, or the first function of the necessary ones that it does not have. */
const char *gv_nccl_fill(struct gv_nccl *f, void *library);

/* Where a call is made. */
struct gv_place {
  const struct gv_nccl *nccl;
  const struct gv_cuda *cuda;
  uintptr_t context;
};

/* A code of CUDA's is this much greater than NCCL's can be. */
enum { GV_CUDA_CODES = 1 << 20 };

/* The version code; an error, too, if the library has no such function. */
int gv_nccl_version(const struct gv_nccl *f, int *version);
int gv_nccl_unique_id(const struct gv_nccl *f, void *id);

/* The communicator is made in the background: gv_nccl_state says when. */
int gv_nccl_init(const struct gv_place *p, uintptr_t *comm, int size, const void *id, int rank);
int gv_nccl_split(const struct gv_place *p, uintptr_t comm, int color, int key, uintptr_t *made);
int gv_nccl_shrink(const struct gv_place *p, uintptr_t comm, int *without, int count, int abort, uintptr_t *made);

/* *state: the result so far of what runs in the background. */
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

/* How far a program is. */
struct gv_progress {
  int32_t next;    /* the step that comes next */
  int32_t pending; /* NCCL still issues what the steps before have asked for */
};

/* Runs a program on a stream, from where it is to its end, or until NCCL is busy in the background. A code, of the step
 * that is next. */
int gv_nccl_run(const struct gv_place *p, uintptr_t comm, uintptr_t stream, const struct gv_step *steps, int count,
                struct gv_progress *progress);

#endif
