"""Short stories from a grammar: seeded, pure Python, no downloads.

`python stories.py 5` prints five of them. The sentences are in stories.json.

A story is a plot (a function below) that casts characters from words.py, picks a trouble and
somebody who is able to solve it, and tells it in templates. In a template `[a|b|]` picks one
alternative, `{slot}` names something of the story (a capital first letter capitalises it): `{h}` is
the hero, `{he} {him} {his} {himself} {h's} {said}` follow from who that is, `{k}`/`{khe}`/`{ksaid}`
are the same for the helper and `{m}`/`{mhe}`/`{msaid}` for a third character.
"""

import json
import random
import re
import sys
from functools import cache
from pathlib import Path

from words import (
    ANIMAL_ADJ,
    ANIMALS,
    BOYS,
    CHILD_ADJ,
    COLOURS,
    CROPS,
    FLOWERS,
    FOODS,
    GIRLS,
    HIGH_ROOF,
    HIGH_TREE,
    HOLES_DIG,
    HOLES_SQUEEZE,
    HOMES,
    INSTRUMENTS,
    JOBS,
    MORALS,
    ORIGINS,
    PERSON_ADJ,
    PETS,
    ROBOT_ADJ,
    ROBOTS,
    SONGS,
    SYLLABLES,
    TAILS_F,
    TAILS_M,
    THINGS,
    TIMES,
    WATERS,
    WEATHER,
)

SENTENCES = json.loads(Path(__file__).with_name("stories.json").read_text("utf-8"))
OUT = ("day", "morning", "evening")  # times for stories that happen outside
PRONOUNS = {
    "he": ("he", "him", "his", "himself"),
    "she": ("she", "her", "her", "herself"),
    "it": ("it", "it", "its", "itself"),
    "I": ("I", "me", "my", "myself"),
}
SPEECH = set(
    "said asked cried whispered answered called replied laughed sighed shouted thought promised"
    " explained murmured begged admitted announced muttered suggested grinned".split()
)
CHILD_LIKES = SENTENCES["child_likes"]
ROBOT_MADE = SENTENCES["robot_made"]
ROBOT_JOBS = SENTENCES["robot_jobs"]


# what somebody was doing | light or dark outside | warm or cold
DOINGS = SENTENCES["doings"]

FANTASY = SENTENCES["fantasy"]


# ----------------------------------------------------------------------
# the machinery


@cache
def parse(text):
    """`a [b|c {d}] e` -> ["a ", [["b"], ["c {d}"]], " e"]"""

    def seq(i, inside):
        out, buf = [], ""
        while i < len(text):
            c = text[i]
            if c == "[":
                if buf:
                    out.append(buf)
                    buf = ""
                alts, i = [], i + 1
                while True:
                    alt, i = seq(i, True)
                    alts.append(alt)
                    if text[i] == "]":
                        break
                    i += 1
                out.append(alts)
            elif inside and c in "|]":
                break
            else:
                buf += c
            i += 1
        if buf:
            out.append(buf)
        assert not inside or i < len(text), "unclosed [ in " + text
        return out, i

    return seq(0, False)[0]


SLOT = re.compile(r"\{([^}]+)\}")
ARTICLE = re.compile(r"\b([Aa]) (?=[aeiouAEIOU]|hon|hour)(?!(?:one|once|uni|use|eu|U-)\w*)")
START = re.compile(r"(^|[.!?]\s+|\n)([a-z])")


class Char:
    """A character: how the story speaks of it."""

    def __init__(
        self, noun, adj, pron, kind, name=None, can="", body="hand", place="", job=None, first=None
    ):
        self.noun, self.adj, self.pron, self.kind, self.name = noun, adj, pron, kind, name
        self.can, self.body, self.place, self.job = can, body, place, job
        self.first = first  # "my uncle Tom": how it is called at first, and `name` later

    def ref(self, r):
        if self.pron == "I":
            return "I"
        if not self.name:
            return "the " + self.noun
        return (
            self.name if self.kind in ("child", "human") or r.random() < 0.8 else "the " + self.noun
        )

    def slot(self, word, r):
        if word == "":
            return self.ref(r)
        if word == "'s":
            return "my" if self.pron == "I" else self.ref(r) + "'s"
        if word in ("he", "him", "his", "himself"):
            return PRONOUNS[self.pron][("he", "him", "his", "himself").index(word)]
        if word in SPEECH:
            return f"I {word}" if self.pron == "I" else f"{word} {self.ref(r)}"
        if word == "intro":
            if self.first:
                return self.first
            if self.pron == "I":
                return "I"
            if not self.name:
                return f"a {self.adj} {self.noun}"
            return (
                f"a {self.adj} {self.noun}"
                f" {r.choice(['named', 'named', 'called', 'called', 'by the name of'])} {self.name}"
            )
        if word == "full":
            if self.pron == "I":
                return "I"
            if self.first:
                return self.first
            if not self.name:
                return f"the {self.adj} {self.noun}"
            if self.kind == "child":
                return self.name
            return r.choice(
                [
                    self.name,
                    f"{self.name} the {self.noun}",
                    f"the {self.adj} {self.noun} {self.name}",
                ]
            )
        if word == "noun":
            return self.noun
        if word == "kind":  # "the fox", whoever it is called
            return self.name if self.first else "the " + self.noun
        if word == "name":
            return self.name or "my friend"
        if word == "adj":
            return self.adj
        if word == "body":
            return self.body
        raise KeyError(word)


def dark_hour(t):
    return t.hour in ("night", "evening")


