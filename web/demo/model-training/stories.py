"""Short stories from a grammar: seeded, pure Python, no downloads.

`python stories.py 5` prints five of them.

A story is a plot (a function below) that casts characters from words.py, picks a trouble and
somebody who is able to solve it, and tells it in templates. In a template `[a|b|]` picks one
alternative, `{slot}` names something of the story (a capital first letter capitalises it): `{h}` is
the hero, `{he} {him} {his} {himself} {h's} {said}` follow from who that is, `{k}`/`{khe}`/`{ksaid}`
are the same for the helper and `{m}`/`{mhe}`/`{msaid}` for a third character.
"""

import random
import re
import sys
from functools import cache

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
    rows,
)

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
CHILD_LIKES = [
    "climbing trees",
    "asking questions",
    "collecting stones",
    "drawing maps",
    "listening to stories",
    "building tree houses",
    "running through puddles",
    "counting stars",
    "singing to the chickens",
    "reading by candlelight",
    "whistling",
    "fishing for tadpoles",
    "folding paper boats",
    "digging for treasure",
    "watching the trains",
    "talking to snails",
    "jumping over ditches",
    "painting",
    "inventing words",
    "looking at clouds",
]
ROBOT_MADE = [
    "old kettles and bicycle parts",
    "tin and copper wire",
    "silver plates and tiny screws",
    "spare parts from a ship",
    "a washing machine and two lamps",
    "brass wheels and springs",
    "a stove, a clock and a radio",
    "recycled cans",
]
ROBOT_JOBS = [
    ("swept the floors of the station", "the station"),
    ("watered the plants in the glass house", "the glass house"),
    ("carried books in the library", "the library"),
    ("delivered letters", "the post office"),
    ("washed the dishes in a small café", "the café"),
    ("looked after the lighthouse", "the lighthouse"),
    ("sorted screws in a dusty workshop", "the workshop"),
    ("fed the ducks in the park", "the park"),
    ("counted the clouds at the weather station", "the weather station"),
    ("helped in the toy shop", "the toy shop"),
    ("polished the windows of the tall towers", "the towers"),
    ("baked exactly one hundred rolls a day", "the bakery"),
    ("guarded the museum at night", "the museum"),
    ("picked apples in the orchard", "the orchard"),
]


# what somebody was doing | light or dark outside | warm or cold
DOINGS = {
    "human": rows("""
was walking home from work | | 
was locking the door | dark | 
was drinking tea by the window | | 
was on {his} way to the market | light | 
was sweeping the doorstep | light | 
was looking out of the window | | 
was carrying a heavy basket up the hill | light | 
was getting ready for work | light | 
was sitting on the bench in front of the house | | warm
was sitting by the fire | dark | cold
was walking by the river | | 
was hanging out the washing | light | warm
was lighting the lamps | dark | 
was writing a letter | | 
was making soup | | 
was mending an old coat | | cold
was tidying the shelves | light | 
was counting the coins in {his} purse | | 
was walking through the park | light | 
was looking up at the sky | | 
sat on a bench and watched the people | light | 
stood at the window and waited for the postman | light | 
sat at the kitchen table and thought | | 
opened the door and looked out | | 
put on {his} coat and went for a walk | | 
went out to fetch water | light | 
came home tired and hungry | dark | 
blew out the candle | night | 
sat in front of the house and peeled apples | light | 
got up earlier than usual | light | 
packed {his} bag | light | 
could not find {his} glasses | | 
stood on the bridge and looked down at the water | | 
took the long way home | | 
"""),
    "child": rows("""
was walking to school | light | 
was sitting on the garden wall | | warm
was playing by the stream | light | warm
was looking out of the window | | 
was lying in the grass | light | warm
was skipping stones | light | warm
was on the way to {his} grandmother | light | 
was helping in the garden | light | warm
was feeding the chickens | light | 
was playing in the yard | light | 
was reading under the blanket | night | 
was lying in bed and listening to the wind | night | 
was standing at the window in {his} pyjamas | night | 
was walking home from {his} grandmother | dark | 
was collecting chestnuts | light | cold
was building a tower of stones | light | 
was drawing a picture | | 
was looking for {his} left shoe | | 
was sitting in the kitchen | | 
was running down the hill | light | 
sat on the stairs and waited | | 
climbed up to the attic | | 
ran out into the garden | light | 
put on {his} boots and went outside | light | 
sat by the window and counted the stars | dark | 
jumped out of bed | light | 
stood in front of the mirror and made faces | | 
crept out of the house | night | 
went for a walk with the dog | | 
sat in the old apple tree and swung {his} legs | light | warm
built a snowman | light | winter
packed some bread and went exploring | light | warm
hid under the table with a book | | 
walked along the beach | light | 
"""),
    "robot": rows("""
was oiling {his} knees | | 
was charging {his} battery in the sun | light | warm
was rolling down the lane | | 
was humming at work | | 
was polishing {his} lamp | | 
was looking up at the clouds | light | 
was looking up at the stars | dark | 
was carrying a box of screws | | 
was counting raindrops | | cold
was waiting at the bus stop | | 
was tightening a loose screw | | 
was tidying the cupboard | | 
switched on {his} lamps and said good morning | light | 
stood at the window and counted the cars | | 
rolled out of the shed | | 
woke up with a beep | | 
sat in the corner and waited | | 
was trying to whistle | | 
"""),
    "animal": rows("""
was looking for breakfast | light | 
was looking for supper | dark | 
was lying in the sun | light | warm
was trotting along the path | | 
was stretching {his} legs | | 
was listening to the wind | | 
was on the way home | | 
was sitting very still | | 
was enjoying the fresh air | | 
was cleaning {his} house | light | 
was looking at {his} reflection in a puddle | light | 
was watching the moon | dark | 
was looking for something to eat | | 
was dreaming of summer | | cold
was taking a walk | | 
sat in front of {his} house and yawned | | 
woke up and stretched | light | 
sat on a stone and thought about life | | 
came home late | dark | 
looked up at the moon | dark | 
set out to see the world | light | 
sat by the water and dreamed | | 
had nothing to do | | 
was in a very good mood | | 
was in a bad mood | | 
hummed a little song | | 
"""),
}

FANTASY = rows("""
dragon | a | in a cave full of books | small, friendly, green, clumsy, shy, sleepy, young
witch | she | in a house on chicken legs | young, forgetful, kind, merry, old
wizard | he | at the top of a crooked tower | old, absent-minded, young, kind
knight | a | in a castle with a leaking roof | brave, young, tired, gentle, rusty
princess | she | in a tower with a hundred steps | clever, stubborn, bored, brave, curious
prince | he | in a castle by the lake | shy, kind, lonely, dreamy
mermaid | she | in a palace of shells under the sea | curious, young, cheerful
ghost | a | in the attic of the old castle | small, shy, polite, friendly, lonely
pirate | a | on a ship with patched sails | old, seasick, kind, merry, young
giant | he | in a valley that was just big enough | gentle, lonely, clumsy, kind
unicorn | a | in a meadow that was always in bloom | white, shy, young, proud
elf | a | in a hollow tree | tiny, quick, merry, clever
dwarf | a | under the blue mountain | grumpy, small, hard-working, old
fairy | she | in a bluebell | tiny, forgetful, cheerful
troll | a | under the stone bridge | huge, shy, hungry, gentle
magician | a | in a yellow wagon | old, clumsy, young, clever
king | he | in a castle with a hundred rooms | old, kind, bored, young
queen | she | in a castle by the sea | wise, young, kind, proud
gnome | he | under a red mushroom | small, old, cheerful
snow queen | she | in a palace of ice | lonely, young, proud
monster | a | under a bed | fluffy, shy, blue, friendly, small
""")


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
        noun = self.pick(
            ["grandmother", "aunt", "sister", "cousin", "best friend", "neighbour", "teacher"]
            if female
            else [
                "grandfather",
                "uncle",
                "brother",
                "cousin",
                "best friend",
                "neighbour",
                "teacher",
            ]
        )
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
        noun = self.pick(
            [
                "cat",
                "cat",
                "dog",
                "dog",
                "hamster",
                "rabbit",
                "pony",
                "parrot",
                "goldfish",
                "hen",
                "donkey",
            ]
        )
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
            (
                self.pick(["in a basket by the stove", "in our kitchen", "at the foot of my bed"])
                if noun in ("cat", "dog", "hamster")
                else "behind our house"
            ),
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
            return self.pick(
                [
                    (
                        "[Every day|Every morning|All day long|From morning till night], {he} {did}"
                        " {work}."
                    ),
                    "{He} {did} {work}.",
                    "{He} {did} {work}, and [nobody did it better|{he} did it well].",
                    "{He} [worked|spent {his} days] {work} and {did}.",
                ]
            )
        if h.kind == "child":
            self.v["likes"], self.v["likes2"] = self.r.sample(CHILD_LIKES, 2)
            return self.pick(
                [
                    "{He} loved {likes}.",
                    "{He} loved {likes} more than anything else.",
                    "What {he} liked best was {likes}.",
                    "{He} liked {likes} and {likes2}.",
                    "Nobody in the whole street was better at {likes}.",
                    "{His} favourite thing in the world was {likes}.",
                ]
            )
        if h.kind == "robot":
            job, self.v["station"] = self.pick(ROBOT_JOBS)
            self.v.update(made_of=self.pick(ROBOT_MADE), robot_job=job)
            return self.pick(
                [
                    "{He} was made of {made_of}.",
                    "[Every day|Day after day|Every morning], {he} {robot_job}.",
                    "{He} was made of {made_of}, and every day {he} {robot_job}.",
                    "{He} {robot_job} and [hummed quietly|never complained|beeped a little song].",
                ]
            )
        if h.body == "hand" and h.noun not in ("frog", "monkey"):
            self.v["likes"] = self.pick(
                [
                    "old songs",
                    "strawberry tea",
                    "riddles",
                    "thunderstorms",
                    "long walks",
                    "telling stories",
                    "collecting buttons",
                    "warm rain",
                    "pancakes",
                    "peace and quiet",
                    "dancing in the moonlight",
                ]
            )
            return self.pick(
                [
                    "{He} loved {likes}.",
                    "{He} was known for {his} good manners.",
                    "What {he} liked best was {likes}.",
                    "{He} had a good heart and a bad memory.",
                    "{He} liked {likes} more than anything else.",
                    "Nobody had ever taught {him} how to be afraid.",
                    "{He} had only one wish: to have a friend.",
                    "{He} snored so loudly that the stars trembled.",
                ]
            )
        self.v["den"] = h.place
        return self.pick(
            [
                "{He} lived {den}.",
                "{His} home was {den}.",
                "{He} slept {den}.",
                (
                    "{He} lived {den} and [had a good nose for adventures|knew everybody in the"
                    " neighbourhood|never went far from home|was known for {his} good manners]."
                ),
            ]
        )

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
            "morning": self.pick(
                ["early in the morning", "a fine morning", "six o'clock in the morning"]
            ),
            "evening": self.pick(["already evening", "almost dark", "a quiet evening"]),
            "night": self.pick(["a dark night", "past midnight", "a quiet night"]),
            "day": self.pick(["a quiet afternoon", "a fine day", "three o'clock in the afternoon"]),
        }[self.hour]
        self.v["folk"] = self.pick(
            [
                "Everybody in the village",
                "Everybody in the street",
                "The whole neighbourhood",
                "All the children",
                "Every bird and every cat",
            ]
        )
        lives = "{He} lived {home}." if h.kind != "animal" else ""
        if h.pron == "I":
            scenes = [
                ["{Time}, I {doing}.", (1, "{weather}")],
                ["I {doing}.", (1, "{weather}")],
                ["It was {clock}, and I {doing}."],
                ["I remember it well.", "{Time}, I {doing}."],
                ["When I was small, we lived {home}.", "{Time}, I {doing}."],
            ]
            if began:
                self.scene()
            return self.pick(
                scenes
                if began
                else [
                    ["When I was small, we lived {home}.", (1, "{habit}")],
                    ["I lived {home}.", (1, "{habit}")],
                    ["I was {age} years old then.", (1, "{habit}")],
                ]
            )
        if h.first:
            scenes = [
                ["{Time}, {hfull} {doing}.", (1, "{weather}")],
                ["{Hfull} {doing}.", (1, "{weather}")],
                ["This is a story about {hfull}.", "{Then}, {he} {doing}."],
            ]
            calm = [
                ["{Hfull} lived {home}.", (1, "{habit}")],
                ["This is a story about {hfull}.", "{habit}"],
                ["I want to tell you about {hfull}.", "{habit}"],
            ]
            if began and self.chance(0.5):
                self.scene()
                return self.pick(scenes)
            return self.pick(calm)
        calm = [
            ["Once upon a time, there was {hintro}[ who lived {home}|]. {habit}"],
            ["Once upon a time, {hintro} lived {home}.", (1, "{habit}")],
            ["Once upon a time, {home}, there lived {hintro}.", (1, "{habit}")],
            ["Once upon a time there lived {hintro}. {habit}", (1, lives)],
            ["Once there was {hintro}.", "{habit}"],
            ["There was once {hintro} who lived {home}.", (1, "{habit}")],
            ["There once lived {hintro} {home}.", (1, "{habit}")],
            [
                (
                    "Long ago, [when the world was quieter|before there were trains|when the nights"
                    " were darker than today|], {hintro} lived {home}."
                ),
                (1, "{habit}"),
            ],
            ["A long time ago, there was {hintro}.", "{habit}", (2, lives)],
            ["{Home} lived {hintro}.", "{habit}"],
            ["{Home} there lived {hintro}.", (1, "{habit}")],
            ["{Hfull} lived {home}.", "{habit}"],
            ["{Hfull} lived {home}.", (1, "{habit}")],
            ["This is the story of {hintro}.", "{habit}", (2, lives)],
            [
                (
                    "Far away, [beyond the seven hills|on the other side of the sea|where the"
                    " rivers begin|at the end of the world], there lived {hintro}."
                ),
                (1, "{habit}"),
            ],
            ["Do you know the story of {hintro}?", lives or "{habit}"],
            ["Have you ever heard of {hintro}?", "{habit}"],
            [
                (
                    "The {adj0} {noun0} lived {home}."
                    if not h.name
                    else "{hname} was a {adj0} {noun0}."
                ),
                "{habit}",
            ],
            [
                (
                    "{hname} was a {adj0} {noun0}, and {he} lived {home}."
                    if h.name
                    else "The {adj0} {noun0} lived {home}."
                ),
                (1, "{habit}"),
            ],
            ["{folk} knew {hfull}.", "{habit}"],
            [
                (
                    "Nobody knew how old {hfull} was."
                    if h.adj in ("old", "wise", "rusty")
                    else (
                        "Nobody was as {adj0} as {hname} the {noun0}."
                        if h.name
                        and h.kind != "child"
                        and h.adj
                        not in (
                            "little",
                            "new",
                            "forgotten",
                            "round",
                            "square",
                            "silver",
                            "copper",
                            "tin",
                        )
                        else "{folk} liked {hfull}."
                    )
                ),
                "{habit}",
            ],
            ["My grandmother used to tell me about {hintro}.", "{habit}", (1, lives)],
            [
                "If you had walked through our village in those days, you would have met {hintro}.",
                "{habit}",
            ],
            (
                ["Deep in the forest, there lived {hintro}.", "{habit}"]
                if h.kind in ("animal", "human") and h.body != "hand"
                else ["In a faraway land, there lived {hintro}.", "{habit}"]
            ),
            (
                [
                    (
                        "In a [land far away|faraway country|small village|quiet street|big"
                        " city|little house], there lived {hintro}."
                    ),
                    "{habit}",
                ]
                if h.kind != "animal"
                else ["There was {hintro}, and {he} lived {home}.", "{habit}"]
            ),
            (
                ["There was a {noun0} [named|called] {hname}. {habit}"]
                if h.name
                else ["There was a {noun0} who lived {home}. {habit}"]
            ),
            ["A {adj0} {noun0} lived {home}.", "{habit}"],
            [
                "When {hname} was young, {he} lived {home}." if h.name else "There was {hintro}.",
                "{habit}",
            ],
        ]
        if not began:
            return self.pick(calm)
        scenes = [
            ["{Time}, {hfull} {doing}.", (1, "{weather}")],
            ["{Time}, {hfull} {doing}.", (1, "{weather}")],
            ["{Time}, {hfull} {doing}.", (1, "{weather}"), (2, "{habit}")],
            ["{Time}, {hintro} {doing}.", (1, "{weather}")],
            ["{Hfull} {doing}.", (1, "{weather}")],
            ["{Hfull} {doing} when it all began.", (1, "{weather}")],
            ["{weather}", "{Hfull} {doing}."],
            (
                [
                    "It was a [dark and stormy|long and dark|clear and quiet|cold and windy] night."
                    " {Hfull} {doing}."
                ]
                if dark_hour(self)
                else [
                    "It was a [bright and sunny|cool and windy|quiet|beautiful|grey and rainy] day."
                    " {Hfull} {doing}."
                ]
            ),
            (
                ["The [sun was rising|day was young], and {hfull} {doing}."]
                if self.hour == "morning"
                else (
                    ["The moon was shining, and {hfull} {doing}."]
                    if dark_hour(self)
                    else ["The clock struck [three|two|four|five], and {hfull} {doing}."]
                )
            ),
            ["A {adj0} {noun0} {doing}.", (1, "{weather}")],
            ["Nobody saw it, but {time_l}, {hfull} {doing}."],
            ["It was {clock}. {Hfull} {doing}.", (1, "{weather}")],
            ["It was {clock}, and {hfull} {doing}.", (1, "{weather}")],
            [
                "{Time}, [something unusual happened|a small adventure began] {home}.",
                "{Hfull} {doing}.",
            ],
            [
                (
                    '"[What a day|What a strange morning|What a quiet afternoon]!" {said}.'
                    if self.hour in ("day", "morning")
                    else '"[What a night|How dark it is|How quiet it is]!" {said}.'
                ),
                "{He} {doing}.",
                (1, "{weather}"),
            ],
            [
                (
                    '"[Today|This time] I will [do something new|be brave|find something'
                    ' wonderful|not be late]," {said}.'
                    if not dark_hour(self)
                    else '"[How bright the moon is|It is late]," {said}.'
                ),
                "{He} {doing}.",
            ],
            [
                (
                    "The {adj0} {noun0} {doing}."
                    if not h.name
                    else (
                        "{hname} the {noun0} {doing}."
                        if h.kind != "child"
                        else "Little {hname} {doing}."
                    )
                ),
                (1, "{weather}"),
            ],
        ]
        if self.chance(0.45):
            self.scene()
            return self.pick(scenes)
        if self.chance(0.4):
            return self.pick(calm)
        self.scene()
        return self.pick(calm) + ["{Then}, {he} {doing}."]

    def scene(self):
        """A scene is set: what comes next happens there and then, not `one day`."""
        self.v["once"] = self.pick(
            [
                "just then",
                "a little later",
                "all at once",
                "at that moment",
                "after a while",
                "suddenly",
            ]
        )

    def beat(self):
        """A breath between two events."""
        h, k = self.chars["h"], self.chars.get("k")
        dark = dark_hour(self)
        pool = [
            "{H} thought about it.",
            "{H} looked up in surprise.",
            "For a moment, nobody said a word.",
            "{H} took a deep breath.",
            "Somewhere, a dog barked.",
            "It was so quiet that you could hear a leaf fall.",
            "{H} did not know what to say.",
            "{H} smiled for the first time that day.",
        ] + (
            [
                "An owl hooted in the distance.",
                "The stars were very bright.",
                "The moon came out from behind a cloud.",
            ]
            if dark
            else [
                "A cloud passed over the sun.",
                "The church bell rang in the distance.",
                "A bee flew by.",
                "The wind had stopped.",
            ]
        )
        if k:
            pool += [
                "{K} nodded slowly.",
                "{K} tilted {khis} head.",
                "{H} and {k} looked at each other.",
                "{K} thought for a moment.",
                "{K} cleared {khis} throat.",
            ]
        return self.pick(pool)

    def moral(self, *themes):
        return self.pick(MORALS[self.pick(themes)])

    def ending(self, *themes):
        """The last words."""
        if self.chance(0.5):
            return [self.moral(*themes)]
        return [
            self.pick(
                [
                    (
                        "And if you [walk past|come by] on a quiet evening, you can still hear the"
                        " laughter."
                    ),
                    "And that was the [best|happiest] day of the whole year.",
                    "That night, {he} fell asleep with a smile.",
                    "And {they} were friends for ever after.",
                    "And everything was well again.",
                    "The moon looked down and seemed to smile.",
                    "{H} often thought of that day.",
                    "And when somebody asked about it, {h} only smiled.",
                    "It was the beginning of a long friendship.",
                    "{H} whistled all the way home.",
                    "And from far away, you could hear somebody singing.",
                    "Nobody who was there has ever forgotten it.",
                    "That evening, the lights burned a little longer than usual.",
                    "And {h} was as happy as {he} had ever been.",
                    '"What a day," {said}, and it was the best day for a long time.',
                    "{K} [waved|winked], and {h} waved back.",
                    "And the next morning, the sun shone as if nothing had happened.",
                    "And so the day that had begun so badly ended with {food}.",
                    "They still tell this story today.",
                    (
                        "And from that day on, {they} [had tea together every Sunday|visited each"
                        " other every week|waved to each other every morning]."
                    ),
                ]
            )
        ] + ([self.moral(*themes)] if self.chance(0.25) else [])

    def feast(self):
        self.v["food"] = self.pick(FOODS)
        return self.pick(
            [
                "Then {they} sat down together and had {food}.",
                "In the evening, {they} shared {food} by the fire.",
                "To celebrate, there was {food} for everybody.",
                "{H} brought out {food}, and {they} ate until the stars came out.",
                "That evening, the whole house smelled of {food}.",
                "And afterwards, there was {food}.",
            ]
        )


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
                [
                    "A magpie saw it glitter, snatched it and carried it to {his} [nest|hiding"
                    " place] in {tree}.".replace("{his}", "its"),
                    (
                        "Just then, a magpie swooped down, picked up the shining thing and flew off"
                        " with it to its nest in {tree}."
                    ),
                ],
            )
        return (
            "tree" if tree else "roof",
            [
                (
                    "[Suddenly|All at once|Then] a gust of wind [snatched|tore] {the_thing} out of"
                    " {his} {hold} and [carried|blew] it to {spot}."
                ),
                (
                    "Then the wind came up, [whirled|lifted] {the_thing} into the air and left it"
                    " on {spot}."
                ),
                (
                    "But the wind was stronger than {he} had thought. {The_thing} flew away, turned"
                    " three times in the air and landed on {spot}."
                ),
            ],
        )
    if state == "water":
        t.v["spot"] = t.pick(WATERS)
        if "w" in t.tags:
            return (
                "water",
                [
                    "A gust of wind took {the_thing} and dropped it right into {spot}.",
                    "The wind blew {the_thing} over the grass and into {spot}.",
                ],
            )
        return (
            "water",
            [
                (
                    "When {he} leaned over the edge of {spot}, {the_thing} slipped out of {his}"
                    " {hold} and sank with a splash."
                ),
                (
                    "{H} stumbled over a stone, and {the_thing} flew in a high arc and fell into"
                    " {spot}."
                ),
                "Plop! {The_thing} had fallen into {spot}.",
            ],
        )
    dig = t.chance(0.5)
    t.v["spot"] = t.pick(HOLES_DIG if dig else HOLES_SQUEEZE)
    return (
        "dig" if dig else "squeeze",
        [
            (
                "But {he} stumbled, and {the_thing} rolled away, faster and faster, until it"
                " vanished into {spot}."
            ),
            "{The_thing} slipped out of {his} {hold}, bounced twice and rolled into {spot}.",
            "Before {he} could catch it, {the_thing} had rolled into {spot}.",
        ],
    )


