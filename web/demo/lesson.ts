// A sample text that changes the storyteller's voice quickly: its own world, told in telegrams. In
// lower case, so that most words are a single token that the model knows.
export const SAMPLE = `Once upon a time stop small robot in big house stop battery low stop rain all week stop robot asks owl for help stop owl asleep stop robot waits stop owl wakes stop owl knows a mill by the river stop wheel turns, battery full stop robot very happy stop sends love to all stop end

***

The old fisherman stop alone at sea stop three days no fish stop fog thick as soup stop hears singing under boat stop looks down stop whale stop whale polite stop whale lost, too stop fisherman has map, whale has strength stop both home by supper stop no fish, one friend stop end

***

One winter evening stop snow to the window stop grandmother has no wood stop knock at door stop fox outside with sledge stop sledge full of branches stop price one bowl of soup stop price paid stop fox stays till spring stop soup excellent stop end

***

The little robot stop first day at school stop cannot read, can count stop counts all stars on ceiling stop four hundred and two stop teacher says ceiling has no stars stop robot shows hole in roof stop roof mended, robot praised stop reads by friday stop end

***

In the morning stop baker finds shop empty stop all bread gone stop crumbs lead to forest stop baker follows crumbs stop bear family at table stop small bear ill, wanted cake stop baker angry one minute stop then bakes cake stop bears carry flour ever since stop business good stop end

***

Once upon a time stop princess in high tower stop not locked in stop likes the view stop prince comes with ladder stop princess says no thank you stop prince climbs anyway stop sees the view stop stays for tea stop ladder now used for apples stop end

***

The lighthouse stop lamp broken, storm near stop keeper's girl alone stop nine ships at sea stop girl calls every firefly on the island stop all come stop light seen for miles stop nine ships safe stop fireflies get honey and medal stop girl sleeps two days stop end

***

One summer day stop cat loses hat stop wind has it stop cat chases wind over hill, over bridge, over market stop wind tired stop wind says sorry stop only wanted to know how hats feel stop cat lends hat every sunday stop both look splendid stop end

***

The old clock stop stops at noon stop town stops with it stop nobody goes home, nobody has supper stop mouse climbs inside with oil stop one drop enough stop clock says thank you with twelve bells stop mouse deaf till tuesday stop town has supper stop end

***

The little star stop fell into pond stop frog finds it stop too hot to hold stop too bright to sleep stop frog asks heron, heron asks cloud, cloud asks moon stop moon sends ladder of light stop star goes home stop waves every night stop frog waves back stop end`;
