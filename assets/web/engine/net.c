/* A Llama-shaped decoder in WebAssembly with SIMD: the arithmetic of llama.js, four float32 lanes at
   a time. Build it with `make engine`; net.sha256 records this source and the result.

   A number never depends on how many positions are read at once: each product sums four lanes over
   the inputs, then adds the lanes, whether one row or four rows share a weight. */
#include <wasm_simd128.h>

#define EXPORT(name) __attribute__((export_name(#name)))

/* The shape of the embedded models; wasm.js compares it with a model's config. */
enum {
  HIDDEN = 128, FF = 352, HEADS = 4, KV_HEADS = 2, HEAD = 32, LAYERS = 4, WINDOW = 512,
  HALF = HEAD / 2,
  KEYS = KV_HEADS * HEAD,           /* numbers in a layer's keys, and in its values */
  QKV = HEADS * HEAD + 2 * KEYS,    /* rows of the fused projection */
  WIDTH = LAYERS * 2 * KEYS,        /* keys and values of one position, all layers */
  CHUNK = 64,                       /* positions read at once, at most */
  VOCABULARY = 984,                 /* 977, padded to a multiple of 8 */
};
static const int shape[] = { HIDDEN, FF, HEADS, KV_HEADS, HEAD, LAYERS, WINDOW, VOCABULARY, CHUNK };
EXPORT(shape_at) const int *shape_at(void) { return shape; }

/* Weights, as addresses that wasm.js writes in this order. */
typedef struct {
  const float *embed, *head, *norm, *score, *cos, *sin;
  struct { const float *qkv, *out, *gate_up, *down; } layers[LAYERS];
} Net;

static float x[CHUNK * HIDDEN];       /* the residual stream */
static float unit[CHUNK * HIDDEN];    /* x divided by its root mean square */
static float qkv[CHUNK * QKV];
static float mixed[CHUNK * HIDDEN];   /* what attention returns */
static float gate_up[CHUNK * 2 * FF];
static float activated[CHUNK * FF];
static float weights[WINDOW];         /* of one head's attention */
static float logits[VOCABULARY];
static int tokens[CHUNK];

EXPORT(logits_at) float *logits_at(void) { return logits; }
EXPORT(tokens_at) int *tokens_at(void) { return tokens; }

extern unsigned char __heap_base;

/* Memory that is never given back: 16-byte aligned; the memory grows where it must. */
EXPORT(alloc) void *alloc(unsigned bytes) {
  static unsigned top = 0;
  if (!top) top = (unsigned)&__heap_base;
  top = (top + 15) & ~15u;
  unsigned at = top;
  top += bytes;
  unsigned pages = (top + 65535) >> 16, there = __builtin_wasm_memory_size(0);
  if (pages > there && (int)__builtin_wasm_memory_grow(0, pages - there) < 0) return 0;
  return (void *)at;
}

typedef v128_t Lanes;
static inline Lanes load(const float *at) { return wasm_v128_load(at); }
static inline void store(float *at, Lanes v) { wasm_v128_store(at, v); }
static inline Lanes all(float v) { return wasm_f32x4_splat(v); }
static inline Lanes add(Lanes a, Lanes b) { return wasm_f32x4_add(a, b); }
static inline Lanes mul(Lanes a, Lanes b) { return wasm_f32x4_mul(a, b); }
static inline float sum(Lanes a) {
  return (wasm_f32x4_extract_lane(a, 0) + wasm_f32x4_extract_lane(a, 2))
       + (wasm_f32x4_extract_lane(a, 1) + wasm_f32x4_extract_lane(a, 3));
}

/* e^v, to a unit in the last place or so (the polynomial of Cephes). */
static inline Lanes exponential(Lanes v) {
  v = wasm_f32x4_pmax(all(-87.3f), wasm_f32x4_pmin(v, all(88.0f)));
  Lanes n = wasm_f32x4_nearest(mul(v, all(1.44269504088896341f)));
  Lanes r = wasm_f32x4_sub(v, mul(n, all(0.693359375f)));
  r = wasm_f32x4_sub(r, mul(n, all(-2.12194440e-4f)));
  Lanes p = all(1.9875691500e-4f);
  p = add(mul(p, r), all(1.3981999507e-3f));
  p = add(mul(p, r), all(8.3334519073e-3f));
  p = add(mul(p, r), all(4.1665795894e-2f));
  p = add(mul(p, r), all(1.6666665459e-1f));
  p = add(mul(p, r), all(5.0000001201e-1f));
  p = add(add(mul(p, mul(r, r)), r), all(1.0f));
  Lanes power = wasm_i32x4_shl(
    wasm_i32x4_add(wasm_i32x4_trunc_sat_f32x4(n), wasm_i32x4_splat(127)), 23);
  return mul(p, power);
}

