"""The words of the story grammar: who, where, when, what. Used by stories.py; plain data, no
logic.
"""


def rows(text):
    """Lines of `a | b | c`, blank lines and lines starting with # left out."""
    return [
        tuple(c.strip() for c in line.split("|"))
        for line in text.strip().splitlines()
        if line.strip() and line.strip()[0] != "#"
    ]


GIRLS = """Anna Mira Lena Ida Nora Ella Marta Greta Sofia Lucy Rosa Clara Emma Lily Hanna Mina Tilda Elsa Frida Ingrid Astrid Maya Zoe
Leila Amina Yara Noor Fatima Aisha Zahra Layla Samira Priya Anika Meera Devi Lakshmi Asha Kiran Mei Lin Yuki Hana Sakura Emi Aiko Suki Nari Minji
Lucia Elena Carmen Ines Pilar Valentina Isabel Bianca Chiara Giulia Alba Paola Olga Katya Natasha Vera Irina Zofia Hania Petra
Ada Alice Agnes Beatrix Beth Bridget Cora Daisy Dora Edith Eva Fern Flora Freya Grace Hazel Helen Holly Iris Ivy Jane Josie June Kate
Lotte Mabel Maggie Margot Martha Mary Matilda Molly Nell Olive Pearl Penny Poppy Polly Ruby Ruth Sally Sarah Stella Susan Tess Tilly Violet Willa
Winnie Abena Adjoa Ama Chidi Efua Imani Nia Thandi Wanjiru Zuri Malia Moana Leilani Aroha Kaia Siri Tuuli Aino Helmi Saga Liv Mathilde Amelie
Celine Margaux Odette Yvette Zelda Mary-Ann Henrietta Josephine Rosalind Wilhelmina Marigold Clementine Ottilie Philippa Harriet""".split()

BOYS = """Tom Ben Max Finn Jonas Emil Paul Otto Karl Leo Felix Hugo Oskar Anton Erik Lars Nils Sven Olaf Bjorn Henrik Mikkel
Omar Ali Karim Yusuf Hassan Tariq Samir Rashid Idris Malik Arjun Ravi Rohan Sanjay Dev Anand Vikram Kenji Hiro Taro Akira Wei Chen Jin Minho Bao
Pablo Diego Mateo Rafael Miguel Carlos Luca Marco Matteo Enzo Paolo Nico Dario Ivan Boris Misha Dmitri Pavel Stefan Tomas Jakub Milan
Adam Albert Alfie Arthur Barney Basil Bertie Billy Caleb Charlie Daniel David Edgar Edmund Edwin Elias Ernest Francis Fred George Gilbert Gus
Harry Henry Ira Isaac Jack Jacob James Jasper Jem Joe John Joseph Josh Kit Lewis Linus Luke Martin Miles Moses Ned Noah Oliver Oscar Owen Percy Peter
Philip Ralph Robin Rory Rufus Sam Samuel Sidney Simon Stan Theo Toby Tobias Victor Walter Wilfred Will Kofi Kwame Sefu Jabari Tendai Thabo Zane
Keanu Tane Manu Aldo Bruno Casimir Cyril Florian Gaspard Jules Laurent Marcel Pascal Remy Yannick Benedict Bartholomew Cornelius Leopold""".split()

PETS = """Pip Bramble Clover Dot Moss Pebble Biscuit Hazelnut Button Thistle Nutmeg Pepper Ginger Tansy Juniper Bracken Fennel Teasel Cricket Comet
Velvet Marble Maple Acorn Rowan Sorrel Tumble Whisper Flicker Ripple Dapple Mallow Barley Oatie Treacle Toffee Crumb Crumpet Dumpling Pickle Radish
Turnip Parsnip Bean Pudding Waffle Muffin Noodle Tuppence Sixpence Domino Jingle Tinker Fidget Scamper Snuffle Nibbles Whiskers Mittens Patch Rusty
Smoky Sooty Misty Sunny Stormy Breezy Bumble Bluebell Primrose Buttercup Tuft Twig Fluff Feather Quill Dusty Inky Bo Lulu Kiki Momo Coco Tiki Zuzu
Old Grumble Boulder Captain Major Duchess Professor Admiral""".replace(
    "Old Grumble", "Grumble"
).split()

