"""Sentences, and the phonemes that espeak-ng (en-us) makes of them."""

SPOKEN = {
    "He put the letter on the kitchen table.": ("hiː pˌʊt ðə lˈɛɾɚɹ ɔnðə kˈɪtʃən tˈeɪbəl."),
    "The quick brown fox jumps over the lazy dog.": (
        "ðə kwˈɪk bɹˈaʊn fˈɑːks dʒˈʌmps ˌoʊvɚ ðə lˈeɪzi dˈɑːɡ."
    ),
    "The old bridge was closed for repairs last summer.": (
        "ðɪʲ ˈoʊld bɹˈɪdʒ wʌz klˈoʊzd fɔːɹ ɹᵻpˈɛɹz lˈæst sˈʌmɚ."
    ),
    "She bought three apples and a loaf of bread.": (
        "ʃiː bˈɔːt θɹˈiːʲ ˈæpəlz ænd ɐ lˈoʊf ʌv bɹˈɛd."
    ),
    "How long does it take to walk to the station?": (
        "hˌaʊ lˈɔŋ dˈʌz ɪt tˈeɪk tə wˈɔːk tə ðə stˈeɪʃən?"
    ),
    "Our neighbors planted a row of tall trees.": ("ˌaʊɚ nˈeɪbɚz plˈæntᵻd ɐ ɹˈoʊ ʌv tˈɔːl tɹˈiːz."),
    "The children were playing in the garden all day.": (
        "ðə tʃˈɪldɹən wɜː plˈeɪɪŋ ɪnðə ɡˈɑːɹdən ˈɔːl dˈeɪ."
    ),
    "I would like a cup of tea with milk.": ("aɪ wʊd lˈaɪk ɐ kˈʌp ʌv tˈiː wɪð mˈɪlk."),
    "Nobody knew why the window was open.": ("nˈoʊbɑːdi nˈuː wˌaɪ ðə wˈɪndoʊ wʌz ˈoʊpən."),
    "My brother works at the hospital every weekend.": (
        "maɪ bɹˈʌðɚ wˈɜːks æt ðə hˈɑːspɪɾəl ˈɛvɹi wˈiːkɛnd."
    ),
}
