/* Class probabilities from pairwise probabilities (SVMClassifier): the second method of Wu, Lin,
 * Weng 2004 (Probability Estimates for Multi-class Classification by Pairwise Coupling), with the
 * limits of LIBSVM. Minimizes the sum over pairs of (r_ji p_i - r_ij p_j)^2 by coordinate descent,
 * one class at a time, on one thread. */
#include "kernels/elementwise/each.h"

enum { MAX_ROUNDS = 100 }; /* maximum number of iterations */

/* q [n, n]: q_ii = sum over j of r_ji^2, q_ij = -r_ji r_ij; qp: scratch of n floats. */
static void couple(int32_t n, const m_f32 *pair, m_f32 *p, m_f32 *q, m_f32 *qp) {
  const float enough = 0.005f / (float)n;
  EW_PLAIN_FOR (int32_t i = 0; i < n; i++) p[i] = 1 / (float)n, q[(int64_t)i * n + i] = 0;
  for (int32_t i = 0; i < n; i++)
    EW_PLAIN_FOR (int32_t j = i + 1; j < n; j++, pair++) {
      const float ij = *pair, ji = 1 - ij;
      q[(int64_t)i * n + i] += ji * ji, q[(int64_t)j * n + j] += ij * ij;
      q[(int64_t)i * n + j] = q[(int64_t)j * n + i] = -ji * ij;
    }
  for (int round = 0; round < MAX_ROUNDS; round++) {
    float pqp = 0, worst = 0;
    for (int32_t i = 0; i < n; i++) {
      float sum = 0;
      EW_PLAIN_FOR (int32_t j = 0; j < n; j++) sum += q[(int64_t)i * n + j] * p[j];
      qp[i] = sum, pqp += p[i] * sum;
    }
    EW_PLAIN_FOR (int32_t i = 0; i < n; i++) {
      const float error = qp[i] > pqp ? qp[i] - pqp : pqp - qp[i];
      worst = error > worst ? error : worst;
    }
    if (worst < enough) break;
    for (int32_t i = 0; i < n; i++) {
      const m_f32 *row = q + (int64_t)i * n;
      const float step = (pqp - qp[i]) / row[i];
      p[i] += step;
      pqp = (pqp + step * (step * row[i] + 2 * qp[i])) / (1 + step) / (1 + step);
      EW_PLAIN_FOR (int32_t j = 0; j < n; j++)
        qp[j] = (qp[j] + step * row[j]) / (1 + step), p[j] /= 1 + step;
    }
  }
}

int32_t ew_k_couple(ew_context *ctx, const ew_couple_params *p, void *const *operand) {
  const m_f32 *pairs = operand[EW_COUPLE_PAIRS];
  m_f32 *y = operand[EW_COUPLE_Y], *room = operand[EW_COUPLE_SCRATCH];
  const int64_t n = p->classes;
  for (int64_t r = 0; r < p->rows && !ew_stopping(ctx); r++)
    couple(p->classes, pairs + r * (n * (n - 1) / 2), y + r * n, room, room + n * n);
  return EW_OK;
}