class Teller:
    def __init__(self, r):
        self.r, self.v, self.chars = r, {}, {}
        self.size = r.choice([0, 1, 1, 2, 2, 2])  # short, middle, long
        self.title = None
        self.used_names = set()

    def pick(self, seq):
        return self.r.choice(seq)

    def chance(self, p):
        return self.r.random() < p

    def told(self, key, **holes):
        """The sentences of that name in stories.json: a template, or a list.

        Of {"pick": list} it picks one; of {"if": name, "then": ..., "else": ...} the one that
        holes[name] decides. "@name" stands for what holes[name] returns, or "@method
        argument ..." for a method's answer; "@*" for each of its items. A pair with a number in
        front is one of `pages`.
        """

        def hole(text):
            name, *arguments = text.lstrip("@*").split()
            return holes[name]() if name in holes else getattr(self, name)(*arguments)

        def walk(x):
            if isinstance(x, str):
                return hole(x) if x.startswith("@") else x
            if isinstance(x, dict) and "if" in x:
                return walk(x["then" if holes[x["if"]]() else "else"])
            if isinstance(x, dict):
                return self.pick(walk(x["pick"]))
            if not isinstance(x, list):
                return x
            if len(x) == 2 and isinstance(x[0], int):
                return x[0], walk(x[1])
            out = []
            for item in x:
                if isinstance(item, str) and item.startswith("@*"):
                    out += hole(item)
                else:
                    out.append(walk(item))
            return out

        return walk(SENTENCES[key])

    def one(self, key, **holes):
        """One of the sentences of that name."""
        return self.pick(self.told(key, **holes))

    def value(self, key):
        if key in self.v:
            return self.tell(self.v[key])
        if key == "they":  # hero and helper
            return "we" if self.chars["h"].pron == "I" else "they"
        if key in self.chars:
            return self.chars[key].ref(self.r)
        for prefix in ("h", "k", "m"):
            char = self.chars.get(prefix)
            if char is None:
                continue
            rest = key[1:] if key.startswith(prefix) else None
            if prefix == "h" and (key in ("he", "him", "his", "himself") or key in SPEECH):
                rest = key
            if (
                rest is not None
                and key not in ("he", "him", "his", "himself", *SPEECH)
                or prefix == "h"
                and rest == key
            ):
                try:
                    return char.slot(rest, self.r)
                except KeyError:
                    pass
        if key[0].isupper():
            low = self.value(key[0].lower() + key[1:])
            return low[0].upper() + low[1:]
        raise KeyError(key)

    def tell(self, text):
        def walk(parts):
            return "".join(p if isinstance(p, str) else walk(self.r.choice(p)) for p in parts)

        return SLOT.sub(lambda m: self.value(m.group(1)), walk(parse(text)))

    def pages(self, *paragraphs):
        """Paragraphs are lists of templates; numbers in front ((1, "...")) leave out what is too
        long for this story.
        """
        out = []
        for paragraph in paragraphs:
            words = []
            for item in paragraph:
                if isinstance(item, tuple):
                    if item[0] > self.size or (item[0] == self.size and self.chance(0.3)):
                        continue
                    item = item[1]
                if item:
                    words.append(self.tell(item).strip())
            if any(words):
                out.append(" ".join(w for w in words if w))
        text = "\n\n".join(out)
        text = re.sub(r"  +", " ", text).replace(" ,", ",").replace(",,", ",").replace(" .", ".")
        text = ARTICLE.sub(lambda m: m.group(1) + "n ", text)
        return START.sub(lambda m: m.group(1) + m.group(2).upper(), text)

    # ----------------------------------------------------------------------
    # casting

    def name(self, pool, female):
        while True:
            if self.chance(0.12):  # invented names: the model learns to copy what it has never seen
                name = "".join(self.r.choices(SYLLABLES, k=self.r.choice([1, 1, 2]))) + self.pick(
                    TAILS_F if female else TAILS_M
                )
                name = name.capitalize()
            else:
                name = self.pick(pool)
            if name not in self.used_names:
                self.used_names.add(name)
                return name

    def person(self, not_like=None, can=None, named=0.75, job=None):
        """Somebody with a job.

        `not_like` helps readers to tell two characters apart by their pronouns.
        """
        jobs = [j for j in JOBS if (can is None or j[5] in can) and (job is None or j[0] == job)]
        noun, gender, where, did, made, ability = self.pick(jobs)
        female = gender == "f" or gender == "a" and self.chance(0.5)
        if not_like and not_like.pron in ("he", "she") and gender == "a" and self.chance(0.85):
            female = not_like.pron == "he"
        return Char(
            noun,
            self.pick(PERSON_ADJ),
            "she" if female else "he",
            "human",
            self.name(GIRLS if female else BOYS, female) if self.chance(named) else None,
            ability,
            "hand",
            where,
            (where, did, made),
        )

    def child(self, not_like=None):
        female = self.chance(0.5)
        if not_like and not_like.pron in ("he", "she") and self.chance(0.9):
            female = not_like.pron == "he"
        return Char(
            "girl" if female else "boy",
            self.pick(CHILD_ADJ),
            "she" if female else "he",
            "child",
            self.name(GIRLS if female else BOYS, female),
        )

    def animal(self, not_like=None, can=None, groups=None, named=0.5, species=None):
        pool = [
            a
            for a in ANIMALS
            if (can is None or a[1] in can)
            and (groups is None or a[4] in groups)
            and (species is None or a[0] in species)
        ]
        if not_like:
            pool = [a for a in pool if a[0] != not_like.noun] or pool
        noun, ability, body, where, group = self.pick(pool)
        female = self.chance(0.5)
        if not_like and not_like.pron in ("he", "she") and self.chance(0.9):
            female = not_like.pron == "he"
        adj = self.pick(ANIMAL_ADJ)
        return Char(
            noun,
            adj,
            "she" if female else "he",
            "animal",
            self.name(PETS, female) if self.chance(named) else None,
            ability,
            body,
            where,
        )

    def robot(self, not_like=None):
        pron = self.pick(["it", "he", "she"])
        if not_like and not_like.pron == pron:
            pron = "it"
        return Char(
            "robot",
            self.pick(ROBOT_ADJ),
            pron,
            "robot",
            self.name(ROBOTS, pron == "she") if self.chance(0.8) else None,
            "light",
            "hand",
        )

    def relative(self):
        female = self.chance(0.5)
        noun = self.pick(self.told("relative.noun") if female else self.told("relative.noun2"))
        if noun.startswith("grand"):
            name, first = noun.capitalize(), f"my {noun}"
        else:
            name = self.name(GIRLS if female else BOYS, female)
            first = f"my {noun} {name}"
            name = f"{noun.capitalize()} {name}" if noun in ("aunt", "uncle") else name
        person = self.person()
        return Char(
            person.noun,
            "",
            "she" if female else "he",
            "child" if noun in ("sister", "brother", "cousin", "best friend") else "human",
            name,
            person.can,
            "hand",
            "",
            person.job,
            first,
        )

    def pet(self):
        noun = self.one("pet.noun")
        female = self.chance(0.5)
        name = self.name(PETS, female)
        return Char(
            noun,
            "",
            "she" if female else "he",
            "animal",
            name,
            "",
            "paw",
            (self.one("pet.said") if noun in ("cat", "dog", "hamster") else "behind our house"),
            None,
            f"{self.pick(['my', 'our'])} {noun} {name}",
        )

    def fantasy(self):
        noun, pron, place, adj = self.pick(FANTASY)
        female = pron == "she" or pron == "a" and self.chance(0.5)
        return Char(
            noun,
            self.pick(adj.split(", ")),
            "she" if female else "he",
            "animal",
            (
                self.name(PETS if self.chance(0.5) else GIRLS if female else BOYS, female)
                if self.chance(0.6)
                else None
            ),
            "",
            "hand",
            place,
        )

    def hero(self, *kinds):
        kinds = kinds or ("human", "human", "child", "child", "animal", "robot")
        if self.chance(0.05) and "human" in kinds and "child" in kinds:
            return self.cast("h", self.relative())
        kind = self.pick(kinds)
        if "animal" in kinds and self.chance(0.12):
            return self.cast("h", self.fantasy())
        if kind == "child" and self.chance(0.07):
            return self.cast("h", Char("child", "", "I", "child", "I"))
        return self.cast(
            "h",
            {"human": self.person, "child": self.child, "animal": self.animal, "robot": self.robot}[
                kind
            ](),
        )

    def cast(self, key, char):
        self.chars[key] = char
        return char

    # ----------------------------------------------------------------------
    # time and place

    def setting(self, season=None, times=None, homes=None):
        pool = [
            x
            for x in TIMES
            if (season is None or x[1] == season) and (times is None or x[2] in times)
        ]
        if self.chars["h"].pron == "I":
            pool = [x for x in pool if "{" not in x[0]] or pool
        self.v["time"], self.season, self.hour = self.pick(pool)
        place = self.pick(
            [
                x
                for x in HOMES
                if (homes is None or x[1] in homes)
                and not ("desert" in x[0] and self.season == "winter")
            ]
        )
        past = {
            "A long time ago",
            "Many years ago",
            "Yesterday",
            "Last night",
            "Last winter",
            "Last summer",
        }
        self.v["then"] = (
            "One night"
            if self.v["time"] == "Last night"
            else "One day"
            if self.v["time"] in past
            else self.v["time"]
        )
        self.v["home"], self.land = place
        dark = self.hour in ("night", "evening")
        h = self.chars["h"]
        if h.kind == "animal" and h.body == "hand" and h.place and h.noun not in ("frog", "monkey"):
            self.v["home"] = h.place  # dragons and mermaids have homes of their own
        self.v["weather"] = self.pick(
            [w.lstrip("*~") for w in WEATHER[self.season] if w[0] != ("*" if dark else "~")]
        )

    def thing(self, tags=""):
        pool = [x for x in THINGS if not tags or any(t in x[2] for t in tags)]
        noun, adjectives, self.tags = self.pick(pool)
        adj = self.pick(adjectives.split(", "))
        self.v.update(
            thing=noun,
            a_thing=f"a {adj} {noun}",
            the_thing=f"the [{adj} |]{noun}",
            his_thing="{his} " + noun,
            adj_thing=f"{adj} {noun}",
            origin=self.pick(
                [
                    o
                    for o in ORIGINS
                    if self.chars["h"].kind in ("child", "human")
                    or not re.search("mother|father|family|savings|pillow", o)
                ]
            ),
        )

    # ----------------------------------------------------------------------
    # openings

    def habit(self):
        """One sentence about what the hero does all day."""
        h = self.chars["h"]
        if h.kind == "human":
            where, did, made = h.job
            self.v.update(work=where, did=did, made=made)
            return self.one("habit.said")
        if h.kind == "child":
            self.v["likes"], self.v["likes2"] = self.r.sample(CHILD_LIKES, 2)
            return self.one("habit.said2")
        if h.kind == "robot":
            job, self.v["station"] = self.pick(ROBOT_JOBS)
            self.v.update(made_of=self.pick(ROBOT_MADE), robot_job=job)
            return self.one("habit.said3")
        if h.body == "hand" and h.noun not in ("frog", "monkey"):
            self.v["likes"] = self.one("habit.likes")
            return self.one("habit.said4")
        self.v["den"] = h.place
        return self.one("habit.said5")

    def doing(self):
        """What the hero was doing when it all began: `was ...ing ...`."""
        dark = self.hour in ("night", "evening")
        cold = self.season in ("winter", "autumn")
        return self.pick(
            [
                text
                for text, when, weather in DOINGS[self.chars["h"].kind]
                if when in ("", "dark" if dark else "light", self.hour)
                and weather in ("", "cold" if cold else "warm", self.season)
            ]
        )

    def opening(self, began=True):
        """Introduces the hero, the place and the time; the plot goes on from there.

        Without `began`, no scene is set yet.
        """
        h = self.chars["h"]
        habit, doing = self.habit(), self.doing()
        self.v.update(
            doing=doing,
            habit=habit,
            adj0=h.adj,
            noun0=h.noun,
            time_l=self.v["time"][0].lower() + self.v["time"][1:],
        )
        self.v["clock"] = {
            "morning": self.one("opening.clock"),
            "evening": self.one("opening.clock2"),
            "night": self.one("opening.clock3"),
            "day": self.one("opening.clock4"),
        }[self.hour]
        self.v["folk"] = self.one("opening.folk")
        lives = "{He} lived {home}." if h.kind != "animal" else ""
        if h.pron == "I":
            scenes = self.told("opening.scenes")
            if began:
                self.scene()
            return self.pick(scenes if began else self.told("opening.said"))
        if h.first:
            scenes = self.told("opening.scenes2")
            calm = self.told("opening.calm")
            if began and self.chance(0.5):
                self.scene()
                return self.pick(scenes)
            return self.pick(calm)
        calm = self.told(
            "opening.calm2",
            lives=lambda: lives,
            lives2=lambda: lives,
            lives3=lambda: lives,
            lives4=lambda: lives or "{habit}",
            h=lambda: not h.name,
            h2=lambda: h.name,
            h3=lambda: h.adj in ("old", "wise", "rusty"),
            h4=lambda: (
                h.name
                and h.kind != "child"
                and h.adj
                not in ("little", "new", "forgotten", "round", "square", "silver", "copper", "tin")
            ),
            lives5=lambda: lives,
            h5=lambda: h.kind in ("animal", "human") and h.body != "hand",
            h6=lambda: h.kind != "animal",
            h7=lambda: h.name,
            h8=lambda: h.name,
        )
        if not began:
            return self.pick(calm)
        scenes = self.told(
            "opening.scenes3",
            dark_hour=lambda: dark_hour(self),
            more=lambda: self.hour == "morning",
            dark_hour2=lambda: dark_hour(self),
            more2=lambda: self.hour in ("day", "morning"),
            dark_hour3=lambda: not dark_hour(self),
            h=lambda: not h.name,
            h2=lambda: h.kind != "child",
        )
        if self.chance(0.45):
            self.scene()
            return self.pick(scenes)
        if self.chance(0.4):
            return self.pick(calm)
        self.scene()
        return self.pick(calm) + ["{Then}, {he} {doing}."]

    def scene(self):
        """A scene is set: what comes next happens there and then, not `one day`."""
        self.v["once"] = self.one("scene.once")

    def beat(self):
        """A breath between two events."""
        h, k = self.chars["h"], self.chars.get("k")
        dark = dark_hour(self)
        pool = self.told("beat.pool") + (
            self.told("beat.pool2") if dark else self.told("beat.pool3")
        )
        if k:
            pool += self.told("beat.said")
        return self.pick(pool)

    def moral(self, *themes):
        return self.pick(MORALS[self.pick(themes)])

    def ending(self, *themes):
        """The last words."""
        if self.chance(0.5):
            return [self.moral(*themes)]
        return self.told("ending.said") + ([self.moral(*themes)] if self.chance(0.25) else [])

    def feast(self):
        self.v["food"] = self.pick(FOODS)
        return self.one("feast.said")