TRIED = {
    "tree": [
        "{H} jumped as high as {he} could, but it was no use.",
        "{H} shook the trunk, but only leaves came down.",
        "{H} tried to climb up, but the trunk was too smooth.",
        "{H} threw pine cones at it until {he} was tired, but it did not move.",
    ],
    "roof": [
        "{H} looked for a ladder, but the longest ladder was three steps too short.",
        "{H} jumped and jumped, but it was far too high.",
        "{H} walked around it twice and found no way up.",
    ],
    "water": [
        "{H} reached for it with a stick, but it only sank deeper.",
        "{H} could see it glimmer far below, but the water was deep and cold.",
        "{H} fished for it for an hour and caught nothing but an old boot.",
        "{H} waited for it to come up again, but it did not.",
    ],
    "dig": [
        "{H} scratched at the ground, but it was too hard.",
        "{H} reached in as far as {he} could, but {he} felt nothing but dust.",
        "{H} poked around with a stick, but that pushed it in even deeper.",
    ],
    "squeeze": [
        "{H} tried to reach in, but the opening was much too narrow.",
        "{H} lay down flat and looked in, but it was as dark as night in there.",
        "{H} knocked, shook and pulled, but nothing helped.",
    ],
}
ABLE = {
    "tree": ["fly", "climb"],
    "roof": ["fly", "climb"],
    "water": ["swim"],
    "dig": ["dig"],
    "squeeze": ["squeeze"],
}
GOT = {
    ("tree", "fly"): [
        "{K} spread {khis} wings, flew up to {spot} and came back with {the_thing} in {khis} beak.",
        (
            "{K} flew up in wide circles, took {the_thing} carefully and let it fall right at {h's}"
            " feet."
        ),
    ],
    ("roof", "fly"): [
        "{K} spread {khis} wings, rose into the air and came back with {the_thing} in {khis} beak.",
        "With three beats of {khis} wings, {k} was up there, and soon {the_thing} was safe again.",
    ],
    ("tree", "climb"): [
        "{K} climbed from branch to branch, higher and higher, and brought {the_thing} down again.",
        "{K} went up the trunk as if it were a staircase. A moment later, {the_thing} was back.",
    ],
    ("roof", "climb"): [
        "{K} climbed up the ivy, stone by stone, and brought {the_thing} down safely.",
        (
            "{K} found a foothold where nobody else could see one, and soon {khe} was waving"
            " {the_thing} from above."
        ),
    ],
    ("water", "swim"): [
        (
            "{K} took a deep breath and dived. Bubbles rose. Then {khe} came up again with"
            " {the_thing}."
        ),
        "{K} slid into the water without a sound. A moment later, {khe} came up with {the_thing}.",
        (
            "There was a splash, and {k} was gone. {H} counted to twenty. Then {k} came up again,"
            " and {khe} had {the_thing}."
        ),
    ],
    ("dig", "dig"): [
        (
            "{K} began to dig, and the earth flew in all directions. Soon {the_thing} lay in the"
            " sunlight again."
        ),
        (
            "{K} dug and dug until only {khis} back could be seen. At last {khe} came out again,"
            " dusty and proud, with {the_thing}."
        ),
    ],
    ("squeeze", "squeeze"): [
        (
            "{K} slipped in without any trouble. There was a rustle, then silence. Then {k} came"
            " out again, pulling {the_thing} behind {khim}."
        ),
        (
            "{K} made {khimself} as thin as a leaf and disappeared inside. Soon {khe} was back, and"
            " so was {the_thing}."
        ),
    ],
}
CAN_LINE = {
    "fly": ["I have wings", "Flying is what I do best", "It is not high for somebody with wings"],
    "climb": ["I am a good climber", "I have climbed higher than that", "Climbing is easy for me"],
    "swim": ["I am a good swimmer", "I am not afraid of deep water", "Diving is what I do best"],
    "dig": ["I can dig", "Nobody digs better than I do", "I have dug deeper holes than that"],
    "squeeze": [
        "Sometimes it is good to be small",
        "I fit through anything",
        "I know every crack around here",
    ],
}


def help_talk(t, ability, trouble):
    """The helper comes along, asks, and offers help."""
    t.v["trouble"], t.v["able"] = trouble, t.pick(CAN_LINE[ability])
    come = [
        "[Just then|At that moment|After a while|Luckily], {kintro} came along.",
        "{Kintro} had seen everything.",
        "{Kintro} heard {him} sigh and came closer.",
        "[Just then|At that moment], {kintro} [looked up|stopped].",
    ]
    ask = t.pick(
        [
            [
                (
                    '"[What is the matter|Why are you so sad|What has happened|Can I help you]?"'
                    " {kasked}."
                ),
                '"{trouble}," {said}, "and I do not know what to do."',
            ],
            [
                '"Oh dear," {ksaid}. "[What happened|What is wrong]?"',
                "{H} told {khim} [everything|the whole story].",
            ],
            ['"You look sad," {ksaid}.', '"{trouble}," {answered}.'],
            ['"Please, can you help me?" {asked}. "{trouble}."'],
        ]
    )
    offer = [
        '"{able}," {ksaid}. "[Wait here|Let me try|Leave it to me|I will help you]."',
        '"[Do not worry|Dry your tears|No problem at all]," {ksaid}. "{able}."',
        '"{able}," {ksaid}[ with a smile| proudly| kindly|].',
    ]
    return [t.pick(come), *ask, t.pick(offer)]


def thanks(t):
    return t.pick(
        [
            (
                '"[Thank you|Thank you so much|You are a true friend|How can I ever thank you]!"'
                " {cried}."
            ),
            (
                "{H} was so happy that {he} [danced|jumped for joy|could hardly speak|laughed out"
                " loud]."
            ),
            (
                '"How can I thank you?" {asked}. "[Come and visit me|Be my friend|Help somebody'
                ' else one day|Tell me a story]," {ksaid}.'
            ),
            "{H} [hugged {k}|thanked {k} with all {his} heart].",
        ]
    )


def plot_lost(t):
    h = t.hero("human", "child", "child", "animal", "robot")
    t.setting(times=OUT)
    t.thing("wrsd")
    state, how = lose(t)
    ability = t.pick(ABLE[state])
    k = t.cast("k", t.animal(h, [ability]))
    if ability == "climb" and t.chance(0.2):
        k = t.cast("k", t.person(h, ["climb"]))
    trouble = {
        "tree": "My {thing} is up in the tree",
        "roof": "My {thing} is up there",
        "water": "My {thing} has fallen into the water",
        "dig": "My {thing} is gone",
        "squeeze": "My {thing} is in there",
    }[state]
    t.title = t.pick(
        ["{Kkind} and the {thing}", "{h} and the {thing}", "The Lost {thing}", "The {adj_thing}"]
    )
    return t.pages(
        t.opening(),
        [
            "{H} [had|owned|always carried] {a_thing}.",
            (1, "{origin}"),
            t.pick(how),
            (1, t.pick(TRIED[state])),
            (
                2,
                t.pick(
                    [
                        "{He} sat down and [wept|sighed|did not know what to do].",
                        "[Sadly|Disappointed], {he} sat down on a stone.",
                        "{His} heart was heavy.",
                    ]
                ),
            ),
        ],
        help_talk(t, ability, trouble) + [(2, t.beat())],
        [
            t.pick(GOT[(state, ability)]),
            thanks(t),
            (1, t.feast()),
            *t.ending("help", "help", "kind"),
        ],
    )


# a way that is blocked: what it is | who can | how it is solved
BLOCKS = [
    (
        "a fallen tree lay across the road",
        "the tree",
        "strong",
        [
            (
                "{K} put {khis} shoulder against the trunk and pushed. The wood creaked, the leaves"
                " shook, and slowly the tree rolled aside."
            ),
            (
                "They tied a rope around the trunk. {K} pulled once, pulled twice, and the road was"
                " free."
            ),
        ],
    ),
    (
        "a great stone had rolled onto the path",
        "the stone",
        "strong",
        [
            (
                "{K} pushed until the stone began to rock, and then it rolled down the hill with a"
                " rumble."
            ),
            '"One, two, three!" they cried, and together they rolled the stone aside.',
        ],
    ),
    (
        "the river had washed away the bridge",
        "the river",
        "gnaw",
        [
            (
                "{K} began to gnaw. Chips flew, and then a tall birch fell right across the river."
                " Now there was a bridge."
            ),
            (
                "{K} called the whole family, and before noon they had built a dam that anybody"
                " could walk on."
            ),
        ],
    ),
    (
        "the river was too deep to cross",
        "the river",
        "strong",
        [
            '"Climb on my back," {ksaid}, and step by step they waded through the cold water.',
            "{K} carried {him} through the water as easily as a feather.",
        ],
    ),
    (
        "the river was too wide to cross",
        "the river",
        "row",
        [
            (
                "{K} untied the boat, and soon the oars were splashing. It did not take long to"
                " reach the other side."
            ),
            "They got into a small boat, and {k} rowed with long, calm strokes.",
        ],
    ),
    (
        "the path led through a forest that was as dark as ink",
        "the darkness",
        "light",
        [
            (
                "{K} went ahead, and {khis} light danced on the trunks like a small golden star."
                " Step by step, they found the way."
            ),
            (
                "In {kposs} light, the forest did not look dangerous at all. The monsters were only"
                " bushes."
            ),
        ],
    ),
    (
        "night fell, and the path could no longer be seen",
        "the darkness",
        "night",
        [
            (
                '"My eyes are made for the night," {ksaid}. "Follow me." And {khe} led {him} safely'
                " between the roots and the stones."
            ),
            (
                '{K} saw every stone and every root. "Left," {khe} said, "now right," and they did'
                " not stumble once."
            ),
        ],
    ),
    (
        "thick fog covered everything",
        "the fog",
        "smell",
        [
            (
                '{K} lifted {khis} nose. "Bread and wood smoke," {khe} said. "There must be a'
                ' village over there." And {khe} was right.'
            ),
            (
                "{K} put {khis} nose to the ground and followed the trail, and {h} walked close"
                " behind."
            ),
        ],
    ),
    (
        "the snow had buried the path",
        "the snow",
        "dig",
        [
            (
                "{K} dug through the snow like a little plough, and {h} followed in the narrow"
                " white lane."
            ),
            "Snow flew left and right as {k} dug, and soon the path was free.",
        ],
    ),
    (
        "{he} lost the way",
        "the forest",
        "fly",
        [
            (
                '{K} rose above the trees and looked around. "I can see a chimney," {khe} called.'
                ' "Follow me!"'
            ),
            "{K} flew ahead from branch to branch, and {h} only had to follow.",
        ],
    ),
]
ERRANDS = [  # what | to whom | short; with "own" it is the hero's
    ("a bottle of medicine", "own sick grandmother", "own grandmother"),
    ("a basket of fresh bread", "own aunt", "own aunt"),
    ("an important letter", "the mayor", "the mayor"),
    ("a birthday cake", "own best friend", "own friend"),
    ("a pot of honey", "the old schoolteacher", "the old schoolteacher"),
    ("a warm blanket", "the shepherd on the hill", "the shepherd"),
    ("a new bell", "the little school", "the teacher"),
    ("a bag of seeds", "the gardener on the other side", "the gardener"),
    ("a lantern", "the lighthouse keeper", "the lighthouse keeper"),
    ("a box of candles", "the inn in the mountains", "the innkeeper"),
    ("a jar of soup", "own grandfather", "own grandfather"),
    ("a wedding ring", "the bride in the next village", "the bride"),
    ("a pair of new shoes", "own little cousin", "own cousin"),
    ("a music book", "the organist", "the organist"),
    ("a basket of kittens", "the widow at the edge of the wood", "the widow"),
    ("a sack of flour", "the baker in the next village", "the baker"),
    ("a repaired clock", "own uncle", "own uncle"),
    ("a bunch of flowers", "own mother", "own mother"),
]


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
        deadline=t.pick(
            [
                "before sunset",
                "before the evening bell",
                "before noon",
                "as fast as possible",
                "before the snow came",
                "before it got dark",
                "by evening",
            ]
        ),
    )
    t.title = t.pick(["{h} and {kkind}", "The Long Way", "Before Sunset", "{thecargo}"])
    return t.pages(
        t.opening(),
        [
            "{H} had to bring {cargo} {to} {deadline}.",
            (
                1,
                t.pick(
                    [
                        (
                            '"[Take good care of it|Be careful on the way|Do not talk too long on'
                            ' the way]," [people said|said the neighbour].'
                        ),
                        "So {he} [packed|took] {a_snack} and set out.",
                        (
                            "The way was long, but {he} [was not worried|whistled a tune|walked"
                            " quickly]."
                        ),
                    ]
                ),
            ),
            t.pick(
                [
                    "But halfway there, {block}.",
                    "{He} had not gone far when {he} saw that something was wrong: {block}.",
                    "Everything went well until {block}.",
                ]
            ),
            (
                2,
                t.pick(
                    [
                        '"What now?" {thought}.',
                        "{H} looked left and {he} looked right, but there was no other way.",
                        '"I cannot turn back," {thought}. "{My_whom} is waiting."',
                    ]
                ),
            ),
        ],
        [
            t.pick(
                [
                    "[Just then|Luckily], {kintro} came along.",
                    "There {he} met {kintro}.",
                    "Beside the path sat {kintro}.",
                ]
            ),
            t.pick(
                [
                    (
                        '"[Where are you going|Where to in such a hurry]?" {kasked}. "I have to'
                        ' bring {thecargo} {to_my}," {said}, "but I cannot [go on|get past'
                        ' {blockname}|find a way]."'
                    ),
                    '"Are you stuck?" {kasked}. {H} nodded and showed {khim} {thecargo}.',
                    '"Please help me," {said}. "{My_whom} is waiting for {thecargo}."',
                ]
            ),
            (
                1,
                t.pick(
                    [
                        '"Then let us not lose any time," {ksaid}.',
                        '"Two can do what one cannot," {ksaid}.',
                        '{K} thought for a moment. "I know what to do," {khe} said.',
                    ]
                ),
            ),
            (2, t.beat()),
            t.pick(how),
        ],
        [
            t.pick(
                [
                    (
                        "And so {he} arrived [just in time|before the sun went down|with red cheeks"
                        " and a happy heart]."
                    ),
                    (
                        "At last {he} [knocked at the door|stood before the door]. {Whom} could"
                        " hardly believe it."
                    ),
                    "{Whom} was already waiting at the window.",
                ]
            ),
            (
                1,
                t.pick(
                    [
                        '"You came all this way for me?" said {whom}.',
                        '"What would I do without you?" said {whom}.',
                        '"I knew that you would come," said {whom}.',
                        '"Thank {k}," {said}. "Without {khim} I would not be here."',
                    ]
                ),
            ),
            (1, t.feast()),
            *t.ending("help", "home", "kind", "brave"),
        ],
    )


# ----------------------------------------------------------------------
# sea stories

BOATS = [
    "the Sea Rose",
    "the Old Heron",
    "the Merry Widow",
    "the Blue Pearl",
    "the Swallow",
    "the Little Star",
    "the Brave Anna",
    "the Morning Light",
    "the Silver Fish",
    "the Patience",
    "the Seagull",
    "the Good Hope",
]


