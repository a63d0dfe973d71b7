/*
 * facts.c: operations that return a process's place in the world when the graph
 * runs, not when it is built, because in elastic training a graph outlives a world.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "shim.h"

#include <stdlib.h>

enum fact { RANK, SIZE, LOCAL_RANK, LOCAL_SIZE, SET_INCLUDED };

struct kernel {
  enum fact fact;
  int32_t process_set;
};

static int value(const struct kernel *k) {
  switch (k->fact) {
    case RANK: return k->process_set == 0 ? engine.rank() : engine.process_set_rank(k->process_set);
    case SIZE: return k->process_set == 0 ? engine.size() : engine.process_set_size(k->process_set);
    case LOCAL_RANK: return engine.local_rank();
    case LOCAL_SIZE: return engine.local_size();
    case SET_INCLUDED: return engine.process_set_included(k->process_set);
  }
  return -1;
}

static void compute(void *data, TF_OpKernelContext *context) {
  TF_Status *status = tf.TF_NewStatus();
  int v = engine.rank == NULL ? -1 : value(data);
  if (v < 0) {
    if (engine.rank == NULL || engine.rank() < 0) {
      fail(status, TF_FAILED_PRECONDITION, "Horovod has not been initialized; use hvd.init().");
    } else {
      fail(status, TF_FAILED_PRECONDITION, "there is no process set with the id %d", ((struct kernel *)data)->process_set);
    }
  } else {
    TF_Tensor *out = tf.TF_AllocateOutput(context, 0, TF_INT32, NULL, 0, 4, status);
    if (tf.TF_GetCode(status) == TF_OK) *(int32_t *)tf.TF_TensorData(out) = v;
    if (out != NULL) tf.TF_DeleteTensor(out);
  }
  if (tf.TF_GetCode(status) != TF_OK) tf.TF_OpKernelContext_Failure(context, status);
  tf.TF_DeleteStatus(status);
}

static struct kernel *new_kernel(TF_OpKernelConstruction *c, enum fact fact, bool of_set) {
  struct kernel *k = calloc(1, sizeof *k);
  if (k == NULL) abort();
  k->fact = fact;
  if (!of_set) return k;
  TF_Status *status = tf.TF_NewStatus();
  tf.TF_OpKernelConstruction_GetAttrInt32(c, "process_set_id", &k->process_set, status);
  if (tf.TF_GetCode(status) != TF_OK) tf.TF_OpKernelConstruction_Failure(c, status);
  tf.TF_DeleteStatus(status);
  return k;
}

#define FACTS(F)             \
  F(Rank, RANK, true)        \
  F(Size, SIZE, true)        \
  F(LocalRank, LOCAL_RANK, false) \
  F(LocalSize, LOCAL_SIZE, false) \
  F(ProcessSetIncluded, SET_INCLUDED, true)

#define CREATE(op, fact, of_set) \
  static void *create##op(TF_OpKernelConstruction *c) { return new_kernel(c, fact, of_set); }
FACTS(CREATE)

void register_facts(TF_Status *status) {
  static const char *const none[] = {NULL};
  static const char *const set[] = {"process_set_id: int = 0", NULL};
  static const char *const out[] = {"value: int32", NULL};
#define REGISTER(op, fact, of_set)                                                            \
  define("Horovod" #op, of_set ? set : none, none, out, shape_scalar, status);                \
  if (tf.TF_GetCode(status) == TF_OK)                                                         \
    tf.TF_RegisterKernelBuilder("Horovod" #op,                                                \
                                tf.TF_NewKernelBuilder("Horovod" #op, "CPU", create##op, compute, free), status);
  FACTS(REGISTER)
}