# ---------------------------------------------------------------------------------------- troubles
# and those who help


def lose(t):
    """The thing gets out of reach. Sets {spot} and returns (state, sentences)."""
    h = t.chars["h"]
    states = [
        s
        for s, tag in (("high", "w"), ("water", "w"), ("hole", "r"), ("nest", "s"), ("water", "d"))
        if tag in t.tags
    ]
    state = t.pick(states)
    t.v["hold"] = {
        "hand": "hand",
        "paw": "paws",
        "wing": "wing",
        "hoof": "mouth",
        "trotter": "mouth",
    }.get(h.body, "grip")
    if state in ("high", "nest"):
        tree = state == "nest" or t.chance(0.6)
        t.v["tree"] = t.pick(HIGH_TREE if tree else HIGH_ROOF)
        t.v["spot"] = (
            "[the top of |high up on |]{tree}"
            if not tree
            else "[the top of|the highest branch of] {tree}"
        )
        if state == "nest":
            return (
                "tree",
                t.told(
                    "lose.said",
                    more=lambda: (
                        "A magpie saw it glitter, snatched it and carried it to {his} [nest|hiding"
                        " place] in {tree}.".replace("{his}", "its")
                    ),
                ),
            )
        return ("tree" if tree else "roof", t.told("lose.said2"))
    if state == "water":
        t.v["spot"] = t.pick(WATERS)
        if "w" in t.tags:
            return ("water", t.told("lose.said3"))
        return ("water", t.told("lose.said4"))
    dig = t.chance(0.5)
    t.v["spot"] = t.pick(HOLES_DIG if dig else HOLES_SQUEEZE)
    return ("dig" if dig else "squeeze", t.told("lose.said5"))


TRIED = SENTENCES["tried"]
ABLE = SENTENCES["able"]
GOT = SENTENCES["got"]
CAN_LINE = SENTENCES["can_line"]


def help_talk(t, ability, trouble):
    """The helper comes along, asks, and offers help."""
    t.v["trouble"], t.v["able"] = trouble, t.pick(CAN_LINE[ability])
    come = t.told("help_talk.come")
    ask = t.one("help_talk.ask")
    offer = t.told("help_talk.offer")
    return [t.pick(come), *ask, t.pick(offer)]


def thanks(t):
    return t.one("thanks.said")


def plot_lost(t):
    h = t.hero("human", "child", "child", "animal", "robot")
    t.setting(times=OUT)
    t.thing("wrsd")
    state, how = lose(t)
    ability = t.pick(ABLE[state])
    k = t.cast("k", t.animal(h, [ability]))
    if ability == "climb" and t.chance(0.2):
        k = t.cast("k", t.person(h, ["climb"]))
    trouble = SENTENCES["lost.trouble"][state]
    t.title = t.one("lost.title")
    return t.pages(
        *t.told(
            "lost.pages",
            how=lambda: t.pick(how),
            tried=lambda: t.pick(TRIED[state]),
            help_talk=lambda: help_talk(t, ability, trouble) + [(2, t.beat())],
            got=lambda: t.pick(GOT[f"{state} {ability}"]),
            thanks=lambda: thanks(t),
        )
    )