ROBOTS = """Bolt Rivet Cog Sprocket Tick Beep Bleep Zip Gizmo Widget Spark Copper Socket Pixel Dial Buzzer Ratchet Piston Clank Clink Tock Rusty
Nano Turbo Otto Robo Ping Lumen Ohm Volt Watt Diode Gadget Orbit Nova Echo Seven Dotty Unit-Four R-Nine B-Seven Tin-Tin Hob Klik Zed""".split()

SYLLABLES = (
    "ba be bi bo bra bri da de di do dra fa fe fi flo ga gi gri ha he ho ja jo ka ke ki ko la le li"
    " lo lu ma me mi mo na ne ni no nu pa pe pi pli po ra re ri ro ru sa se si so su ta te ti to"
    " tri tu va ve vi wa we wi ya yo za ze zi zo zu"
).split()
TAILS_F = "la na ra mi lia ssa nda rin nelle wen tta via ya sha".split()
TAILS_M = "n r k mo rik lo dan x rus bo lin to m bert ld".split()

# job | gender (f, m, a = any) | where they worked | what they did | what they made or had | what
# they could do for others
JOBS = rows("""
fisherman | m | at the harbour | mended nets | smoked fish | swim
baker | a | in the bakery | kneaded dough | warm bread | bake
gardener | a | in the rose garden | watered the flowers | a basket of strawberries | dig
clockmaker | a | in the clock shop | wound up the clocks | a little brass clock | pick
lighthouse keeper | a | in the lighthouse | polished the great lamp | a pot of hot tea | light
shoemaker | a | in the shoe shop | stitched boots | a new pair of boots | thread
tailor | a | in the tailor's shop | sewed coats | a warm coat | thread
farmer | a | on the farm | fed the animals | fresh eggs | strong
shepherd | a | on the hill | watched the sheep | a ball of soft wool | strong
miller | a | in the windmill | ground the corn | a sack of flour | strong
carpenter | a | in the workshop | planed long boards | a sturdy stool | build
postman | m | at the post office | sorted the letters | a bundle of letters | run
teacher | a | in the village school | read aloud to the children | a book of poems | advise
librarian | a | in the library | dusted the books | a thick book of tales | advise
painter | a | in the attic studio | mixed the colours | a small painting | build
potter | a | in the pottery | turned bowls on the wheel | a blue bowl | build
weaver | a | at the loom | wove bright blankets | a striped blanket | thread
beekeeper | a | among the beehives | gathered honey | a jar of honey | advise
blacksmith | a | in the smithy | hammered iron | a shining horseshoe | strong
ferryman | m | on the river | rowed people across | a long rope | row
sailor | a | on a three-masted ship | coiled the ropes | a strong rope | row
cook | a | in the castle kitchen | stirred the soup | a pot of soup | bake
candle maker | a | in the candle shop | dipped candles | a bundle of candles | light
toy maker | a | in the toy shop | carved wooden horses | a wooden horse | build
fiddler | a | in the market square | played merry tunes | a dancing tune | sing
woodcutter | a | in the forest | chopped firewood | a pile of firewood | strong
apple seller | a | at the market | polished apples | a bag of red apples | advise
doctor | a | in the small white house by the bridge | bandaged knees | a bottle of cough syrup | advise
stargazer | a | in the tower | counted the stars | a map of the sky | light
train driver | a | at the railway station | oiled the wheels | a whistle | strong
bell ringer | a | in the church tower | rang the bells | a coil of rope | climb
map maker | a | in the map room | drew rivers and mountains | a careful map | advise
glassblower | a | by the hot furnace | blew coloured bottles | a green bottle | light
bookbinder | a | in the dusty bindery | glued pages together | a notebook with a red cover | thread
innkeeper | a | at the inn | swept the stairs | a bowl of stew | bake
goatherd | a | on the mountain | milked the goats | a round white cheese | climb
inventor | a | in the shed | built strange machines | a clever machine | build
night watchman | m | in the narrow streets | lit the street lamps | a bright lantern | light
chimney sweep | a | on the rooftops | brushed the chimneys | a long brush | climb
cheesemaker | a | in the cool cellar | turned the cheeses | a wheel of yellow cheese | bake
boat builder | a | on the beach | painted boats | a little rowing boat | row
kite maker | a | on the windy hill | glued paper kites | a kite with a long tail | build
storyteller | a | by the fountain | told tales | a new story | sing
puppet maker | a | in the puppet theatre | tied strings to puppets | a funny puppet | thread
ice-cream seller | a | on the promenade | rang a little bell | a cup of lemon ice | advise
diver | a | at the end of the pier | looked for shells | a pink shell | swim
stonemason | a | in the quarry | cut square stones | a smooth stone | strong
basket weaver | a | under the willow | wove baskets | a round basket | thread
tea merchant | a | in the tea house | weighed the tea | a tin of jasmine tea | advise
umbrella mender | a | in the little shop on the corner | mended umbrellas | a patched umbrella | thread
violin maker | a | in the quiet workshop | tuned violins | a small violin | build
pearl diver | a | in the warm lagoon | dived for pearls | a white pearl | swim
bus driver | a | in the busy town | drove the yellow bus | a ticket | run
zookeeper | a | in the small zoo | fed the penguins | a bucket of fish | advise
museum guard | a | in the museum | walked through the silent halls | a ring of keys | pick
locksmith | a | in the key shop | filed new keys | a tiny key | pick
ropemaker | a | in the long rope shed | twisted ropes | a strong rope | climb
mountain guide | a | in the mountain hut | led travellers over the pass | a walking stick | climb
snow shoveller | a | in the white streets | cleared the paths | a wide shovel | dig
astronaut | a | in a round silver station | looked after the engines | a piece of moon rock | fly
pilot | a | at the small airfield | polished the propeller | a ride in the plane | fly
balloonist | a | in the meadow | patched the great balloon | a ride in the balloon | fly
""")

