/*
 * Finding a libpmix, and calling it by its binary interface.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "libpmix.h"

/* The types of the interface, as far as they are used. */

typedef struct {
  char space[GV_PMIX_NAMESPACE];
  uint32_t rank;
} proc;

typedef struct {
  uint16_t type;
  union {
    bool flag;
    char *text;
    uint32_t number;
    struct {
      char *bytes;
      size_t size;
    } object;
    uint64_t room[4]; /* enough for this union in every version */
  } data;
} value;

/* Pass no arrays of these: value may be larger here than in the library. */
typedef struct {
  char key[512];
  uint32_t flags;
  value value;
} info;

enum { TYPE_BOOL = 1, TYPE_STRING = 3, TYPE_UINT32 = 14, TYPE_BYTES = 27 };
enum { SCOPE_GLOBAL = 3 };
enum { WRONG_TYPE = -1 }; /* the library's own general error */
static const uint32_t all_ranks = UINT32_MAX - 1;

static struct {
  int (*init)(proc *, info *, size_t);
  int (*initialized)(void);
  int (*put)(uint8_t, const char *, value *);
  int (*commit)(void);
  int (*fence)(const proc *, size_t, const info *, size_t);
  int (*get)(const proc *, const char *, const info *, size_t, value **);
  int (*get_later)(const proc *, const char *, const info *, size_t, void (*)(int, value *, void *), void *);
  int (*finalize)(const info *, size_t);
  const char *(*version)(void);
  const char *(*error)(int);
} lib;

static atomic_int under_way; /* calls that have not returned */

static const char *base_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash != NULL ? slash + 1 : path;
}

/* A search of the loaded objects for a file whose name begins with one of the stems. */
struct search {
  const char *const *stems;
  char *path;
};

static int look(struct dl_phdr_info *object, size_t size, void *argument) {
  (void)size;
  struct search *s = argument;
  if (object->dlpi_name == NULL || strlen(object->dlpi_name) >= GV_PMIX_TEXT) return 0;
  for (const char *const *stem = s->stems; *stem != NULL; stem++) {
    if (strncmp(base_name(object->dlpi_name), *stem, strlen(*stem)) != 0) continue;
    strcpy(s->path, object->dlpi_name);
    return 1;
  }
  return 0;
}

static int in_process(const char *const *stems, char *path) {
  struct search s = {stems, path};
  path[0] = 0;
  return dl_iterate_phdr(look, &s);
}

int gv_pmix_present(char path[GV_PMIX_TEXT]) {
  static const char *const stems[] = {"libpmix.so", NULL};
  return in_process(stems, path);
}

enum gv_mpi gv_pmix_mpi(char path[GV_PMIX_TEXT]) {
  static const char *const stems[] = {"libmpi.so", "libmpich.so", "libmpi_abi.so", NULL};
  if (!in_process(stems, path)) return GV_NO_MPI;
  void *l = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  if (l == NULL) return GV_MPI_LOADED;
  int (*initialized)(int *) = (int (*)(int *))dlsym(l, "MPI_Initialized");
  int (*finalized)(int *) = (int (*)(int *))dlsym(l, "MPI_Finalized");
  int begun = 0, over = 0;
  if (initialized != NULL && finalized != NULL) {
    initialized(&begun);
    finalized(&over);
  }
  dlclose(l);
  return over ? GV_MPI_OVER : begun ? GV_MPI_IN_USE : GV_MPI_LOADED;
}

int gv_pmix_load(const char *name, char why[GV_PMIX_TEXT]) {
  if (lib.init != NULL) return 0;
  /* RTLD_LOCAL, so that other libraries do not use symbols of those on which libpmix depends. */
  void *l = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (l == NULL) {
    snprintf(why, GV_PMIX_TEXT, "%s", dlerror());
    return -1;
  }
  const struct {
    const char *name;
    void *to;
  } functions[] = {{"PMIx_Initialized", &lib.initialized}, {"PMIx_Put", &lib.put},
                   {"PMIx_Commit", &lib.commit},           {"PMIx_Fence", &lib.fence},
                   {"PMIx_Get", &lib.get},                 {"PMIx_Get_nb", &lib.get_later},
                   {"PMIx_Finalize", &lib.finalize},       {"PMIx_Get_version", &lib.version},
                   {"PMIx_Error_string", &lib.error},      {"PMIx_Init", &lib.init}};
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
    void *f = dlsym(l, functions[i].name);
    if (f == NULL) {
      snprintf(why, GV_PMIX_TEXT, "it exports no %s", functions[i].name);
      dlclose(l);
      return -1;
    }
    memcpy(functions[i].to, &f, sizeof f);
  }
  return 0;
}

const char *gv_pmix_version(void) { return lib.version(); }

const char *gv_pmix_error(int status) { return lib.error(status); }

int gv_pmix_initialized(void) { return lib.initialized(); }

/* Blocks all signals meanwhile. The library's own thread inherits that, so it gets none of the program's signals. */
int gv_pmix_init(char space[GV_PMIX_NAMESPACE], uint32_t *rank) {
  sigset_t all, before;
  proc me = {.rank = 0};
  under_way++;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int status = lib.init(&me, NULL, 0);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  under_way--;
  memcpy(space, me.space, GV_PMIX_NAMESPACE);
  space[GV_PMIX_NAMESPACE - 1] = 0;
  *rank = me.rank;
  return status;
}

