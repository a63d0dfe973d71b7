/*
 * Arithmetic of all types. The members' elements are combined in the order of the ranks, and each step is rounded to
 * the type (to nearest, ties to even). fp8 saturates, like CUDA's conversions.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <math.h>
#include <string.h>

#include "comm.h"

size_t size_of_type(int type) {
  static const char sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return sizes[type];
}

static bool is_integer(int type) { return type <= ncclUint64; }
static bool is_signed(int type) { return type == ncclInt8 || type == ncclInt32 || type == ncclInt64; }

/* A small float: bits of exponent and mantissa; finite: e4m3 has no infinity. */
struct format {
  int exponent, mantissa;
  bool finite, saturates;
};
static struct format format_of(int type) {
  switch (type) {
    case ncclFloat16: return (struct format){5, 10, false, false};
    case ncclBfloat16: return (struct format){8, 7, false, false};
    case ncclFloat8e4m3: return (struct format){4, 3, true, true};
  }
  return (struct format){5, 2, false, true};
}

static double unpack(struct format f, uint32_t bits) {
  int bias = (1 << (f.exponent - 1)) - 1, top = (1 << f.exponent) - 1;
  int e = bits >> f.mantissa & top, m = bits & ((1 << f.mantissa) - 1);
  double x;
  if (f.finite && e == top && m == (1 << f.mantissa) - 1)
    x = NAN;
  else if (!f.finite && e == top)
    x = m ? NAN : INFINITY;
  else if (e == 0)
    x = ldexp(m, 1 - bias - f.mantissa);
  else
    x = ldexp(m + (1 << f.mantissa), e - bias - f.mantissa);
  return bits >> (f.exponent + f.mantissa) & 1 ? -x : x;
}

static uint32_t pack(struct format f, double x) {
  int bias = (1 << (f.exponent - 1)) - 1, top = (1 << f.exponent) - 1;
  uint32_t sign = signbit(x) ? 1u << (f.exponent + f.mantissa) : 0;
  uint32_t infinity = (uint32_t)top << f.mantissa;
  double most = f.finite ? 448 : ldexp(2 - ldexp(1, -f.mantissa), bias);
  if (isnan(x)) return sign | infinity | (f.finite ? (1u << f.mantissa) - 1 : 1u << (f.mantissa - 1));
  x = fabs(x);
  if (x != 0 && !isinf(x)) {
    int e = ilogb(x) < 1 - bias ? 1 - bias : ilogb(x);
    x = ldexp(nearbyint(ldexp(x, f.mantissa - e)), e - f.mantissa);
  }
  if (x > most && !f.saturates) return sign | infinity;
  if (x > most) x = most;
  if (x == 0) return sign;
  int e = ilogb(x);
  if (e < 1 - bias) return sign | (uint32_t)ldexp(x, f.mantissa + bias - 1);
  return sign | (uint32_t)(e + bias) << f.mantissa | (uint32_t)(ldexp(x, f.mantissa - e) - (1 << f.mantissa));
}

static double read_float(int type, const char *at) {
  float f;
  double d;
  uint16_t h;
  switch (type) {
    case ncclFloat32: memcpy(&f, at, 4); return f;
    case ncclFloat64: memcpy(&d, at, 8); return d;
    case ncclFloat16: case ncclBfloat16: memcpy(&h, at, 2); return unpack(format_of(type), h);
  }
  return unpack(format_of(type), (uint8_t)*at);
}

static void write_float(int type, char *at, double x) {
  float f = (float)x;
  uint16_t h;
  switch (type) {
    case ncclFloat32: memcpy(at, &f, 4); return;
    case ncclFloat64: memcpy(at, &x, 8); return;
    case ncclFloat16: case ncclBfloat16: h = pack(format_of(type), x); memcpy(at, &h, 2); return;
  }
  *at = (char)pack(format_of(type), x);
}

static int64_t read_integer(int type, const char *at) {
  int32_t i;
  uint32_t u;
  int64_t l;
  switch (type) {
    case ncclInt8: return (int8_t)*at;
    case ncclUint8: return (uint8_t)*at;
    case ncclInt32: memcpy(&i, at, 4); return i;
    case ncclUint32: memcpy(&u, at, 4); return u;
  }
  memcpy(&l, at, 8);
  return l;
}

static double combine(int op, double a, double b) {
  switch (op) {
    case ncclProd: return a * b;
    case ncclMax: return isnan(a) || a > b ? a : b;
    case ncclMin: return isnan(a) || a < b ? a : b;
  }
  return a + b;
}

static uint64_t combine_integers(int type, int op, int64_t a, int64_t b) {
  bool less = is_signed(type) ? a < b : (uint64_t)a < (uint64_t)b;
  switch (op) {
    case ncclProd: return (uint64_t)a * (uint64_t)b;
    case ncclMax: return less ? b : a;
    case ncclMin: return less ? a : b;
  }
  return (uint64_t)a + (uint64_t)b;
}

double scale_of(int type, const void *factor) {
  return is_integer(type) ? (double)read_integer(type, factor) : read_float(type, factor);
}

static void scaled(int type, double factor, const char *from, char to[8]) {
  if (is_integer(type)) {
    uint64_t product = (uint64_t)read_integer(type, from) * (uint64_t)(int64_t)factor;
    memcpy(to, &product, 8); /* little endian: the low bytes come first */
  } else {
    write_float(type, to, read_float(type, from) * factor);
  }
}

void reduce_into(int type, int op, double factor, bool first, void *to, const void *from, size_t count) {
  size_t size = size_of_type(type);
  for (size_t i = 0; i < count; i++) {
    char *a = (char *)to + i * size, b[8];
    memcpy(b, (const char *)from + i * size, size);
    if (op >= ncclUserOps) scaled(type, factor, (const char *)from + i * size, b);
    if (first) {
      memcpy(a, b, size);
    } else if (is_integer(type)) {
      uint64_t r = combine_integers(type, op, read_integer(type, a), read_integer(type, b));
      memcpy(a, &r, size);
    } else {
      write_float(type, a, combine(op, read_float(type, a), read_float(type, b)));
    }
  }
}

bool average_before(int type, int members, double *factor) {
  char rounded[8];
  if (is_integer(type)) return false;
  write_float(type, rounded, 1.0 / members);
  *factor = read_float(type, rounded);
  return true;
}

void finish_average(int type, void *to, size_t count, int members) {
  size_t size = size_of_type(type);
  for (size_t i = 0; i < count; i++) {
    char *a = (char *)to + i * size;
    int64_t x = read_integer(type, a);
    int64_t q = is_signed(type) ? x / members : (int64_t)((uint64_t)x / (uint64_t)members);
    memcpy(a, &q, size);
  }
}
