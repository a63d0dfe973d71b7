/*
 * Running a program: a list of steps on one stream.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "calls.h"

static int of_cuda(CUresult code) { return code == 0 ? 0 : (int)code + GV_CUDA_CODES; }

static int run_cuda(const struct gv_cuda *f, CUstream stream, const struct gv_step *s) {
  switch (s->kind) {
    case GV_STEP_WAIT: return of_cuda(f->cuStreamWaitEvent(stream, (CUevent)s->from, 0));
    case GV_STEP_RECORD: return of_cuda(f->cuEventRecord((CUevent)s->to, stream));
    case GV_STEP_COPY: return of_cuda(f->cuMemcpyDtoDAsync_v2(s->to, s->from, s->count, stream));
    case GV_STEP_COPY_FROM_HOST: return of_cuda(f->cuMemcpyHtoDAsync_v2(s->to, (const void *)s->from, s->count, stream));
    case GV_STEP_COPY_TO_HOST: return of_cuda(f->cuMemcpyDtoHAsync_v2((void *)s->to, s->from, s->count, stream));
    case GV_STEP_ZERO: return of_cuda(f->cuMemsetD8Async(s->to, 0, s->count, stream));
  }
  return -1;
}

static int run_nccl(const struct gv_nccl *f, ncclComm_t comm, cudaStream_t stream, const struct gv_step *s) {
  const void *from = (const void *)s->from;
  void *to = (void *)s->to;
  ncclDataType_t dtype = (ncclDataType_t)s->dtype;
  ncclRedOp_t op = (ncclRedOp_t)s->op;
  switch (s->kind) {
    case GV_STEP_GROUP_START: return (int)f->ncclGroupStart();
    case GV_STEP_GROUP_END: return (int)f->ncclGroupEnd();
    case GV_STEP_ALLREDUCE: return (int)f->ncclAllReduce(from, to, s->count, dtype, op, comm, stream);
    case GV_STEP_BROADCAST: return (int)f->ncclBroadcast(from, to, s->count, dtype, s->peer, comm, stream);
    case GV_STEP_REDUCE: return (int)f->ncclReduce(from, to, s->count, dtype, op, s->peer, comm, stream);
    case GV_STEP_ALLGATHER: return (int)f->ncclAllGather(from, to, s->count, dtype, comm, stream);
    case GV_STEP_REDUCESCATTER: return (int)f->ncclReduceScatter(from, to, s->count, dtype, op, comm, stream);
    case GV_STEP_SEND: return (int)f->ncclSend(from, s->count, dtype, s->peer, comm, stream);
    case GV_STEP_RECV: return (int)f->ncclRecv(to, s->count, dtype, s->peer, comm, stream);
  }
  return -1;
}

/* Returns 0 if NCCL has issued all earlier steps to the stream, GV_NCCL_IN_PROGRESS if it has not, or an error. Work
 * that is put into the stream too early would overtake those steps. */
static int settle(const struct gv_nccl *f, ncclComm_t comm, struct gv_progress *progress) {
  ncclResult_t state = GV_NCCL_SUCCESS;
  int code = (int)f->ncclCommGetAsyncError(comm, &state);
  if (code == 0) code = (int)state;
  progress->pending = code == GV_NCCL_IN_PROGRESS;
  progress->late = code != 0 && !progress->pending;
  return code;
}

/* Closes all open groups, because a group belongs to the thread, and would outlive the call. */
static void close_group(const struct gv_nccl *f, int depth) {
  while (depth-- > 0) f->ncclGroupEnd();
}

static int steps_of(const struct gv_place *p, ncclComm_t comm, CUstream stream, const struct gv_step *steps, int count,
                    struct gv_progress *progress) {
  int depth = 0, code = 0;
  while (progress->next < count) {
    const struct gv_step *s = &steps[progress->next];
    if (progress->pending && depth == 0 && (code = settle(p->nccl, comm, progress)) != 0) break;
    code = s->kind < GV_STEP_GROUP_START ? run_cuda(p->cuda, stream, s) : run_nccl(p->nccl, comm, stream, s);
    if (s->kind == GV_STEP_GROUP_END) depth--; /* also if it failed */
    if (code == GV_NCCL_IN_PROGRESS) {
      progress->pending = 1;
      code = 0;
    }
    if (code != 0) break;
    if (s->kind == GV_STEP_GROUP_START) depth++;
    progress->next++;
  }
  close_group(p->nccl, depth);
  if (code == 0 && progress->pending) code = settle(p->nccl, comm, progress);
  return code == GV_NCCL_IN_PROGRESS ? 0 : code;
}

int gv_nccl_run(const struct gv_place *p, uintptr_t comm, uintptr_t stream, const struct gv_step *steps, int count,
                struct gv_progress *progress) {
  struct gv_cuda_thread thread;
  int code = of_cuda(gv_cuda_enter(p->cuda, (CUcontext)p->context, &thread));
  if (code != 0) return code;
  code = steps_of(p, (ncclComm_t)comm, (CUstream)stream, steps, count, progress);
  gv_cuda_leave(p->cuda, &thread);
  return code;
}
