/*
 * async.h: registering kernels that return before they have ended.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GOROVOD_TF_ASYNC_H
#define GOROVOD_TF_ASYNC_H

#include "tf.h"

/* The functions of a kernel. create makes what the others get as their first
 * argument, or reports a failure and returns NULL; destroy ends it. compute
 * must not wait; it copies its callback (done.h), and later runs it, once. */
struct async_kernel {
  void *(*create)(TF_OpKernelConstruction *);
  void (*compute)(void *, TF_OpKernelContext *, TF_AsyncOpKernelDoneCallback *);
  void (*destroy)(void *);
};

/* Whether this TensorFlow can have such kernels: NULL, or what it lacks. */
const char *async_find(void);

/* Registers a kernel of the operation op for the CPU; after async_find has returned NULL. */
void async_register(const char *op, struct async_kernel kernel, TF_Status *status);

/* async_2_12.c: the same for TensorFlow 2.12, whose C interface has no such kernels. */
const char *async_find_2_12(void);
void async_register_2_12(const char *op, struct async_kernel kernel);

#endif
