/*
 * request.h: what a caller of calls.c has asked for.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GOROVOD_REQUEST_H
#define GOROVOD_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "abi.h"
#include "cells.h"
#include "tensor.h"

/* What the caller has given; everything but the tensors has been copied. */
struct request {
  PyObject *tensor, *output;
  struct view input;
  void *target;
  int32_t type, reduce_op, root_rank, process_set, wire;
  double prescale, postscale;
  bool named;
  char name[NAME_BYTES]; /* KIND.NAME */
};

/* The places of the arguments of one operation. */
enum { KIND, TENSOR, OUTPUT, NAME, PROCESS_SET, REDUCE_OP, PRESCALE, POSTSCALE, ROOT_RANK, WIRE, ARGUMENTS };

/* Prepares the calls below. kinds is a dict: the engine's number of a kind, by name. Returns -1 with an exception set. */
int request_setup(PyObject *kinds);

/* Reads an int that fits; false, without an exception, for anything else. */
bool as_int32(PyObject *value, int32_t *number);

/* Reads a float; false, without an exception, for anything else. */
bool as_double(PyObject *value, double *number);

/* Reads the name; false unless it is None, or a str of ASCII for which there is room. */
bool read_name(PyObject *kind, PyObject *name, struct request *request);

/* Reads the name of a kind; false, without an exception, if there is none. */
bool read_kind(PyObject *kind, int32_t *number);

/* Reads the number of a process set. */
enum look read_set(PyObject *process_set, int32_t *number);

/* Reads what the operations of a group have in common. */
enum look read_common(PyObject *kind, PyObject *process_set, PyObject *reduce_op, PyObject *prescale,
                      PyObject *postscale, struct request *request);

/* Looks at the tensors, which may be the same one. */
enum look read_tensors(PyObject *tensor, PyObject *output, struct request *request);

/* Reads all arguments of one operation, which are in the order of the enumeration above. */
enum look read_request(PyObject *const *args, struct request *request);

#endif
