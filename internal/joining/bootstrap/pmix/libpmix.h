/*
 * What the Go side and the C side know of each other. The C side loads a libpmix at run time.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GOROVOD_LIBPMIX_H
#define GOROVOD_LIBPMIX_H

#include <stddef.h>
#include <stdint.h>

enum { GV_PMIX_TEXT = 512, GV_PMIX_NAMESPACE = 256, GV_PMIX_NAME = 256 };

/* Finds a libpmix that is in the process already. Returns 1 and its path, or 0. */
int gv_pmix_present(char path[GV_PMIX_TEXT]);

/* The state of MPI in this process, and the path of its library. OVER: it has been finalized. */
enum gv_mpi { GV_NO_MPI, GV_MPI_LOADED, GV_MPI_IN_USE, GV_MPI_OVER };
enum gv_mpi gv_pmix_mpi(char path[GV_PMIX_TEXT]);

/* Loads the library of that name or path, once. Returns 0, or -1 and the reason. */
int gv_pmix_load(const char *name, char why[GV_PMIX_TEXT]);

/* The library's version, and its text for a status. */
const char *gv_pmix_version(void);
const char *gv_pmix_error(int status);

/* Whether any part of this process has initialised a client. */
int gv_pmix_initialized(void);

/* The calls, all of which may block, each with a status: 0 if all went well. */
int gv_pmix_init(char space[GV_PMIX_NAMESPACE], uint32_t *rank);
int gv_pmix_job_size(const char *space, uint32_t *size);
int gv_pmix_put(const char *key, void *value, size_t length); /* and publishes it */
int gv_pmix_fence(void);                                      /* of all ranks; collects what they have put */
int gv_pmix_get(const char *space, uint32_t rank, const char *key, void **value, size_t *length); /* free value */
/* The host's name as the launcher gave it. Asks no server. */
int gv_pmix_host(const char *space, uint32_t rank, char host[GV_PMIX_NAME]);
int gv_pmix_finalize(void);

/*
 * A roll call: what each of the ranks has put under a key by now. Answers come on the library's own thread. For a rank
 * that has put nothing, an error may come at any time, or nothing at all. So a roll is never freed.
 */
struct gv_pmix_roll;
struct gv_pmix_roll *gv_pmix_new_roll(const char *space, uint32_t size, const char *key); /* NULL without memory */

/*
 * The first call asks for all ranks. Later calls ask again for those whose answer was an error: Open MPI 4's servers
 * answer "not found" to the first question about another host's rank, and know the value a moment later. May block.
 */
void gv_pmix_roll_ask(struct gv_pmix_roll *roll);
uint32_t gv_pmix_roll_answers(struct gv_pmix_roll *roll); /* how many there are */
/* Returns 1 and the rank's value, cut to fit, if its answer is there; otherwise 0. */
int gv_pmix_roll_answer(struct gv_pmix_roll *roll, uint32_t rank, char name[GV_PMIX_NAME]);

/* Finalizes the client when this process calls exit, unless a call is under way then. A forked child does not. */
void gv_pmix_finalize_at_exit(void);

#endif