def plot_sea(t):
    h = t.cast(
        "h",
        t.person(
            job=t.pick(
                [
                    "fisherman",
                    "fisherman",
                    "fisherman",
                    "sailor",
                    "boat builder",
                    "diver",
                    "ferryman",
                    "pearl diver",
                ]
            ),
            named=0.6,
        ),
    )
    if t.chance(0.2):
        h = t.cast("h", t.child())
    t.setting(homes=["sea"])
    t.v.update(boat=t.pick(BOATS), colour=t.pick(COLOURS))
    kind = t.pick(["whale", "fog", "storm", "net", "bottle", "seal"])
    t.title = t.pick(
        [
            "{Hfull} and the Sea",
            "{boat}",
            "The Voice in the Fog" if kind == "fog" else "A Gift from the Sea",
        ]
    )
    out = [
        t.pick(
            [
                "{H} had a small {colour} boat called {boat}.",
                (
                    "{His} boat was called {boat}, and it was as old as {he} was."
                    if h.kind == "human"
                    else "{His} boat was called {boat}, and it was just big enough for one."
                ),
                "{He} owned nothing but a small boat, {boat}, and {a_net}.",
            ]
        ),
        t.pick(
            [
                "{He} pushed {his} boat into the water and rowed out.",
                "Far out, where the water was dark and quiet, {he} stopped rowing.",
                "{He} hoisted the sail and let the wind decide.",
                "The sea was [calm|as smooth as glass|silver and still].",
            ]
        ),
    ]
    t.v["a_net"] = t.pick(["an old net", "a fishing rod", "a net full of holes"])
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
        mid = [
            [
                "Suddenly the water began to [bubble|rise]. {Kintro} came up beside the boat.",
                (1, "{H} held on to the side of the boat and did not dare to breathe."),
                t.pick(
                    [
                        (
                            '"Please do not be afraid," {ksaid}. "[A rope is wrapped around my'
                            ' tail|An old net is caught on my fin], and I cannot swim."'
                        ),
                        "{K} was caught in an old rope and looked at {him} with one big, sad eye.",
                    ]
                ),
                (
                    "{H} took {his} knife and cut the [knots|rope], one piece after the other,"
                    " until {k} was free."
                ),
            ],
            [
                t.pick(
                    [
                        (
                            "Weeks later, there was a terrible storm. The mast broke, and {boat}"
                            " began to sink."
                        ),
                        "On the way home, a storm broke, and the waves were as high as houses.",
                    ]
                ),
                (
                    "Then {he} felt something under the boat. It was {k}! {Khe} carried {boat} on"
                    " {khis} broad back, all the way to the harbour."
                ),
                t.pick(
                    [
                        '"Now we are even," {ksaid}, and {khe} dived with a splash.',
                        '"One good turn deserves another," {ksaid}.',
                    ]
                ),
            ],
        ]
        end = t.ending("kind", "help")
    elif kind == "fog":
        t.cast("k", t.child(h) if h.kind != "child" else t.person(h, job="bell ringer"))
        mid = [
            [
                (
                    "[But then|Toward evening|All at once], the fog came. It was so thick that {he}"
                    " could not see {his} own hands."
                ),
                (1, '"Which way is home?" {thought}. But there was water everywhere.'),
                (
                    2,
                    (
                        "{He} rowed to the left, and {he} rowed to the right, and in the end {he}"
                        " did not know anything anymore."
                    ),
                ),
            ],
            [
                "On the shore, {kintro} was waiting.",
                t.pick(
                    [
                        "{K} saw that {boat} had not come back.",
                        "{K} looked at the empty place in the harbour and began to worry.",
                    ]
                ),
                t.pick(
                    [
                        "{Khe} ran to the church and rang the bell, again and again.",
                        (
                            "{Khe} took {khis} [drum|trumpet|fiddle], went to the end of the pier"
                            " and played as loudly as {khe} could."
                        ),
                        '{Khe} climbed to the end of the pier and sang: "{line1} {line2}"',
                    ]
                ),
                (
                    'Out on the water, {h} lifted {his} head. "That is our [village|harbour]!" {he}'
                    " cried, and {he} rowed towards the sound."
                ),
            ],
            [
                "When {he} stepped ashore, {k} was [still there|hoarse and happy].",
                thanks(t),
                (1, t.feast()),
            ],
        ]
        end = t.ending("help", "home", "listen")
    elif kind == "storm":
        t.cast("k", t.person(h, job="lighthouse keeper"))
        mid = [
            [
                (
                    "Then black clouds came up from the west. [Lightning flashed|Thunder rolled"
                    " over the sea], and the waves grew higher and higher."
                ),
                '"{boat} has seen worse," {said}, but {his} hands were shaking.',
                "And the lighthouse was dark!",
            ],
            [
                t.pick(
                    [
                        "In the tower, {kintro} had run out of oil.",
                        (
                            "In the tower, the great lamp had gone out, and {kintro} looked for"
                            " matches."
                        ),
                    ]
                ),
                t.pick(
                    [
                        (
                            "{Khe} thought of everyone out at sea, lit every candle in the house"
                            " and put them all in the window."
                        ),
                        (
                            "So {khe} burned {khis} own [chairs|table|bed] at the top of the tower,"
                            " until the flames shone far across the water."
                        ),
                    ]
                ),
                'Far out, {h} saw the light. "There!" {he} cried and turned the boat.',
            ],
            [
                t.pick(
                    [
                        (
                            "The next morning, {he} climbed up to the lighthouse with [a new"
                            " chair|a barrel of oil|the biggest fish {he} had]."
                        ),
                        (
                            "When the storm was over, the whole village came to the lighthouse, and"
                            " everybody brought a candle."
                        ),
                    ]
                ),
                thanks(t),
                (1, t.feast()),
            ],
        ]
        end = t.ending("help", "kind", "brave")
    elif kind == "net":
        t.cast(
            "k",
            Char(
                t.pick(
                    ["little fish", "golden fish", "silver fish", "old turtle", "small octopus"]
                ),
                "tiny",
                t.pick(["he", "she"]),
                "animal",
            ),
        )
        mid = [
            [
                (
                    "{He} waited all day and caught nothing. Just before sunset, there was a tug at"
                    " the line. It was {kkind_a}."
                ),
                (
                    '"Let me go," {kbegged}. "[My children are waiting|I am too small to fill your'
                    ' pot|I want to see the moon once more]."'
                ),
                t.pick(
                    [
                        '{H} was hungry, but {he} had a soft heart. "Swim home," {he} said.',
                        (
                            '{H} looked at the empty bucket. Then {he} smiled. "Off you go," {he}'
                            " said."
                        ),
                    ]
                ),
            ],
            [
                t.pick(
                    [
                        "The next morning, {his} net was so heavy that {he} could hardly lift it.",
                        "From that day on, {his} net was never empty again.",
                        "The next day, a pearl lay in the boat, as round as the moon.",
                    ]
                ),
                t.pick(
                    [
                        "And every evening, {kkind} came up beside the boat to say good night.",
                        '"I wonder who did that," {said}. Beside the boat, the water laughed.',
                    ]
                ),
            ],
        ]
        t.v["kkind_a"] = "a " + t.chars["k"].noun
        end = t.ending("kind")
    elif kind == "bottle":
        t.cast("k", t.child(h) if h.kind != "child" else t.person(h, job="lighthouse keeper"))
        mid = [
            [
                (
                    "Then {he} saw something [glitter|bob up and down] in the water. It was a green"
                    " bottle with a letter inside."
                ),
                (
                    '"Dear friend," it said, "my name is {kname}, and I live on [a small island|an'
                    " island with one tree|the island of birds]. I have [nobody to talk to|a"
                    ' hundred books but nobody to read to]. Please write to me."'
                ),
            ],
            [
                t.pick(
                    [
                        "{H} read the letter twice. Then {he} turned the boat.",
                        (
                            "That night, {h} could not sleep. In the morning, {he} packed {a_snack}"
                            " and set sail."
                        ),
                        (
                            "{H} wrote an answer, put it into the bottle and threw it back. Then"
                            " {he} thought about it and sailed after it."
                        ),
                    ]
                ),
                (
                    1,
                    (
                        "{He} sailed for three days and three nights, past [rocks and"
                        " sandbanks|sleeping seals|islands without names]."
                    ),
                ),
                t.pick(
                    [
                        "On the third day, {he} saw somebody on the beach, waving with both arms.",
                        "At last {he} saw a thin thread of smoke and a small figure on the beach.",
                    ]
                ),
            ],
            [
                '"You came!" {kcried}.',
                '"I was on the way anyway," {said}.',
                (1, t.feast()),
                (1, "{They} talked until the stars went out."),
            ],
        ]
        t.v["kname"] = t.chars["k"].name or t.name(GIRLS, True)
        t.chars["k"].name = t.v["kname"]
        end = t.ending("kind", "listen", "share")
    else:
        t.cast("k", t.animal(h, species=["seal", "dolphin", "otter"]))
        mid = [
            [
                (
                    "{Kintro} swam beside the boat and [looked at {him} curiously|clapped with"
                    " {khis} fins]."
                    if t.chars["k"].noun != "otter"
                    else "{Kintro} swam beside the boat and looked at {him} curiously."
                ),
                '"Are you hungry?" {asked}, and {he} shared {his} lunch with {khim}.',
                (1, "From then on, {k} came every day, and every day they shared."),
            ],
            [
                t.pick(
                    [
                        (
                            'One day, {h} dropped {his} knife into the sea. "Now I cannot cut my'
                            ' bread," {he} sighed.'
                        ),
                        "One day, an oar slipped out of {his} hands and drifted away.",
                        "One day, the wind blew {his} hat into the waves.",
                    ]
                ),
                t.pick(
                    [
                        "{K} dived at once and brought it back.",
                        "Before {he} could say a word, {k} had brought it back.",
                    ]
                ),
                '"You never forget a friend," {said}.',
            ],
        ]
        end = t.ending("share", "kind", "help")
    return t.pages(
        t.opening(began=False),
        ["{Then}, {he} went out to sea." if h.kind != "child" and t.chance(0.6) else ""] + out,
        *mid,
        end,
    )


# ----------------------------------------------------------------------
# robot stories

FEELINGS = [
    (
        "why people sing",
        "Does singing repair something?",
        "Sometimes it repairs the heart",
        "That evening, {h} [hummed a very small tune|beeped three notes, and they were beautiful]",
    ),
    (
        "what a dream is",
        "Is a dream a kind of film?",
        "It is a story you tell yourself in your sleep",
        (
            "That night, {h} closed {his} lamps and dreamed of [green hills|a field of"
            " sunflowers|the sea]"
        ),
    ),
    (
        "why people laugh",
        "Is laughing an error?",
        "No, it is what happiness sounds like",
        "Then {h} made a strange, rattling noise. {He} was laughing",
    ),
    (
        "what a friend is",
        "Is a friend a spare part?",
        "In a way. It is somebody you miss when they are not there",
        '{H} was silent for a while. "Then you are my friend," {he} said',
    ),
    (
        "why people look at the sunset",
        "The sun goes down every day. Why do you look?",
        "Because it is never the same twice",
        "So {h} sat down and looked, and {he} did not count the seconds",
    ),
    (
        "why people give presents",
        "Why give away what you could keep?",
        "Because giving makes two people happy",
        "The next day, {h} gave {k} a flower made of [tin|copper wire|bottle caps]",
    ),
    (
        "what it means to be sad",
        "Is it raining in your eyes?",
        "Those are tears. They come when something hurts inside",
        "{H} thought about it. Then {he} gently held {k's} hand",
    ),
    (
        "why people say good night",
        "Does the night get better when you say it?",
        "Yes, a little",
        "From then on, {h} said good night to everything: the chairs, the lamps and the moon",
    ),
    (
        "what music is",
        "It is only air that trembles.",
        "So is a voice that says your name",
        "{H} listened until the last note was gone",
    ),
    (
        "why people grow flowers",
        "You cannot eat them.",
        "No, but they feed the eyes",
        "In spring, {h} planted a [tulip|rose|sunflower] beside {his} charging place",
    ),
]


def plot_robot(t):
    h = t.cast("h", t.robot())
    t.setting()
    k = t.cast("k", t.child(h) if t.chance(0.6) else t.person(h))
    kind = t.pick(["why", "why", "repair", "winter", "old"])
    t.title = t.pick(["The {adj0} Robot", "{h} the Robot", "{h} and {k}"])
    op = t.opening()
    if kind == "why":
        what, ask, answer, after = t.pick(FEELINGS)
        t.v.update(what=what, ask=ask, answer=answer, after=after)
        return t.pages(
            op,
            [
                (
                    "{H} could do many things. {He} could [add up long numbers|lift heavy boxes|see"
                    " in the dark|speak nine languages|tell the time to the second]. But {he} did"
                    " not understand {what}."
                ),
                (
                    2,
                    (
                        "{He} asked the [toaster|clock|traffic light|vacuum cleaner], but it did"
                        " not know either."
                    ),
                ),
            ],
            [
                "One day, {he} met {kintro}.",
                '"Please explain to me {what}," {said}. "{ask}"',
                (
                    1,
                    (
                        "{K} [laughed, but in a friendly way|thought for a long time|scratched"
                        " {khis} head]."
                    ),
                ),
                '"{answer}," {ksaid}.',
            ],
            [
                "{after}.",
                (
                    1,
                    t.pick(
                        [
                            "Something in {his} chest felt warm, and it was not the battery.",
                            "And {his} lamps shone a little brighter than before.",
                            '{K} smiled. "You see," {khe} said, "now you understand."',
                        ]
                    ),
                ),
                *([t.moral("listen", "kind")] if t.chance(0.5) else []),
            ],
        )
    if kind == "repair":
        t.v["part"] = t.pick(["wheel", "spring", "screw", "battery", "lamp", "cog", "wire"])
        return t.pages(
            op,
            [
                (
                    "But one day, there was a [crack|clank|loud bang|small puff of smoke], and {h}"
                    " stood still. A {part} was broken."
                ),
                t.pick(
                    [
                        (
                            '"[It is only an old robot|We will buy a new one]," people said, and'
                            " they walked by."
                        ),
                        "Nobody knew how to repair such an old robot.",
                    ]
                ),
            ],
            [
                "But {kintro} stopped. {Khe} looked at {h} for a long time.",
                '"I will [help you|find you a new {part}]," {ksaid}.',
                t.pick(
                    [
                        (
                            "{Khe} searched the whole [attic|scrapyard|shed] and found {a_part} in"
                            " an old [clock|radio|lawnmower|sewing machine]."
                        ),
                        (
                            "{Khe} gave away {khis} own [alarm clock|music box|bicycle bell],"
                            " because there was {a_part} inside."
                        ),
                    ]
                ),
                (
                    "Then {khe} worked until late at night, with a small screwdriver and a lot of"
                    " patience."
                ),
            ],
            [
                "There was a click and a hum, and {his} lamps lit up again.",
                (
                    '"Good morning," {said}. "[How long did I sleep|What did I miss|Are you my'
                    ' friend]?"'
                ),
                "{K} laughed and wiped the oil from {khis} nose.",
                (1, "From then on, they were always seen together."),
                *t.ending("kind", "patience", "help"),
            ],
        )
    if kind == "winter":
        t.cast(
            "m",
            t.animal(
                k,
                species=["sparrow", "mouse", "cat", "hedgehog", "robin", "rabbit", "squirrel"],
                named=0.2,
            ),
        )
        return t.pages(
            op,
            [
                "Then winter came, and it was bitterly cold.",
                "One night, {h} found {mintro} in the snow, {shivering}.",
                '"Are you [broken|switched off]?" {asked}.',
                '"I am only cold," {mwhispered}.',
            ],
            [
                t.pick(
                    [
                        (
                            "{H} opened the little door in {his} chest, where the battery was, and"
                            " it was as warm in there as by an oven."
                        ),
                        "{H} switched on all {his} lamps and held {his} warm hands around {m}.",
                    ]
                ),
                '"You can stay here," {said}.',
                (1, "All night long {he} did not move, so as not to wake the little guest."),
                (2, "In the morning, {his} battery was almost empty, but {he} did not mind."),
            ],
            [
                t.pick(
                    [
                        "When spring came, {m} moved out again, but {mhe} came back every evening.",
                        "In spring, {m} brought {him} the first flower of the year.",
                    ]
                ),
                (
                    '"You have a warm heart," {msaid}. "I do not have a heart," {said}. "Oh yes,'
                    ' you do," {msaid}.'
                ),
            ],
        )
    t.v["years"] = t.pick(["twenty", "thirty", "forty", "fifty", "a hundred"])
    return t.pages(
        op,
        [
            "{H} had worked for {years} years without a single day off. One day, {kintro} said,"
            ' "Today you do not have to work, {hname}. What would you like to do?"'
        ],
        [
            "{H} did not know. Nobody had ever asked {him} that.",
            t.pick(
                [
                    (
                        '"I would like to see [the sea|a mountain|a real forest|snow]," {he} said'
                        " at last."
                    ),
                    (
                        '{He} calculated for eleven seconds. "I would like to see [the sea|snow|the'
                        ' moon through a telescope]," {he} said.'
                    ),
                ]
            ),
            (
                "So {k} [took {him} along on the train|carried {him} in a wheelbarrow|put {him} on"
                " the back of {khis} bicycle], and together they set out."
            ),
        ],
        [
            "When they arrived, {h} was quiet for a long time.",
            (
                '"[It is bigger than I had calculated|It does not fit into my memory|I have no'
                ' number for this]," {he} said.'
            ),
            '{K} smiled. "That is called beautiful," {khe} said.',
            *t.ending("try", "listen", "home"),
        ],
    )


# ----------------------------------------------------------------------
# farm stories


def plot_farm(t):
    h = t.cast(
        "h",
        t.animal(
            species=["goose", "ox", "horse", "donkey", "goat", "cat", "dog", "duck", "pig", "pony"],
            named=0.85,
        ),
    )
    t.setting(homes=["farm"])
    k = t.cast(
        "k",
        t.animal(
            h,
            species=[
                "mouse",
                "sparrow",
                "swallow",
                "mole",
                "hedgehog",
                "frog",
                "cat",
                "ant",
                "robin",
                "rabbit",
            ],
            named=0.6,
        ),
    )
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
    kind = t.pick(["wake", "drought", "cart", "thief", "barn", "newcomer"])
    t.title = t.pick(["{h} on the Farm", "{h} and {kkind}", "The Clever {knoun}"])
    op = t.pick(
        [
            [
                (
                    "On a farm with a [red barn|crooked gate|tall weathercock|round pond], there"
                    " lived {hintro}."
                ),
                (1, "{H} was friends with {others}."),
            ],
            t.opening(),
            ["{Time}, everything was quiet on the farm.", "Only {hfull} was awake."],
            ["{Mfarmer} had {hintro}.", (1, "{weather}")],
        ]
    )
    if kind == "wake":
        body = [
            [
                'The rooster had a sore throat and could not crow. "Who will wake {mfarmer} now?"'
                " asked {others}."
            ],
            [
                (
                    "{H} tried it first. {He} made such a terrible noise that [the hens fell off"
                    " their perch|the milk turned sour|the windows rattled], but {mfarmer} only"
                    " turned over in bed."
                ),
                (
                    1,
                    (
                        "Then all the animals called together, but {mfarmer} pulled the blanket"
                        " over {mhis} head."
                    ),
                ),
                '"May I try?" {kasked}. Everybody laughed, because {k} was so small.',
                (
                    "But {k} slipped through the open window, sat down on the pillow and [tickled"
                    " {mfarmer}'s nose|whispered \"Breakfast\" into {mfarmer}'s ear]."
                ),
            ],
            [
                (
                    '{Mfarmer} sat up at once. "[Good morning, world|What a lovely way to wake'
                    ' up]!" {mhe} said.'
                ),
                '"[It is not always the loudest who is heard|Well done]," {said}.',
                *t.ending("help", "try"),
            ],
        ]
    elif kind == "drought":
        body = [
            [
                (
                    "It had not rained for weeks. The {crop} hung their heads, and the pond was"
                    " almost empty."
                ),
                (
                    '"If it does not rain soon, we will have nothing to eat in winter," said'
                    " {mfarmer}."
                ),
            ],
            [
                "{H} remembered that {kintro} lived at the edge of the field.",
                (
                    '"You know the ground better than anybody," {said}. "Is there water somewhere?"'
                    if k.noun in ("mole", "ant", "rabbit", "mouse", "hedgehog")
                    else '"You see a lot of the country," {said}. "Is there water somewhere?"'
                ),
                (
                    '"[Behind the three birches|Under the old stone|Near the big willow], the earth'
                    ' is cool and damp," {kanswered}.'
                ),
                (
                    "So {h} called {others}, and they all dug together until clear water came out"
                    " of the ground."
                ),
            ],
            [
                "When {mfarmer} saw the spring, {mhe} threw {mhis} hat into the air.",
                "The {crop} lifted their heads again, and the first one was for {k}.",
                *t.ending("help", "listen", "share"),
            ],
        ]
    elif kind == "cart":
        body = [
            [
                (
                    "{Mfarmer} wanted to drive the {crop} to market, but the cart was stuck in the"
                    " mud."
                ),
                "{H} pulled as hard as {he} could. The cart did not move.",
            ],
            [
                t.pick(
                    [
                        "Then {others} came and pulled too. It still did not move.",
                        "{Others} pushed from behind. It moved a little and slid back again.",
                    ]
                ),
                'At last came {kintro}. "I want to help as well," {ksaid}.',
                (1, '"You?" laughed the others. "You weigh less than a {cropone}."'),
                '"Let {khim} try," {said}.',
                (
                    '"One, two, three!" They all pulled together, and with a loud smack the cart'
                    " came free."
                ),
            ],
            [
                (
                    '"Perhaps it was only a tiny bit that was missing," {said}, "but without that'
                    ' tiny bit we would still be standing here."'
                ),
                *t.ending("help"),
            ],
        ]
        t.v["cropone"] = {
            "pumpkins": "pumpkin",
            "carrots": "carrot",
            "beans": "bean",
            "potatoes": "potato",
            "tomatoes": "tomato",
            "cabbages": "cabbage",
            "turnips": "turnip",
            "strawberries": "strawberry",
            "onions": "onion",
            "peas": "pea",
            "melons": "melon",
            "beetroots": "beetroot",
        }[t.v["crop"]]
    elif kind == "thief":
        t.cast(
            "k",
            t.animal(h, species=["fox", "hare", "hedgehog", "badger", "mouse", "deer"], named=0.5),
        )
        body = [
            [
                "Every morning, some of the {crop} were missing.",
                '"There is a thief in the garden," said {mfarmer}. "{Hname}, keep watch tonight."',
            ],
            [
                (
                    "So {h} hid behind the fence and waited. At midnight, there was a rustle. It"
                    " was {kintro}."
                ),
                '"Stop!" {cried}.',
                (
                    '{K} began to tremble. "I am sorry," {khe} said. "My children are hungry, and'
                    ' the forest is empty."'
                ),
                (1, "{H} thought about it for a while."),
            ],
            [
                t.pick(
                    [
                        (
                            '"Why did you not ask?" {said}. The next morning, {he} took {k} to'
                            " {mfarmer}."
                        ),
                        '"Come back in the morning and knock," {said}. "Nobody has to steal here."',
                    ]
                ),
                (
                    "From then on, {k} helped [pull the weeds|keep the snails away|watch the"
                    " garden], and every evening {khe} got {khis} share."
                ),
                *t.ending("honest", "share", "kind"),
            ],
        ]
    elif kind == "barn":
        body = [
            [
                (
                    "That night, a storm shook the old barn. The roof groaned, and rain dripped"
                    " through the boards."
                ),
                "{Others} huddled together and were afraid.",
            ],
            [
                '"We need to keep calm," {said}. "Who knows a song?"',
                'Nobody answered. Then {kintro} began to sing, very softly: "{line1} {line2}"',
                (
                    "One after the other, they joined in, and soon they were singing louder than"
                    " the storm."
                ),
            ],
            [
                (
                    "In the morning, the sun was shining. {Mfarmer} looked into the barn and found"
                    " them all asleep, [nose to nose|side by side|warm and dry]."
                ),
                *t.ending("brave", "kind"),
            ],
        ]
        t.v["line1"], t.v["line2"] = t.pick(SONGS)
    else:
        t.cast("k", t.animal(h, groups=["far", "water"], named=0.7))
        body = [
            [
                "One day, {kintro} came to the farm. Nobody had ever seen such an animal here.",
                '"Who is that?" whispered {others}, and they turned away.',
            ],
            [
                (
                    'Only {h} went up to {khim}. "You must be tired," {he} said. "There is room in'
                    ' my stable."'
                ),
                (
                    "In the evening, {k} told stories of [hot sands and cold stars|warm rivers and"
                    " tall trees|icebergs and endless water|the great wide world], and one animal"
                    " after the other came closer to listen."
                ),
            ],
            [
                "By the time the moon was up, everybody was sitting around {k}.",
                '"Will you stay?" asked {others}.',
                '"Gladly," {ksaid}.',
                *t.ending("listen", "kind"),
            ],
        ]
    return t.pages(op, *body)


