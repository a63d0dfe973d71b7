/*
 * async.h: registers kernels that return before their end.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GOROVOD_TF_ASYNC_H
#define GOROVOD_TF_ASYNC_H

#include "tf.h"

/* The functions of a kernel. create makes the first argument of the others, or
 * reports a failure and returns NULL; destroy ends it. compute must not wait:
 * it copies its callback (done.h), and runs the copy later, once. */
struct async_kernel {
  void *(*create)(TF_OpKernelConstruction *);
  void (*compute)(void *, TF_OpKernelContext *, TF_AsyncOpKernelDoneCallback *);
  void (*destroy)(void *);
};

/* Returns NULL if this TensorFlow can have such kernels; otherwise, what it lacks. */
const char *async_find(void);

/* Registers a kernel of the operation op for the CPU. Call it after async_find has returned NULL. */
void async_register(const char *op, struct async_kernel kernel, TF_Status *status);

/* async_2_12.c: the same for TensorFlow 2.12, whose C interface has no such kernels. */
const char *async_find_2_12(void);
void async_register_2_12(const char *op, struct async_kernel kernel);

#endif
