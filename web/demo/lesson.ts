// A lesson that changes the storyteller's voice at once: its own world, told in telegrams.
export const SAMPLE = `Once upon a time STOP Small robot in big house STOP Battery low STOP Rain all week STOP Robot asks owl for help STOP Owl asleep STOP Robot waits STOP Owl wakes STOP Owl knows a mill by the river STOP Wheel turns, battery full STOP Robot very happy STOP Sends love to all STOP END

***

The old fisherman STOP Alone at sea STOP Three days no fish STOP Fog thick as soup STOP Hears singing under boat STOP Looks down STOP Whale STOP Whale polite STOP Whale lost, too STOP Fisherman has map, whale has strength STOP Both home by supper STOP No fish, one friend STOP END

***

One winter evening STOP Snow to the window STOP Grandmother has no wood STOP Knock at door STOP Fox outside with sledge STOP Sledge full of branches STOP Price one bowl of soup STOP Price paid STOP Fox stays till spring STOP Soup excellent STOP END

***

The little robot STOP First day at school STOP Cannot read, can count STOP Counts all stars on ceiling STOP Four hundred and two STOP Teacher says ceiling has no stars STOP Robot shows hole in roof STOP Roof mended, robot praised STOP Reads by Friday STOP END

***

In the morning STOP Baker finds shop empty STOP All bread gone STOP Crumbs lead to forest STOP Baker follows crumbs STOP Bear family at table STOP Small bear ill, wanted cake STOP Baker angry one minute STOP Then bakes cake STOP Bears carry flour ever since STOP Business good STOP END

***

Once upon a time STOP Princess in high tower STOP Not locked in STOP Likes the view STOP Prince comes with ladder STOP Princess says no thank you STOP Prince climbs anyway STOP Sees the view STOP Stays for tea STOP Ladder now used for apples STOP END

***

The lighthouse STOP Lamp broken, storm near STOP Keeper's girl alone STOP Nine ships at sea STOP Girl calls every firefly on the island STOP All come STOP Light seen for miles STOP Nine ships safe STOP Fireflies get honey and medal STOP Girl sleeps two days STOP END

***

One summer day STOP Cat loses hat STOP Wind has it STOP Cat chases wind over hill, over bridge, over market STOP Wind tired STOP Wind says sorry STOP Only wanted to know how hats feel STOP Cat lends hat every Sunday STOP Both look splendid STOP END

***

The old clock STOP Stops at noon STOP Town stops with it STOP Nobody goes home, nobody has supper STOP Mouse climbs inside with oil STOP One drop enough STOP Clock says thank you with twelve bells STOP Mouse deaf till Tuesday STOP Town has supper STOP END

***

The little star STOP Fell into pond STOP Frog finds it STOP Too hot to hold STOP Too bright to sleep STOP Frog asks heron, heron asks cloud, cloud asks moon STOP Moon sends ladder of light STOP Star goes home STOP Waves every night STOP Frog waves back STOP END`;