# ----------------------------------------------------------------------
# detectives

CLUES = [
    ("muddy paw prints", "dog", "buried bones in the garden and always had mud on {khis} paws"),
    ("a black feather", "crow", "was the only one in town with feathers as black as coal"),
    ("tiny bite marks", "mouse", "had the smallest teeth in town"),
    ("a trail of wet footprints", "otter", "came straight from the river"),
    ("a tuft of red fur", "fox", "was the only one with such red fur"),
    ("white hairs", "goat", "ate everything, even the washing on the line"),
    ("wet webbed footprints", "duck", "had been in the pond all morning"),
    ("hoof prints in the flower bed", "pony", "had jumped over the fence again"),
    ("a green feather", "parrot", "was the only one in town with green feathers"),
    ("a nutshell", "squirrel", "carried nuts everywhere"),
    ("a little heap of fresh earth", "mole", "always left a heap of earth behind"),
    ("a prickle", "hedgehog", "was the only one with prickles"),
    ("a banana skin", "monkey", "loved bananas"),
    ("silver threads", "spider", "left silver threads wherever {khe} went"),
]
STOLEN = [
    "the cherry pie",
    "the mayor's hat",
    "the golden bell",
    "the birthday cake",
    "the big cheese",
    "the school clock",
    "the queen's slipper",
    "the basket of plums",
    "the silver teapot",
    "the blue bicycle lamp",
    "the prize pumpkin",
    "the fiddler's bow",
]


def plot_detective(t):
    h = t.hero("child", "human", "animal", "robot", "child")
    t.setting(homes=["town", "sea", "farm"])
    clue, species, why = t.pick([c for c in CLUES if c[1] != h.noun])
    k = t.cast("k", t.animal(h, species=[species], named=0.7))
    m = t.cast("m", t.person(k, named=0.6))
    goods = t.pick(STOLEN)
    t.v.update(goods=goods, clue=clue, why=why, good=goods.split()[-1])
    t.title = t.pick(["The Case of {goods}", "Detective {h}", "Who Took {goods}?"])
    edible = any(w in goods for w in ("pie", "cake", "cheese", "plums"))
    because = (
        t.pick(
            [
                (
                    '"My little ones were so hungry," {kadmitted}. "I wanted to ask, but nobody was'
                    ' there."'
                ),
                (
                    '"It smelled so good," {kadmitted}. "I only wanted to taste it, and then it was'
                    ' gone."'
                ),
            ]
        )
        if edible
        else t.pick(
            [
                '"It was so beautiful," {kadmitted}. "I only wanted to look at it for one night."',
                (
                    '"I wanted to repair it as a surprise," {ksaid} and held it up. It was as good'
                    " as new."
                ),
                '"I found it in the street," {ksaid}. "I did not know whom to give it to."',
                (
                    '"I needed a present for my mother," {kwhispered}, and a tear rolled down'
                    " {khis} face."
                ),
            ]
        )
    )
    op = t.pick(
        [
            [
                "{Hfull} was the best detective [in town|in the whole town|far and wide].",
                (
                    1,
                    (
                        "{He} had a [magnifying glass|notebook|pipe made of chocolate|large grey"
                        " hat] and very sharp eyes."
                    ),
                ),
            ],
            [
                '"Help!" cried {mfull}. "{Goods} is gone!"',
                '{Hfull} put on {his} hat. "I will find out who did it," {he} said.',
            ],
            t.opening() + ["{H} wanted to be a detective."],
            [
                "{Time}, somebody knocked at {h's} door. It was {mintro}.",
                "{H} was a detective, and {he} knew at once that something had happened.",
            ],
        ]
    )
    knocked = '"' in op[0] if isinstance(op[0], str) else False
    return t.pages(
        op,
        [
            (
                ""
                if knocked
                else t.pick(
                    [
                        (
                            '{Once}, {mintro} came running. "{Goods} is gone!" {mcried}.'
                            if "{mintro}" not in op[0]
                            else '"{Goods} is gone!" {mcried}.'
                        ),
                        (
                            '{Mkind} was in tears. "Somebody has taken {goods}!" {mhe} said.'
                            if "{mintro}" in op[0]
                            else (
                                'Then {mintro} came to see {him}. "Somebody has taken {goods}!"'
                                " {mhe} said."
                            )
                        ),
                    ]
                )
            ),
            (
                "{H} [looked at everything closely|went down on {his} knees|searched the whole"
                " room]. [Under the window|Beside the door|On the floor|Behind the curtain], {he}"
                " found {clue}."
            ),
            (
                1,
                '"Aha!" {said}. "[This is interesting|Now I know where to look|A very good clue]."',
            ),
        ],
        [
            (
                1,
                t.pick(
                    [
                        (
                            'First, {he} asked the [postman|baker|cat]. "I have not seen anything,"'
                            " came the answer."
                        ),
                        "{H} thought and walked up and down.",
                        "{He} wrote everything down in {his} notebook.",
                    ]
                ),
            ),
            "Who could have left that behind? Then {he} remembered {kintro}, who {why}.",
            (
                '{H} knocked at {k\'s} door. "Good day," {he} said. "Do you know anything about'
                ' {goods}?"'
            ),
            "{K} looked at the floor.",
        ],
        [
            because,
            t.pick(
                [
                    (
                        '{M} was quiet for a moment. Then {mhe} began to smile. "[Next time, just'
                        ' ask|Let us say no more about it|Come in and have some tea]," {mhe} said.'
                    ),
                    '"Thank you for telling the truth," {said}.',
                    '"It takes courage to say that," {said}. And {m} agreed.',
                ]
            ),
            (
                1,
                (
                    'The case was closed, and {h} wrote into {his} notebook: "[Nobody is bad who is'
                    ' sorry|Always ask why|Solved before supper]."'
                ),
            ),
            (2, t.feast()),
            *([t.moral("honest", "listen")] if t.chance(0.5) else []),
        ],
    )


# ----------------------------------------------------------------------
# letters and diaries


def plot_letter(t):
    t.cast("h", Char("child", "", "I", "child", "I"))
    t.setting()
    female = t.chance(0.5)
    sender = t.name(GIRLS if female else BOYS, female)
    to = t.pick(
        [
            "Grandma",
            "Grandpa",
            "Aunt {kname}",
            "Uncle {kname}",
            "{kname}",
            "Mother",
            "Father",
            "friend",
            "neighbour",
            "Mayor",
            "Captain {kname}",
            "Professor {kname}",
        ]
    )
    t.v["kname"] = t.name(BOYS if "Uncle" in to or "Captain" in to else GIRLS, "Uncle" not in to)
    k = t.cast(
        "k",
        t.animal(
            None,
            named=0.6,
            species=[
                "hedgehog",
                "mouse",
                "squirrel",
                "sparrow",
                "robin",
                "frog",
                "lizard",
                "bat",
                "duck",
                "rabbit",
                "swallow",
                "crow",
                "cat",
                "dog",
            ],
        ),
    )
    t.v.update(
        to=to,
        sender=sender,
        place=t.pick(
            [
                "by the sea",
                "in the mountains",
                "on the farm",
                "in the city",
                "on the island",
                "in the new house",
                "at the lighthouse",
                "on the ship",
                "at the summer camp",
            ]
        ),
    )
    t.thing("d")
    event = t.pick(
        [
            [
                "Yesterday, something wonderful happened. I found {kintro} [in the garden|on the"
                " stairs|in my boot]. {Khe} had hurt {khis} {kbody}, so I made {khim} a bed [in a"
                " shoebox|out of my scarf]. Today {khe} is already {kbetter}."
            ],
            [
                "You will not believe what I saw. There was {kintro} right in front of my window! I"
                " kept very still, and {khe} looked at me as if {khe} wanted to tell me something."
            ],
            [
                "I have a new friend. It is {kintro}, and {khe} lives {kplace}. Every evening I"
                " bring {khim} something to eat, and {khe} listens to my stories."
            ],
            [
                "I have learned to [swim|row a boat|ride a horse|bake bread|whistle|play the"
                " fiddle|milk a goat|tie seven knots]. At first I [fell in|did everything"
                " wrong|wanted to give up], but I tried again every day, and now I can do it."
            ],
            [
                "On Sunday, I lost my {thing}. I looked everywhere. Then {kintro} came along with"
                " something in {khis} mouth, and guess what it was! It was my {thing}."
            ],
            [
                "Last night there was a storm. The wind howled and the lights went out. I was a"
                " little afraid, but then I thought of you and of the song you taught me, and I was"
                " not afraid anymore."
            ],
            [
                "We planted [beans|sunflowers|a cherry tree|pumpkins] behind the house. I go and"
                " look every morning. So far, there is only one tiny green leaf, but I think it is"
                " the most beautiful leaf in the world."
            ],
            [
                "There is a new [boy|girl] at school who does not speak our language. We drew"
                " pictures for each other, and now we understand each other very well. Friends do"
                " not need many words."
            ],
        ]
    )
    t.v.update(
        kplace=k.place,
        kbody=k.body,
        kbetter=t.pick(
            [
                "much better",
                "eating bread from my hand",
                "hopping around the kitchen",
                "asleep in my lap",
            ]
        ),
    )
    t.title = None
    close = t.pick(
        [
            "Love,",
            "Your",
            "With love,",
            "Many kisses,",
            "See you soon,",
            "Yours,",
            "A big hug from your",
        ]
    )
    return t.pages(
        ["Dear {to},"],
        [
            t.pick(
                [
                    "How are you? I am fine.",
                    "Thank you for your letter.",
                    "Thank you for the {thing} you sent me.",
                    "I am writing to you from my window.",
                    "I hope you are well.",
                    "It has been a long time since I last wrote.",
                    "I miss you very much.",
                ]
            ),
            t.pick(
                [
                    "Here {place} it is [beautiful|very quiet|colder than at home|never boring].",
                    "Life {place} is [good|full of surprises|different].",
                ]
            ),
        ],
        event,
        [
            (
                1,
                t.pick(
                    [
                        (
                            "How is the [cat|dog|garden|old apple tree]? Please give it a kiss"
                            " from me."
                        ),
                        "I have drawn you a picture of it.",
                        "Please come and visit us soon.",
                        "I wish you were here.",
                        "What are you doing? Please write back.",
                    ]
                ),
            ),
            (
                2,
                t.pick(
                    [
                        "When I come home, I will tell you everything.",
                        "I saved a piece of cake for you, but then I got hungry.",
                        "I am counting the days until we see each other again.",
                    ]
                ),
            ),
        ],
        [f"{close} {sender}"],
    )


def plot_diary(t):
    t.cast("h", Char("child", "", "I", "child", "I"))
    t.setting()
    k = t.cast(
        "k",
        t.animal(
            None,
            named=0.7,
            species=[
                "dog",
                "cat",
                "fox",
                "hedgehog",
                "rabbit",
                "squirrel",
                "mouse",
                "badger",
                "raccoon",
            ],
        ),
    )
    days = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
    start = t.r.randrange(0, 4)
    a, b, c = days[start], days[start + 1], days[start + 2]
    kind = t.pick(["pet", "plant", "brave", "secret", "contest"])
    t.v.update(
        flower=t.pick(FLOWERS),
        skill=t.pick(
            [
                "swim",
                "ride a bicycle",
                "skate",
                "climb the rope",
                "play the fiddle",
                "speak in front of the class",
            ]
        ),
        food=t.pick(FOODS),
    )
    if kind == "pet":
        e = (
            [
                "Today I met {kintro} on the way to school. {Khe} looked at me, and I looked at"
                " {khim}. I think {khe} is hungry."
            ],
            [
                "I took some bread with me. {K} waited at the same place. This time {khe} came a"
                " little closer. I did not move at all."
            ],
            [
                "Today {k} ate out of my hand! {Khis} nose was cold and soft. Mother says I may"
                " come back every day. I am the happiest person in the world."
            ],
        )
    elif kind == "plant":
        e = (
            [
                "Today I put a {flower} seed into a pot and watered it. Nothing happened."
                " Grandfather says I need patience."
            ],
            ["Still nothing. I sang to the pot. My brother laughed at me, but I do not care."],
            [
                "There is a green tip! It is as small as the head of a pin. I showed it to"
                " everybody, even to the postman. Grandfather winked at me."
            ],
        )
    elif kind == "brave":
        e = (
            [
                "Today I was supposed to learn to {skill}. I was so afraid that I pretended to have"
                " a stomach ache."
            ],
            [
                "I told Grandmother the truth. She said that she had been afraid too, at my age."
                " Then she made {food}. That helped."
            ],
            ["I did it! My knees were shaking, but I did it. Tomorrow I want to {skill} again."],
        )
    elif kind == "secret":
        e = (
            [
                "There is a strange noise in the attic. It goes scratch, scratch, scratch. Nobody"
                " else hears it."
            ],
            [
                "I went up with a lamp. Two eyes were shining in the dark. I ran down again as fast"
                " as I could."
            ],
            [
                "I was brave and went up once more. It was only {kintro}. {Khe} was as frightened"
                " as I was. Now we are friends, and nobody knows but you, dear diary."
            ],
        )
    else:
        e = (
            [
                "There will be a cooking contest at school. I want to make {food}. I have never"
                " cooked anything before."
            ],
            [
                "I tried it. The kitchen was full of smoke, and the cat ran away. Father opened the"
                " window and laughed."
            ],
            [
                "The contest was today. I did not win, but the cook asked me for my recipe. He said"
                " that mine tasted of sunshine. I will keep this day in my heart."
            ],
        )
    t.title = t.pick([None, "My Diary"])
    return t.pages(
        [t.pick(["", "Dear diary,", "Dear diary,"])],
        [f"{a}. " + e[0][0]],
        [f"{b}. " + e[1][0]],
        [f"{c}. " + e[2][0]],
    )


# ----------------------------------------------------------------------
# other stories

FEARS = [
    (
        "the dark",
        "night",
        (
            '{K} switched off the lamp for one second, then for two, then for ten. "Look," {khe}'
            ' said, "now you can see the stars."'
        ),
    ),
    (
        "deep water",
        "water",
        (
            "{They} began at the edge, where the water only reached {h's} toes. The next day it"
            " reached {his} knees, and the day after that {his} tummy."
        ),
    ),
    (
        "thunder",
        "storm",
        (
            '"After the lightning, count until you hear the thunder," {ksaid}. "The higher you can'
            ' count, the farther away it is." {H} counted, and the numbers grew.'
        ),
    ),
    (
        "heights",
        "hill",
        (
            "On the first day, {they} climbed one step. On the second day, {they} climbed two. {K}"
            " held {his} hand and did not laugh once."
        ),
    ),
    (
        "speaking in front of others",
        "stage",
        (
            '"Tell it to me first," {ksaid}. "Then tell it to me and the cat. Then tell it to me,'
            ' the cat and the baker."'
        ),
    ),
    (
        "getting lost",
        "wood",
        (
            '"Look for something that does not move," {ksaid}, "a tree, a tower, a star." And {khe}'
            " showed {him} how to find the north."
        ),
    ),
]


def plot_fear(t):
    h = t.hero("child", "child", "animal", "robot")
    if h.body != "hand":
        h = t.cast("h", t.child())
    t.setting()
    k = t.cast("k", t.person(h, named=0.6))
    fear, kind, how = t.pick(FEARS)
    t.v.update(fear=fear, how=how)
    t.title = t.pick(["{h} Is Not Afraid", "The Brave {noun0}", "One Small Step"])
    final = {
        "night": "That night, {h} walked home through the dark, and {he} whistled.",
        "water": (
            "A week later, {h} was swimming like a fish, and nobody could get {him} out of the"
            " water."
        ),
        "storm": (
            "When the next storm came, {h} sat at the window and counted aloud, as if it were a"
            " game."
        ),
        "hill": (
            "At the end of the week, {h} stood at the top of the tower and could see the whole"
            " world."
        ),
        "stage": (
            "On the evening of the feast, {h} stood on the stage, took a deep breath and spoke so"
            " clearly that even the last row could hear {him}."
        ),
        "wood": (
            "A few days later, {h} went into the wood alone and came home before the soup was cold."
        ),
    }[kind]
    return t.pages(
        t.opening(),
        [
            "But {h} had a secret: {he} was afraid of {fear}.",
            (
                1,
                t.pick(
                    [
                        "{He} had never told anybody.",
                        "The others laughed at {him} because of it.",
                        "{He} always found an excuse.",
                    ]
                ),
            ),
            t.pick(
                [
                    "One day, {kintro} noticed it.",
                    "Only {kintro} knew about it.",
                    "One day, {he} told {kintro} about it.",
                ]
            ),
        ],
        [
            (
                '"[I used to be afraid of it too|Everybody is afraid of something|That is nothing'
                ' to be ashamed of]," {ksaid}. "[Shall we try it together?|Let us take it step by'
                ' step.|I know a trick.]"'
            ),
            how,
        ],
        [
            final,
            t.pick(
                ['"I knew it," {ksaid}.', '"I did it!" {cried}.', "{K} smiled and said nothing."]
            ),
            t.moral("brave", "try") if t.chance(0.6) else "",
        ],
    )