# species | what it can do | body part | where it lives | group (wood, water, air, farm, far, small)
ANIMALS = rows("""
fox | smell | paw | in a den under the roots | wood
hedgehog | advise | paw | under a heap of leaves | wood
squirrel | climb | paw | in a hollow oak | wood
owl | night | wing | in the old barn | air
mouse | squeeze | paw | behind the pantry | small
mole | dig | paw | under the meadow | small
beaver | gnaw | paw | by the dam | water
otter | swim | paw | on the river bank | water
frog | swim | hand | by the lily pond | water
swallow | fly | wing | under the roof | air
crow | fly | wing | in the bare elm | air
goose | fly | wing | by the lake | farm
bear | strong | paw | in a cave on the hillside | wood
ox | strong | hoof | in the stone stable | farm
horse | run | hoof | in the stable | farm
donkey | strong | hoof | behind the mill | farm
goat | climb | hoof | on the rocky hill | farm
rabbit | dig | paw | in a burrow by the hedge | wood
hare | run | paw | in the long grass | wood
badger | dig | paw | under the hill | wood
cat | night | paw | by the kitchen stove | farm
dog | smell | paw | beside the front door | farm
seagull | fly | wing | on the harbour wall | water
seal | swim | flipper | on the flat rocks | water
dolphin | swim | fin | in the blue bay | water
turtle | swim | flipper | on the warm beach | water
ant | squeeze | leg | in a hill of pine needles | small
firefly | light | wing | in the reeds | small
bat | night | wing | in the church tower | air
elephant | strong | foot | by the wide river | far
monkey | climb | hand | in the fig tree | far
parrot | fly | wing | in a golden cage with an open door | far
camel | strong | foot | at the edge of the desert | far
penguin | swim | wing | on the ice | far
deer | run | hoof | among the birches | wood
wolf | smell | paw | in the dark pines | wood
sparrow | fly | wing | in the ivy | air
robin | fly | wing | in the holly bush | air
stork | fly | wing | on the chimney | air
duck | swim | wing | on the mill pond | farm
pig | smell | trotter | in the muddy yard | farm
spider | thread | leg | in the corner of the window | small
weasel | squeeze | paw | in the woodpile | wood
raccoon | climb | paw | in a hollow log | wood
lizard | climb | foot | on the sunny wall | small
heron | fly | wing | among the reeds | water
pony | run | hoof | in the green paddock | farm
glow-worm | light | foot | under the ferns | small
lynx | night | paw | in the snowy forest | wood
koala | climb | paw | in the gum tree | far
kangaroo | run | paw | on the dry plain | far
""")