static proc named(const char *space, uint32_t rank) {
  proc p = {.rank = rank};
  snprintf(p.space, sizeof p.space, "%s", space);
  return p;
}

/* If the status is 0, the caller owns *found, and frees it. */
static int get(const char *space, uint32_t rank, const char *key, const info *how, uint16_t type, value **found) {
  proc p = named(space, rank);
  *found = NULL;
  under_way++;
  int status = lib.get(&p, key, how, how != NULL, found);
  under_way--;
  if (status == 0 && (*found == NULL || (*found)->type != type)) {
    free(*found); /* but not what it refers to, whose type is unknown */
    return WRONG_TYPE;
  }
  return status;
}

int gv_pmix_job_size(const char *space, uint32_t *size) {
  value *v;
  int status = get(space, all_ranks, "pmix.job.size", NULL, TYPE_UINT32, &v);
  if (status != 0) return status;
  *size = v->data.number;
  free(v);
  return 0;
}

int gv_pmix_put(const char *key, void *bytes, size_t length) {
  value v = {.type = TYPE_BYTES, .data.object = {bytes, length}};
  under_way++;
  int status = lib.put(SCOPE_GLOBAL, key, &v);
  if (status == 0) status = lib.commit();
  under_way--;
  return status;
}

int gv_pmix_fence(void) {
  info collect = {.key = "pmix.collect", .value = {.type = TYPE_BOOL, .data.flag = true}};
  under_way++;
  int status = lib.fence(NULL, 0, &collect, 1);
  under_way--;
  return status;
}

int gv_pmix_get(const char *space, uint32_t rank, const char *key, void **bytes, size_t *length) {
  value *v;
  int status = get(space, rank, key, NULL, TYPE_BYTES, &v);
  if (status != 0) return status;
  *bytes = v->data.object.bytes;
  *length = v->data.object.size;
  free(v);
  return 0;
}

int gv_pmix_host(const char *space, uint32_t rank, char host[GV_PMIX_NAME]) {
  info only_here = {.key = "pmix.optional", .value = {.type = TYPE_BOOL, .data.flag = true}};
  value *v;
  int status = get(space, rank, "pmix.hname", &only_here, TYPE_STRING, &v);
  if (status != 0) return status;
  snprintf(host, GV_PMIX_NAME, "%s", v->data.text != NULL ? v->data.text : "");
  free(v->data.text);
  free(v);
  return 0;
}

struct gv_pmix_roll {
  char space[GV_PMIX_NAMESPACE], key[GV_PMIX_TEXT];
  uint32_t size;
  atomic_uint answers;
  struct sign {
    struct gv_pmix_roll *roll;
    atomic_bool due;   /* not asked for yet, or the answer was an error */
    atomic_bool there; /* name is set */
    char name[GV_PMIX_NAME];
  } signs[];
};

/* Runs on the library's thread. found stays the library's. */
static void answer(int status, value *found, void *argument) {
  struct sign *m = argument;
  if (status != 0 || found == NULL || found->type != TYPE_BYTES) {
    m->due = true;
    return;
  }
  size_t size = found->data.object.size < GV_PMIX_NAME ? found->data.object.size : GV_PMIX_NAME - 1;
  if (size > 0) memcpy(m->name, found->data.object.bytes, size); /* zeros follow */
  m->there = true;
  m->roll->answers++;
}

struct gv_pmix_roll *gv_pmix_new_roll(const char *space, uint32_t size, const char *key) {
  struct gv_pmix_roll *roll = calloc(1, sizeof *roll + size * sizeof *roll->signs);
  if (roll == NULL) return NULL;
  snprintf(roll->space, sizeof roll->space, "%s", space);
  snprintf(roll->key, sizeof roll->key, "%s", key);
  roll->size = size;
  for (uint32_t r = 0; r < size; r++) {
    roll->signs[r].roll = roll;
    roll->signs[r].due = true;
  }
  return roll;
}

void gv_pmix_roll_ask(struct gv_pmix_roll *roll) {
  under_way++;
  for (uint32_t r = 0; r < roll->size; r++) {
    if (!atomic_exchange(&roll->signs[r].due, false)) continue;
    proc p = named(roll->space, r);
    if (lib.get_later(&p, roll->key, NULL, 0, answer, &roll->signs[r]) != 0) roll->signs[r].due = true;
  }
  under_way--;
}

uint32_t gv_pmix_roll_answers(struct gv_pmix_roll *roll) { return roll->answers; }

int gv_pmix_roll_answer(struct gv_pmix_roll *roll, uint32_t rank, char name[GV_PMIX_NAME]) {
  struct sign *m = &roll->signs[rank];
  if (!m->there) return 0;
  memcpy(name, m->name, GV_PMIX_NAME);
  return 1;
}

int gv_pmix_finalize(void) {
  if (under_way != 0) return 0; /* a thread is in a call, perhaps for ever */
  return lib.finalize(NULL, 0);
}

static pid_t home;

static void at_exit(void) {
  if (getpid() == home) gv_pmix_finalize();
}

void gv_pmix_finalize_at_exit(void) {
  if (home != 0) return;
  home = getpid();
  atexit(at_exit);
}
