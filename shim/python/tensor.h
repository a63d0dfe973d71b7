/*
 * tensor.h: what the engine needs to know of a PyTorch tensor.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GOROVOD_TENSOR_H
#define GOROVOD_TENSOR_H

#include <stdbool.h>
#include <stdint.h>

#include "abi.h"

enum { MAX_NDIM = 8 }; /* a tensor with more dimensions is not plain */

/* A plain tensor: dense, contiguous, in host memory, with elements, of a type that the engine has, its values those in
 * its memory. The memory belongs to the tensor. torch.jit.trace does not record what is done with it. */
struct view {
  void *data;
  int dtype; /* GOROVOD_FLOAT32, … */
  int ndim;
  int64_t shape[MAX_NDIM];
};

enum look { PLAIN, NOT_PLAIN, RAISED };

/* Prepares the calls below. types holds the classes whose instances may be plain, and no others: a subclass may
 * override anything. sample is a torch.Tensor, storage the name of its method that gives the storage. api is
 * torch.Tensor.__dlpack_c_exchange_api__, or None; dtypes is a dict from torch.dtype to the engine's number; modes is a
 * function that counts the modes of this thread, or None. Returns -1 with an exception set if this cannot be used. */
int tensor_setup(PyObject *types, PyObject *sample, const char *storage, PyObject *api, PyObject *dtypes,
                 PyObject *modes);

/* Whether this thread is in a TorchDispatchMode, which may record the program's operations, as make_fx does. */
bool in_mode(void);

/* Looks at an object, which may be no tensor at all. */
enum look tensor_look(PyObject *tensor, struct view *view);

/* Whether a tensor that was plain still has its memory at address; false, without an exception, if that is unknown. */
bool tensor_is_at(PyObject *tensor, const void *address);

/* The tensor's storage: a new reference, which keeps the memory even if the tensor gets other memory. */
PyObject *tensor_storage(PyObject *tensor);

/* The bytes of an element of the engine's type; 0 for one that is not known here, such as a float of 8 bits. */
int dtype_bytes(int dtype);

#endif