# a way that is blocked: what it is | who can | how it is solved
BLOCKS = SENTENCES["blocks"]
ERRANDS = SENTENCES["errands"]


def plot_errand(t):
    h = t.hero("human", "child", "child", "robot", "animal")
    t.setting(times=OUT)
    block, blockname, ability, how = t.pick(BLOCKS)
    cargo, to, whom = t.pick(ERRANDS)
    k = t.cast("k", t.person(h, ["row"]) if ability == "row" else t.animal(h, [ability]))
    t.v.update(
        cargo=cargo,
        thecargo="the " + cargo.split(" ", 1)[1],
        to="to " + to.replace("own", "{his}"),
        to_my="to " + to.replace("own", "my"),
        whom=whom.replace("own", "{his}"),
        my_whom=whom.replace("own", "my"),
        block=block,
        blockname=blockname,
        kposs="{k's}",
        deadline=t.one("errand.deadline"),
    )
    t.title = t.one("errand.title")
    return t.pages(*t.told("errand.pages", how=lambda: t.pick(how)))


# ----------------------------------------------------------------------
# sea stories

BOATS = SENTENCES["boats"]


def plot_sea(t):
    h = t.cast("h", t.person(job=t.one("sea.job"), named=0.6))
    if t.chance(0.2):
        h = t.cast("h", t.child())
    t.setting(homes=["sea"])
    t.v.update(boat=t.pick(BOATS), colour=t.pick(COLOURS))
    kind = t.pick(["whale", "fog", "storm", "net", "bottle", "seal"])
    t.title = t.one("sea.title", kind=lambda: kind == "fog")
    out = t.told("sea.out", h=lambda: h.kind == "human")
    t.v["a_net"] = t.one("sea.a_net")
    song = t.pick(SONGS)
    t.v.update(line1=song[0], line2=song[1])
    if kind == "whale":
        t.cast(
            "k",
            Char(
                "whale",
                t.pick(["young", "huge", "old", "grey"]),
                t.pick(["he", "she"]),
                "animal",
                t.name(PETS, True) if t.chance(0.3) else None,
            ),
        )
        mid = t.told("sea.mid")
        end = t.ending("kind", "help")
    elif kind == "fog":
        t.cast("k", t.child(h) if h.kind != "child" else t.person(h, job="bell ringer"))
        mid = t.told("sea.mid2", thanks=lambda: thanks(t))
        end = t.ending("help", "home", "listen")
    elif kind == "storm":
        t.cast("k", t.person(h, job="lighthouse keeper"))
        mid = t.told("sea.mid3", thanks=lambda: thanks(t))
        end = t.ending("help", "kind", "brave")
    elif kind == "net":
        t.cast("k", Char(t.one("sea.said"), "tiny", t.pick(["he", "she"]), "animal"))
        mid = t.told("sea.mid4")
        t.v["kkind_a"] = "a " + t.chars["k"].noun
        end = t.ending("kind")
    elif kind == "bottle":
        t.cast("k", t.child(h) if h.kind != "child" else t.person(h, job="lighthouse keeper"))
        mid = t.told("sea.mid5")
        t.v["kname"] = t.chars["k"].name or t.name(GIRLS, True)
        t.chars["k"].name = t.v["kname"]
        end = t.ending("kind", "listen", "share")
    else:
        t.cast("k", t.animal(h, species=["seal", "dolphin", "otter"]))
        mid = t.told("sea.mid6", more=lambda: t.chars["k"].noun != "otter")
        end = t.ending("share", "kind", "help")
    return t.pages(
        t.opening(began=False),
        t.told("sea.said2", h=lambda: h.kind != "child" and t.chance(0.6)) + out,
        *mid,
        end,
    )


# ----------------------------------------------------------------------
# robot stories

FEELINGS = SENTENCES["feelings"]


def plot_robot(t):
    h = t.cast("h", t.robot())
    t.setting()
    k = t.cast("k", t.child(h) if t.chance(0.6) else t.person(h))
    kind = t.pick(["why", "why", "repair", "winter", "old"])
    t.title = t.one("robot.title")
    op = t.opening()
    if kind == "why":
        what, ask, answer, after = t.pick(FEELINGS)
        t.v.update(what=what, ask=ask, answer=answer, after=after)
        return t.pages(
            *t.told(
                "robot.pages",
                op=lambda: op,
                if_chance=lambda: [t.moral("listen", "kind")] if t.chance(0.5) else [],
            )
        )
    if kind == "repair":
        t.v["part"] = t.one("robot.part")
        return t.pages(*t.told("robot.pages2", op=lambda: op))
    if kind == "winter":
        t.cast("m", t.animal(k, species=t.told("robot.species"), named=0.2))
        return t.pages(*t.told("robot.pages3", op=lambda: op))
    t.v["years"] = t.one("robot.years")
    return t.pages(*t.told("robot.pages4", op=lambda: op))


# ----------------------------------------------------------------------
# farm stories


def plot_farm(t):
    h = t.cast("h", t.animal(species=t.told("farm.species"), named=0.85))
    t.setting(homes=["farm"])
    k = t.cast("k", t.animal(h, species=t.told("farm.species2"), named=0.6))
    m = t.cast("m", t.person(job="farmer", named=0.7))
    if not m.name:
        m.adj = ""
    t.v["mfarmer"] = f"Farmer {m.name}" if m.name else "the farmer"
    t.v["crop"] = t.pick(CROPS)
    others = t.r.sample(
        [
            a
            for a in ("hens", "sheep", "cows", "geese", "pigs", "ducks", "goats", "horses")
            if a.rstrip("s") not in h.noun and not (h.noun == "goose" and a == "geese")
        ],
        2,
    )
    t.v["others"] = f"the {others[0]} and the {others[1]}"
    kind = t.one("farm.kind")
    t.title = t.one("farm.title")
    op = t.one("farm.op")
    if kind == "wake":
        body = t.told("farm.body")
    elif kind == "drought":
        body = t.told(
            "farm.body2", k=lambda: k.noun in ("mole", "ant", "rabbit", "mouse", "hedgehog")
        )
    elif kind == "cart":
        body = t.told("farm.body3")
        t.v["cropone"] = SENTENCES["farm.cropone"][t.v["crop"]]
    elif kind == "thief":
        t.cast("k", t.animal(h, species=t.told("farm.species3"), named=0.5))
        body = t.told("farm.body4")
    elif kind == "barn":
        body = t.told("farm.body5")
        t.v["line1"], t.v["line2"] = t.pick(SONGS)
    else:
        t.cast("k", t.animal(h, groups=["far", "water"], named=0.7))
        body = t.told("farm.body6")
    return t.pages(op, *body)


# ----------------------------------------------------------------------
# detectives

CLUES = SENTENCES["clues"]
STOLEN = SENTENCES["stolen"]


def plot_detective(t):
    h = t.hero("child", "human", "animal", "robot", "child")
    t.setting(homes=["town", "sea", "farm"])
    clue, species, why = t.pick([c for c in CLUES if c[1] != h.noun])
    k = t.cast("k", t.animal(h, species=[species], named=0.7))
    m = t.cast("m", t.person(k, named=0.6))
    goods = t.pick(STOLEN)
    t.v.update(goods=goods, clue=clue, why=why, good=goods.split()[-1])
    t.title = t.one("detective.title")
    edible = any(w in goods for w in ("pie", "cake", "cheese", "plums"))
    because = t.one("detective.because") if edible else t.one("detective.because2")
    op = t.one("detective.op", more=lambda: t.opening() + ["{H} wanted to be a detective."])
    knocked = '"' in op[0] if isinstance(op[0], str) else False
    return t.pages(
        *t.told(
            "detective.pages",
            op=lambda: op,
            knocked=lambda: knocked,
            op2=lambda: "{mintro}" not in op[0],
            op3=lambda: "{mintro}" in op[0],
            because=lambda: because,
            if_chance=lambda: [t.moral("honest", "listen")] if t.chance(0.5) else [],
        )
    )