ANIMAL_ADJ = (
    "little small shy clever brave curious gentle cheerful sleepy hungry proud lonely patient"
    " polite clumsy quick kind young old merry tiny fluffy wise grumpy playful".split()
)
PERSON_ADJ = (
    "old young kind shy brave curious clever cheerful gentle patient busy lonely quiet poor tall"
    " absent-minded careful merry stubborn wise honest thoughtful hard-working friendly grumpy"
    " tired".split()
)
CHILD_ADJ = (
    "curious brave shy clever little cheerful dreamy stubborn quiet bold kind lively patient"
    " thoughtful adventurous".split()
)
ROBOT_ADJ = (
    "little small rusty old shiny curious clumsy friendly helpful silver round square gentle tin"
    " noisy copper new forgotten polite brave".split()
)

# where somebody lives | kind
HOMES = rows("""
in a small village by the sea | sea
on the edge of a pine forest | wood
at the top of a windy hill | hill
beside a slow green river | river
in a crooked house at the end of the lane | town
in a town with seven bridges | town
near the old lighthouse | sea
in a narrow street behind the market | town
in a valley full of apple trees | farm
at the foot of a blue mountain | hill
in a house with a red roof | town
on a little island | sea
in a cottage covered with roses | farm
above a bakery | town
beside a quiet lake | river
where the road meets the river | river
in a village so small that it had only one lamp | town
in the middle of a great forest | wood
on a farm with a crooked gate | farm
at the edge of the desert | far
in a city of tall chimneys | town
in a harbour town full of seagulls | sea
in a clearing where bluebells grew | wood
high up in the mountains | hill
in a house on stilts | river
next to the railway station | town
between two hills | hill
behind the old mill | river
at the end of a long beach | sea
in a land far to the north | far
on the other side of the wood | wood
in a tiny flat with a view of the park | town
in the last house before the sea | sea
deep in the forest | wood
in a land far away | far
on the edge of the town | town
in a small village | farm
in a big city | town
in a little house by the river | river
on a farm behind the hills | farm
""")

# phrase | season | time of day ("" = any)
TIMES = rows("""
One winter evening | winter | evening
One winter morning | winter | morning
One cold night | winter | night
On the first day of winter | winter | morning
On a snowy afternoon | winter | day
On the longest night of the year | winter | night
One frosty morning | winter | morning
One spring morning | spring | morning
On the first warm day of spring | spring | day
One windy day in March | spring | day
One rainy afternoon | autumn | day
One evening in May | spring | evening
One summer morning | summer | morning
One summer evening | summer | evening
On a hot afternoon in July | summer | day
One warm night | summer | night
On midsummer's day | summer | day
One autumn morning | autumn | morning
Late one autumn afternoon | autumn | day
One foggy morning | autumn | morning
One stormy night | autumn | night
One misty evening in October | autumn | evening
Early one morning | spring | morning
Late one evening | autumn | evening
One bright morning | summer | morning
One quiet Sunday | summer | day
On market day | summer | day
One Monday morning | spring | morning
On a Tuesday in April | spring | day
The day before the fair | autumn | day
In the morning | summer | morning
In the evening | autumn | evening
In the middle of the night | winter | night
At sunrise | summer | morning
At midnight | winter | night
Just before sunset | summer | evening
One day | summer | day
One night | autumn | night
One afternoon | spring | day
One morning | spring | morning
One evening | autumn | evening
Last winter | winter | day
Last summer | summer | day
Yesterday | spring | day
Last night | autumn | night
A long time ago | summer | day
Many years ago | winter | day
On {his} birthday | spring | day
When the first snow fell | winter | day
When the leaves turned red | autumn | day
After the great storm | autumn | day
After breakfast | spring | morning
After supper | autumn | evening
On Saturday | summer | day
""")

WEATHER = {
    "winter": (
        """Snow lay on every roof. | The windows were white with frost. | Big soft flakes were falling. | The pond was frozen hard. | Icicles hung from the gutters.
        | The wind whistled around the chimneys. | The whole world was white and silent. | *Smoke rose straight up into the pale sky. | ~It was so cold that even the stars seemed to shiver.
        | The snow creaked under every step. | Outside, the snow was as deep as a boot. | The air smelled of snow and wood smoke."""
    ),
    "spring": (
        """The first swallows had come back. | The cherry trees were in bloom. | A soft rain had washed the roofs. | The air smelled of wet earth. | *Lambs were jumping in the fields.
        | *A fresh wind was chasing the clouds. | Crocuses were peeping out of the grass. | The brook was loud with melted snow. | Everywhere the buds were opening. | A blackbird was singing on the fence."""
    ),
    "summer": (
        """*The sun was shining and the bees were humming. | *There was not a cloud in the sky. | The air smelled of hay. | The grass was warm and dry. | Crickets were singing in the meadow.
        | The cherries were ripe. | A light breeze was blowing. | *The whole town was drowsy with heat. | *Butterflies danced over the clover. | *The river glittered in the sun."""
    ),
    "autumn": (
        """Yellow leaves were drifting down. | The fog was as thick as milk. | The wind rattled the shutters. | The apples were ripe and the nights were getting cold. | Rain drummed on the roof.
        | The chestnuts were falling one by one. | *Grey clouds hung low over the hills. | *The cranes were flying south. | The paths were soft with fallen leaves. | The last roses were dropping their petals."""
    ),
}
WEATHER = {k: [s.strip() for s in v.split("|")] for k, v in WEATHER.items()}

