# SPDX-License-Identifier: Apache-2.0
"""The roofline that the clock is compared with: time = max(operations / F, bytes / B) + L.

F and B are parts of a GPU's nominal rates, so that a roofline of one type of number, or of one GPU, says something of
another. The three parameters make the sum of |log(roofline / published)| least."""

import dataclasses
import math

from published import FAMILIES

# Nominal rates: 10^6 operations and 10^6 bytes a microsecond (TFLOP/s, TB/s). 80 units of an MI308X at an MI300X's clock.
COMPUTE = {("MI300X", "bf16"): 1307.4, ("MI325X", "i8"): 2614.9, ("MI308X", "bf16"): 344.1, ("MI308X", "i8"): 688.1,
           ("MI308X", "f8"): 688.1, ("MI355X", "bf16"): 2516.6, ("MI355X", "f8"): 5033.2}
MEMORY = {"MI300X": 5.3, "MI325X": 6.0, "MI308X": 5.3, "MI355X": 8.0}
STEPS, ROUNDS = 9, 14  # of the search: points of each parameter's range, which then shrinks to half


@dataclasses.dataclass(frozen=True)
class Roofline:
    compute: float  # parts of the nominal rates
    memory: float
    launch_us: float

    def us(self, row):
        compute, memory = nominal_us(row)
        return max(compute / self.compute, memory / self.memory) + self.launch_us


def nominal_us(row):
    """Returns the microseconds of a row's operations and of its bytes at nominal rates."""
    rate = COMPUTE[row.gpu, FAMILIES[row.family][1]]
    return row.operations / rate / 1e6, row.bytes / MEMORY[row.gpu] / 1e6


def error(model_us, published_us):
    return abs(math.log(model_us / published_us))


def points(low, high):
    return [low + (high - low) * i / (STEPS - 1) for i in range(STEPS)]


def fit(rows):
    """Returns the best roofline of some rows. A grid of candidates, which shrinks around the best of them."""
    work = [(*nominal_us(r), r.us) for r in rows]
    longest = min(r.us for r in rows)

    def loss(candidate):
        compute, memory, launch = math.exp(candidate[0]), math.exp(candidate[1]), candidate[2]
        return sum(abs(math.log((max(c / compute, m / memory) + launch) / us)) for c, m, us in work)

    ranges = [(math.log(0.02), 0.0), (math.log(0.02), 0.0), (0.0, longest)]
    for _ in range(ROUNDS):
        grid = [points(low, high) for low, high in ranges]
        best = min(((c, m, l) for c in grid[0] for m in grid[1] for l in grid[2]), key=loss)
        quarter = [(high - low) / 4 for low, high in ranges]
        ranges = [(b - q, b + q) for b, q in zip(best, quarter)]
        ranges[2] = (max(0.0, ranges[2][0]), ranges[2][1])
    return Roofline(math.exp(best[0]), math.exp(best[1]), best[2])
