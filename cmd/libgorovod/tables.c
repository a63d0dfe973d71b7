/*
 * The exported functions of sparse tables.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "entry.h"

#include <inttypes.h>
#include <string.h>

#include "_cgo_export.h"

/* What gorovod_table had first: a caller may have been built for that. */
#define FIRST_TABLE offsetof(gorovod_table, admit_after)

int gorovod_table_create(const gorovod_table *description, int64_t *table) {
  char *reason = fresh_reason();
  gorovod_table known = {0};
  if (is_child()) return GOROVOD_PRECONDITION_ERROR;
  if (description == NULL || table == NULL || description->size < FIRST_TABLE) {
    EXPLAIN("description and table must not be NULL, and size must be at least %zu", FIRST_TABLE);
    return GOROVOD_INVALID_ARGUMENT;
  }
  /* A caller built for a later version may have more fields; those unknown here must be unused. */
  for (size_t i = sizeof known; i < description->size; i++) {
    if (((const unsigned char *)description)[i]) {
      EXPLAIN("byte %zu of the description is set, but this version (%s) knows %zu only", i, goVersion(), sizeof known);
      return GOROVOD_INVALID_ARGUMENT;
    }
  }
  memcpy(&known, description, description->size < sizeof known ? description->size : sizeof known);
  *table = 0;
  note_submitter();
  return goTableCreate(&known, table, reason);
}

int64_t gorovod_table_reserve(void) { return is_child() ? 0 : goTableReserve(); }

int64_t gorovod_table_rows(int64_t table) {
  char *reason = fresh_reason();
  return is_child() ? -1 : goTableRows(table, reason);
}

int gorovod_table_dim(int64_t table) {
  char *reason = fresh_reason();
  return is_child() ? -1 : goTableDim(table, reason);
}

int gorovod_lookup(int64_t table, const int64_t *keys, int64_t n, const int64_t *padding, int64_t *index, int64_t *distinct,
                   int64_t *lookup) {
  char *reason = fresh_reason();
  if (is_child()) return GOROVOD_PRECONDITION_ERROR;
  if (distinct == NULL || lookup == NULL) {
    EXPLAIN("distinct and lookup must not be NULL");
    return GOROVOD_INVALID_ARGUMENT;
  }
  *lookup = 0;
  return goLookup(table, (int64_t *)keys, n, (int64_t *)padding, index, distinct, lookup, reason);
}

int gorovod_lookup_refuse(int64_t lookup, const char *why) {
  char *reason = fresh_reason();
  if (is_child()) return GOROVOD_PRECONDITION_ERROR;
  if (why == NULL || why[0] == 0) {
    EXPLAIN("the reason of a refusal must not be NULL or empty");
    return GOROVOD_INVALID_ARGUMENT;
  }
  return goLookupRefuse(lookup, (char *)why, reason);
}

/* Whether a pull or push has proper arguments. */
static int has_lookups(int n, const int64_t *lookups, const void *memory, const int64_t *handles) {
  if (n > 0 && lookups != NULL && memory != NULL && handles != NULL) return 1;
  EXPLAIN("%d lookups, or a NULL pointer", n);
  return 0;
}

int gorovod_pull(int n, const int64_t *lookups, float *const *rows, uint32_t flags, int64_t *handles) {
  char *reason = fresh_reason();
  if (is_child()) return GOROVOD_PRECONDITION_ERROR;
  if (!has_lookups(n, lookups, rows, handles)) return GOROVOD_INVALID_ARGUMENT;
  note_submitter();
  return goPull(n, (int64_t *)lookups, (float **)rows, flags, handles, reason);
}

int gorovod_push(int n, const int64_t *lookups, const float *const *gradients, float rate, uint32_t flags,
                 int64_t *handles) {
  char *reason = fresh_reason();
  if (is_child()) return GOROVOD_PRECONDITION_ERROR;
  if (!has_lookups(n, lookups, gradients, handles)) return GOROVOD_INVALID_ARGUMENT;
  note_submitter();
  return goPush(n, (int64_t *)lookups, (float **)gradients, rate, flags, handles, reason);
}

void gorovod_lookup_release(int64_t lookup) {
  if (!is_child()) goLookupRelease(lookup);
}

int gorovod_table_save(int64_t table, const char *directory) {
  char *reason = fresh_reason();
  if (is_child()) return GOROVOD_PRECONDITION_ERROR;
  note_submitter();
  return goTableSave(table, (char *)directory, reason);
}

int gorovod_table_load(int64_t table, const char *directory) {
  char *reason = fresh_reason();
  if (is_child()) return GOROVOD_PRECONDITION_ERROR;
  note_submitter();
  return goTableLoad(table, (char *)directory, reason);
}

int gorovod_table_commit(int64_t table, int64_t number, int part) {
  char *reason = fresh_reason();
  if (is_child()) return GOROVOD_PRECONDITION_ERROR;
  note_submitter();
  return goTableCommit(table, number, part, reason);
}

int gorovod_table_restore(int64_t table, int64_t number, int part) {
  char *reason = fresh_reason();
  if (is_child()) return GOROVOD_PRECONDITION_ERROR;
  note_submitter();
  return goTableRestore(table, number, part, reason);
}

int64_t gorovod_table_pushes(int64_t table) {
  char *reason = fresh_reason();
  return is_child() ? -1 : goTablePushes(table, reason);
}

int64_t gorovod_table_copy(int64_t table, int32_t *slot, int64_t n, int64_t *keys, float *weights) {
  char *reason = fresh_reason();
  if (is_child()) return GOROVOD_TABLE_UNKNOWN;
  if (slot == NULL || *slot < 0 || n < 0 || (n > 0 && (keys == NULL || weights == NULL))) {
    EXPLAIN("rows from slot %d on, for %" PRId64 " keys at a NULL pointer", slot == NULL ? -1 : (int)*slot, n);
    return GOROVOD_TABLE_UNKNOWN;
  }
  return goTableCopy(table, slot, n, keys, weights, reason);
}