# ----------------------------------------------------------------------
# letters and diaries


def plot_letter(t):
    t.cast("h", Char("child", "", "I", "child", "I"))
    t.setting()
    female = t.chance(0.5)
    sender = t.name(GIRLS if female else BOYS, female)
    to = t.one("letter.to")
    t.v["kname"] = t.name(BOYS if "Uncle" in to or "Captain" in to else GIRLS, "Uncle" not in to)
    k = t.cast("k", t.animal(None, named=0.6, species=t.told("letter.species")))
    t.v.update(to=to, sender=sender, place=t.one("letter.place"))
    t.thing("d")
    event = t.one("letter.event")
    t.v.update(kplace=k.place, kbody=k.body, kbetter=t.one("letter.kbetter"))
    t.title = None
    close = t.one("letter.close")
    return t.pages(*t.told("letter.pages", event=lambda: event, close=lambda: f"{close} {sender}"))


def plot_diary(t):
    t.cast("h", Char("child", "", "I", "child", "I"))
    t.setting()
    k = t.cast("k", t.animal(None, named=0.7, species=t.told("diary.species")))
    days = t.told("diary.days")
    start = t.r.randrange(0, 4)
    a, b, c = days[start], days[start + 1], days[start + 2]
    kind = t.pick(["pet", "plant", "brave", "secret", "contest"])
    t.v.update(flower=t.pick(FLOWERS), skill=t.one("diary.skill"), food=t.pick(FOODS))
    if kind == "pet":
        e = t.told("diary.e")
    elif kind == "plant":
        e = t.told("diary.e2")
    elif kind == "brave":
        e = t.told("diary.e3")
    elif kind == "secret":
        e = t.told("diary.e4")
    else:
        e = t.told("diary.e5")
    t.title = t.pick([None, "My Diary"])
    return t.pages(
        *t.told(
            "diary.pages",
            a=lambda: f"{a}. " + e[0][0],
            b=lambda: f"{b}. " + e[1][0],
            c=lambda: f"{c}. " + e[2][0],
        )
    )


# ----------------------------------------------------------------------
# other stories

FEARS = SENTENCES["fears"]


def plot_fear(t):
    h = t.hero("child", "child", "animal", "robot")
    if h.body != "hand":
        h = t.cast("h", t.child())
    t.setting()
    k = t.cast("k", t.person(h, named=0.6))
    fear, kind, how = t.pick(FEARS)
    t.v.update(fear=fear, how=how)
    t.title = t.one("fear.title")
    final = SENTENCES["fear.final"][kind]
    return t.pages(
        *t.told(
            "fear.pages",
            how=lambda: how,
            final=lambda: final,
            if_chance=lambda: t.moral("brave", "try") if t.chance(0.6) else "",
        )
    )


DRAGON_WHY = SENTENCES["dragon_why"]


def plot_dragon(t):
    h = t.hero("child", "child", "human", "human")
    t.setting(homes=["hill", "town", "wood"])
    k = t.cast(
        "k",
        Char(
            t.pick(["dragon", "dragon", "dragon", "giant", "troll"]),
            t.pick(["huge", "green", "old", "grey", "shy", "red"]),
            "he" if h.pron == "she" else t.pick(["he", "she"]),
            "animal",
            t.name(PETS + ROBOTS, False) if t.chance(0.4) else None,
        ),
    )
    opening = t.opening()
    t.v["night"] = (
        "every night"
        if t.v["once"] == "one day" and t.chance(0.5)
        else "one night"
        if t.v["once"] == "one day"
        else t.pick(["that night", "that evening"])
    )
    why, how, complaint = t.pick(
        [w for w in DRAGON_WHY if k.noun == "dragon" or "cold" not in w[0]]
    )
    t.v.update(why=why, how=how, complaint=complaint, line1="", line2="")
    t.v["line1"], t.v["line2"] = t.pick(SONGS)
    t.title = t.one("dragon.title")
    gift = SENTENCES["dragon.gift"][k.noun]
    return (
        t.pages(
            *t.told(
                "dragon.pages",
                opening=lambda: opening,
                gift=lambda: t.pick(gift),
                if_chance=lambda: [t.moral("listen", "kind", "brave")] if t.chance(0.7) else [],
            )
        )
        if not t.v.update(
            complaint_i=why.replace("had", "have")
            .replace("was", "am")
            .replace("could not", "cannot")
        )
        else ""
    )


def plot_seed(t):
    h = t.hero("child", "human", "animal", "robot", "child")
    t.setting(season="spring", times=OUT)
    flower = t.pick(FLOWERS + t.told("seed.flower"))
    k = t.cast("k", t.person(h, ["advise", "dig"], named=0.5))
    t.v.update(flower=flower, a_flower="a " + flower)
    t.title = t.one("seed.title")
    return (
        t.pages(*t.told("seed.pages"))
        if not t.v.update(
            kfullx="{kfull}",
            grown=t.one("seed.grown", flower=lambda: flower not in ("bean", "daisy", "violet")),
        )
        else ""
    )


WISHES = SENTENCES["wishes"]


def plot_wish(t):
    h = t.hero("human", "human", "child", "child")
    t.setting(times=OUT)
    k = t.cast(
        "k", Char(t.one("wish.k"), t.one("wish.k2"), "she" if h.pron == "he" else "he", "animal")
    )
    if k.noun in ("fairy", "old woman"):
        k.pron = "she"
    if k.noun in ("genie", "gnome"):
        k.pron = "he"
    big, modest = t.pick(WISHES)
    rescue = SENTENCES["wish.rescue"][k.noun]
    free = {
        "old woman": "{H} carried the bundle for {khim}, all the way up the hill.",
        "star": "{H} picked {khim} up carefully and carried {khim} to the top of the highest hill.",
        "genie": "{H} pulled out the cork.",
        "stork": "{H} bandaged the wing and shared {his} bread with {khim}.",
    }.get(k.noun, "{H} knelt down and set {khim} free, very gently.")
    if k.noun == "old woman":
        k.noun, k.adj = "woman", "old"
    t.v.update(rescue=rescue, big=big, modest=modest)
    t.title = t.one("wish.title")
    return t.pages(
        *t.told(
            "wish.pages",
            free=lambda: free,
            modest=lambda: not modest.startswith(("that", "to")),
            modest2=lambda: not modest.startswith("to be curious"),
        )
    )


def plot_fable(t):
    h = t.cast("h", t.animal(named=0.25))
    t.setting(times=OUT)
    k = t.cast("k", t.animal(h, named=0.25))
    if h.noun == k.noun:
        k = t.cast("k", t.animal(h, species=["turtle", "mouse"], named=0))
    kind = t.one("fable.kind")
    op = t.one("fable.op")
    t.title = t.one("fable.title")
    t.v.update(food=t.one("fable.food"))
    if kind == "race":
        body = t.told("fable.body", k=lambda: k.noun != "duck")
    elif kind == "food":
        body = t.told("fable.body2")
    elif kind == "boast":
        t.v["skill"] = SENTENCES["fable.skill"][h.can]
        body = t.told("fable.body3")
    elif kind == "house":
        body = t.told("fable.body4")
    elif kind == "mirror":
        body = t.told("fable.body5")
    else:
        body = t.told("fable.body6")
    end = t.told(
        "fable.end",
        kind=lambda: {
            "race": t.moral("kind"),
            "food": t.moral("share"),
            "boast": t.moral("listen"),
            "house": t.moral("patience"),
            "mirror": "It is good to be exactly who you are.",
            "quarrel": "The first to say sorry is the braver one.",
        }[kind],
    )
    return t.pages(op, *body, end)


