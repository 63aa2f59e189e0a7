// Times of tokens from weights of attention: dynamic time warping. Mirrors
// python/edgewise/logic/speech/alignment.py.

const TIME_PRECISION = 0.02; // seconds of a position of Whisper's encoder

/**
 * The path of least cost from the first to the last element of a matrix. Sums are float32, so that
 * ties are decided as in the mirrored code.
 */
export function dynamicTimeWarping(cost: readonly ArrayLike<number>[]): [number[], number[]] {
  const columns = cost[0]!.length;
  let above = new Float32Array(columns + 1).fill(Number.POSITIVE_INFINITY);
  above[0] = 0;
  const traces = cost.map((row) => {
    const here = new Float32Array(columns + 1).fill(Number.POSITIVE_INFINITY);
    const trace = new Uint8Array(columns + 1);
    for (let j = 1; j <= columns; j++) {
      const [diagonal, up, left] = [above[j - 1]!, above[j]!, here[j - 1]!];
      const step = diagonal < up && diagonal < left ? 0 : up < diagonal && up < left ? 1 : 2;
      here[j] = row[j - 1]! + [diagonal, up, left][step]!;
      trace[j] = step;
    }
    above = here;
    return trace;
  });
  const [rows, places]: [number[], number[]] = [[], []];
  for (let i = cost.length, j = columns; i > 0 || j > 0; ) {
    rows.push(i - 1);
    places.push(j - 1);
    const step = i === 0 ? 2 : j === 0 ? 1 : traces[i - 1]![j]!;
    if (step !== 2) i--;
    if (step !== 1) j--;
  }
  return [rows.reverse(), places.reverse()];
}

/**
 * When each token is spoken, in seconds.
 * @param weights [tokens][positions] of attention; higher is likelier
 */
export function tokenTimes(weights: readonly ArrayLike<number>[]): number[] {
  const [rows, places] = dynamicTimeWarping(weights.map((row) => Array.from(row, (x) => -x)));
  const times: number[] = [];
  rows.forEach((row, i) => {
    if (row === times.length) times.push(places[i]! * TIME_PRECISION);
  });
  return times;
}