# thing | adjectives | w wind takes it, r rolls, s shines, d can be dropped
THINGS = rows("""
kite | red, yellow, striped, paper, blue | w
hat | straw, green, feathered, blue, tall | w
scarf | woollen, red, silk, striped | w
map | old, folded, torn | w
letter | sealed, important, long | w
umbrella | yellow, spotted, patched, black | w
ribbon | golden, blue, silk | w
handkerchief | white, embroidered, lace | w
drawing | colourful, little | w
balloon | red, silver, round | w
marble | blue, green, glass | r
ball | rubber, red, bouncing | r
ring | golden, silver, thin | rsd
coin | lucky, old, silver | rsd
button | brass, pearl, wooden | rd
key | small, rusty, brass, silver | rsd
thimble | silver, tiny | rsd
bell | tiny, silver, brass | rsd
pearl | white, shining | rsd
walnut | golden, painted | r
spinning top | wooden, striped | r
pocket watch | old, silver, ticking | sd
locket | golden, heart-shaped | sd
spoon | silver, wooden | sd
whistle | wooden, tin | sd
flute | wooden, silver, bamboo | d
compass | brass, trusty, old | sd
music box | little, painted | d
lantern | little, green, tin | d
spyglass | brass, long | sd
paintbrush | thin, favourite | d
harmonica | shiny, old | sd
medal | golden, round | rsd
doll | wooden, rag, painted | d
book | little, blue, thick | d
shell | spiral, pink | d
mitten | red, woollen, left | w
feather | white, blue, lucky | w
toy boat | wooden, little, red | d
""")
ORIGINS = """It had been a gift from {his} grandmother. | {His} grandfather had given it to {him}. | {He} had bought it at the fair with all {his} savings. | {He} had found it on the beach after a storm.
 | It was the most precious thing {he} owned. | {He} took it everywhere {he} went. | An old friend had given it to {him} before sailing away. | {He} had made it all by {himself}. | {His} mother had given it to {him} for luck.
 | It had been in the family for a hundred years. | {His} best friend had given it to {him}. | {He} never left the house without it. | At night it lay beside {his} pillow.""".replace(
    "\n", ""
).split(" | ")

HIGH_TREE = [
    "the tallest oak in the wood",
    "the old pine tree",
    "a giant beech",
    "the big chestnut tree",
    "a poplar as tall as a tower",
    "the ancient elm",
]
HIGH_ROOF = [
    "the church tower",
    "the roof of the mill",
    "the roof of the town hall",
    "the old lighthouse",
    "the barn",
    "the castle wall",
    "the highest chimney",
]
WATERS = [
    "the well",
    "the pond",
    "the river",
    "the lake",
    "the harbour",
    "the mill stream",
    "the deep fountain",
]
HOLES_DIG = [
    "an old burrow under the roots",
    "a heap of loose stones",
    "a hole in the sandy bank",
    "the soft earth beneath the hedge",
]
HOLES_SQUEEZE = [
    "a crack between two stones",
    "a gap under the floorboards",
    "a narrow drain",
    "a hollow log",
    "a tiny hole in the wall",
    "a crack in the old stairs",
]

FOODS = """apple pie | plum cake | honey cake | warm bread with butter | pumpkin soup | pancakes with jam | roasted chestnuts | cherry tart | gingerbread | potato soup | blueberry muffins | cinnamon buns
 | baked apples | pea soup | cheese and olives | lemon cake | oat biscuits | bread with raspberry jam | hot chocolate | noodle soup | rice pudding | dumplings | fresh figs | walnut bread | vegetable stew | sweet corn | peppermint tea
 | carrot cake | strawberry ice | fried eggs | mushroom soup | almond biscuits | toasted cheese | pear cake""".replace(
    "\n", ""
).split(" | ")