DRAGON_WHY = [
    (
        "had a terrible toothache",
        (
            "A thorn was stuck between two of {khis} teeth. {H} took hold of it with both hands and"
            " pulled until it came out."
        ),
        "and I have not slept for weeks",
    ),
    (
        "was lonely",
        (
            "So {h} sat down beside {khim} and told {khim} a story, and then another one, until the"
            " moon came up."
        ),
        "and nobody ever comes to visit me",
    ),
    (
        "had a bad cold",
        "{H} made a whole barrel of tea with honey, and {k} drank it all in one gulp.",
        "and every time I sneeze, something catches fire",
    ),
    (
        "was afraid of the dark",
        "{H} gave {khim} a little lantern, and {k} held it as carefully as an egg.",
        "and the nights up here are so long",
    ),
    (
        "could not sleep",
        (
            '{H} sang to {khim} softly: "{line1} {line2}" And before the song was over, {k} was'
            " snoring."
        ),
        "and nobody has ever sung to me",
    ),
    (
        "was hungry",
        (
            "{H} shared {his} bread and cheese with {khim}, and it turned out that {k} liked cheese"
            " more than anything."
        ),
        "and there is nothing up here but stones",
    ),
]


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
    t.title = t.pick(
        ["{h} and the {knoun}", "The {knoun} on the Mountain", "The {knoun} Who {why}"]
    )
    gift = {
        "dragon": [
            (
                "In winter, {k} [lit the stoves of the whole village|warmed the houses with {khis}"
                " breath|melted the snow on the road]."
            ),
            (
                "And when the baker's oven broke, {k} helped out, and the bread had never been so"
                " crisp."
            ),
            "On feast days, {k} let the children fly on {khis} back.",
        ],
        "giant": [
            "Since then, {k} has carried the heavy things for everybody.",
            "When the bridge broke, {k} carried the people across in {khis} hat.",
        ],
        "troll": [
            "Since then, {k} has looked after the bridge, and everybody may cross it for a smile.",
            "When the snow came, {k} cleared the road with one sweep of {khis} arm.",
        ],
    }[k.noun]
    return (
        t.pages(
            opening,
            [
                "{Night}, a terrible [roar|howl|rumble] came from the mountain.",
                (
                    '"It is a {knoun}!" cried the people, and they [locked their doors|hid in their'
                    " cellars|did not dare to go out]."
                ),
                t.pick(
                    [
                        "Only {h} was more curious than afraid.",
                        "But {h} thought that it did not sound angry. It sounded sad.",
                        '"Somebody has to go and ask," {said}.',
                    ]
                ),
            ],
            [
                (
                    "So {he} [took a lantern|packed some bread and cheese|put on {his} warmest"
                    " coat] and climbed up."
                ),
                "In front of a cave sat {kintro}.",
                (
                    '{H} was trembling, but {he} took one more step. "Good evening," {he} said.'
                    ' "Why do you make such a noise?"'
                ),
                (
                    '{K} looked at {him} with big wet eyes. "[You are the first to ask|Nobody has'
                    ' ever asked me that]," {khe} said. "It is simple: I {complaint_i},'
                    ' {complaint}."'
                ),
                "{how}",
            ],
            [
                (
                    "[From that night on, it was quiet on the mountain|From that day on, nobody was"
                    " afraid of the {knoun} anymore]."
                ),
                t.pick(gift),
                *([t.moral("listen", "kind", "brave")] if t.chance(0.7) else []),
            ],
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
    flower = t.pick(
        FLOWERS + ["apple tree", "cherry tree", "pumpkin", "bean", "oak", "lemon tree", "pear tree"]
    )
    k = t.cast("k", t.person(h, ["advise", "dig"], named=0.5))
    t.v.update(flower=flower, a_flower="a " + flower)
    t.title = t.pick(["The Seed", "{h} and the {flower}", "A Small Green Leaf"])
    return (
        t.pages(
            t.opening(),
            [
                t.pick(
                    [
                        (
                            "{H} found a seed [in {his} pocket|on the windowsill|between the pages"
                            " of a book|under the bench]. It was [small and brown|as small as a"
                            " crumb|round and grey]."
                        ),
                        "A bird dropped a seed right in front of {him}.",
                        '{Kintro} gave {him} a seed. "Look after it," {khe} said.',
                    ]
                ),
                (
                    "{He} [put it into a pot|planted it behind the house|made a hole in the earth"
                    " with one finger] and watered it."
                ),
                t.pick(
                    [
                        "The next day, {he} looked, but there was nothing to see.",
                        "{He} waited a day, {he} waited a week, but nothing happened.",
                    ]
                ),
            ],
            [
                t.pick(
                    [
                        '"It does not grow," {said} to {kfullx}.',
                        '"Perhaps it is asleep," {thought}. {He} asked {kfullx}.',
                    ]
                ),
                t.pick(
                    [
                        (
                            '"It is growing where you cannot see it," {kanswered}. "First come the'
                            ' roots."'
                        ),
                        (
                            '"You cannot pull a plant out of the ground to make it grow," {ksaid}.'
                            ' "You have to wait."'
                        ),
                        '"Everything has its own time," {ksaid} and smiled.',
                    ]
                ),
                (
                    1,
                    t.pick(
                        [
                            (
                                "So {h} waited. {He} told the seed about [the weather|{his} day|the"
                                " stars], and sometimes {he} sang to it."
                            ),
                            "So {h} watered it every morning and waited.",
                            "Rain came, and sun, and rain again.",
                        ]
                    ),
                ),
            ],
            [
                t.pick(
                    [
                        "And then, one morning, there was a tiny green leaf.",
                        (
                            "One morning, the earth had a small crack, and out of the crack peeped"
                            " something green."
                        ),
                    ]
                ),
                (1, "It grew and grew, and by [summer|the end of the year] it was {grown}."),
                t.pick(
                    [
                        '"You see?" {ksaid}.',
                        (
                            "{H} [danced around it|called everybody to come and see|could not stop"
                            " smiling]."
                        ),
                        "The first [flower|leaf] {he} gave to {k}.",
                    ]
                ),
                t.moral("patience"),
            ],
        )
        if not t.v.update(
            kfullx="{kfull}",
            grown=t.pick(
                [
                    "taller than the fence",
                    "as tall as {he} was",
                    "the most beautiful {flower} in the whole street",
                    (
                        "so big that birds came to sit on it"
                        if flower not in ("bean", "daisy", "violet")
                        else "taller than the fence"
                    ),
                ]
            ),
        )
        else ""
    )


WISHES = [
    ("a mountain of gold", "a pair of warm [socks|boots]"),
    ("a palace", "a roof that does not leak"),
    ("a crown", "a friend to talk to"),
    ("a thousand cakes", "that everybody in the village has enough to eat"),
    ("being the strongest of all", "that my grandmother gets well again"),
    ("living forever", "one long summer with all my friends"),
    ("a golden ship", "fair wind for everyone at sea"),
    ("knowing everything", "to be curious all my life"),
]


def plot_wish(t):
    h = t.hero("human", "human", "child", "child")
    t.setting(times=OUT)
    k = t.cast(
        "k",
        Char(
            t.pick(
                [
                    "fish",
                    "swan",
                    "fairy",
                    "star",
                    "frog",
                    "genie",
                    "stork",
                    "old woman",
                    "gnome",
                    "hare",
                ]
            ),
            t.pick(["golden", "silver", "white", "tiny", "strange", "little"]),
            "she" if h.pron == "he" else "he",
            "animal",
        ),
    )
    if k.noun in ("fairy", "old woman"):
        k.pron = "she"
    if k.noun in ("genie", "gnome"):
        k.pron = "he"
    big, modest = t.pick(WISHES)
    rescue = {
        "fish": "caught in a net",
        "swan": "caught in the reeds",
        "fairy": "stuck in a spider's web",
        "star": "lying on the ground, far from the sky",
        "frog": "sitting in a dry well",
        "genie": "locked in an old bottle",
        "stork": "lying on the ground with a broken wing",
        "old woman": "carrying a heavy bundle of wood",
        "gnome": "stuck under a root",
        "hare": "caught in a trap",
    }[k.noun]
    free = {
        "old woman": "{H} carried the bundle for {khim}, all the way up the hill.",
        "star": "{H} picked {khim} up carefully and carried {khim} to the top of the highest hill.",
        "genie": "{H} pulled out the cork.",
        "stork": "{H} bandaged the wing and shared {his} bread with {khim}.",
    }.get(k.noun, "{H} knelt down and set {khim} free, very gently.")
    if k.noun == "old woman":
        k.noun, k.adj = "woman", "old"
    t.v.update(rescue=rescue, big=big, modest=modest)
    t.title = t.pick(["The Wish", "{h} and the {kadj} {knoun}", "One Wish"])
    return t.pages(
        t.opening(),
        [
            t.pick(
                [
                    "Beside the path, {he} found {kintro}, {rescue}.",
                    "{Once}, {he} came upon {kintro}, {rescue}.",
                    "At the edge of the wood, {he} saw {kintro}, {rescue}.",
                    "{Once}, {he} heard a faint cry for help. It was {kintro}, {rescue}.",
                ]
            ),
            free,
        ],
        [
            '"You have a good heart," {ksaid}. "You may make a wish."',
            (1, "{H} thought of {big}. Then {he} thought of it once more and shook {his} head."),
            (
                2,
                (
                    '"Are you sure?" {kasked}. "[Most people ask for gold|You can have anything in'
                    ' the world]."'
                ),
            ),
            (
                '"I wish for {modest}," {said}.'
                if not modest.startswith(("that", "to"))
                else '"I wish {modest}," {said}.'
            ),
        ],
        [
            t.pick(
                [
                    (
                        '{K} smiled. "That is the [wisest|best] wish I have heard in a hundred'
                        ' years," {khe} said.'
                    ),
                    "{K} nodded, and there was a sound like little bells.",
                ]
            ),
            (
                "And when {h} came home, the wish had come true."
                if not modest.startswith("to be curious")
                else "And so it was, until {h} was very old."
            ),
            t.pick(
                [
                    (
                        "{He} never told anybody, but {he} [smiled a lot|often left a light in the"
                        " window]."
                    ),
                    (
                        "From then on, {he} was the happiest person [in the whole village|for miles"
                        " around]."
                    ),
                    t.moral("kind", "share"),
                ]
            ),
        ],
    )


def plot_fable(t):
    h = t.cast("h", t.animal(named=0.25))
    t.setting(times=OUT)
    k = t.cast("k", t.animal(h, named=0.25))
    if h.noun == k.noun:
        k = t.cast("k", t.animal(h, species=["turtle", "mouse"], named=0))
    kind = t.pick(["race", "food", "boast", "house", "mirror", "quarrel"])
    op = t.pick(
        [
            [
                "{Hintro} and {kintro} [were neighbours|lived in the same wood|met at a"
                " crossroads|were friends]."
            ],
            ["Once, {hintro} met {kintro}."],
            ["{Time}, {hintro} met {kintro} [at the river|under the old oak|on a narrow path]."],
            ["Once upon a time, {hintro} and {kintro} lived {home}."],
        ]
    )
    t.title = t.pick(["{Hkind} and {kkind}", "{Hkind} and {kkind}", "A Fable"])
    t.v.update(
        food=t.pick(
            [
                "apple",
                "pear",
                "cherry cake",
                "piece of cheese",
                "loaf of bread",
                "melon",
                "pumpkin",
                "bunch of grapes",
            ]
        )
    )
    if kind == "race":
        body = [
            (
                [
                    '"I am faster than you," {said}. "Let us race to the [mill|big stone|bridge]."',
                    "{K} did not really want to, but {khe} agreed.",
                    (
                        "{H} ran off so fast that the dust flew. But halfway there, {he} saw a"
                        " [hedgehog baby|little duckling|lamb] that could not find its mother."
                    ),
                ]
                if k.noun != "duck"
                else [
                    '"I am faster than you," {said}. "Let us race to the mill."',
                    "{K} did not really want to, but {khe} agreed.",
                    (
                        "{H} ran off so fast that the dust flew. But halfway there, {he} saw a lamb"
                        " that could not find its mother."
                    ),
                ]
            ),
            [
                (
                    '"I have no time," {thought} and ran on. {K} came much later. {Khe} had taken'
                    " the little one home first."
                ),
                (
                    '"I have won!" {cried}. But all the animals were standing around {k} and'
                    " thanking {khim}."
                ),
                "Then {h} understood that there are things more important than being first.",
            ],
        ]
    elif kind == "food":
        body = [
            [
                (
                    'One day, they found a {food}. "I saw it first," {said}. "But I touched it'
                    ' first," {ksaid}.'
                ),
                "They quarrelled [all morning|until the sun stood high], and neither gave in.",
            ],
            [
                t.pick(
                    [
                        (
                            "Meanwhile, a [snail|line of ants|sparrow] came along and ate and ate,"
                            " until there was nothing left but a crumb."
                        ),
                        "Then it began to rain, and the {food} was washed away.",
                    ]
                ),
                (
                    'They looked at each other. "Half would have been better than nothing," {said}.'
                    ' "Next time, we will share," {ksaid}.'
                ),
            ],
        ]
    elif kind == "boast":
        t.v["skill"] = {
            "fly": "fly higher than the clouds",
            "swim": "swim to the bottom of the lake",
            "run": "outrun the wind",
            "climb": "climb the tallest tree",
            "dig": "dig a tunnel under the hill",
            "strong": "pull a cart all by myself",
            "smell": "smell a cake three villages away",
            "night": "see in the darkest night",
            "light": "light up the whole meadow",
            "squeeze": "slip through any crack",
            "gnaw": "fell a tree before breakfast",
            "thread": "spin the finest thread",
            "advise": "solve any riddle",
        }[h.can]
        body = [
            [
                '"I can {skill}," {said}. "And what can you do?"',
                '{K} thought about it. "I can listen," {khe} said.',
            ],
            [
                '{H} laughed. "That is nothing special."',
                (
                    "But that evening, {h} was sad, and {he} did not know why. {K} sat down beside"
                    " {him} and listened until {he} had told {khim} everything."
                ),
                "Afterwards, {h} felt as light as a feather.",
                '"You were right," {said}. "I can {skill}, but what you can do is greater."',
            ],
        ]
    elif kind == "house":
        body = [
            [
                "Both of them wanted to build a house before winter. {H} built quickly and went to"
                " play. {K} worked slowly and tested every [beam|board|stone] twice."
            ],
            [
                "Then the first storm came and blew {h's} house away.",
                'Wet and cold, {he} stood before {k\'s} door. "May I come in?" {he} asked.',
                '"Of course," {ksaid}. "I made it a little bigger, just in case."',
                "In spring, they built a second house together, slowly and well.",
            ],
        ]
    elif kind == "mirror":
        body = [
            [
                '"I wish I were you," {said}. "You are so [elegant|calm|beautiful]."',
                '"How strange," {ksaid}. "I have always wished to be you."',
            ],
            [
                (
                    "So for one day, they changed places. {H} tried to do everything like {k}, and"
                    " {k} tried to do everything like {h}."
                ),
                "In the evening, they were both [tired and hungry|wet and scratched all over].",
                (
                    '"I think I would rather be myself," {said}. "Me too," {ksaid}, and {they} both'
                    " laughed."
                ),
            ],
        ]
    else:
        body = [
            [
                (
                    "One day, they quarrelled [about a shady spot|about a puddle|about nothing at"
                    " all], and neither wanted to be the first to say sorry."
                ),
                "{H} looked to the left. {K} looked to the right. So it went for three days.",
            ],
            [
                (
                    'On the fourth day, {h} could not stand it anymore. "I have forgotten what we'
                    ' quarrelled about," {he} said. "So have I," {ksaid}.'
                ),
                "And they were so happy that they [danced around the tree|shared a whole {food}].",
            ],
        ]
    end = [
        {
            "race": t.moral("kind"),
            "food": t.moral("share"),
            "boast": t.moral("listen"),
            "house": t.moral("patience"),
            "mirror": "It is good to be exactly who you are.",
            "quarrel": "The first to say sorry is the braver one.",
        }[kind]
    ]
    return t.pages(op, *body, end)


def plot_baby(t):
    h = t.cast(
        "h",
        t.animal(
            species=[
                "fox",
                "hedgehog",
                "duck",
                "rabbit",
                "bear",
                "owl",
                "otter",
                "deer",
                "mouse",
                "penguin",
                "elephant",
                "seal",
                "wolf",
                "squirrel",
                "badger",
                "goose",
            ],
            named=0.8,
        ),
    )
    h.adj = t.pick(["little", "young", "small", "tiny"])
    t.setting(times=OUT[:2])
    k = t.cast("k", t.animal(h, named=0.5))
    m = t.cast("m", t.animal(k, named=0.3))
    t.v.update(
        sound=t.pick(
            ["a song", "a soft call", "a deep, warm voice", "somebody calling {his} name"]
        ),
        chase=t.pick(
            [
                "a blue butterfly",
                "a dancing leaf",
                "a snowflake",
                "a shiny beetle",
                "a soap bubble",
                "a rainbow",
                "a dragonfly",
            ]
        ),
    )
    t.title = t.pick(["Little {h}", "{h} Finds the Way Home", "Where Is Mother?"])
    return t.pages(
        t.opening(),
        [
            (
                "{H} saw {chase} and ran after it, over [the hill and through the ferns|sticks and"
                " stones|the stream and past the big rock]."
            ),
            (
                'When {he} looked around, everything was strange. "Mother?" {called}. But nobody'
                " answered."
            ),
        ],
        [
            '{H} met {kintro}. "Have you seen my mother?" {he} asked.',
            '"What does she look like?" {kasked}.',
            t.pick(
                [
                    '"She is the [most beautiful|kindest|warmest] {noun0} in the world," {said}.',
                    '"She looks like me, only bigger," {said}.',
                ]
            ),
            t.pick(
                [
                    (
                        '"Hm," {ksaid}. "I only know [the way to the river|the old oak|what is'
                        ' under the ground]. But I will come with you."'
                    ),
                    '"I have not seen her," {ksaid}, "but I will help you look."',
                ]
            ),
        ],
        [
            (
                1,
                (
                    'Together they asked {mintro}. "[I saw a {noun0} at the edge of the wood|A'
                    ' {noun0} came by and called a name|Somebody was looking for you just now],"'
                    ' {msaid}. "Go that way."'
                ),
            ),
            (2, "The sun was already setting, and the shadows were getting long."),
            (
                "Then {h} heard {sound}. {He} ran as fast as {his} legs could carry {him}."
                if h.noun not in ("seal",)
                else "Then {h} heard {sound}, and {he} hurried towards it."
            ),
        ],
        [
            '"There you are!" cried {his} mother and [held {him} close|hugged {him} tight].',
            t.pick(
                [
                    (
                        '"I will never run after {chase} again," {said}. "Not without telling me,"'
                        " said {his} mother."
                    ),
                    '"I was not alone," {said}. "{K} was with me."',
                ]
            ),
            *t.ending("home", "help"),
        ],
    )


def plot_quarrel(t):
    h = t.cast("h", t.person(named=1.0))
    t.setting(homes=["town", "river", "farm", "hill"])
    k = t.cast("k", t.person(h, named=1.0))
    t.v.update(
        about=t.pick(
            [
                "a fence",
                "a pear tree",
                "the noise of a trumpet",
                "a chicken",
                "the shade of a hedge",
                "a borrowed ladder",
                "a bucket",
                "the colour of a door",
                "an old bench",
            ]
        ),
        storm=t.pick(
            [
                "a storm tore the roof off {h's} house",
                "the river rose and came up to {h's} door",
                "so much snow fell that {h} could not open the door",
                "{h} fell ill and had to stay in bed",
                "lightning struck {h's} chimney",
            ]
        ),
    )
    t.title = t.pick(["Two Neighbours", "{h} and {k}", "The Wall Between"])
    return t.pages(
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
        ],
        [
            "One day, they quarrelled about {about}.",
            t.pick(
                [
                    "From then on, they did not speak a single word to each other.",
                    '"I will never talk to you again," {said}. "Neither will I," {ksaid}.',
                ]
            ),
            (1, "{H} built a wall, and {k} made it higher."),
            (2, "The whole street was sad about it, even the cats."),
        ],
        [
            "Then, one [night|day], {storm}.",
            t.pick(
                [
                    (
                        "{K} saw it from the window. {Khe} thought about it for as long as it takes"
                        " to put on a pair of boots. Then {khe} ran across."
                    ),
                    (
                        "There was a knock. It was {k}, with [a lamp and a blanket|a pot of soup|a"
                        " hammer and a box of nails]."
                    ),
                ]
            ),
            '"You came," {said}. "Of course," {ksaid}. "You are my neighbour."',
        ],
        [
            t.pick(
                [
                    (
                        "The next day, they took down the wall, stone by stone, and built a bench"
                        " out of it."
                    ),
                    "In spring, they made a gate where the wall had been.",
                    "They worked side by side until everything was in order again.",
                ]
            ),
            (1, t.feast()),
            *t.ending("kind", "help", "share"),
        ],
    )


def plot_music(t):
    h = t.hero("human", "child", "child", "animal", "robot")
    if h.kind == "animal":
        h = t.cast(
            "h", t.animal(species=["frog", "monkey", "mouse", "cat", "bear", "squirrel"], named=0.8)
        )
    t.setting()
    k = t.cast("k", t.animal(h, named=0.5))
    inst = t.pick(INSTRUMENTS)
    line1, line2 = t.pick(SONGS)
    t.v.update(inst=inst, line1=line1, line2=line2)
    t.title = t.pick(["The {inst}", "{h}'s Song" if h.name else "The Song", "The Silent {inst}"])
    return t.pages(
        t.opening(),
        [
            (
                "{H} played the {inst}. {He} practised [every evening|day and night|in the attic],"
                " but {he} was too shy to play for others."
            ),
            (
                1,
                t.pick(
                    [
                        '"What if they laugh?" {he} thought.',
                        "As soon as somebody came in, {he} hid the {inst} behind {his} back.",
                    ]
                ),
            ),
        ],
        [
            "One evening, {he} thought that {he} was alone and played with the window open.",
            t.pick(
                [
                    "Outside, {kintro} stopped and listened.",
                    "{Kintro} sat down under the window and did not move.",
                ]
            ),
            (
                1,
                (
                    "When the last note was gone, it was so quiet that you could hear the [snow"
                    " fall|stars]."
                ),
            ),
            t.pick(
                [
                    '"Please do not stop," {ksaid}.',
                    '"That was so beautiful that I forgot I was [hungry|tired|cold]," {ksaid}.',
                ]
            ),
            '"Did you really like it?" {asked}.',
            t.pick(
                [
                    '"I will tell everybody," {ksaid}.',
                    (
                        '"Come to the [market square|big tree|fountain] tomorrow," {ksaid}. "I will'
                        ' bring my friends."'
                    ),
                ]
            ),
        ],
        [
            (
                "The next day, many were waiting. {H} closed {his} eyes and played, and somebody"
                " began to sing:"
            ),
            '"{line1} {line2}"',
            t.pick(["Soon everybody was singing along.", "And nobody laughed. They danced."]),
            t.moral("try", "brave") if t.chance(0.6) else "",
        ],
    )


def plot_noise(t):
    h = t.hero("child", "human", "robot", "child")
    t.setting(times=["night", "evening"])
    k = t.cast(
        "k",
        t.animal(
            h,
            species=[
                "cat",
                "owl",
                "mouse",
                "hedgehog",
                "squirrel",
                "bat",
                "dog",
                "frog",
                "raccoon",
                "duck",
                "goat",
            ],
            named=0.4,
        ),
    )
    t.v.update(
        noise=t.pick(
            [
                "scratch, scratch",
                "tap, tap, tap",
                "knock, knock",
                "rustle, rustle",
                "thump, thump",
                "creak, creak",
                "drip, drop",
            ]
        ),
        where=t.pick(
            [
                "the attic",
                "the cellar",
                "the kitchen",
                "the old wardrobe",
                "the garden shed",
                "the chimney",
                "the room under the stairs",
            ]
        ),
        light=t.pick(["a candle", "a lamp", "a lantern", "a torch"]),
        weapon="a {weapon1}",
        weapon1=t.pick(
            [
                "broom",
                "slipper",
                "frying pan",
                "wooden spoon",
                "rolling pin",
                "cushion",
                "walking stick",
                "feather duster",
            ]
        ),
    )
    t.title = t.pick(["The Noise in {where}", "A Visitor at Night", "{h} and the Noise"])
    return t.pages(
        [
            t.pick(
                [
                    "{Time}, {hfull} was lying in bed.",
                    "{Time}, {hfull} could not sleep.",
                    "{Time}, {hfull} woke up.",
                    "Once upon a time, {hintro} lived {home}. One night, {he} could not sleep.",
                ]
            ),
            (1, "{weather}"),
            t.pick(
                [
                    "Then {he} heard it: {noise}.",
                    "There was a noise: {noise}.",
                    '"{noise}," it went, somewhere in the house.',
                ]
            ),
        ],
        [
            t.pick(
                [
                    (
                        '"It is only the wind," {thought}. But there was no wind.'
                        if "wind" not in t.v["weather"]
                        else '"It is only the house," {thought}. But it did not sound like a house.'
                    ),
                    "{H} pulled the blanket over {his} head, but the noise did not stop.",
                    "{H} held {his} breath and listened.",
                ]
            ),
            "It came from {where}.",
            (
                "So {he} took {light} and, to be on the safe side, {weapon}, and [tiptoed|crept]"
                " through the dark house."
            ),
            (1, '"Who is there?" {whispered}. There was no answer, only: {noise}.'),
            (2, "{His} heart was beating like a drum."),
        ],
        [
            "{He} opened the door. Two eyes were shining in the dark. It was {kintro}!",
            t.pick(
                [
                    "{K} was at least as frightened as {he} was.",
                    "{Khe} was wet and cold and looked very sorry.",
                    '"Excuse me," {ksaid}. "It is so cold outside."',
                ]
            ),
            t.pick(
                [
                    "{H} had to laugh. {He} put down the {weapon1} and got a saucer of milk.",
                    "{H} fetched an old cushion and put it by the stove.",
                    '"You gave me quite a fright," {said}. "Are you hungry?"',
                ]
            ),
        ],
        [
            t.pick(
                [
                    "When the sun came up, they were both fast asleep, side by side.",
                    "From then on, there was a small bed in {where}.",
                    "Since that night, {h} was never alone.",
                    t.moral("brave"),
                ]
            )
        ],
    )


def plot_contest(t):
    h = t.hero("human", "child", "human", "robot")
    t.setting(times=OUT)
    k = t.cast("k", t.child(h) if h.kind != "child" else t.person(h))
    dish = t.pick(FOODS)
    kind = t.pick(["bake", "boat", "pumpkin", "paint"])
    t.v.update(food=dish, crop=t.pick(["pumpkin", "cabbage", "carrot", "melon", "turnip"]))
    what = {
        "bake": "who could make the best {food}",
        "boat": "whose little boat was the fastest",
        "pumpkin": "who had the biggest {crop}",
        "paint": "who could paint the most beautiful picture",
    }[kind]
    mishap = {
        "bake": [
            "But on the way, {he} stumbled, and the {foodx} fell into the grass.",
            "But {he} had mixed up the salt and the sugar.",
        ],
        "boat": [
            "But right at the start, {his} boat turned around and sailed backwards.",
            "But halfway, {his} boat got caught in the reeds.",
        ],
        "pumpkin": [
            "But the night before, a hungry snail had eaten a hole into it.",
            (
                "But when {he} lifted the {crop} onto the cart, it rolled down the hill and broke"
                " into seven pieces."
            ),
        ],
        "paint": [
            "But at the last moment, a cat walked across the wet paint.",
            "But a drop of rain fell right into the middle of the picture.",
        ],
    }[kind]
    turn = {
        "bake": [
            (
                '"Taste it anyway," {ksaid}. And it was so strange and so good that everybody'
                " wanted a second piece."
            ),
            "{K} tasted it, made a face and began to laugh. Soon the whole square was laughing.",
        ],
        "boat": [
            (
                '"Look," cried {kfull}, "it has found a nest with five eggs!" And everybody ran to'
                " see it, and nobody looked at the race anymore."
            ),
            (
                "So {he} waded into the water and set it free, and a little duckling too, which had"
                " been caught beside it."
            ),
        ],
        "pumpkin": [
            (
                '"Then we will make soup," {ksaid}. They put a big pot in the middle of the square,'
                " and everybody got a bowl."
            ),
            (
                '"Now you can see how golden it is inside," {ksaid}. "It is the most beautiful one'
                ' of all."'
            ),
        ],
        "paint": [
            (
                '"Those are not paw prints," {ksaid}. "Those are flowers." And really, now it was a'
                " meadow."
            ),
            (
                "The colours ran into each other, and suddenly there was a rainbow that nobody had"
                " painted."
            ),
        ],
    }[kind]
    t.v.update(
        what=what, foodx=dish.split()[-1] if " with " not in dish and " and " not in dish else dish
    )
    if (
        dish.endswith(("s", "chestnuts"))
        or dish.startswith(("hot", "noodle", "peppermint"))
        or " " not in dish
    ):
        t.v["foodx"] = "pot"
    t.title = t.pick(["The Contest", "{h} and the Fair", "Second Prize"])
    return t.pages(
        t.opening(),
        [
            t.pick(
                [
                    "Every year, there was a contest to see {what}.",
                    "At the fair, there was a contest to see {what}.",
                ]
            ),
            t.pick(
                [
                    "{H} wanted to take part for the first time.",
                    "{H} had never won anything, but this year {he} wanted to try.",
                ]
            ),
            (
                1,
                (
                    "{He} worked [for weeks|all night|from morning till evening], and {kfull}"
                    " helped {him}."
                ),
            ),
            t.pick(mishap),
        ],
        [
            (1, t.pick(['"Now everything is lost," {sighed}.', "{H} felt like crying."])),
            t.pick(turn),
        ],
        [
            t.pick(
                [
                    "{H} did not get first prize. But {he} got the loudest applause.",
                    "In the end, the mayor invented a new prize, just for {him}.",
                    "Somebody else won the golden cup. But {h} went home with a new friend.",
                ]
            ),
            t.moral("try") if t.chance(0.7) else "",
        ],
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
            t.pick(["star", "moon", "little comet", "green creature", "cloud", "planet"]),
            t.pick(["small", "lonely", "shy", "tiny", "sad"]),
            "she" if h.pron == "he" else "he",
            "animal",
        ),
    )
    t.v.update(
        ship=t.pick(
            ["rocket", "spaceship", "flying machine", "rocket made of tin", "round silver ship"]
        ),
        shipname=t.pick(
            [
                "Dandelion",
                "Comet",
                "Blue Goose",
                "Thistle",
                "Far Away",
                "Night Owl",
                "Lemon",
                "Hope",
            ]
        ),
        gift=t.pick(
            [
                "a lamp",
                "a sunflower seed",
                "a warm scarf",
                "a cup of cocoa",
                "a jar of earth with one green leaf",
                "a picture of home",
            ]
        ),
    )
    t.title = t.pick(["{h} Among the Stars", "The {kadj} {knoun}", "A Long Way Up"])
    return t.pages(
        [
            t.pick(
                [
                    "{Hfull} had a {ship} called the {shipname}.",
                    "Once upon a time, there was {hintro} who had built a {ship}.",
                    "{Time}, {hfull} climbed into {his} {ship}, the {shipname}.",
                    "Far above the clouds, {hfull} was flying in a {ship}.",
                ]
            ),
            t.pick(
                [
                    '"Three, two, one," {said}, and up it went.',
                    (
                        "The engine hummed, the windows rattled, and the earth grew smaller and"
                        " smaller."
                    ),
                    "Soon the earth was as small as a blue marble.",
                ]
            ),
        ],
        [
            t.pick(
                [
                    "{He} flew past the moon and turned left at the third star.",
                    "For a long time, there was nothing but silence and stars.",
                ]
            ),
            "Then {he} saw {kintro}, all alone in the dark.",
            '"Hello," {said}. "What are you doing out here?"',
            t.pick(
                [
                    '"I am waiting," {ksaid}. "But I have forgotten what for."',
                    '"I am afraid that nobody sees me," {ksaid}.',
                    '"It is so quiet here," {ksaid}. "Nobody ever comes by."',
                ]
            ),
        ],
        [
            "{H} looked around in the ship and found {gift}.",
            '"This is for you," {said}.',
            t.pick(
                [
                    (
                        "{K} began to glow, first a little, and then so brightly that it could be"
                        " seen from the earth."
                    ),
                    "Nobody had ever given {k} anything before.",
                ]
            ),
            (
                1,
                (
                    "{They} talked about [the sea|snow|trees|dogs|the smell of rain], which {k} had"
                    " never seen."
                ),
            ),
        ],
        [
            t.pick(
                [
                    (
                        "On clear nights, {h} looked up and waved. And every time, a small light"
                        " winked back."
                    ),
                    (
                        "When {h} was home again, {he} put a lamp in the window, so that {k} could"
                        " find {him} too."
                    ),
                    '"I will come back," {said}, and {he} kept {his} word.',
                ]
            ),
            t.moral("kind", "home", "listen") if t.chance(0.4) else "",
        ],
    )