def plot_baby(t):
    h = t.cast("h", t.animal(species=t.told("baby.species"), named=0.8))
    h.adj = t.pick(["little", "young", "small", "tiny"])
    t.setting(times=OUT[:2])
    k = t.cast("k", t.animal(h, named=0.5))
    m = t.cast("m", t.animal(k, named=0.3))
    t.v.update(sound=t.one("baby.sound"), chase=t.one("baby.chase"))
    t.title = t.one("baby.title")
    return t.pages(*t.told("baby.pages", h=lambda: h.noun not in ("seal",)))


def plot_quarrel(t):
    h = t.cast("h", t.person(named=1.0))
    t.setting(homes=["town", "river", "farm", "hill"])
    k = t.cast("k", t.person(h, named=1.0))
    t.v.update(about=t.one("quarrel.about"), storm=t.one("quarrel.storm"))
    t.title = t.one("quarrel.title")
    return t.pages(
        *t.told(
            "quarrel.pages",
            more=lambda: (
                t.pick(
                    [
                        ["{Hfull} and {kfull} lived next door to each other."],
                        ["{Home} lived two neighbours, {hfull} and {kfull}."],
                        ["Once upon a time, there were two neighbours called {hname} and {kname}."],
                    ]
                )
                + [
                    (
                        1,
                        t.pick(
                            [
                                "In the beginning, they had been the best of friends.",
                                "Nobody knew exactly how it had begun.",
                            ]
                        ),
                    )
                ]
            ),
        )
    )


def plot_music(t):
    h = t.hero("human", "child", "child", "animal", "robot")
    if h.kind == "animal":
        h = t.cast("h", t.animal(species=t.told("music.species"), named=0.8))
    t.setting()
    k = t.cast("k", t.animal(h, named=0.5))
    inst = t.pick(INSTRUMENTS)
    line1, line2 = t.pick(SONGS)
    t.v.update(inst=inst, line1=line1, line2=line2)
    t.title = t.one("music.title", if_name=lambda: "{h}'s Song" if h.name else "The Song")
    return t.pages(
        *t.told("music.pages", if_chance=lambda: t.moral("try", "brave") if t.chance(0.6) else "")
    )


def plot_noise(t):
    h = t.hero("child", "human", "robot", "child")
    t.setting(times=["night", "evening"])
    k = t.cast("k", t.animal(h, species=t.told("noise.species"), named=0.4))
    t.v.update(
        noise=t.one("noise.noise"),
        where=t.one("noise.where"),
        light=t.one("noise.light"),
        weapon="a {weapon1}",
        weapon1=t.one("noise.weapon1"),
    )
    t.title = t.one("noise.title")
    return t.pages(*t.told("noise.pages", more=lambda: "wind" not in t.v["weather"]))


def plot_contest(t):
    h = t.hero("human", "child", "human", "robot")
    t.setting(times=OUT)
    k = t.cast("k", t.child(h) if h.kind != "child" else t.person(h))
    dish = t.pick(FOODS)
    kind = t.pick(["bake", "boat", "pumpkin", "paint"])
    t.v.update(food=dish, crop=t.one("contest.crop"))
    what = SENTENCES["contest.what"][kind]
    mishap = SENTENCES["contest.mishap"][kind]
    turn = SENTENCES["contest.turn"][kind]
    t.v.update(
        what=what, foodx=dish.split()[-1] if " with " not in dish and " and " not in dish else dish
    )
    if (
        dish.endswith(("s", "chestnuts"))
        or dish.startswith(("hot", "noodle", "peppermint"))
        or " " not in dish
    ):
        t.v["foodx"] = "pot"
    t.title = t.one("contest.title")
    return t.pages(
        *t.told(
            "contest.pages",
            mishap=lambda: t.pick(mishap),
            turn=lambda: t.pick(turn),
            if_chance=lambda: t.moral("try") if t.chance(0.7) else "",
        )
    )


def plot_space(t):
    h = t.cast(
        "h",
        (
            t.robot()
            if t.chance(0.4)
            else t.person(job="astronaut", named=0.9)
            if t.chance(0.6)
            else t.child()
        ),
    )
    t.setting()
    k = t.cast(
        "k",
        Char(
            t.one("space.k"),
            t.pick(["small", "lonely", "shy", "tiny", "sad"]),
            "she" if h.pron == "he" else "he",
            "animal",
        ),
    )
    t.v.update(ship=t.one("space.ship"), shipname=t.one("space.shipname"), gift=t.one("space.gift"))
    t.title = t.one("space.title")
    return t.pages(
        *t.told(
            "space.pages",
            if_chance=lambda: t.moral("kind", "home", "listen") if t.chance(0.4) else "",
        )
    )


def plot_stranger(t):
    h = t.hero("human", "human", "child", "human")
    t.setting(season=t.pick(["winter", "autumn", "winter", None]), times=["evening", "night"])
    k = t.cast(
        "k",
        t.one(
            "stranger.k",
            char=lambda: Char("man", t.pick(["old", "tired", "strange", "tall"]), "he", "human"),
            char2=lambda: Char(
                "woman", t.pick(["old", "tired", "strange", "tall"]), "she", "human"
            ),
            char3=lambda: Char(
                "traveller", t.pick(["old", "tired", "wet"]), t.pick(["he", "she"]), "human"
            ),
            h=lambda: t.animal(h, named=0.2),
        ),
    )
    t.v.update(food=t.pick(FOODS), little=t.one("stranger.little"))
    t.title = t.one("stranger.title")
    person = k.kind == "human"
    return t.pages(
        *t.told(
            "stranger.pages",
            more=lambda: t.opening(began=False),
            more2=lambda: t.season == "winter",
            person=lambda: person,
            more3=lambda: t.season == "winter",
        )
    )


def plot_sleep(t):
    h = t.hero("child", "animal", "robot", "child")
    t.setting(times=["evening", "night"])
    k = t.cast(
        "k",
        Char(
            t.one("sleep.k"),
            t.pick(["round", "quiet", "old", "kind", "friendly"]),
            "she" if h.pron != "she" else "he",
            "animal",
        ),
    )
    line1, line2 = t.pick(SONGS)
    t.v.update(line1=line1, line2=line2, sheep=t.one("sleep.sheep"))
    t.title = t.one("sleep.title")
    return t.pages(*t.told("sleep.pages"))


def plot_friend(t):
    """A newcomer, and how somebody becomes a friend."""
    h = t.hero("child", "animal", "robot", "child")
    t.setting(times=OUT)
    k = t.cast("k", {"child": t.child, "animal": t.animal, "robot": t.child}[h.kind](h))
    t.v.update(likes0=t.one("friend.likes0"), food=t.pick(FOODS))
    t.title = t.one("friend.title")
    return (
        t.pages(*t.told("friend.pages", h=lambda: h.name and h.pron != "I"))
        if not t.v.update(
            a_gift=t.one("friend.a_gift"),
            a_gift2=t.one("friend.a_gift2"),
            time2=t.one("friend.time2"),
        )
        else ""
    )


def plot_maker(t):
    """Somebody makes a thing for somebody else."""
    h = t.cast("h", t.person(can=t.told("maker.can"), named=0.75))
    t.setting(times=OUT)
    k = t.cast("k", t.child(h) if t.chance(0.6) else t.animal(h, named=0.6))
    t.v["made"], t.v["enter"] = (h.job[2], t.one("maker.said"))
    t.title = t.one("maker.title")
    return t.pages(*t.told("maker.pages"))


def plot_short(t):
    """A few sentences only: a small picture of a day."""
    h = t.hero()
    t.setting(times=OUT)
    k = t.cast("k", t.animal(h, named=0.3))
    t.v.update(food=t.pick(FOODS), colour=t.pick(COLOURS), flower=t.pick(FLOWERS))
    t.thing()
    t.title = None
    return t.pages(*t.told("short.pages"))


