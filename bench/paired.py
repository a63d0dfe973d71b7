"""Comparisons by turns: each round runs all ways, and ratios are those of one round, in which the machine is the same.

One way at least is there twice (A/A), to show how far two measurements of one thing are apart. The number of rounds is
fixed beforehand.
"""

import random
import statistics


def order(ways, round_):
    """The list of ways, in a round's order: in each round another one begins, and the others follow in turn."""
    first = round_ % len(ways)
    return ways[first:] + ways[:first]


def ratio(times, base):
    """The median of the rounds' ratios of times to base, and its interval: (median, low, high).

    95 % of the medians of resampled rounds lie in the interval.
    """
    ratios = [a / b for a, b in zip(times, base)]
    chance = random.Random(1)
    medians = sorted(statistics.median(chance.choices(ratios, k=len(ratios))) for _ in range(4000))
    return statistics.median(ratios), medians[100], medians[-101]


def measure(ways, rounds):
    """Run all ways in a warm-up round, which does not count, and in so many rounds.

    ways has by name a function that returns how many seconds it took. Returns the seconds of the rounds by name, and
    prints each as soon as it is known.
    """
    seconds = {name: [] for name in ways}
    width = max(map(len, ways))
    for round_ in range(rounds + 1):
        for name in order(list(ways), round_):
            took = ways[name]()
            print(f"round {round_}  {name:{width}}{took:7.2f} s{'' if round_ else '  (not counted)'}", flush=True)
            if round_:
                seconds[name].append(took)
    return seconds


def table(title, seconds, base):
    """Print the seconds of measure as a table, with the ratios of all ways to base, which is one of them."""
    print(f"\n| {title} | median, s | least, s | most, s | to {base} | 95 % |\n|---|---|---|---|---|---|")
    for name, all_seconds in seconds.items():
        cells = [f"{x:.2f}" for x in (statistics.median(all_seconds), min(all_seconds), max(all_seconds))]
        if name == base:
            cells += ["", ""]
        else:
            middle, low, high = ratio(all_seconds, seconds[base])
            cells += [f"{middle:.2f}", f"{low:.2f} to {high:.2f}"]
        print(f"| {name} | {' | '.join(cells)} |")


def cells(way, other, again):
    """The cells of a table's row: medians and the least of ``way`` and ``other``, their ratio, and that of A/A."""
    each = [f"{statistics.median(times):.2f}, {min(times):.2f}" for times in (way, other)]
    for one in (way, again):
        middle, low, high = ratio(one, other)
        each.append(f"{middle:.2f} ({low:.2f} to {high:.2f})")
    return each