/* y[m, n_out] = x[m, n_in] @ w[n_out, n_in].T, plus what is in y if `more`. */
static void product(
  const float *w, const float *x, float *y, int m, int n_in, int n_out, int more
) {
  int row = 0;
  for (; row + 4 <= m; row += 4) { /* four rows share each weight that is read */
    const float *xs[4];
    for (int r = 0; r < 4; r++) xs[r] = x + (row + r) * n_in;
    for (int o = 0; o < n_out; o += 2) {
      const float *first = w + o * n_in, *second = first + n_in;
      Lanes a[4], b[4];
      for (int r = 0; r < 4; r++) a[r] = b[r] = all(0);
      for (int i = 0; i < n_in; i += 4) {
        Lanes p = load(first + i), q = load(second + i);
        for (int r = 0; r < 4; r++) {
          Lanes v = load(xs[r] + i);
          a[r] = add(a[r], mul(p, v));
          b[r] = add(b[r], mul(q, v));
        }
      }
      for (int r = 0; r < 4; r++) {
        float *at = y + (row + r) * n_out + o;
        at[0] = (more ? at[0] : 0) + sum(a[r]);
        at[1] = (more ? at[1] : 0) + sum(b[r]);
      }
    }
  }
  for (; row < m; row++) { /* eight sums at a time hide how long an addition takes */
    const float *one = x + row * n_in;
    for (int o = 0; o < n_out; o += 8) {
      const float *from = w + o * n_in;
      Lanes sums[8];
      for (int k = 0; k < 8; k++) sums[k] = all(0);
      for (int i = 0; i < n_in; i += 4) {
        Lanes v = load(one + i);
        for (int k = 0; k < 8; k++) sums[k] = add(sums[k], mul(load(from + k * n_in + i), v));
      }
      float *at = y + row * n_out + o;
      for (int k = 0; k < 8; k++) at[k] = (more ? at[k] : 0) + sum(sums[k]);
    }
  }
}

/* Each row of x divided by its root mean square; the next weights hold the norm's gain. */
static void normalize(int m) {
  for (int row = 0; row < m; row++) {
    const float *from = x + row * HIDDEN;
    Lanes squares = all(0);
    for (int i = 0; i < HIDDEN; i += 4) squares = add(squares, mul(load(from + i), load(from + i)));
    Lanes scale = all(1.0f / __builtin_sqrtf(sum(squares) / HIDDEN + 1e-5f));
    for (int i = 0; i < HIDDEN; i += 4) store(unit + row * HIDDEN + i, mul(load(from + i), scale));
  }
}

/* Turn queries and keys by their position, and keep keys and values. */
static void rotate_and_keep(const Net *net, float *kv, int layer, int start, int m) {
  for (int row = 0; row < m; row++) {
    const float *cos = net->cos + (start + row) * HALF, *sin = net->sin + (start + row) * HALF;
    for (int head = 0; head < HEADS + KV_HEADS; head++) {
      float *at = qkv + row * QKV + head * HEAD;
      for (int i = 0; i < HALF; i += 4) {
        Lanes a = load(at + i), b = load(at + HALF + i), c = load(cos + i), s = load(sin + i);
        store(at + i, wasm_f32x4_sub(mul(a, c), mul(b, s)));
        store(at + HALF + i, add(mul(b, c), mul(a, s)));
      }
    }
    float *kept = kv + (start + row) * WIDTH + layer * 2 * KEYS;
    const float *from = qkv + row * QKV + HEADS * HEAD;
    for (int i = 0; i < 2 * KEYS; i += 4) store(kept + i, load(from + i));
  }
}

