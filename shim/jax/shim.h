/*
 * shim.h: the parts of libgorovod_jax.so, which is what JAX's compiled programs call for
 * a collective on the CPU, and on a GPU with CUDA.
 *
 * The front end registers the handlers below with JAX under its own names. Call
 * gorovod_jax_bind, which finds the engine, before one of them runs.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GOROVOD_JAX_SHIM_H
#define GOROVOD_JAX_SHIM_H

#include <stdbool.h>

#include "gorovod.h"
#include "xla.h"

#define EXPORTED __attribute__((visibility("default")))

/* The functions of libgorovod.so that the handlers call. */
struct engine {
  int (*enqueue)(const gorovod_op *, int64_t *);
  int (*enqueue_group)(const char *, const gorovod_op *const *, int, int64_t *);
  int (*wait)(int64_t, int64_t);
  int (*on_done)(int64_t, void (*)(void *, int64_t, int, const char *), void *);
  int (*await_on_stream)(int64_t, uintptr_t);
  int (*release)(int64_t);
  const char *(*last_error)(void);
};

extern struct engine engine;

/* Finds the engine in the library at path, which must be loaded already. Returns
 * NULL, or the name of what is missing. */
EXPORTED const char *gorovod_jax_bind(const char *path);

/* Handlers. Of each pair the first makes a struct site while a program is loaded. The second runs that site's
 * collective. JAX's part for CUDA is a library with an XLA of its own, whose numbers of types are others. */
EXPORTED xla_error *gorovod_jax_instantiate(struct xla_call *call);
EXPORTED xla_error *gorovod_jax_execute(struct xla_call *call);
EXPORTED xla_error *gorovod_jax_cuda_instantiate(struct xla_call *call);
EXPORTED xla_error *gorovod_jax_cuda_execute(struct xla_call *call);
/* Does nothing: see horovod/jax/_program.py. */
EXPORTED xla_error *gorovod_jax_pad(struct xla_call *call);

/* shim.c: the beginning of all handlers. True if XLA only asks about the handler; *error is then the answer. */
bool asked(struct xla_call *call, struct xla_type_id state, xla_error **error);

/* An error for XLA, from a format. */
xla_error *fail(const struct xla_api *api, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/*
 * site.c: one place in a compiled program that has a collective.
 *
 * Ranks match places by their names. Several places of a program may have one name: XLA copies an inner
 * function that is called twice, and the body of a loop that it unrolls. XLA runs independent places in any
 * order, and at the same time. So the second place with a name is called NAME#1, the third NAME#2, in XLA's
 * order of the program, which is the same on all ranks that run the same program.
 */
struct site {
  struct site *next; /* guarded by the list's lock, like the three below */
  int64_t program, copy;
  char *given; /* the name without the number of the copy; empty: the engine names each execution */
  char *name, *single; /* of a group, and of an array by itself; NULL for an empty one */
  int32_t type, reduce_op, root_rank, process_set, wire;
  double prescale, postscale;
  struct run *_Atomic spare; /* memory for one execution, reused */
};

/* The number that an XLA has given to the type struct site. */
extern struct xla_type_id site_type, cuda_site_type;

/* The site of a call. NULL: *error says why. */
struct site *site_of(struct xla_call *call, struct xla_type_id *type, xla_error **error);

void run_free(struct run *run); /* execute.c */

#endif