def plot_stranger(t):
    h = t.hero("human", "human", "child", "human")
    t.setting(season=t.pick(["winter", "autumn", "winter", None]), times=["evening", "night"])
    k = t.cast(
        "k",
        t.pick(
            [
                Char("man", t.pick(["old", "tired", "strange", "tall"]), "he", "human"),
                Char("woman", t.pick(["old", "tired", "strange", "tall"]), "she", "human"),
                Char("traveller", t.pick(["old", "tired", "wet"]), t.pick(["he", "she"]), "human"),
                t.animal(h, named=0.2),
            ]
        ),
    )
    t.v.update(
        food=t.pick(FOODS),
        little=t.pick(
            [
                "one candle and half a loaf of bread",
                "a little soup",
                "two potatoes and a pinch of salt",
                "a small pot of tea",
                "one egg",
            ]
        ),
    )
    t.title = t.pick(["The Guest", "A Knock at the Door", "The {kadj} {knoun}"])
    person = k.kind == "human"
    return t.pages(
        t.opening(began=False),
        [
            t.pick(
                [
                    "{Then}, there was a knock at the door.",
                    "{Then}, {he} was about to go to bed when somebody knocked.",
                    "{Then}, {he} heard a faint knock.",
                ]
            ),
            (1, "{weather}"),
            (
                "Outside stood {kintro}[, covered in snow|, wet to the bone|]."
                if t.season == "winter"
                else "Outside stood {kintro}[, wet to the bone|]."
            ),
            t.pick(
                [
                    '"May I warm myself at your fire?" {kasked}.',
                    '"I have lost my way," {ksaid}. "May I stay until morning?"',
                ]
            ),
        ],
        [
            (
                '{H} did not have much, only {little}. "Come in," {he} said. "What is enough for'
                ' one is enough for two."'
            ),
            (
                1,
                (
                    "{They} sat by the fire and ate, and {k} told stories of [far countries|the"
                    " sea|the old times]."
                ),
            ),
            (2, "In the night, {h} gave the guest {his} own bed and slept on the floor."),
        ],
        [
            "In the morning, {k} was gone.",
            t.pick(
                [
                    "But on the table stood a pot of soup, and it was never empty again.",
                    (
                        'On the table lay a golden coin and a note: "Thank you for the warmth."'
                        if person
                        else (
                            "But in front of the door, somebody had cleared away all the snow."
                            if t.season == "winter"
                            else "But in front of the door lay a basket of berries."
                        )
                    ),
                    "But the fire was still burning, and the woodpile was as high as the roof.",
                    "But the old clock, which had not worked for years, was ticking.",
                ]
            ),
            t.moral("kind", "share"),
        ],
    )


def plot_sleep(t):
    h = t.hero("child", "animal", "robot", "child")
    t.setting(times=["evening", "night"])
    k = t.cast(
        "k",
        Char(
            t.pick(["moon", "wind", "old clock", "star", "owl", "teddy bear"]),
            t.pick(["round", "quiet", "old", "kind", "friendly"]),
            "she" if h.pron != "she" else "he",
            "animal",
        ),
    )
    line1, line2 = t.pick(SONGS)
    t.v.update(
        line1=line1,
        line2=line2,
        sheep=t.pick(["sheep", "stars", "raindrops", "owls", "clouds", "{his} own breaths"]),
    )
    t.title = t.pick(["Good Night, {h}", "The Moon at the Window", "When {h} Could Not Sleep"])
    return t.pages(
        [
            t.pick(
                [
                    "{Time}, {hfull} could not sleep.",
                    "It was late, but {hfull} was wide awake.",
                    "Once upon a time, there was {hintro} who could not fall asleep.",
                ]
            ),
            (1, "{weather}"),
            (
                "{He} turned to the left. {He} turned to the right. {He} counted {sheep}, but {he}"
                " was still awake."
            ),
        ],
        [
            '"Why are you not asleep?" asked {kkind}[ at the window| softly|].',
            t.pick(
                [
                    '"My thoughts are too loud," {said}.',
                    '"I am waiting for tomorrow," {said}.',
                    '"It is too dark," {said}.',
                ]
            ),
            t.pick(
                [
                    (
                        '"Then give me your thoughts," {ksaid}. "I will keep them for you until'
                        ' morning."'
                    ),
                    '"Tomorrow comes faster when you close your eyes," {ksaid}.',
                    '"Close your eyes and listen," {ksaid}.',
                ]
            ),
        ],
        [
            "And {kkind} sang very softly:",
            '"{line1} {line2}"',
            t.pick(
                [
                    "{H} wanted to say thank you, but {he} was already asleep.",
                    "Before the song was over, {h} was dreaming.",
                    "And {h} slept until the sun tickled {his} nose.",
                ]
            ),
        ],
    )


def plot_friend(t):
    """A newcomer, and how somebody becomes a friend."""
    h = t.hero("child", "animal", "robot", "child")
    t.setting(times=OUT)
    k = t.cast("k", {"child": t.child, "animal": t.animal, "robot": t.child}[h.kind](h))
    t.v.update(
        likes0=t.pick(
            [
                "drawing",
                "flying kites",
                "collecting stones",
                "looking at the stars",
                "building dams",
                "telling jokes",
                "baking",
                "chess",
                "frogs",
                "old maps",
            ]
        ),
        food=t.pick(FOODS),
    )
    t.title = t.pick(["The New Neighbour", "{h} and {k}", "A Friend for {h}"])
    return (
        t.pages(
            t.opening(),
            [
                t.pick(
                    [
                        "One day, {kintro} moved in next door.",
                        "{Time2}, somebody new came along: {kintro}.",
                        "Across the street lived {kintro}.",
                    ]
                ),
                t.pick(
                    [
                        "{K} did not speak to anybody and always looked at the ground.",
                        '"{Khe} is strange," said the others. But {h} was curious.',
                        "{H} wanted to say hello, but {he} did not know how.",
                    ]
                ),
            ],
            [
                t.pick(
                    [
                        "So {h} put {a_gift} in front of {k's} door and ran away.",
                        "So {h} sat down beside {khim} and said nothing for a while.",
                        (
                            '"I am {hname}," {said}. "Do you like {likes0}?"'
                            if h.name and h.pron != "I"
                            else '"Do you like {likes0}?" {asked}.'
                        ),
                    ]
                ),
                t.pick(
                    [
                        "The next day, {he} found {a_gift2} in front of {his} own door.",
                        (
                            '{K} looked up. "I like {likes0} too," {khe} said. "But I have nobody'
                            ' to do it with."'
                        ),
                        "After a while, {k} began to smile.",
                    ]
                ),
                (
                    1,
                    (
                        "From then on, {they} met every [afternoon|day after school|evening] [by"
                        " the old wall|under the lime tree|at the pond]."
                    ),
                ),
            ],
            [
                t.pick(
                    [
                        (
                            '"I thought you did not like me," {ksaid}. "I thought the same,"'
                            " {said}, and {they} both laughed."
                        ),
                        (
                            '"Why did nobody talk to me before?" {kasked}. "Perhaps they were shy,'
                            ' too," {said}.'
                        ),
                    ]
                ),
                *t.ending("kind", "listen", "share"),
            ],
        )
        if not t.v.update(
            a_gift=t.pick(
                [
                    "a slice of cake",
                    "a drawing",
                    "a smooth white stone",
                    "a bunch of flowers",
                    "a paper bird",
                ]
            ),
            a_gift2=t.pick(["a red apple", "a shell", "a feather", "a small note", "a jar of jam"]),
            time2=t.pick(["One day", "One rainy day", "A week later"]),
        )
        else ""
    )


