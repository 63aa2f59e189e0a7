"""Letter-to-sound rules of English: those of the Naval Research Laboratory (Elovitz and others,
Report 7948, 1976), which are in the public domain, with phonemes in IPA.
"""

from __future__ import annotations

from collections.abc import Sequence

VOWELS = "aeiouy"
CONSONANTS = "bcdfghjklmnpqrstvwxz"
KINDS: dict[str, str] = {
    "^": CONSONANTS,
    ".": "bdvgjlmnrwz",
    "+": "eiy",
    "&": "scgzxj",
    "@": "tsrdlznj",
}
SUFFIXES = ("er", "ely", "es", "ed", "e", "ing")

RULES: dict[str, str] = {
    "a": " [a] =ə| [are] =ɑːɹ| [ar]o=əɹ|[ar]#=ɛɹ|^[as]#=eɪs|[a]wa=ə|[aw]=ɔː| :[any]=ɛniː|"
    "[a]^+#=eɪ|#:[ally]=əliː| [al]#=əl|[again]=əɡɛn|#:[ag]e=ɪdʒ|[a]^+:#=æ| :[a]^+ =eɪ|"
    "[a]^%=eɪ| [arr]=əɹ|[arr]=æɹ| :[ar] =ɑːɹ|[ar] =ɚ|[ar]=ɑːɹ|[air]=ɛɹ|[ai]=eɪ|"
    "[ay]=eɪ|[au]=ɔː|#:[al] =əl|#:[als] =əlz|[alk]=ɔːk|[al]^=ɔːl| :[able]=eɪbəl|"
    "[able]=əbəl|[ang]+=eɪndʒ|[a] =ə|[a]=æ",
    "b": " [be]^#=bɪ|[being]=biːɪŋ| [both] =boʊθ| [bus]#=bɪz|[buil]=bɪl|b[b]=|[b]=b",
    "c": " [ch]^=k|^e[ch]=k|[ch]=tʃ| s[ci]#=saɪ|[ci]a=ʃ|[ci]o=ʃ|[ci]en=ʃ|[cc]+=ks|c[c]=|"
    "[c]+=s|[ck]=k|[com]%=kʌm|[c]=k",
    "d": "#:[ded] =dɪd|.e[d] =d|#:^e[d] =t| [de]^#=dɪ| [do] =duː| [does]=dʌz|"
    " [doing]=duːɪŋ| [dow]=daʊ|[du]a=dʒuː|[dg]e=dʒ|d[d]=|[d]=d",
    "e": "#:[e] =|':^[e] =| :[e] =iː|#[ed] =d|#:[e]d =|[ev]er=ɛv|[e]^%=iː|[eri]#=iːɹiː|"
    "[eri]=ɛɹɪ|#:[er]#=ɚ|[er]#=ɛɹ|[er]=ɚ| [even]=iːvɛn|#:[e]w=|@[ew]=uː|[ew]=juː|"
    "[e]o=iː|#:&[es] =ɪz|#:[e]s =|#:[ely] =liː|#:[ement]=mɛnt|[eful]=fʊl|[ee]=iː|"
    "[earn]=ɚn| [ear]^=ɚ|[ead]=ɛd|#:[ea] =iːə|[ea]su=ɛ|[ea]=iː|[eigh]=eɪ|[ei]=iː|"
    " [eye]=aɪ|[ey]=iː|[eu]=juː|#:[el] =əl|#:[en] =ən|#:[ent] =ənt|#:[ence] =əns|"
    "[e]=ɛ",
    "f": "[ful]=fʊl|f[f]=|[f]=f",
    "g": "[giv]=ɡɪv| [g]i^=ɡ|[ge]t=ɡɛ|su[gges]=ɡdʒɛs|[gg]=ɡ| b#[g]=ɡ|d[g]e=|[g]+=dʒ|"
    "[great]=ɡɹeɪt| [gh]=ɡ|#[gh]=| [gn]=n|[g]=ɡ",
    "h": " [hav]=hæv| [here]=hiːɹ| [hour]=aʊɚ|[how]=haʊ|[h]#=h|[h]=",
    "i": " [in]=ɪn| [i] =aɪ|[in]d=aɪn|[ier]=iːɚ|#:r[ied]=iːd|[ied] =aɪd|[ien]=iːɛn|"
    "[ie]t=aɪɛ| :[i]%=aɪ|[i]%=iː|[ie]=iː|[i]^+:#=ɪ|[ir]#=aɪɹ|[iz]%=aɪz|[is]%=aɪz|"
    "[i]d%=aɪ|+^[i]^+=ɪ|[i]t%=aɪ|#:^[i]^+=ɪ|[i]^+=aɪ|[ir]=ɚ|[igh]=aɪ|[ild]=aɪld|"
    "[ign] =aɪn|[ign]^=aɪn|[ign]%=aɪn|[ique]=iːk|[i]=ɪ",
    "j": "[j]=dʒ",
    "k": " [k]n=|k[k]=|c[k]=|[k]=k",
    "l": "[lo]c#=loʊ|l[l]=|#:^[l]%=əl|[lead]=liːd|[l]=l",
    "m": "[mov]=muːv|m[m]=|[mb] =m|[m]=m",
    "n": "e[ng]+=ndʒ|[ng]r=ŋɡ|[ng]#=ŋɡ|[ngl]%=ŋɡəl|[ng]=ŋ|[nk]=ŋk| [now] =naʊ|n[n]=|[n]=n",
    "o": "[of] =əv|[orough]=ɚoʊ|#:[or] =ɚ|#:[ors] =ɚz|[or]=ɔːɹ| [one]=wʌn|[ow]=oʊ|"
    " [over]=oʊvɚ|[ov]=ʌv|[o]^%=oʊ|[o]^en=oʊ|[o]^i#=oʊ|[ol]d=oʊl|[ought]=ɔːt|"
    "[ough]=ʌf| [ou]=aʊ|h[ou]s#=aʊ|[ous]=əs|[our]=ɔːɹ|[ould]=ʊd|^[ou]^l=ʌ|[oup]=uːp|"
    "[ou]=aʊ|[oy]=ɔɪ|[oing]=oʊɪŋ|[oi]=ɔɪ|[oor]=ɔːɹ|[ook]=ʊk|[ood]=ʊd|[oo]=uː|[o]e=oʊ|"
    "[o] =oʊ|[oa]=oʊ| [only]=oʊnliː| [once]=wʌns|[on't]=oʊnt|c[o]n=ɑː|[o]ng=ɔː|"
    " :^[o]n=ʌ|i[on]=ən|#:[on] =ən|#^[on]=ən|[o]st =oʊ|[of]^=ɔːf|[other]=ʌðɚ|"
    "[oss] =ɔːs|#:^[om]=ʌm|[o]=ɑː",
    "p": "[ph]=f|[peop]=piːp|[pow]=paʊ|[put] =pʊt| [ps]=s|p[p]=|[p]=p",
    "q": "[quar]=kwɔːɹ|[qu]=kw|[q]=k",
    "r": " [re]^#=ɹiː|r[r]=|[r]=ɹ",
    "s": "[sh]=ʃ|#[sion]=ʒən|[some]=sʌm|#[sur]#=ʒɚ|[sur]#=ʃɚ|#[su]#=ʒuː|#[ssu]#=ʃuː|"
    "#[sed] =zd|#[s]#=z|[said]=sɛd|^[sion]=ʃən|[s]s=|.[s] =z|#:.e[s] =z|#:^##[s] =z|"
    "#:^#[s] =s|u[s] =s| :#[s] =z| [sch]=sk|[s]c+=|#[sm]=zm|#[sn]'=zən|[s]=s",
    "t": " [the] =ðə|[to] =tuː|[that] =ðæt| [this] =ðɪs| [they]=ðeɪ| [there]=ðɛɹ|[ther]=ðɚ|"
    "[their]=ðɛɹ| [than] =ðæn| [them] =ðɛm| [these] =ðiːz| [then]=ðɛn|[through]=θɹuː|"
    "[those]=ðoʊz|[though] =ðoʊ| [thus]=ðʌs|[th]=θ|#:[ted] =tɪd|s[ti]#n=tʃ|[ti]o=ʃ|"
    "[ti]a=ʃ|[tien]=ʃən|[tur]#=tʃɚ|[tu]a=tʃuː| [two]=tuː|[t]ch=|t[t]=|[t]=t",
    "u": " [un]i=juːn| [un]=ʌn| [upon]=əpɔːn|@[ur]#=ʊɹ|[ur]#=jʊɹ|[ur]=ɚ|[u]^ =ʌ|[u]^^=ʌ|"
    "[uy]=aɪ| g[u]#=|g[u]%=|g[u]#=w|#n[u]=juː|@[u]=uː|[u]=juː",
    "v": "[view]=vjuː|[v]=v",
    "w": " [were]=wɚ|[wa]s=wɑː|[wa]t=wɑː|[where]=wɛɹ|[what]=wɑːt|[whol]=hoʊl|[who]=huː|"
    "[wh]=w|[war]=wɔːɹ|[wor]^=wɚ|[wr]=ɹ|[w]=w",
    "x": " [x]=z|[x]=ks",
    "y": "[young]=jʌŋ| [you]=juː| [yes]=jɛs| [y]=j|#:^[y] =iː|#:^[y]i=iː| :[y] =aɪ|"
    " :[y]#=aɪ| :[y]^+:#=ɪ| :[y]^#=aɪ|[y]=ɪ",
    "z": "z[z]=|[z]=z",
}
"""{first letter: rules}, of which the first one that fits holds: LEFT[LETTERS]RIGHT=IPA.

Around the letters: `#` is a vowel or more, `:` any number of consonants, `^` one consonant, `.` a
voiced one, `+` e, i or y, `&` a sibilant, `@` a consonant after which u is long, `%` a suffix, a
space an end of the word.
"""