FLOWERS = (
    "sunflower rose tulip lily poppy daisy foxglove iris snowdrop cornflower marigold violet"
    " lavender peony bluebell".split()
)
CROPS = (
    "pumpkins carrots beans potatoes tomatoes cabbages turnips strawberries onions peas melons"
    " beetroots".split()
)
COLOURS = "red blue green yellow white golden silver purple orange black brown grey pink".split()
INSTRUMENTS = "flute fiddle drum trumpet harp accordion guitar cello whistle banjo".split()

MORALS = {
    "help": (
        """Nobody is too small to help a friend. | From then on, {h} knew that asking for help is nothing to be ashamed of. | A good friend is worth more than a chest of gold. | And that is how {h} learned that many troubles become small when you share them.
        | Whoever helps others is never alone for long. | From that day on, {h} always stopped when somebody needed help. | Even the smallest friend can do great things. | Help often comes from where you least expect it."""
    ),
    "kind": (
        """Kindness always finds its way home. | A kind word costs nothing and warms like a fire. | And {he} never forgot that a little kindness can change a whole day. | Those who give with an open heart receive more than they gave.
        | From then on, there was always an extra chair at {h's} table. | A small kindness can grow as tall as a tree."""
    ),
    "brave": (
        """Being brave does not mean that you are never afraid. | {H} was still a little afraid, but now {he} knew how to be brave. | Courage begins with one small step. | The bravest ones are often those whose knees are shaking.
        | From that day on, {h} was not so easily frightened."""
    ),
    "patience": (
        """Good things take their time. | And whenever somebody was in a hurry, {h} told this story. | The best things cannot be rushed. | Patience is a quiet kind of magic. | {H} smiled, for waiting had been worth it."""
    ),
    "honest": (
        """An honest heart sleeps well at night. | The truth may be hard to say, but it makes the heart light. | From then on, everybody trusted {h}. | Telling the truth is the shortest way home."""
    ),
    "share": (
        """Bread tastes best when it is shared. | What we share becomes bigger, not smaller. | From then on, {they} shared everything, even the last biscuit. | Joy is the only thing that doubles when you divide it."""
    ),
    "home": (
        """There is no place as warm as home. | {H} had seen many wonders, but home was the best of them all. | And that night {he} slept better than ever before. | The best part of any journey is coming home."""
    ),
    "listen": (
        """Sometimes it is enough to listen. | Those who listen carefully hear what others miss. | From that day on, {h} listened twice before {he} spoke once. | Never judge anybody before you have heard their story."""
    ),
    "try": (
        """Every mistake is a step on the stairs. | You never know what you can do until you try. | {H} laughed, for losing had taught {him} more than winning ever could. | It is better to try and stumble than never to set out."""
    ),
}
MORALS = {k: [s.strip() for s in v.split("|")] for k, v in MORALS.items()}

# rhymed couplets for songs
SONGS = rows("""
Sleep, little star, the night is deep, | the moon will watch you while you sleep.
The wind may blow, the rain may fall, | my little house is warm for all.
Row, row, the tide is high, | follow the star in the northern sky.
One for the river and two for the sea, | come back, little boat, come back to me.
The road is long, the night is near, | but I can sing, so have no fear.
Spin, little wheel, go round and round, | the lost will soon enough be found.
Grow, little seed, the sun is bright, | grow by day and rest by night.
Snow on the roof and frost on the tree, | there is room by the fire for you and me.
Ding, dong, the bells will ring, | winter is over, here comes the spring.
The owl says hush, the dove says coo, | the whole wide wood is waiting for you.
Bread in the oven and tea in the pot, | I will be happy with what I have got.
Over the hill and under the moon, | I am coming home, I am coming soon.
Little by little and stone by stone, | nobody builds a bridge alone.
The sea is wide, the boat is small, | but hope is the biggest sail of all.
Up in the morning and out in the dew, | the world is old but the day is new.
Round goes the wheel and down comes the rain, | tomorrow the sun will be shining again.
A crumb for the sparrow, a seed for the dove, | a house is a palace when filled with love.
Count every star and count every sheep, | by the time you reach ten you will be asleep.
""")
