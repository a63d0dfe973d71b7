/*
 * Calling libnccl in the right context.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "calls.h"

#include <dlfcn.h>
#include <string.h>

const char *gv_nccl_fill(struct gv_nccl *f, void *library) {
#define FILL(name, parameters, result) *(void **)&f->name = dlsym(library, #name);
#define NEED(name, parameters, result) \
  if (f->name == NULL) return #name;
  GV_NCCL_FUNCTIONS(FILL)
  GV_NCCL_OPTIONAL(FILL)
  GV_NCCL_FUNCTIONS(NEED)
#undef FILL
#undef NEED
  return NULL;
}

/* Makes a place's context current. Returns 0, or a code of CUDA's plus GV_CUDA_CODES. */
static int enter(const struct gv_place *p, struct gv_cuda_thread *thread) {
  int code = (int)gv_cuda_enter(p->cuda, (CUcontext)p->context, thread);
  return code == 0 ? 0 : code + GV_CUDA_CODES;
}

static ncclConfig_t non_blocking(void) {
  return (ncclConfig_t){.size = sizeof(ncclConfig_t), .magic = GV_NCCL_CONFIG_MAGIC, .version = GV_NCCL_CONFIG_VERSION};
}

int gv_nccl_version(const struct gv_nccl *f, int *version) {
  return f->ncclGetVersion == NULL ? -1 : (int)f->ncclGetVersion(version);
}

int gv_nccl_unique_id(const struct gv_nccl *f, void *id) { return (int)f->ncclGetUniqueId((ncclUniqueId *)id); }

int gv_nccl_init(const struct gv_place *p, uintptr_t *comm, int size, const void *id, int rank) {
  struct gv_cuda_thread thread;
  int code = enter(p, &thread);
  if (code != 0) return code;
  ncclConfig_t config = non_blocking();
  ncclUniqueId copy;
  memcpy(&copy, id, sizeof copy);
  code = (int)p->nccl->ncclCommInitRankConfig((ncclComm_t *)comm, size, copy, rank, &config);
  gv_cuda_leave(p->cuda, &thread);
  return code;
}

int gv_nccl_split(const struct gv_place *p, uintptr_t comm, int color, int key, uintptr_t *made) {
  struct gv_cuda_thread thread;
  int code = enter(p, &thread);
  if (code != 0) return code;
  ncclConfig_t config = non_blocking();
  code = (int)p->nccl->ncclCommSplit((ncclComm_t)comm, color, key, (ncclComm_t *)made, &config);
  gv_cuda_leave(p->cuda, &thread);
  return code;
}

int gv_nccl_shrink(const struct gv_place *p, uintptr_t comm, int *without, int count, int abort, uintptr_t *made) {
  struct gv_cuda_thread thread;
  int code = enter(p, &thread);
  if (code != 0) return code;
  ncclConfig_t config = non_blocking();
  code = (int)p->nccl->ncclCommShrink((ncclComm_t)comm, without, count, (ncclComm_t *)made, &config,
                                      abort ? GV_NCCL_SHRINK_ABORT : 0);
  gv_cuda_leave(p->cuda, &thread);
  return code;
}

int gv_nccl_state(const struct gv_place *p, uintptr_t comm, int *state) {
  ncclResult_t result = GV_NCCL_SUCCESS;
  int code = (int)p->nccl->ncclCommGetAsyncError((ncclComm_t)comm, &result);
  *state = (int)result;
  return code;
}

int gv_nccl_end(const struct gv_place *p, uintptr_t comm, int how) {
  struct gv_cuda_thread thread;
  int code = enter(p, &thread);
  if (code != 0) return code;
  switch (how) {
    case GV_ABORT: code = (int)p->nccl->ncclCommAbort((ncclComm_t)comm); break;
    case GV_FINALIZE: code = (int)p->nccl->ncclCommFinalize((ncclComm_t)comm); break;
    case GV_DESTROY: code = (int)p->nccl->ncclCommDestroy((ncclComm_t)comm); break;
  }
  gv_cuda_leave(p->cuda, &thread);
  return code;
}

int gv_nccl_scale_create(const struct gv_place *p, uintptr_t comm, const void *factor, int dtype, int *op) {
  ncclRedOp_t made;
  int code = (int)p->nccl->ncclRedOpCreatePreMulSum(&made, (void *)factor, (ncclDataType_t)dtype,
                                                    (ncclScalarResidence_t)GV_NCCL_SCALAR_HOST, (ncclComm_t)comm);
  *op = (int)made;
  return code;
}

int gv_nccl_scale_destroy(const struct gv_place *p, uintptr_t comm, int op) {
  return (int)p->nccl->ncclRedOpDestroy((ncclRedOp_t)op, (ncclComm_t)comm);
}

const char *gv_nccl_text(const struct gv_nccl *f, int code) { return f->ncclGetErrorString((ncclResult_t)code); }

const char *gv_nccl_last_error(const struct gv_nccl *f, uintptr_t comm) { return f->ncclGetLastError((ncclComm_t)comm); }