def spelled(word: str) -> str:
    """The phonemes of a word by its letters, without stress.

    Args:
        word: letters a to z and apostrophes.
    """
    letters = [" ", *list(word), " "]
    made = ""
    at = 1
    while at < len(letters) - 1:
        count, phonemes = _rule(letters, at)
        made += phonemes
        at += count
    return made


def _rule(letters: Sequence[str], at: int) -> tuple[int, str]:
    """(number of letters, their phonemes) by the first rule that fits at a place."""
    rules = RULES.get(letters[at])
    for rule in [] if rules is None else rules.split("|"):
        left, rest = rule.split("[")
        middle, after = rest.split("]")
        right, phonemes = after.split("=")
        end = at + len(middle)
        before = list(letters[:at])
        before.reverse()
        marks = list(left)
        marks.reverse()
        fits = "".join(letters[at:end]) == middle and _fits(before, marks)
        if fits and _fits(letters[end:], list(right)):
            return len(middle), phonemes
    return 1, ""  # an apostrophe


def _fits(letters: Sequence[str], marks: Sequence[str]) -> bool:
    """Whether letters, from a place to the left or to the right, are as marks say."""
    at = 0
    for mark in marks:
        count = _matched(letters[at:], mark)
        if count < 0:
            return False
        at += count
    return True


def _matched(letters: Sequence[str], mark: str) -> int:
    """How many letters a mark stands for; -1: it does not fit."""
    first = letters[0] if letters else " "
    if mark == "#" or mark == ":":
        kind = VOWELS if mark == "#" else CONSONANTS
        count = 0
        while count < len(letters) and letters[count] in kind:
            count += 1
        return count if count or mark == ":" else -1
    if mark in ("&", "@") and first == "h":  # to the left: ch, sh, th
        pair = "cs" if mark == "&" else "cst"
        return 2 if len(letters) > 1 and letters[1] in pair else -1
    if mark == "%":
        for suffix in SUFFIXES:
            if "".join(letters[: len(suffix)]) == suffix:
                return len(suffix)
        return -1
    kind = KINDS[mark] if mark in KINDS else mark
    return 1 if first in kind else -1
