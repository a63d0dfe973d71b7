/*
 * The exported functions of elastic jobs and their checkpoints.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "entry.h"

#include "_cgo_export.h"

int gorovod_elastic(void) { return is_child() ? GOROVOD_NOT_ELASTIC : goElastic(); }

int gorovod_elastic_updates(int64_t *stamp) {
  int64_t at = 0;
  int update = is_child() ? 0 : goElasticUpdates(&at);
  if (stamp != NULL) *stamp = at;
  return update;
}

int gorovod_elastic_await(int64_t timeout_ms) { return is_child() ? -1 : goElasticAwait(timeout_ms); }

void gorovod_elastic_committed(int64_t number) {
  if (!is_child()) goElasticCommitted(number);
}

void gorovod_elastic_intact(void) {
  if (!is_child()) goElasticIntact();
}

int gorovod_elastic_needs_sync(void) { return is_child() || goElasticNeedsSync(); }

int gorovod_checkpoint_due(int64_t number, int final) { return !is_child() && goCheckpointDue(number, final); }

int gorovod_checkpoint_save(int64_t number, const void *data, size_t bytes) {
  char *reason = fresh_reason();
  if (is_child()) return GOROVOD_PRECONDITION_ERROR;
  if (number < 0 || (data == NULL && bytes > 0)) {
    EXPLAIN("number must not be negative, and data not NULL");
    return GOROVOD_INVALID_ARGUMENT;
  }
  return goCheckpointSave(number, (void *)data, bytes, reason);
}

int gorovod_checkpoint_load(int64_t *number, void **data, size_t *bytes) {
  char *reason = fresh_reason();
  if (is_child()) return GOROVOD_PRECONDITION_ERROR;
  if (number == NULL || data == NULL || bytes == NULL) {
    EXPLAIN("number, data and bytes must not be NULL");
    return GOROVOD_INVALID_ARGUMENT;
  }
  return goCheckpointLoad(number, data, bytes, reason);
}
