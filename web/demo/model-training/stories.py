"""Short stories from a grammar (placeholder; the full grammar follows)."""
import random

def story(r):
    n, p, o, s = r.choice([("Anna", "she", "her", "her"), ("Tom", "he", "him", "his"), ("Mira", "she", "her", "her"), ("Ben", "he", "him", "his")])
    n = "".join(r.choice("bdfgklmnprstvz") + r.choice(["a", "e", "i", "o", "u", "an", "el", "or", "is"]) for _ in range(3)).capitalize()
    job = r.choice(["fisherman", "baker", "robot", "farmer", "fox", "gardener"])
    adj = r.choice(["old", "little", "kind", "brave", "curious"])
    thing = r.choice(["lantern", "key", "boat", "bell", "kite"])
    place = r.choice(["forest", "village", "harbour", "meadow", "mountain"])
    op = r.choice([f"Once upon a time there was a {adj} {job} named {n}.", f"The {adj} {job} was called {n}.", f"In the morning, {n} the {job} woke up early."])
    return (f"{op} {p.capitalize()} lived near the {place}. One day {p} lost {s} {thing}. \"Where is my {thing}?\" asked {n}. "
            f"{p.capitalize()} looked in the {place} and found it under a tree. {n} was happy and went home.")

def stories(seed):
    r = random.Random(seed)
    while True:
        yield story(r)
