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

/* Finds a libpmix that is in the process already. 1 if there is one: its path. */
int gv_pmix_present(char path[GV_PMIX_TEXT]);

/* What has become of MPI in this process, and the path of its library. */
enum gv_mpi { GV_NO_MPI, GV_MPI_LOADED, GV_MPI_IN_USE, GV_MPI_OVER };
enum gv_mpi gv_pmix_mpi(char path[GV_PMIX_TEXT]);

/* Loads the library of that name or path, once. 0, or -1 and why. */
int gv_pmix_load(const char *name, char why[GV_PMIX_TEXT]);

/* What the library calls itself, and what it says of a status. */
const char *gv_pmix_version(void);
const char *gv_pmix_error(int status);

/* Whether a client has been initialised in this process, by whomever. */
int gv_pmix_initialized(void);

/* The calls, all of which may block, each with a status: 0 if all went well. */
int gv_pmix_init(char space[GV_PMIX_NAMESPACE], uint32_t *rank);
int gv_pmix_job_size(const char *space, uint32_t *size);
int gv_pmix_put(const char *key, void *value, size_t length); /* and have it known */
int gv_pmix_fence(void);                                      /* of all ranks; collects what they have put */
int gv_pmix_get(const char *space, uint32_t rank, const char *key, void **value, size_t *length); /* free value */
int gv_pmix_host(const char *space, uint32_t rank, char host[GV_PMIX_NAME]); /* as the launcher has it; asks no server */
int gv_pmix_finalize(void);

/*
 * A roll call: what each of the ranks has put under a key by now. Answers come on the library's own thread, and those of
 * ranks that have put nothing never, or with an error: so a roll lives as long as the process.
 */
struct gv_pmix_roll;
struct gv_pmix_roll *gv_pmix_new_roll(const char *space, uint32_t size, const char *key); /* NULL without memory */

/*
 * Asks for all at first, then again for those of whom there was an error: Open MPI 4's servers say "not found" to the first who asks
 * for another host's rank, and have it a moment later. May block.
 */
void gv_pmix_roll_ask(struct gv_pmix_roll *roll);
uint32_t gv_pmix_roll_answers(struct gv_pmix_roll *roll); /* how many there are */
int gv_pmix_roll_answer(struct gv_pmix_roll *roll, uint32_t rank, char name[GV_PMIX_NAME]); /* 1 if there is this one, cut to fit */

/* Has the client finalized when this process, not a forked child of it, calls exit; but not if a call is under way then. */
void gv_pmix_finalize_at_exit(void);

#endif
