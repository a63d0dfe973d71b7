/*
 * made.h: results of allgathers and alltoalls, whose size only the engine knows.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GOROVOD_MADE_H
#define GOROVOD_MADE_H

#include <stdbool.h>

#include "abi.h"
#include "cells.h"

enum { MAX_SPLITS = 256 };

/* setup_made(new_empty, rows): the unbound method of tensors, and an int32 tensor in host memory, of any length. */
PyObject *setup_made(PyObject *module, PyObject *args);

/* Reads a list of splits, or an empty tuple, into an array of MAX_SPLITS. Returns how many; -1 without an exception if
 * it is anything else. */
int read_splits(PyObject *list, int32_t *splits);

/* The result of an operation on this tensor that has succeeded: a tensor; for an alltoall a tuple with a tensor of the
 * rows received from each member. It is new. NULL, perhaps with an exception, if Python code is to make it: a large
 * result stays in the engine's memory. Other code may run meanwhile; if that releases the operation, NULL. */
PyObject *made_result(const struct cell *cell, PyObject *tensor);

#endif
