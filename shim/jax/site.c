/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "shim.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct site *sites; /* the existing ones */

static void destroy(void *site);

struct xla_type_id site_type, cuda_site_type;
static const struct xla_type_info site_info = {{sizeof site_info, NULL}, destroy};

static void destroy(void *p) {
  struct site *s = p;
  pthread_mutex_lock(&lock);
  for (struct site **at = &sites; *at != NULL; at = &(*at)->next) {
    if (*at == s) {
      *at = s->next;
      break;
    }
  }
  pthread_mutex_unlock(&lock);
  run_free(s->spare);
  free(s->given);
  free(s->name);
  free(s->single);
  free(s);
}

/* Numbers the copies of a place, and names it. */
static void add(struct site *s) {
  pthread_mutex_lock(&lock);
  for (struct site *other = sites; other != NULL; other = other->next)
    if (other->program == s->program && other->copy >= s->copy && strcmp(other->given, s->given) == 0)
      s->copy = other->copy + 1;
  s->next = sites;
  sites = s;
  pthread_mutex_unlock(&lock);
  if (*s->given == '\0') return;
  int n = s->copy == 0 ? asprintf(&s->name, "%s", s->given)
                       : asprintf(&s->name, "%s#%lld", s->given, (long long)s->copy);
  if (n < 0 || asprintf(&s->single, "%s.0", s->name) < 0) abort();
}

/* The attributes of a call, from the front end. */
#define NUMBERS(N) \
  N(type) N(reduce_op) N(root_rank) N(process_set) N(wire) N(program)
#define FACTORS(N) N(prescale) N(postscale)

static void set(struct site *s, const struct xla_text *name, int kind, const void *value) {
#define IS(text) (name->length == strlen(text) && memcmp(name->start, text, name->length) == 0)
  if (kind == XLA_ATTRIBUTE_STRING && IS("name")) {
    const struct xla_text *text = value;
    s->given = strndup(text->start, text->length);
  }
  if (kind != XLA_ATTRIBUTE_SCALAR) return;
  const struct xla_scalar *scalar = value;
#define NUMBER(field) if (scalar->type == XLA_S64 && IS(#field)) s->field = *(const int64_t *)scalar->value;
  NUMBERS(NUMBER)
#undef NUMBER
#define FACTOR(field) if (scalar->type == XLA_F64 && IS(#field)) s->field = *(const double *)scalar->value;
  FACTORS(FACTOR)
#undef FACTOR
#undef IS
}

static xla_error *instantiate(struct xla_call *call, struct xla_type_id *site_type) {
  xla_error *error = NULL;
  const struct xla_api *api = call->api;
  bool fits = api != NULL && api->version.minor >= XLA_MINOR;
  if (site_type->id == 0 && fits) { /* the first call is a question, while JAX registers the handler */
    static const char name[] = "gorovod.site";
    struct xla_type_register type = {{sizeof type, NULL}, {name, sizeof name - 1}, site_type, &site_info};
    error = api->type_register(&type);
    if (error != NULL) return error;
  }
  if (asked(call, *site_type, &error)) return error;
  struct site *s = calloc(1, sizeof *s);
  if (s == NULL) abort();
  for (int64_t i = 0; i < call->attributes.n; i++)
    set(s, call->attributes.names[i], call->attributes.kinds[i], call->attributes.values[i]);
  if (s->given == NULL) s->given = strdup("");
  add(s);
  struct xla_state state = {{sizeof state, NULL}, call->context, XLA_INSTANTIATE, site_type, s};
  error = call->api->state_set(&state);
  if (error != NULL) destroy(s);
  return error;
}

xla_error *gorovod_jax_instantiate(struct xla_call *call) { return instantiate(call, &site_type); }

xla_error *gorovod_jax_cuda_instantiate(struct xla_call *call) { return instantiate(call, &cuda_site_type); }

struct site *site_of(struct xla_call *call, struct xla_type_id *type, xla_error **error) {
  struct xla_state state = {{sizeof state, NULL}, call->context, XLA_INSTANTIATE, type, NULL};
  *error = call->api->state_get(&state);
  return state.state;
}