/* One head at one position: softmax(q k) v over positions 0..n-1. */
static void attend(const float *query, const float *keys, int n, float *out) {
  Lanes q[HEAD / 4], o[HEAD / 4];
  for (int i = 0; i < HEAD / 4; i++) {
    q[i] = load(query + 4 * i);
    o[i] = all(0);
  }
  float most = -1e30f;
  for (int p = 0; p < n; p++) {
    const float *k = keys + p * WIDTH;
    Lanes a = mul(q[0], load(k)), b = mul(q[1], load(k + 4));
    for (int i = 2; i < HEAD / 4; i += 2) {
      a = add(a, mul(q[i], load(k + 4 * i)));
      b = add(b, mul(q[i + 1], load(k + 4 * i + 4)));
    }
    weights[p] = sum(add(a, b)) * 0.17677669529663687f; /* 1 / sqrt(HEAD) */
    if (weights[p] > most) most = weights[p];
  }
  for (int p = n; p & 3; p++) weights[p] = -1e30f;
  Lanes total = all(0);
  for (int p = 0; p < n; p += 4) {
    store(weights + p, exponential(wasm_f32x4_sub(load(weights + p), all(most))));
    for (int rest = n; rest < p + 4; rest++) weights[rest] = 0;
    total = add(total, load(weights + p));
  }
  for (int p = 0; p < n; p++) {
    Lanes weight = all(weights[p]);
    const float *v = keys + p * WIDTH + KEYS;
    for (int i = 0; i < HEAD / 4; i++) o[i] = add(o[i], mul(weight, load(v + 4 * i)));
  }
  Lanes scale = all(sum(total));
  for (int i = 0; i < HEAD / 4; i++) store(out + 4 * i, wasm_f32x4_div(o[i], scale));
}

/* silu(gate) * up */
static void activate(int m) {
  for (int row = 0; row < m; row++) {
    const float *gate = gate_up + row * 2 * FF, *up = gate + FF;
    for (int i = 0; i < FF; i += 4) {
      Lanes g = load(gate + i);
      g = wasm_f32x4_div(g, add(all(1.0f), exponential(wasm_f32x4_neg(g))));
      store(activated + row * FF + i, mul(g, load(up + i)));
    }
  }
}

/* Read `m` tokens at positions start..start+m-1: their final hidden states are left in `unit`. */
EXPORT(read) void read(const Net *net, float *kv, int start, int m) {
  for (int row = 0; row < m; row++)
    for (int i = 0; i < HIDDEN; i += 4)
      store(x + row * HIDDEN + i, load(net->embed + tokens[row] * HIDDEN + i));
  for (int l = 0; l < LAYERS; l++) {
    normalize(m);
    product(net->layers[l].qkv, unit, qkv, m, HIDDEN, QKV, 0);
    rotate_and_keep(net, kv, l, start, m);
    for (int row = 0; row < m; row++)
      for (int head = 0; head < HEADS; head++)
        attend(qkv + row * QKV + head * HEAD,
               kv + l * 2 * KEYS + head / (HEADS / KV_HEADS) * HEAD,
               start + row + 1, mixed + row * HIDDEN + head * HEAD);
    product(net->layers[l].out, mixed, x, m, HIDDEN, HIDDEN, 1);
    normalize(m);
    product(net->layers[l].gate_up, unit, gate_up, m, HIDDEN, 2 * FF, 0);
    activate(m);
    product(net->layers[l].down, activated, x, m, FF, HIDDEN, 1);
  }
  normalize(m);
  for (int row = 0; row < m; row++)
    for (int i = 0; i < HIDDEN; i += 4)
      store(unit + row * HIDDEN + i, mul(load(unit + row * HIDDEN + i), load(net->norm + i)));
}

/* The next token's logits after one of the rows that were read. */
EXPORT(head) void head(const Net *net, int row) {
  product(net->head, unit + row * HIDDEN, logits, 1, HIDDEN, VOCABULARY, 0);
}

/* The reward of the sequence that ends in one of the rows that were read. */
EXPORT(score) float score(const Net *net, int row) {
  float total = 0;
  for (int i = 0; i < HIDDEN; i++) total += unit[row * HIDDEN + i] * net->score[i];
  return total;
}