def plot_maker(t):
    """Somebody makes a thing for somebody else."""
    h = t.cast(
        "h", t.person(can=["thread", "build", "bake", "light", "strong", "pick"], named=0.75)
    )
    t.setting(times=OUT)
    k = t.cast("k", t.child(h) if t.chance(0.6) else t.animal(h, named=0.6))
    t.v["made"], t.v["enter"] = (
        h.job[2],
        t.pick(
            [
                "Come in, but do not touch anything.",
                "Come in, but mind the step.",
                "Come in, but wipe your feet.",
                "Sit down, but be careful.",
            ]
        ),
    )
    t.title = t.pick(["{Hkind}", "The Gift of {hfull}", "{h} and {k}"])
    return t.pages(
        t.opening(),
        [
            "{Once}, {kintro} looked in at the door.",
            t.pick(
                [
                    '"What are you making?" {kasked}. "{Made}," {said}. "{enter}"',
                    '"May I watch?" {kasked}. "If you like," {said}. "{enter}"',
                    (
                        '{K} did not say a word, but {khis} eyes were as big as plates. "Come in,"'
                        ' {said}. "There is enough room for two."'
                    ),
                ]
            ),
            (
                1,
                (
                    "From then on, {k} came every day. {Khe} [asked a thousand questions|swept the"
                    " floor|sat quietly in the corner] and learned."
                ),
            ),
        ],
        [
            t.pick(
                [
                    "Then {h} hurt {his} hand and could not work anymore.",
                    "But {h} was getting old, and {his} eyes were not as good as before.",
                    "But one day, {h} lay in bed with a fever.",
                ]
            ),
            '"What will become of my work?" {sighed}.',
            t.pick(
                [
                    (
                        "The next morning, there was light in the window. {K} was at work, very"
                        " slowly and very carefully."
                    ),
                    '"Tell me what to do," {ksaid}, "and I will be your hands."',
                ]
            ),
            (
                1,
                (
                    "It took the whole day, and [it was a little crooked|it was not perfect], but"
                    " it was finished."
                ),
            ),
        ],
        [
            t.pick(
                [
                    '{H} turned it over and over. "It is better than mine," {he} said.',
                    (
                        '{H} looked at it for a long time and smiled. "I could not have done it'
                        ' better," {he} said.'
                    ),
                ]
            ),
            t.pick(
                [
                    "Since then, two names have been written over the door.",
                    "And in the evening, they drank tea and planned the next day.",
                    t.moral("patience", "try", "share"),
                ]
            ),
        ],
    )


def plot_short(t):
    """A few sentences only: a small picture of a day."""
    h = t.hero()
    t.setting(times=OUT)
    k = t.cast("k", t.animal(h, named=0.3))
    t.v.update(food=t.pick(FOODS), colour=t.pick(COLOURS), flower=t.pick(FLOWERS))
    t.thing()
    t.title = None
    return t.pages(
        t.opening(),
        [
            t.pick(
                [
                    "Then {he} saw {kintro}. They looked at each other for a long time.",
                    (
                        "Nothing special happened that day, and that was exactly what {he} liked"
                        " about it."
                    ),
                    (
                        '{He} found {a_thing} in the grass. "Somebody will be looking for it,"'
                        " {thought}, and {he} hung it on the fence, where everybody could see it."
                    ),
                    (
                        "A {colour} balloon came flying over the roofs. {H} waved to it until it"
                        " was as small as a dot."
                    ),
                    "{H} picked a {flower} and gave it to the first person {he} met.",
                    (
                        "All at once, it began to rain. {H} opened an umbrella, and {kintro} came"
                        " under it too."
                    ),
                    "{H} sat down and had {food}. A sparrow came and got the crumbs.",
                ]
            ),
            t.pick(
                [
                    '"What a beautiful day," {said}.',
                    "In the evening, {he} told everybody about it.",
                    "Then {he} went home, and {he} was happy.",
                    '"Life is good," {thought}.',
                    "And {he} thought that the best things are very small.",
                ]
            ),
        ],
    )


ROYAL = [
    (
        "could not laugh",
        (
            "{H} [slipped on a plum|put the crown on upside down|sneezed so hard that {his} hat"
            " flew onto the nose of a statue], and everybody held their breath. There was a snort,"
            " then a giggle, and then {k} laughed until the windows shook."
        ),
        "jesters with bells, clowns with red noses and a bear that could dance",
        "laughed",
    ),
    (
        "could not sleep",
        (
            "{H} sat down beside the bed and told {khim}, very slowly, about [a snail that crossed"
            " a road|rain falling on a lake|sheep walking through a gate, one after the other]."
            " Before the story was over, {k} was fast asleep."
        ),
        "doctors with drops, singers with harps and a man with a hundred pillows",
        "slept",
    ),
    (
        "was always bored",
        (
            "{H} took {khim} along [to dig potatoes|to fly a kite|to bake bread]. In the evening,"
            " {kposs} hands were dirty, {kposs} shoes were ruined, and {k} had never been so happy."
        ),
        "acrobats, magicians and an elephant that could count",
        "was never bored again",
    ),
    (
        "would not eat",
        (
            '{H} brought a simple soup in a wooden bowl. "But first, let us walk once around the'
            ' garden," {he} said. They walked around it three times. Then {k} ate the whole bowl'
            " and asked for more."
        ),
        "cooks from seven countries with golden plates",
        "ate",
    ),
    (
        "was afraid of losing the crown",
        (
            '"May I carry it for you for one day?" {asked}. In the evening, {he} gave it back. "It'
            ' is heavy," {he} said. "Who would want to steal that?" Then {k} laughed and hung the'
            " crown on a nail."
        ),
        "guards with spears, locksmiths and a lion",
        "slept well",
    ),
]


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
        reward=t.pick(
            [
                "half of the kingdom",
                "a chest of gold",
                "a castle with a hundred rooms",
                "a white horse",
            ]
        ),
        modest=t.pick(
            [
                "a new roof for the school",
                "a cow for my mother",
                "that the gates of the garden stay open for all children",
                "a library for the village",
                "that you come to visit us some day",
                "a bench where old people can rest",
            ]
        ),
    )
    t.title = t.pick(["The {knoun} Who {why}", "{h} and the {knoun}", "In the Castle"])
    return t.pages(
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
        + ["From near and far came {tried}, but nobody could help."],
        [
            '"Whoever helps me will get {reward}," {ksaid}.',
            (
                "{Home} lived {hintro}."
                if not h.first and h.pron != "I"
                else "{Hfull} heard about it."
            ),
            t.pick(
                [
                    '"I have an idea," {said}, and {he} set out for the castle.',
                    '"I can at least try," {said} and went to the castle.',
                ]
            ),
        ],
        ["{how}", (1, '"How did you do that?" asked the servants. {H} only smiled.')],
        [
            (
                '"Now choose your reward," {ksaid}. "I do not need {reward}," {said}. "But I would'
                ' like {modest}."'
                if not t.v["modest"].startswith("that")
                else (
                    '"Now choose your reward," {ksaid}. "I do not need {reward}," {said}. "But I'
                    ' wish {modest}."'
                )
            ),
            "And so it was done.",
            t.moral("kind", "share", "listen") if t.chance(0.5) else "",
        ],
    )


def plot_key(t):
    h = t.hero("child", "child", "human", "robot")
    t.setting(times=OUT)
    k = t.cast("k", t.person(h, named=0.7))
    adj = t.pick(["small", "rusty", "golden", "silver", "brass", "heavy", "strange"])
    t.v.update(
        key=f"{adj} key",
        door=t.pick(
            [
                "a small green door behind the ivy",
                "an old wooden chest in the attic",
                "a clock that had stood still for years",
                "a little door under the stairs",
                "a gate in the garden wall",
                "a blue cupboard in the cellar",
                "the tower that nobody had ever entered",
            ]
        ),
        found=t.pick(
            [
                "under a loose stone",
                "in the pocket of an old coat",
                "in a loaf of bread",
                "on the bottom of a dry well",
                "in a bird's nest",
                "between two books",
                "on the beach",
            ]
        ),
    )
    inside = t.pick(
        [
            (
                "a garden full of roses",
                "Nobody had been there for fifty years, and yet everything was in bloom.",
            ),
            (
                "a shelf of old letters, tied with a ribbon",
                (
                    "They told of a long friendship, and the last one ended with the words:"
                    ' "Whoever reads this is our friend, too."'
                ),
            ),
            ("a room full of books", "It smelled of paper and dust and adventure."),
            (
                "a small wooden bird",
                "When it was wound up, it sang so beautifully that people stopped in the street.",
            ),
            ("nothing but a mirror and a note", '"You have found the treasure," said the note.'),
            ("a box of seeds and a watering can", '"Plant us," was written on the lid.'),
            (
                "a map with a red cross",
                (
                    "And the cross was exactly where {h's} own bed stood. Under it, there was a tin"
                    " full of biscuits."
                ),
            ),
            (
                "a family of mice, sitting around a thimble full of soup",
                '"Please close the door," said the smallest one. "There is a draught."',
            ),
        ]
    )
    t.v.update(inside=inside[0], comment=inside[1])
    t.title = t.pick(["The {key}", "{h} and the {key}", "What Was Behind the Door"])
    return t.pages(
        t.opening(),
        [
            "{H} found a {key} {found}.",
            '"What does it open?" {thought}.',
            t.pick(
                [
                    (
                        "{He} tried the front door, the shed and the piano, but it did not fit"
                        " anywhere."
                    ),
                    "{He} asked the neighbours, but nobody knew the key.",
                    "{He} tried it in every lock in the house, but it fitted none of them.",
                ]
            ),
        ],
        [
            t.pick(["Then {he} showed it to {kfull}.", "At last {he} met {kintro}."]),
            t.pick(
                [
                    (
                        '"I have seen this key before," {ksaid}, "a long, long time ago." And {khe}'
                        " led {him} to {door}."
                    ),
                    (
                        '"Hm," {ksaid}. "There is only one lock that old. Come with me." And {khe}'
                        " showed {him} {door}."
                    ),
                ]
            ),
            (1, "{His} fingers trembled a little."),
            "The key turned. It went click.",
        ],
        [
            "Inside, there was {inside}. {comment}",
            t.pick(
                [
                    "{H} and {k} looked at each other and smiled.",
                    '"I have walked past here a thousand times," {said}, "and I never knew."',
                    (
                        "Since that day, {h} has always carried the {key} around {his} neck."
                        if h.pron != "I"
                        else "Since that day, I have always carried the {key} around my neck."
                    ),
                ]
            ),
            t.moral("listen", "patience", "try") if t.chance(0.4) else "",
        ],
    )


def plot_scarecrow(t):
    noun = t.pick(
        [
            "scarecrow",
            "snowman",
            "scarecrow",
            "lamp post",
            "garden gnome",
            "tin soldier",
            "wooden horse",
            "boat",
            "rag doll",
            "teddy bear",
        ]
    )
    h = t.cast(
        "h",
        Char(
            noun,
            t.pick(["lonely", "old", "friendly", "small", "crooked", "quiet", "patient"]),
            t.pick(["he", "he", "she", "it"]),
            "animal",
            t.name(PETS, False) if t.chance(0.35) else None,
        ),
    )
    h.place = {
        "scarecrow": "in the middle of a corn field",
        "snowman": "in front of the school",
        "lamp post": "at the corner of the street",
        "garden gnome": "under the apple tree",
        "tin soldier": "on the windowsill",
        "wooden horse": "in the corner of the nursery",
        "boat": "at the end of the pier",
        "rag doll": "at the bottom of the toy box",
        "teddy bear": "on the top shelf of the toy shop",
    }[noun]
    t.setting("winter" if noun == "snowman" else None)
    k = t.cast(
        "k",
        (
            t.animal(h, groups=["air"], named=0.4)
            if noun == "scarecrow" or t.chance(0.4)
            else t.child(h)
        ),
    )
    want = {
        "scarecrow": (
            "All the birds were afraid of {him}, although {he} would never have hurt anybody."
        ),
        "snowman": "{He} wanted to see the summer, but everybody said that it was impossible.",
        "lamp post": "Everybody walked past, but nobody ever stopped.",
        "garden gnome": "{He} had always wanted to see the world on the other side of the hedge.",
        "tin soldier": "{He} did not want to fight at all. {He} wanted to dance.",
        "wooden horse": "{He} dreamed of galloping over a real meadow.",
        "boat": "The big ships sailed out to sea, but {he} was never allowed to come along.",
        "rag doll": "One of {his} eyes was missing, and nobody played with {him} anymore.",
        "teddy bear": "{He} had a crooked ear, and nobody wanted to buy {him}.",
    }[noun]
    solve = {
        "scarecrow": [
            'In autumn, {k} was cold and had nowhere to sleep. "You can sleep in my hat," {said}.',
            "From then on, {k} told all the birds that the scarecrow was the kindest of them all.",
        ],
        "snowman": [
            (
                '"I will tell you about the summer," {ksaid}, and {khe} told {him} about cherries,'
                " bees and warm rain, until the sun came."
            ),
            (
                "In spring, there was only a puddle left, and in summer a flower grew there. It had"
                " seen everything."
            ),
        ],
        "lamp post": [
            'One foggy night, {k} lost the way. "Come here, into my light," {said}.',
            "Since then, {k} stopped every evening and said good night.",
        ],
        "garden gnome": [
            (
                "{K} told {him} every evening what it looked like out there: the mill, the lake,"
                " the blue hills."
            ),
            (
                "And one morning, {he} was standing on the other side. Nobody knew how {he} had got"
                " there, but {k} was smiling."
            ),
        ],
        "tin soldier": [
            "{K} hummed a tune and turned {him} around and around, until everything was spinning.",
            '"Now I have danced," {said}, and {his} little tin heart went tick, tick, tick.',
        ],
        "wooden horse": [
            '"Close your eyes," {ksaid}. "Do you feel the wind? Do you smell the grass?"',
            "And for one whole night, they galloped through a meadow full of moonlight.",
        ],
        "boat": [
            (
                "Then {k} fell into the water, where it was too shallow for the big ships. {H} was"
                ' there at once. "Hold on to me!" {he} cried.'
            ),
            '"It is good that you are small," {ksaid}, and {h} rocked proudly on the waves.',
        ],
        "rag doll": [
            (
                '{K} found a blue button and gave it to {him}. "Now you can see the sky with it,"'
                " {khe} said."
            ),
            (
                "And it was true: everything that {he} saw with {his} new eye was a little more"
                " beautiful."
            ),
        ],
        "teddy bear": [
            (
                'One day, {k} came by and looked at {him} for a long time. "That one," {khe} said.'
                ' "The one with the crooked ear. He looks as if he were listening."'
            ),
            "And {h} listened, every night, to everything that {k} had to tell.",
        ],
    }[noun]
    if noun == "teddy bear":
        h.pron = "he"
        k = t.cast("k", t.child(h))
    t.title = t.pick(["The {adj0} {noun0}", "{h} and {k}", "{Hkind}"])
    t.v.update(adj0=h.adj, noun0=h.noun, placed=h.place)
    return t.pages(
        (
            t.pick(
                [
                    ["Once upon a time, there was {hintro} who stood {placed}."],
                    ["{Placed} stood {hintro}."],
                    ["{Hfull} stood {placed}.", (1, "{weather}")],
                    ["{Time}, {hfull} was standing {placed}, as always.", (1, "{weather}")],
                ]
            )
            if noun not in ("boat", "rag doll", "teddy bear")
            else t.pick(
                [
                    [
                        (
                            "Once upon a time, there was {hintro}. {He} lay {placed}."
                            if noun != "teddy bear"
                            else "Once upon a time, there was {hintro}. {He} sat {placed}."
                        )
                    ],
                    ["{Placed} lived {hintro}."],
                ]
            )
        ),
        [
            want,
            (
                1,
                t.pick(
                    [
                        "{He} was very lonely.",
                        "At night, {he} looked at the stars and sighed.",
                        "But {he} never complained.",
                    ]
                ),
            ),
            "{Once}, {kintro} came by." if noun != "teddy bear" else "",
            (
                t.pick(
                    [
                        '"Why are you so sad?" {kasked}, and {h} told {khim} everything.',
                        "They began to talk, and they talked until evening.",
                    ]
                )
                if noun not in ("teddy bear", "boat", "lamp post")
                else ""
            ),
        ],
        solve,
        t.ending("kind", "listen", "patience") if t.chance(0.6) else [],
    )


