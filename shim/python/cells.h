/*
 * cells.h: the memory of operations, and the calls of the engine that take it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GOROVOD_CELLS_H
#define GOROVOD_CELLS_H

#include <stdbool.h>
#include <stdint.h>

#include "abi.h"
#include "gorovod.h"
#include "tensor.h"

enum { NAME_BYTES = 256 };
enum { HOST_MEMORY = -1 };

/* A cell, as horovod.common._cells lays it out. */
struct cell {
  int64_t handle;
  int32_t status;
  char name[NAME_BYTES];
  int64_t shape[MAX_NDIM];
  gorovod_op op;
  gorovod_memory given; /* for gorovod_given_output */
};

/* The functions of libgorovod.so; NULL before cells_setup. */
struct engine {
  int (*enqueue)(const gorovod_op *, int64_t *);
  int (*enqueue_group)(const char *, const gorovod_op *const *, int, int64_t *);
  int (*run)(const gorovod_op *, int64_t, int64_t *);
  int (*wait)(int64_t, int64_t);
  int (*received_splits)(int64_t, int, int32_t *);
  int (*release)(int64_t);
  int (*output)(int64_t, void **, int, int *, int64_t *);
  void *(*given_output)(void *, size_t, int, const int64_t *);
};
extern struct engine engine;

/* Whether the functions of the module may do anything. */
extern bool enabled;

/* Prepares the calls below. functions has the addresses of the engine's, in the order above; layout has the numbers that
 * both sides must agree on; error_of makes the exception of a refusal from its status. Returns -1 with an exception. */
int cells_setup(PyObject *functions, PyObject *layout, PyObject *error_of);

/* An operation of a pool, its memory, and what is known of its attributes: get is the value of that name, or NULL if it
 * is not known; so are flags, -1 if they are not known. */
struct slot {
  PyObject *operation;
  struct cell *cell;
  PyObject *get; /* borrowed: one of the module's own, which live for ever */
  int64_t flags;
};

enum { MOST_READY = 1024 };

/* A horovod.common._cells.Pool. C code takes the operations that it has given back before those of the list, because
 * these cost questions to Python's objects. Their keeps is None. */
struct pool {
  PyObject *free; /* list: the last one is the next one */
  PyObject *grow; /* adds to it */
  struct slot ready[MOST_READY];
  int n; /* of these */
};

/* A new reference to None. */
PyObject *none(void);

struct cell *cell_around(const void *op);

/* The memory of an operation; NULL with an exception if there is none. */
struct cell *cell_of(PyObject *operation);

/* Takes an operation out of the pool: a new reference. False with an exception if that fails. */
bool take_slot(struct pool *pool, struct slot *slot);

/* Gives the operation back to the pool, whose keeps is None. If there is no memory for that, it is lost. */
void give_slot(struct pool *pool, struct slot slot);

/* Describes an operation on host memory. */
struct request;
void fill_cell(struct cell *cell, const struct request *request, uint32_t flags);

/* Submits the operation that fill_cell has described, and returns the status of the call. */
int enqueue_cell(struct cell *cell);

/* As enqueue_cell, and waits for the end, at most that long, without the GIL. Returns GOROVOD_OK if it has succeeded;
 * otherwise it was refused if the cell's handle is 0. */
int run_cell(struct cell *cell, int64_t wait_ms);

/* Ends the description of an operation: no cell of a pool has a wire. */
static inline void end_description(struct cell *cell) { cell->op.wire = 0; }

int status_of(const struct cell *cell);

/* Waits for the operation without the GIL, at most that long. */
void wait_a_little(const struct cell *cell, int64_t wait_ms);

/* Returns NULL, with the exception of a refusal. */
PyObject *refused(int status);

#endif
