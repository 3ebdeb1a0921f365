// The canonical arithmetic: what every kernel computes, to the bit, on every machine.
//
// Two machines that share a model, or check each other, must get equal bits. So the sums of a dot product are written down here
// as an order, not left to a compiler or a vector width; whatever is exact anyway (integers) stays free. Words: f32 is IEEE
// binary32, f64 binary64; every operation rounds to nearest, ties to even, and keeps subnormals. "a * b + c" is two roundings,
// fma(a, b, c) is one. RNE means to nearest, ties to even. bits() is the pattern of a float as an unsigned integer.
//
//  1. ENVIRONMENT. Before its first kernel a thread sets MXCSR = 0x1f80 or FPCR = 0 (kernels_thread_init). The program is built
//     with -ffp-contract=off and no part of -ffast-math. Floats are added, subtracted, multiplied, divided, rooted, fused and
//     converted, nothing else: no estimate instructions, no libm except fmaf, no half-precision dot units.
//  2. TREE of n lanes, n a power of two: neighbours are added, lane[i] = lane[2i] + lane[2i + 1], until one is left. Lanes start
//     at +0.
//  3. NON-FINITE. That a value is NaN is canonical, its sign and payload are not. What is stored, sent, hashed or sampled, and
//     every scale of rule 4, is checked to be finite, and the step fails otherwise, on every machine alike.
//  4. ACTIVATIONS, blocks of 32 (A32) or 256 (A256). m = the greatest bits(x[i]) & 0x7fffffff. m >= 0x7f800000: d = NaN and q = 0.
//     m < 0x21800000 (2^-60): d = +0 and q = 0. Otherwise, amax being m as a float, d = amax / 127, id = 127 / amax,
//     q[i] = RNE(x[i] * id), the product rounded first. |q| <= 127 always.
//  5. PRODUCTS of the 32-block types (q4_0, q4_1, q5_0, q5_1, q8_0) with A32. 8 lanes. Block b, ascending, belongs to lane b mod 8.
//     s = sum of w * q, exact (w: nibble - 8, nibble, 5 bits - 16, 5 bits, int8). lane = fma((float)s, dw * dx, lane), dw * dx
//     rounded. For q4_1 and q5_1 then lane = fma((float)(sum of q), mw * dx, lane). y = TREE.
//  6. PRODUCTS of q4_k, q5_k with A256. 4 lanes. S = sum over sub-blocks of scale * (sum of w * q), M likewise of min * (sum of q),
//     both exact. t = fma((float)S, d, -((float)M * dmin)); lane[b mod 4] = fma(t, dx, lane). y = TREE.
//  7. PRODUCTS of q6_k, q3_k with A256. 4 lanes. S = sum of scale * (w - offset) * q, exact. lane[b mod 4] = fma((float)S * d, dx, lane).
//  8. PRODUCTS of f32, f16, bf16 with f32. 32 lanes; i ascending, lane[i mod 32] = fma(w[i], x[i], lane). y = TREE. Nothing is added
//     past the last element (a lane may be -0).
//  9. Bias and residual: one add, in the graph's order. Mixture of experts: y = fma(weight, y_e, y) from +0, e ascending.
// 10. CONVERSIONS. f32 to f16 or bf16: RNE, subnormals kept, overflow to infinity. Back: exact.
// 11. RMSNORM. ss = rule 8 of x with itself; r = 1 / sqrt(ss / n + eps); y[i] = (x[i] * r) * w[i].
// 12. ROPE. freq[i] = (f32)EXPD(-(2.0 * i / d) * LOGD(theta)). The angle pos * freq is exact in f64. c and s = SINCOS of it, rounded
//     to f32. y0 = fma(x0, c, -(x1 * s)); y1 = fma(x0, s, x1 * c).
// 13. ATTENTION of one query of one head; K and V are f16. Positions fall into chunks of 256, counted from position 0; in each
//     only the visible ones take part. score = scale * acc, acc = fma(q[d], k[d], acc) over d ascending from +0,
//     scale = 1 / sqrt((f32)head_dim). max(a, b) = a > b ? a : b. m_c = max of the scores; p = EXP(score - m_c); l_c = TREE of 16
//     lanes, lane[position mod 16] += p; o_c[i] = fma(p, v[i], o_c[i]) over positions ascending from +0. Then over chunks ascending,
//     G = max of m_c, w = EXP(m_c - G): l = fma(w, l_c, l), o[i] = fma(w, o_c[i], o[i]) from +0; out[i] = o[i] * (1 / l).
// 14. EXP, 15. SIGMOID, SILU, GELU, TANH, ERF, softcap; GLU: y = SILU(gate) * up: base/fmath.h is their text.
// 16. SINCOS: base/fmath.c. r by three subtractions of products; sin = r * P(z), cos = Q(z), z = r * r, both by Horner in f64
//     (multiply, then add) from the highest Taylor coefficient down to 1.
// 17. EXPD, LOGD: base/fmath.c; f64, multiply and add only.
// 17a. SAMPLER. Candidates ordered by (value descending, id ascending). In that order: top-k; p_i = EXP((z_i - z_0) / T); sums in f64, in
//     sequence; top-p keeps the shortest prefix with sum >= top_p * S; min-p keeps p_i >= min_p * p_0; of what is left, the first
//     candidate whose running sum exceeds u * S. u = rng_philox_u01(seed, position). ROUTER: rule 8; p = EXP(l - max) over an f32 sum
//     by ids ascending; chosen by (p descending, id ascending); renormalised by the f32 sum of the chosen, ids ascending.
// 18. FREEDOM. Integer sums in any order; any tiling, batch, layout and number of threads; products with padding of zeros in
//     rules 5 to 7, where no lane is ever -0.
// 19. WIRE q8 of hidden states, per 32 values (a short last block is filled with zeros): d = the smallest power of two, at least 2^-126,
//     with max|x| / d <= 127; q[i] = RNE(x[i] / d); value = q[i] * d. A block whose q are all 0 is coded with d = 0. Because d is a power of
//     two, q * d is exact, and coding a decoded state again gives the same values.
// 20. LOOK-UP of one row (embedding). f32, f16, bf16: exact. q4_0, q5_0, q8_0: (f32)q * d. q4_1, q5_1: fma((f32)q, d, m). q * d has at
//     most 19 significant bits, so it is exact, and a product followed by an add would give the same bits. q6_k, q3_k: (f32)q * (d * scale),
//     at most 23 bits, exact. q4_k, q5_k: fma((f32)q, d * scale, -(dmin * min)), every product exact (22 bits).
// 21. SUMS ON THEIR WAY, where a plan asks for it (base/tensor_split.h, payload): a member's nodes are rounded by rule 10 (bf16) or in q8, in the
//     pieces in which they travel: where everybody joins all nodes, those that it joins itself as well, else only those that it sends. So are the sums
//     that travel on. q8, per 16 values (a short last block has as many as there are): d = max|x| / 127.0f, rounded to bf16 by rule 10, and 0
//     where that is below 2^-67; id = 1.0f / d; q[i] = RNE_int(x[i] * id), the largest of them 127 (0 with d = 0); value = q[i] * d, which is
//     exact. |x| beyond 127 * 2^120 fails.
#ifndef HEARTH_KERNELS_CANONICAL_H
#define HEARTH_KERNELS_CANONICAL_H

// Nodes exchange it when they connect; a cluster never mixes two. Whoever changes a rule changes it and every golden hash.
#define CANON_VERSION 1

#endif