def plot_clock(t):
    h = t.cast("h", t.person(job="clockmaker", named=0.8) if t.chance(0.6) else t.child())
    t.setting(homes=["town", "hill", "river"])
    k = t.cast(
        "k",
        t.animal(
            h,
            species=["mouse", "sparrow", "spider", "bat", "owl", "squirrel", "swallow"],
            named=0.5,
        ),
    )
    bird = k.noun in ("sparrow", "owl", "swallow")
    t.v.update(
        nest=t.pick(
            ["a nest with three tiny eggs", "four hungry chicks"]
            if bird
            else ["five sleeping babies", "a bed of wool and feathers", "a very small winter store"]
        ),
        hour12=t.pick(["ten past four", "half past seven", "five to twelve", "a quarter to nine"]),
    )
    t.title = t.pick(["The Clock That Stopped", "{hour12}", "{h} and the Tower Clock"])
    return t.pages(
        t.opening(began=False),
        [
            t.pick(
                [
                    "{Then}, the clock in the tower stopped.",
                    "One day, the big clock on the town hall stood still.",
                ]
            ),
            "It was {hour12}, and it stayed {hour12}.",
            t.pick(
                [
                    (
                        "The baker did not know when to take the bread out of the oven, and the"
                        " children did not know when school was over."
                    ),
                    "The trains did not know when to leave, and the roosters crowed all day long.",
                ]
            ),
        ],
        [
            "{H} took a lamp and climbed up the [hundred|two hundred|ninety-nine] steps.",
            "Among the great wheels, {he} found {kintro} and {nest}.",
            t.pick(
                [
                    '"Please do not send us away," {kbegged}. "It is the only warm place in town."',
                    '"Shh," {kwhispered}. "They are asleep. The ticking was so loud."',
                ]
            ),
        ],
        [
            t.pick(
                [
                    (
                        "{H} thought for a while. Then {he} took off {his} hat and made a new bed"
                        " out of it, right beside the bells."
                    ),
                    (
                        '"Then the clock will have a holiday," {said}. And for three weeks, {he}'
                        " called out the time from the tower."
                    ),
                ]
            ),
            t.pick(
                [
                    "People said that the clock had never kept time so well as after that.",
                    "And when the clock struck again, it sounded a little softer than before.",
                ]
            ),
            *t.ending("kind", "listen", "patience"),
        ],
    )


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
    t.v.update(
        food=t.pick(FOODS),
        trouble=t.pick(
            [
                "sleeping in the bread basket",
                "stealing socks",
                "hiding spoons under the sofa",
                "opening doors",
                "chasing {his} own shadow",
                "sitting on the newspaper",
                "making friends with the postman",
                "watching the rain",
            ]
        ),
    )
    t.title = None
    op = t.pick(
        [
            ["{Hfull} was not an ordinary {noun}."],
            ["{Hfull} had a habit: {he} loved {trouble}."],
            ["Nobody knew where {hfull} went at night."],
            ["{Time}, {hfull} was gone."],
            ["{Hfull} was [very lazy|very clever|rather fat|afraid of nothing]."],
        ]
    )
    t.v["noun"] = noun
    gone = "gone" in op[0]
    body = (
        t.pick(
            [
                [
                    "[Every day|Every morning], {he} {waited} until {k} came home from school.",
                    "But one day, {k} was ill and had to stay in bed.",
                    (
                        "{H} carried the slippers to the bed, one after the other, then a ball, and"
                        " at last a whole sausage."
                        if noun in ("cat", "dog")
                        else "{H} sat down beside the bed and did not move all day."
                    ),
                    "{K} had to laugh, and laughing was the best medicine.",
                ],
                [
                    (
                        "One evening, {k} followed {him}, through the garden, over the wall and"
                        " down the lane."
                    ),
                    (
                        "And there {he} was: {he} was sitting with old {mname}, who lived alone,"
                        " and was listening to {mhis} stories."
                    ),
                    '"{He} comes every night," {msaid}. "{He} is a very good listener."',
                    "From then on, {k} came along, too.",
                ],
                [
                    (
                        "{K} called and called. {Khe} looked under the bed, in the barn and behind"
                        " the stove."
                    ),
                    (
                        "At last {khe} heard a small sound from {spotx}. There {he} was, and {he}"
                        " was not alone. Beside {him} lay {found}."
                    ),
                    (
                        '"So that is where you were," {ksaid} softly. "You were looking after'
                        ' somebody."'
                    ),
                ],
            ]
        )
        if not gone
        else [
            "{K} called and called. {Khe} looked under the bed, in the barn and behind the stove.",
            (
                "At last {khe} heard a small sound from {spotx}. There {he} was, and {he} was not"
                " alone. Beside {him} lay {found}."
            ),
            '"So that is where you were," {ksaid} softly. "You were looking after somebody."',
        ]
    )
    if noun == "goldfish":
        op = ["{Hfull} was not an ordinary goldfish."]
        body = [
            (
                "{K} told {him} everything: what happened at school, what {khe} was afraid of, and"
                " what {khe} dreamed of."
            ),
            "{H} never said a word, but {he} blew bubbles at exactly the right moment.",
            '"You are the best listener I know," {ksaid}.',
        ]
    t.cast("m", t.person(k, named=1.0))
    t.v.update(
        mname=t.chars["m"].name,
        waited=t.pick(["waited at the gate", "sat on the wall", "looked out of the window"]),
        spotx=t.pick(
            [
                "the hayloft",
                "the old wardrobe",
                "the laundry basket",
                "the boat shed",
                "the hollow tree",
            ]
        ),
        found=t.pick(
            [
                "three tiny kittens",
                "a young bird with a hurt wing",
                "a shivering hedgehog",
                "a lost lamb",
                "a very small mouse in a mitten",
            ]
        ),
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
    goods = t.r.sample(
        [
            "an old boot",
            "a goose",
            "a ladder",
            "a bag of nails",
            "a cheese",
            "a blue hat",
            "a bell",
            "a pumpkin",
            "a mirror",
            "a jar of honey",
            "a kite",
            "a basket of eggs",
            "a drum",
            "a lamp",
            "a rope",
            "a pot",
            "a puppet",
        ],
        4,
    )
    k = t.cast("k", t.person(h, named=0))
    m = t.cast(
        "m", t.animal(None, named=0, species=["donkey", "goat", "hen", "cat", "pony", "dog", "pig"])
    )
    who = t.r.sample(
        [
            "a miller",
            "a fiddler",
            "a sailor",
            "a washerwoman",
            "a shepherd",
            "a soldier",
            "a gardener",
            "a juggler",
            "a girl with red braids",
            "a boy with a wheelbarrow",
            "a monk",
            "a tailor",
        ],
        3,
    )
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
    t.title = t.pick(["A Good Bargain", "{h} Goes to Market", "{a} and {b}"])
    return (
        t.pages(
            t.opening(began=False),
            [
                "{Then}, {he} went to market with {a}.",
                (
                    'On the way, {he} met {w1} who needed {a} and had nothing to give but {b}. "Let'
                    ' us swap," {said}.'
                ),
            ],
            [
                "Then came {w2}, who had always wanted {b}. So {h} swapped {the_b} for {c}.",
                (
                    1,
                    (
                        'At the bridge stood {w3} with {d}. "My house is empty, and I would be so'
                        ' glad to have {c}," said {w3x}. So they swapped, too.'
                    ),
                ),
                t.pick(
                    [
                        '"You have made a bad bargain," people laughed.',
                        '"You will come home with nothing at all," people said.',
                    ]
                ),
            ],
            [
                t.pick(
                    [
                        (
                            "But that winter, when {h} was ill, they all came: {w1x} with firewood,"
                            " {w2x} with soup, and everybody with a good word."
                        ),
                        (
                            "But when {h} celebrated {his} birthday, {w1x} and {w2x} came with"
                            " music and cake, and the house was full."
                        ),
                    ]
                ),
                '"I swapped {the_a} for friends," {said}. "That was the best bargain of my life."',
            ],
        )
        if not t.v.update(**{f"w{i + 1}x": "the " + w.split(" ", 1)[1] for i, w in enumerate(who)})
        else ""
    )


RIDDLES = rows("""
What has a bed but never sleeps? | a river
What gets wetter the more it dries? | a towel
What has hands but cannot clap? | a clock
What has teeth but cannot bite? | a comb
What can you keep only by giving it away? | a promise
What goes up when the rain comes down? | an umbrella
What has a neck but no head? | a bottle
What runs but has no legs? | water
What belongs to you, but others use it more than you do? | my name
What is so fragile that it breaks when you speak its name? | silence
What has roots that nobody sees and is taller than trees? | a mountain
What flies without wings? | time
What is full of holes and still holds water? | a sponge
What has one eye but cannot see? | a needle
What grows shorter the older it gets? | a candle
What follows you all day and leaves you at night? | my shadow
What can fill a whole room and takes up no space? | light
What has a thousand leaves but is not a tree? | a book
What comes once in a minute, twice in a moment, but never in a thousand years? | the letter M
What do you break before you can use it? | an egg
""")


def plot_riddle(t):
    h = t.hero("child", "human", "animal", "robot", "child")
    t.setting(times=OUT)
    k = t.cast(
        "k",
        Char(
            t.pick(
                [
                    "troll",
                    "owl",
                    "gatekeeper",
                    "old woman",
                    "sphinx",
                    "raven",
                    "dwarf",
                    "cat",
                    "stone giant",
                ]
            ),
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
    t.v.update(
        riddle=riddle,
        answer=answer,
        wrong=wrong,
        place=t.pick(
            [
                "an old bridge",
                "a gate in the wall",
                "a narrow path",
                "a crossroads",
                "a high tower",
                "a dark tunnel",
            ]
        ),
    )
    t.title = t.pick(["The Riddle", "{h} and the {knoun}", "Three Tries"])
    return t.pages(
        t.opening(),
        [
            "{Once}, {he} came to {place}. There sat {kintro}.",
            t.pick(
                [
                    '"Nobody gets past me without solving my riddle," {ksaid}.',
                    '"Stop!" {ksaid}. "First you have to answer a question."',
                ]
            ),
            '"{riddle}"',
        ],
        [
            t.pick(
                [
                    "{H} thought and thought.",
                    "{H} sat down on a stone and thought.",
                    "{H} closed {his} eyes to think better.",
                ]
            ),
            (1, '"Is it {wrong}?" {asked}. "No," {ksaid}. "Try again."'),
            (2, t.beat()),
            t.pick(["Then {he} laughed.", "Suddenly, {he} knew it.", "Then {his} face lit up."]),
            '"It is {answer}!" {cried}.',
        ],
        [
            t.pick(
                [
                    (
                        '{K} frowned. Then {khe} began to smile. "You are the first to find it'
                        ' out," {khe} said.'
                    ),
                    '"Correct," {ksaid}, and {khe} stepped aside.',
                ]
            ),
            t.pick(
                [
                    (
                        '"May I ask you one too?" {said}. And they asked each other riddles until'
                        " evening."
                    ),
                    (
                        '"Come back tomorrow," {ksaid}. "It is boring here, and I know a hundred'
                        ' more."'
                    ),
                    "From then on, {h} came by every week with a new riddle.",
                ]
            ),
        ],
    )


def plot_train(t):
    h = t.hero("child", "human", "robot", "child")
    t.setting(times=OUT)
    k = t.cast("k", t.animal(h, named=0.5) if t.chance(0.5) else t.person(h))
    t.v.update(
        bag=t.pick(
            [
                "a suitcase full of stars made of paper",
                "a basket with something moving in it",
                "a cello",
                "a cactus with one flower",
                "a birdcage without a bird",
                "a very long umbrella",
                "a box with holes in the lid",
                "a jar of sea water",
            ]
        ),
        vehicle=t.pick(["train", "train", "night train", "bus"]),
    )
    reason = t.pick(
        [
            (
                "I am going to see the sea for the first time",
                "I have read about it for thirty years, and now I want to know whether it is true",
            ),
            (
                "I am visiting my sister",
                "We have not spoken for ten years, and I am a little afraid",
            ),
            (
                "I am bringing this to somebody who does not expect it",
                "Those are the best presents",
            ),
            (
                "I am going home",
                "I have been away so long that I do not know whether anybody will remember me",
            ),
            ("I do not know where I am going", "I liked the name of the last station"),
        ]
    )
    t.v.update(
        r1=reason[0],
        r2=reason[1],
        arrive=t.pick(
            [
                "At the station, somebody was already waiting with open arms.",
                "When the doors opened, the air smelled of salt and summer.",
                "On the platform stood half the village, with flags and a brass band.",
            ]
        ),
    )
    t.title = t.pick(
        [
            "The Night Train" if "night" in t.v["vehicle"] else "On the Way",
            "A Fellow Traveller",
            "The Last Station",
        ]
    )
    return t.pages(
        t.pick(
            [
                ["{Time}, {hfull} got on the {vehicle}.", (1, "{weather}")],
                [
                    "{Hfull} was sitting in the {vehicle} and looking out of the window.",
                    (1, "{weather}"),
                ],
                ["The {vehicle} was almost empty when {hfull} got on."],
            ]
        ),
        [
            "Opposite {him} sat {kintro} with {bag}.",
            t.pick(
                [
                    "For a while, they were both silent.",
                    "{H} tried not to stare, but {he} could not help it.",
                ]
            ),
            '"Where are you going?" {asked} at last.',
        ],
        [
            '"{r1}," {ksaid}. "{r2}."',
            t.pick(
                [
                    "{H} offered {khim} half of {his} sandwich.",
                    "{H} took two apples out of {his} bag and gave {khim} one.",
                ]
            ),
            (
                1,
                (
                    "Outside, [fields and villages|hills and rivers|lights and shadows] flew by,"
                    " and they talked as if they had always known each other."
                ),
            ),
        ],
        [
            "{arrive}",
            t.pick(
                [
                    (
                        '"You see?" {said}. "There was no need to be afraid."'
                        if "afraid" in reason[1] or "remember" in reason[1]
                        else '"Good luck!" {called}.'
                    ),
                    "{K} turned around once more and waved until the {vehicle} had disappeared.",
                ]
            ),
            t.pick(
                [
                    "{H} had missed {his} own stop long ago, but {he} did not mind at all.",
                    'A week later, {h} got a postcard. "Thank you for the company," it said.',
                    t.moral("listen", "kind"),
                ]
            ),
        ],
    )


def plot_book(t):
    h = t.hero("child", "child", "human", "robot")
    t.setting(times=OUT)
    k = t.cast(
        "k",
        t.person(h, job=t.pick(["librarian", "bookbinder", "teacher", "storyteller"]), named=0.6),
    )
    t.v.update(
        about=t.pick(
            [
                "a ship in a storm",
                "a prince who was turned into a heron",
                "a lighthouse at the end of the world",
                "a girl who could talk to the wind",
                "a lost city under the sea",
                "a wolf who wanted to be a cook",
                "two brothers and a golden apple",
            ]
        )
    )
    t.title = t.pick(["The Last Page", "The Book Without an End", "{h} and the Book"])
    return t.pages(
        t.opening(),
        [
            t.pick(
                [
                    "{Once}, {he} found an old book in a box in front of a house.",
                    "{Once}, {he} found a book that nobody had borrowed for fifty years.",
                ]
            ),
            "It told of {about}, and it was so exciting that {he} forgot everything around {him}.",
            "But when {he} came to the end, the last page was missing.",
        ],
        [
            (
                t.pick(
                    [
                        '"How does it end?" {asked}. But nobody knew.',
                        '{H} ran to {kfull}. "How does it end?" {asked}.',
                    ]
                )
                if t.chance(0.4)
                else '{H} took the book to {kfull}. "How does it end?" {asked}.'
            ),
            t.pick(
                [
                    (
                        '"I do not know," {ksaid}. "But I know somebody who could find out." "Who?"'
                        ' {asked}. "You," {ksaid} and gave {him} a pencil.'
                    ),
                    '"Some stories are waiting for somebody to finish them," {ksaid}.',
                ]
            ),
            (
                1,
                (
                    "{H} thought for three days. {He} crossed out, began again and chewed on {his}"
                    " pencil."
                ),
            ),
        ],
        [
            "Then {he} wrote the last page.",
            t.pick(
                [
                    "It was a good ending, with a little sadness and a lot of light.",
                    "In the end, everybody came home, and there was soup.",
                ]
            ),
            t.pick(
                [
                    (
                        "Today the book stands in the library again, and nobody can tell which page"
                        " is the new one."
                    ),
                    '"That is exactly how it was," {ksaid}.',
                    t.moral("try", "patience"),
                ]
            ),
        ],
    )


def plot_birthday(t):
    h = t.hero()
    t.setting()
    k = t.cast("k", t.child(h) if h.kind in ("child", "human") else t.animal(h))
    t.v.update(
        cake=t.pick(
            [
                "a cake with seven candles",
                "a chocolate cake as high as a hat",
                "a cake in the shape of a boat",
                "a plum cake with sugar on top",
                "a very crooked cake",
            ]
        ),
        place=t.pick(
            [
                "the old barn",
                "the garden",
                "the kitchen",
                "the meadow by the river",
                "the town hall",
                "the attic",
            ]
        ),
    )
    t.title = t.pick(
        [
            "The Birthday",
            "{h}'s Birthday" if h.name and h.pron != "I" else "The Birthday",
            "Nobody Remembered",
        ]
    )
    return t.pages(
        t.opening(began=False),
        [
            t.pick(
                [
                    "It was {h's} birthday, but nobody seemed to remember.",
                    (
                        "{H} woke up early, for it was {his} birthday. But nobody said a word"
                        " about it."
                    ),
                ]
            ),
            t.pick(
                [
                    "The postman walked past. The neighbours only said good morning.",
                    "{K} was in a hurry and did not even stop.",
                ]
            ),
            (1, '"Perhaps I am not so important," {thought}, and {he} felt very small.'),
        ],
        [
            (
                'In the evening, {k} knocked at the door. "Can you come with me for a moment?"'
                ' {khe} asked. "I need your help."'
            ),
            (
                "{H} followed {khim} to {place}. It was dark there, and quiet. Then somebody lit a"
                " candle, and another, and another."
            ),
            '"Happy birthday!" cried everybody.',
        ],
        [
            "There was {cake}, and there was music, and there were presents wrapped in newspaper.",
            t.pick(
                [
                    (
                        '"I thought you had forgotten me," {said}. "We only pretended," {ksaid}.'
                        ' "It was very difficult."'
                    ),
                    "{H} had to sit down, because {his} knees were so soft with happiness.",
                    (
                        "{H} blew out the candles and did not make a wish, because everything was"
                        " already there."
                    ),
                ]
            ),
        ],
    )


def plot_bird(t):
    h = t.hero("child", "human", "robot", "child")
    t.setting(season=t.pick(["autumn", "autumn", "winter"]), times=OUT[:2])
    k = t.cast(
        "k",
        t.animal(
            h,
            species=["swallow", "crow", "goose", "stork", "sparrow", "robin", "owl", "heron"],
            named=0.25,
        ),
    )
    t.title = t.pick(["The {knoun}", "{h} and the {knoun}", "A Broken Wing"])
    return t.pages(
        t.opening(),
        [
            t.pick(
                [
                    "{Once}, {he} found {kintro} in the grass.",
                    "{Once}, {kintro} fell down right in front of {his} feet.",
                    "Under the hedge, {he} found {kintro}.",
                ]
            ),
            "One wing was broken.",
            t.pick(
                [
                    "{H} wrapped {khim} in {his} scarf and carried {khim} home.",
                    "{H} picked {khim} up very carefully and made {khim} a nest in an old hat.",
                ]
            ),
        ],
        [
            t.pick(
                [
                    "All winter long, {he} fed {khim} with crumbs and seeds.",
                    "Every day, {he} changed the bandage and told {khim} about the sky.",
                ]
            ),
            (
                1,
                (
                    "At first, {k} was afraid. Then {khe} began to hop around the room, and soon"
                    " {khe} sat on {his} shoulder."
                ),
            ),
            "In spring, the wing was strong again. {H} opened the window.",
            t.pick(
                [
                    '"Fly," {said}, although it was not easy.',
                    '"I will miss you," {said}. "But the sky is bigger than my room."',
                ]
            ),
        ],
        [
            t.pick(
                [
                    "{K} flew around the house three times and was gone.",
                    "{K} looked back once, and then {khe} rose into the blue.",
                ]
            ),
            t.pick(
                [
                    "But the next year, on the same day, there was a tap at the window.",
                    "Since then, every spring, a feather lay on the windowsill.",
                    "And in summer, {khe} came back and brought five little ones along.",
                ]
            ),
            t.moral("kind", "patience") if t.chance(0.5) else "",
        ],
    )


def plot_snow(t):
    h = t.hero("child", "animal", "human", "robot")
    t.setting(season="winter")
    k = t.cast("k", t.child(h) if h.kind == "child" else t.animal(h))
    t.v.update(
        thing=t.pick(
            [
                "a snowman with a carrot nose",
                "a snow castle with four towers",
                "a snow bear",
                "a slide that went all the way down to the river",
                "a house of snow with a door and two windows",
            ]
        ),
        food=t.pick(
            ["hot chocolate", "baked apples", "peppermint tea", "roasted chestnuts", "pea soup"]
        ),
    )
    t.title = t.pick(["The First Snow", "A White Day", "{h} in the Snow"])
    return t.pages(
        t.pick(
            [
                ["It had snowed all night.", "When {hfull} looked out, the whole world was white."],
                [
                    "{Time}, {hfull} opened the door and could hardly believe it: there was snow"
                    " everywhere."
                ],
                t.opening(began=False) + ["Then the first snow fell."],
            ]
        ),
        [
            t.pick(['"Snow!" {cried} and ran out.', "{H} had never seen so much snow before."]),
            t.pick(
                [
                    'Then {k2intro} came along. "Shall we build something?" {kasked}.',
                    '"Will you help me?" {asked}. {Kintro} was there at once.',
                ]
            ).replace("{k2intro}", "{kintro}"),
            "Together they built {thing}.",
            (1, "They worked until their noses were red."),
            (2, "The wind tried to blow it down, but it was too strong."),
        ],
        [
            t.pick(
                [
                    "In the evening, they sat by the stove and had {food}.",
                    "Afterwards, there was {food}, and their fingers slowly got warm again.",
                ]
            ),
            t.pick(
                [
                    '"It will melt," {ksaid}. "Yes," {said}, "but not today."',
                    '"Tomorrow we will build a second one," {said}, "so that it is not alone."',
                    "Outside, it began to snow again, very softly.",
                ]
            ),
        ],
    )


def plot_school(t):
    h = t.cast("h", t.child() if t.chance(0.8) else t.animal(named=1.0))
    t.setting(times=["morning"])
    k = t.cast("k", t.child(h) if h.kind == "child" else t.animal(h, named=1.0))
    t.v.update(
        fear=t.pick(
            [
                "What if I do not find the right door",
                "What if nobody wants to sit next to me",
                "What if everybody else can already read",
                "What if I get hungry",
            ]
        ),
        pocket=t.pick(
            ["a chestnut", "a smooth stone", "a button", "a small shell", "a lucky coin"]
        ),
        who=t.pick(["{His} mother", "{His} father", "{His} grandmother", "{His} big sister"]),
    )
    t.title = t.pick(["The First Day", "{h} Goes to School"])
    return (
        t.pages(
            [
                t.pick(
                    [
                        "It was {h's} first day at school.",
                        "{Time}, {hfull} went to school for the first time.",
                        (
                            "{Hfull} was wide awake long before the sun, for it was the first day"
                            " of school."
                        ),
                    ]
                ),
                '"{fear}?" {asked}.',
                (
                    '{who} put {pocket} into {his} hand. "[Whenever you are afraid, hold on to'
                    ' it|There is some courage in it]," she said.'
                    if "other" in t.v["who"]
                    and "father" not in t.v["who"]
                    or "sister" in t.v["who"]
                    else (
                        '{who} put {pocket} into {his} hand. "[Whenever you are afraid, hold on to'
                        ' it|There is some courage in it]," he said.'
                    )
                ),
            ],
            [
                t.pick(["The classroom was big and loud.", "There were so many faces."]),
                "{H} sat down in the last row and held {his} {pocket1} tight.",
                "Next to {him} sat {kintro}, looking down at the table.",
                t.pick(
                    [
                        '"Are you afraid, too?" {whispered}. {K} nodded.',
                        "{K} looked as if {khe} were about to cry.",
                    ]
                ),
                (
                    'Then {h} took {his} {pocket1} out of {his} pocket and put it between them. "It'
                    ' is enough for two," {he} said.'
                ),
            ],
            [
                t.pick(
                    [
                        "And really, it was.",
                        "{K} smiled, and the room was suddenly much smaller and much warmer.",
                    ]
                ),
                t.pick(
                    [
                        "At noon, they both knew where the right door was.",
                        (
                            '"How was it?" they asked at home. "Good," {said}. "I will go again'
                            ' tomorrow."'
                        ),
                        t.moral("share", "brave"),
                    ]
                ),
            ],
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