ROYAL = SENTENCES["royal"]


def plot_royal(t):
    h = t.hero("child", "human", "child", "human")
    t.setting()
    k = t.cast(
        "k",
        Char(
            t.pick(["queen", "princess"]) if h.pron != "she" else t.pick(["king", "prince"]),
            t.pick(["young", "rich", "sad", "proud", "stern"]),
            "she" if h.pron != "she" else "he",
            "animal",
            None,
        ),
    )
    t.chars["k"].name = None
    why, how, tried, after = t.pick(ROYAL)
    t.v.update(
        why=why,
        how=how,
        tried=tried,
        after=after,
        kposs=PRONOUNS[k.pron][2],
        reward=t.one("royal.reward"),
        modest=t.one("royal.modest"),
    )
    t.title = t.one("royal.title")
    return t.pages(
        *t.told(
            "royal.pages",
            more=lambda: (
                t.pick(
                    [
                        ["Once upon a time, there was {kintro} who {why}."],
                        [
                            "In a castle with [a hundred windows|seven towers|golden doors] lived {kintro}"
                            " who {why}."
                        ],
                        ["There was once {kintro} who had everything in the world but {why}."],
                    ]
                )
                + ["From near and far came {tried}, but nobody could help."]
            ),
            h=lambda: not h.first and h.pron != "I",
            more2=lambda: not t.v["modest"].startswith("that"),
            if_chance=lambda: t.moral("kind", "share", "listen") if t.chance(0.5) else "",
        )
    )


def plot_key(t):
    h = t.hero("child", "child", "human", "robot")
    t.setting(times=OUT)
    k = t.cast("k", t.person(h, named=0.7))
    adj = t.one("key.adj")
    t.v.update(key=f"{adj} key", door=t.one("key.door"), found=t.one("key.found"))
    inside = t.one(
        "key.inside",
        more=lambda: (
            (
                "a garden full of roses",
                "Nobody had been there for fifty years, and yet everything was in bloom.",
            )
        ),
        more2=lambda: (
            (
                "a shelf of old letters, tied with a ribbon",
                (
                    "They told of a long friendship, and the last one ended with the words:"
                    ' "Whoever reads this is our friend, too."'
                ),
            )
        ),
        more3=lambda: ("a room full of books", "It smelled of paper and dust and adventure."),
        more4=lambda: (
            (
                "a small wooden bird",
                "When it was wound up, it sang so beautifully that people stopped in the street.",
            )
        ),
        more5=lambda: (
            "nothing but a mirror and a note",
            '"You have found the treasure," said the note.',
        ),
        more6=lambda: ("a box of seeds and a watering can", '"Plant us," was written on the lid.'),
        more7=lambda: (
            (
                "a map with a red cross",
                (
                    "And the cross was exactly where {h's} own bed stood. Under it, there was a tin"
                    " full of biscuits."
                ),
            )
        ),
        more8=lambda: (
            (
                "a family of mice, sitting around a thimble full of soup",
                '"Please close the door," said the smallest one. "There is a draught."',
            )
        ),
    )
    t.v.update(inside=inside[0], comment=inside[1])
    t.title = t.one("key.title")
    return t.pages(
        *t.told(
            "key.pages",
            h=lambda: h.pron != "I",
            if_chance=lambda: t.moral("listen", "patience", "try") if t.chance(0.4) else "",
        )
    )


def plot_scarecrow(t):
    noun = t.one("scarecrow.noun")
    h = t.cast(
        "h",
        Char(
            noun,
            t.one("scarecrow.h"),
            t.pick(["he", "he", "she", "it"]),
            "animal",
            t.name(PETS, False) if t.chance(0.35) else None,
        ),
    )
    h.place = SENTENCES["scarecrow.place"][noun]
    t.setting("winter" if noun == "snowman" else None)
    k = t.cast(
        "k",
        (
            t.animal(h, groups=["air"], named=0.4)
            if noun == "scarecrow" or t.chance(0.4)
            else t.child(h)
        ),
    )
    want = SENTENCES["scarecrow.want"][noun]
    solve = SENTENCES["scarecrow.solve"][noun]
    if noun == "teddy bear":
        h.pron = "he"
        k = t.cast("k", t.child(h))
    t.title = t.one("scarecrow.title")
    t.v.update(adj0=h.adj, noun0=h.noun, placed=h.place)
    return t.pages(
        *t.told(
            "scarecrow.pages",
            noun=lambda: noun not in ("boat", "rag doll", "teddy bear"),
            noun2=lambda: noun != "teddy bear",
            want=lambda: want,
            noun3=lambda: noun != "teddy bear",
            noun4=lambda: noun not in ("teddy bear", "boat", "lamp post"),
            solve=lambda: solve,
            if_chance=lambda: t.ending("kind", "listen", "patience") if t.chance(0.6) else [],
        )
    )


def plot_clock(t):
    h = t.cast("h", t.person(job="clockmaker", named=0.8) if t.chance(0.6) else t.child())
    t.setting(homes=["town", "hill", "river"])
    k = t.cast("k", t.animal(h, species=t.told("clock.species"), named=0.5))
    bird = k.noun in ("sparrow", "owl", "swallow")
    t.v.update(
        nest=t.pick(t.told("clock.nest") if bird else t.told("clock.nest2")),
        hour12=t.one("clock.hour12"),
    )
    t.title = t.one("clock.title")
    return t.pages(*t.told("clock.pages", more=lambda: t.opening(began=False)))


def plot_pet(t):
    h = t.cast(
        "h",
        (
            t.pet()
            if t.chance(0.75)
            else t.animal(species=["cat", "dog", "parrot", "pony", "goat", "rabbit"], named=1.0)
        ),
    )
    t.setting()
    k = t.cast("k", t.child(h))
    noun = h.noun
    t.v.update(food=t.pick(FOODS), trouble=t.one("pet.trouble"))
    t.title = None
    op = t.one("pet.op")
    t.v["noun"] = noun
    gone = "gone" in op[0]
    body = (
        t.one("pet.body", noun=lambda: noun in ("cat", "dog")) if not gone else t.told("pet.body2")
    )
    if noun == "goldfish":
        op = ["{Hfull} was not an ordinary goldfish."]
        body = t.told("pet.body3")
    t.cast("m", t.person(k, named=1.0))
    t.v.update(
        mname=t.chars["m"].name,
        waited=t.one("pet.waited"),
        spotx=t.one("pet.spotx"),
        found=t.one("pet.found"),
    )
    return t.pages(
        op,
        [(1, "{weather}" if gone else "")] + body,
        [t.moral("kind", "listen", "share")] if t.chance(0.4) else [],
    )


def plot_market(t):
    """A chain of swaps."""
    h = t.hero("child", "human", "child", "animal")
    if h.body != "hand":
        h = t.cast("h", t.child())
    t.setting(times=["day", "morning"])
    goods = t.r.sample(t.told("market.goods"), 4)
    k = t.cast("k", t.person(h, named=0))
    m = t.cast(
        "m", t.animal(None, named=0, species=["donkey", "goat", "hen", "cat", "pony", "dog", "pig"])
    )
    who = t.r.sample(t.told("market.who"), 3)
    t.v.update(
        a=goods[0],
        b=goods[1],
        c=goods[2],
        d=goods[3],
        w1=who[0],
        w2=who[1],
        w3=who[2],
        the_a="the " + goods[0].split(" ", 1)[1],
        the_b="the " + goods[1].split(" ", 1)[1],
        the_c="the " + goods[2].split(" ", 1)[1],
        the_d="the " + goods[3].split(" ", 1)[1],
    )
    t.title = t.one("market.title")
    return (
        t.pages(*t.told("market.pages", more=lambda: t.opening(began=False)))
        if not t.v.update(**{f"w{i + 1}x": "the " + w.split(" ", 1)[1] for i, w in enumerate(who)})
        else ""
    )


