"""Made-up clicks on films, for pytorch_clicks.py and tensorflow_clicks.py: no program of its own.

Each user and each film has hidden tastes, so there is something to find. Users and films are keys of any size, as
hashes of names are.
"""

import numpy as np

USERS, FILMS, SEEN = 20_000, 5_000, 4  # SEEN: how many films a user has seen before
TASTES, NUMBERS = 6, 3  # hidden ones of each user and film; numbers that are known of each click


class Clicks:
    """The same clicks whatever the number of ranks. ``batch(i, size, rank, ranks)`` is a rank's part of batch i."""

    def __init__(self, seed):
        made = np.random.default_rng(seed)
        self.seed = seed
        self.users = made.standard_normal((USERS, TASTES))
        self.films = made.standard_normal((FILMS, TASTES)) / TASTES**0.5
        self.numbers = made.standard_normal(NUMBERS) / 2
        self.user_keys = made.integers(-(1 << 62), 1 << 62, USERS)
        self.film_keys = made.integers(-(1 << 62), 1 << 62, FILMS)

    def batch(self, number, size, rank, ranks):
        """Arrays: a user and a film for each click, the films that the user has seen, numbers, and 1 for a click."""
        made = np.random.default_rng((self.seed, number))

        def some(n, *shape):  # a few come often
            return (made.random((size, *shape)) ** 2 * n).astype(np.int64)

        user, film, seen = some(USERS), some(FILMS), some(FILMS, SEEN)
        numbers = made.standard_normal((size, NUMBERS))
        liked = self.users[user] + self.films[seen].mean(1)
        logits = 1.5 * (liked * self.films[film]).sum(1) + numbers @ self.numbers - 1
        clicked = made.random(size) < 1 / (1 + np.exp(-logits))
        all_of_it = (
            self.user_keys[user], self.film_keys[film], self.film_keys[seen], numbers.astype(np.float32),
            clicked.astype(np.float32),
        )  # fmt: skip
        return [part[rank::ranks] for part in all_of_it]


def auc(scores, clicked):
    """The area under the ROC curve: how often a click has a higher score than what was not clicked."""
    ranks = np.empty(len(scores))
    ranks[np.argsort(scores)] = np.arange(1, len(scores) + 1)
    n = int((clicked > 0).sum())
    return (ranks[clicked > 0].sum() - n * (n + 1) / 2) / (n * (len(scores) - n))