RIDDLES = SENTENCES["riddles"]


def plot_riddle(t):
    h = t.hero("child", "human", "animal", "robot", "child")
    t.setting(times=OUT)
    k = t.cast(
        "k",
        Char(
            t.one("riddle.k"),
            t.pick(["old", "grey", "stern", "grumpy", "strange"]),
            "she" if h.pron == "he" else "he",
            "human",
        ),
    )
    if k.noun in ("old woman", "sphinx"):
        k.pron = "she"
    if k.noun == "old woman":
        k.noun, k.adj = "woman", "old"
    riddle, answer = t.pick(RIDDLES)
    wrong = t.pick([a for _, a in RIDDLES if a != answer and a.startswith(("a ", "an "))])
    t.v.update(riddle=riddle, answer=answer, wrong=wrong, place=t.one("riddle.place"))
    t.title = t.one("riddle.title")
    return t.pages(*t.told("riddle.pages"))


def plot_train(t):
    h = t.hero("child", "human", "robot", "child")
    t.setting(times=OUT)
    k = t.cast("k", t.animal(h, named=0.5) if t.chance(0.5) else t.person(h))
    t.v.update(bag=t.one("train.bag"), vehicle=t.pick(["train", "train", "night train", "bus"]))
    reason = t.one(
        "train.reason",
        more=lambda: (
            (
                "I am going to see the sea for the first time",
                "I have read about it for thirty years, and now I want to know whether it is true",
            )
        ),
        more2=lambda: (
            (
                "I am visiting my sister",
                "We have not spoken for ten years, and I am a little afraid",
            )
        ),
        more3=lambda: (
            ("I am bringing this to somebody who does not expect it", "Those are the best presents")
        ),
        more4=lambda: (
            (
                "I am going home",
                "I have been away so long that I do not know whether anybody will remember me",
            )
        ),
        more5=lambda: ("I do not know where I am going", "I liked the name of the last station"),
    )
    t.v.update(r1=reason[0], r2=reason[1], arrive=t.one("train.arrive"))
    t.title = t.one("train.title", more=lambda: "night" in t.v["vehicle"])
    return t.pages(
        *t.told("train.pages", reason=lambda: "afraid" in reason[1] or "remember" in reason[1])
    )


def plot_book(t):
    h = t.hero("child", "child", "human", "robot")
    t.setting(times=OUT)
    k = t.cast("k", t.person(h, job=t.one("book.job"), named=0.6))
    t.v.update(about=t.one("book.about"))
    t.title = t.one("book.title")
    return t.pages(*t.told("book.pages", more=lambda: t.chance(0.4)))


def plot_birthday(t):
    h = t.hero()
    t.setting()
    k = t.cast("k", t.child(h) if h.kind in ("child", "human") else t.animal(h))
    t.v.update(cake=t.one("birthday.cake"), place=t.one("birthday.place"))
    t.title = t.one(
        "birthday.title",
        if_name=lambda: "{h}'s Birthday" if h.name and h.pron != "I" else "The Birthday",
    )
    return t.pages(*t.told("birthday.pages", more=lambda: t.opening(began=False)))


def plot_bird(t):
    h = t.hero("child", "human", "robot", "child")
    t.setting(season=t.pick(["autumn", "autumn", "winter"]), times=OUT[:2])
    k = t.cast("k", t.animal(h, species=t.told("bird.species"), named=0.25))
    t.title = t.one("bird.title")
    return t.pages(
        *t.told(
            "bird.pages", if_chance=lambda: t.moral("kind", "patience") if t.chance(0.5) else ""
        )
    )


def plot_snow(t):
    h = t.hero("child", "animal", "human", "robot")
    t.setting(season="winter")
    k = t.cast("k", t.child(h) if h.kind == "child" else t.animal(h))
    t.v.update(thing=t.one("snow.thing"), food=t.one("snow.food"))
    t.title = t.one("snow.title")
    return t.pages(
        *t.told(
            "snow.pages",
            more=lambda: t.opening(began=False) + ["Then the first snow fell."],
            more2=lambda: t.pick(
                [
                    'Then {k2intro} came along. "Shall we build something?" {kasked}.',
                    '"Will you help me?" {asked}. {Kintro} was there at once.',
                ]
            ).replace("{k2intro}", "{kintro}"),
        )
    )


def plot_school(t):
    h = t.cast("h", t.child() if t.chance(0.8) else t.animal(named=1.0))
    t.setting(times=["morning"])
    k = t.cast("k", t.child(h) if h.kind == "child" else t.animal(h, named=1.0))
    t.v.update(fear=t.one("school.fear"), pocket=t.one("school.pocket"), who=t.one("school.who"))
    t.title = t.one("school.title")
    return (
        t.pages(
            *t.told(
                "school.pages",
                more=lambda: (
                    "other" in t.v["who"] and "father" not in t.v["who"] or "sister" in t.v["who"]
                ),
            )
        )
        if not t.v.update(pocket1=t.v["pocket"].split()[-1])
        else ""
    )


PLOTS = [
    (plot_lost, 14),
    (plot_errand, 10),
    (plot_sea, 9),
    (plot_robot, 9),
    (plot_farm, 7),
    (plot_detective, 6),
    (plot_letter, 5),
    (plot_diary, 3),
    (plot_fear, 5),
    (plot_dragon, 6),
    (plot_seed, 5),
    (plot_wish, 5),
    (plot_fable, 7),
    (plot_baby, 5),
    (plot_quarrel, 3),
    (plot_music, 4),
    (plot_noise, 5),
    (plot_contest, 4),
    (plot_space, 5),
    (plot_stranger, 5),
    (plot_sleep, 3),
    (plot_friend, 5),
    (plot_maker, 5),
    (plot_short, 5),
    (plot_royal, 5),
    (plot_key, 5),
    (plot_scarecrow, 5),
    (plot_clock, 3),
    (plot_pet, 5),
    (plot_market, 3),
    (plot_riddle, 6),
    (plot_train, 4),
    (plot_book, 4),
    (plot_birthday, 4),
    (plot_bird, 4),
    (plot_snow, 4),
    (plot_school, 4),
]
SMALL = {"and", "the", "a", "of", "on", "in", "for", "is", "at", "who", "had", "was"}


def story(r):
    """One story, perhaps with a title line."""
    t = Teller(r)
    t.v.update(
        food=r.choice(FOODS),
        a_snack=r.choice(
            [
                "some bread and cheese",
                "a bag of apples",
                "a flask of tea",
                "a piece of cake",
                "three boiled eggs",
            ]
        ),
        noun0="",
        adj0="",
        part="",
        once="one day",
        age=r.choice(["seven", "eight", "nine", "ten", "eleven"]),
    )
    t.v.update(
        a_part="{part_a}",
        shivering=r.choice(["shivering with cold", "small and trembling", "hardly moving"]),
    )
    t.v["part_a"] = "a {part}"
    plot = r.choices([p for p, _ in PLOTS], [w for _, w in PLOTS])[0]
    text = plot(t)
    if t.title and t.chance(0.12) and not ("h" in t.chars and t.chars["h"].pron == "I"):
        title = re.sub(r"\b(A|a) (?=[aeiou])", r"\1n ", t.tell(t.title))
        words = title.split()
        title = " ".join(
            w if i and w in SMALL else w[0].upper() + w[1:] for i, w in enumerate(words)
        )
        text = title + "\n\n" + text
    if t.chance(0.06):
        text += "\n\nThe end."
    return text


def stories(seed):
    """Endless stories; the same seed tells the same ones."""
    r = random.Random(seed)
    while True:
        yield story(r)


if __name__ == "__main__":
    feed = stories(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 3):
        print(next(feed), end="\n\n----\n\n")
