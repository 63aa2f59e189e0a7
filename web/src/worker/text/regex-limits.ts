// Decides which regular expressions of a tokenizer.json are safe for a backtracking matcher. Equal
// to python/edgewise/logic/text/regex_limits.py, which has the reasons; shared test vectors:
// tests/conformance/tokenizers.json.

/** Count of a repetition without an upper bound. */
const MANY = 2 ** 30;
/**
 * Repetitions with a larger count are treated as unbounded. Also the maximum length of a text that
 * a back reference may match.
 */
const BOUNDED = 64;

/** The problem with a pattern; the message completes a sentence that begins with the pattern. */
export class RegexError extends Error {}

/**
 * An item of a sequence: a set (one character), an anchor, a group, a look-ahead or a look-behind,
 * with its repetition count.
 */
interface Item {
  kind: "set" | "zero" | "group" | "look" | "behind";
  text: string;
  branches: Item[][];
  low: number;
  high: number;
  /** A negated set, which may share characters with another set. */
  wide: boolean;
}

const item = (kind: Item["kind"], text = "", wide = false): Item => ({
  kind,
  text,
  branches: [],
  low: 1,
  high: 1,
  wide,
});

/**
 * Checks a pattern. Malformed patterns pass, since the tokenizer library reports them.
 * @returns minimum number of characters of a match
 * @throws RegexError if the pattern is unsafe or exceeds a limit
 */
export function checkRegex(
  pattern: string,
  mostChars: number,
  mostDepth: number,
  mostStates: number,
): number {
  const characters = Array.from(pattern);
  if (characters.length > mostChars) throw new RegexError(`has ${characters.length} characters`);
  const parser = new Parser(characters, mostDepth);
  const branches = parser.parse();
  for (const number of parser.references) {
    const group = parser.groups[number - 1];
    if (!group || longest(group.branches) > BOUNDED)
      throw new RegexError("has a back reference to a group of any length");
  }
  if (states(branches) > mostStates)
    throw new RegexError("is too large with its repetitions written out");
  check(branches, []);
  return width(branches);
}

/**
 * Whether a backtracking matcher may need exponential time for a pattern that `checkRegex` accepts:
 * a repeated group matches in more than one way, or many items in a row do. Oniguruma, which Python
 * uses, gives up such a match; the matchers of some browsers never do.
 */
export function mayNotEnd(pattern: string, mostDepth: number): boolean {
  return ambiguous(new Parser(Array.from(pattern), mostDepth).parse());
}

/** Items in a row that may each match in several ways without taking long together. */
const FEW = 10;

function ambiguous(branches: Item[][]): boolean {
  const varies = (items: Item[][]): boolean =>
    items.length > 1 ||
    items[0]!.some((i) => i.low !== i.high || (i.branches.length > 0 && varies(i.branches)));
  return branches.some(
    (branch) =>
      branch.filter((i) => i.low !== i.high).length > FEW ||
      branch.some(
        (i) =>
          i.branches.length > 0 && ((i.high > 1 && varies(i.branches)) || ambiguous(i.branches)),
      ),
  );
}

class Parser {
  /** Capturing groups by number. */
  readonly groups: Item[] = [];
  readonly references: number[] = [];
  private i = 0;

  constructor(
    private readonly p: string[],
    private readonly mostDepth: number,
  ) {}

  /** Parses branches up to ")" or the end. */
  parse(depth = 0): Item[][] {
    if (depth > this.mostDepth)
      throw new RegexError(`has groups nested more than ${this.mostDepth} deep`);
    const branches: Item[][] = [[]];
    while (this.i < this.p.length) {
      const s = this.p[this.i]!;
      if (s === ")") break;
      if (s === "|") {
        this.i++;
        branches.push([]);
        continue;
      }
      const found = this.atom(s, depth);
      if (!found) continue;
      this.quantifiers(found);
      branches[branches.length - 1]!.push(found);
    }
    return branches;
  }

  private at(i: number): string {
    return this.p[i] ?? "";
  }

  private is(i: number, among: string): boolean {
    const s = this.at(i);
    return s !== "" && among.includes(s);
  }

  private find(s: string, from: number): number {
    return this.p.indexOf(s, from);
  }

  private text(from: number): string {
    return this.p.slice(from, this.i).join("");
  }

  private atom(s: string, depth: number): Item | undefined {
    const start = this.i;
    if (s === "(") return this.group(depth);
    if (s === "[") {
      this.skipClass();
      return item("set", this.text(start), this.at(start + 1) === "^");
    }
    if (s === "\\") return this.escape();
    this.i++;
    return s === "^" || s === "$" ? item("zero", s) : item("set", s, s === ".");
  }

  private escape(): Item {
    const start = this.i;
    const s = this.at(start + 1);
    this.i += 2;
    if (s && "kg".includes(s) && this.is(this.i, "<'{"))
      throw new RegexError("has a named back reference or calls a group");
    if (s && "123456789".includes(s)) {
      while (this.is(this.i, "0123456789") && this.i - start < 4) this.i++;
      this.references.push(Number(this.text(start + 1)));
      return item("set", this.text(start));
    }
    if (s && "pPxuo".includes(s) && this.at(this.i) === "{") {
      const end = this.find("}", this.i);
      this.i = end < 0 ? this.p.length : end + 1;
    } else if (s === "x" || s === "u") {
      for (let n = s === "x" ? 2 : 4; n && this.is(this.i, "0123456789abcdefABCDEF"); n--) this.i++;
    }
    if (s && "bBAzZGK".includes(s)) return item("zero", s);
    return item("set", this.text(start), s !== "" && "SWDPHXRON".includes(s));
  }

  /** Skips a character class, including nested classes and "[:name:]". */
  private skipClass(): void {
    let [depth, first] = [0, false];
    while (this.i < this.p.length) {
      const s = this.p[this.i++]!;
      if (s === "\\") {
        this.i++;
        first = false;
      } else if (s === "[") {
        if (++depth > this.mostDepth)
          throw new RegexError(`has classes nested more than ${this.mostDepth} deep`);
        if (this.at(this.i) === "^") this.i++;
        first = true;
      } else if (s === "]" && !first) {
        if (!--depth) return;
      } else first = false;
    }
  }

  private group(depth: number): Item | undefined {
    this.i++;
    let [kind, captures]: [Item["kind"], boolean] = ["group", true];
    if (this.at(this.i) === "?") {
      const [one, two] = [this.at(this.i + 1), this.at(this.i + 2)];
      const behind = one === "<" && (two === "=" || two === "!");
      captures = ["<", "P", "'"].includes(one) && !behind;
      if (one === "=" || one === "!") [kind, this.i] = ["look", this.i + 2];
      else if (behind) [kind, this.i] = ["behind", this.i + 3];
      else if (one === ":" || one === ">") this.i += 2;
      else if (captures) {
        const end = this.find(one === "'" ? "'" : ">", this.i + 2);
        if (end < 0 || (one === "P" && two !== "<"))
          throw new RegexError("has a named back reference or calls a group");
        this.i = end + 1;
      } else if (one === "#") {
        const end = this.find(")", this.i);
        this.i = end < 0 ? this.p.length : end + 1;
        return undefined;
      } else {
        let at = this.i + 1; // options of a group, or of the rest of the enclosing one
        while (this.is(at, "imsxaDSWPy-{}gw")) at++;
        if (this.at(at) === ")") {
          this.i = at + 1;
          return undefined;
        }
        if (this.at(at) !== ":") throw new RegexError("has a group that is not supported");
        this.i = at + 1;
      }
    }
    const found = item(kind, "(");
    if (captures) this.groups.push(found);
    found.branches = this.parse(depth + 1);
    if (this.at(this.i) === ")") this.i++;
    return found;
  }

  /**
   * Parses the quantifiers of an item: "*", "+", "?", "{low,high}", each optionally followed by "?"
   * or "+". Several quantifiers multiply.
   */
  private quantifiers(found: Item): void {
    while (this.i < this.p.length) {
      const s = this.p[this.i]!;
      let [low, high, n] = [0, 0, 1];
      if ("*+?".includes(s)) [low, high] = [s === "+" ? 1 : 0, s === "?" ? 1 : MANY];
      else {
        const braces = s === "{" ? this.braces() : undefined;
        if (!braces) return;
        [low, high, n] = braces;
      }
      this.i += n;
      if (this.is(this.i, "?+")) this.i++;
      // a repetition of a repetition
      if (found.high > 1 && high > 1)
        Object.assign(found, { kind: "group", branches: [[{ ...found }]], low: 1, high: 1 });
      found.low = Math.min(MANY, found.low * low);
      found.high = Math.min(MANY, found.high * high);
    }
  }

  /** Parses "{low}", "{low,}", "{,high}" or "{low,high}": [low, high, length]. */
  private braces(): [number, number, number] | undefined {
    const found = /^\{(\d*)(,?)(\d*)\}/.exec(this.p.slice(this.i, this.i + 24).join(""));
    const [all, low, comma, high] = found ?? ["", "", "", ""];
    const digits = low! + high!;
    if (!found || !digits || digits.length > 18) return undefined;
    return [Number(low), !comma ? Number(low) : high ? Number(high) : MANY, all.length];
  }
}

function states(branches: Item[][]): number {
  return branches
    .flat()
    .reduce(
      (sum, x) =>
        sum +
        Math.min(
          MANY,
          (x.high < MANY ? x.high : Math.max(1, x.low)) *
            Math.max(1, x.branches.length ? states(x.branches) : 1),
        ),
      0,
    );
}

function width(branches: Item[][]): number {
  return Math.min(
    ...branches.map((branch) =>
      Math.min(
        MANY,
        branch.reduce(
          (sum, x) =>
            sum + x.low * (x.kind === "set" ? 1 : x.kind === "group" ? width(x.branches) : 0),
          0,
        ),
      ),
    ),
  );
}

function longest(branches: Item[][]): number {
  return Math.max(
    ...branches.map((branch) =>
      Math.min(
        MANY,
        branch.reduce(
          (sum, x) =>
            sum + x.high * (x.kind === "set" ? 1 : x.kind === "group" ? longest(x.branches) : 0),
          0,
        ),
      ),
    ),
  );
}

function repeats(branches: Item[][]): boolean {
  return branches.some((branch) => branch.some((x) => x.high > BOUNDED || repeats(x.branches)));
}

/**
 * Detects nested or adjacent repetitions whose costs multiply.
 * @param before unbounded repetitions that a match has just left and that may share characters with
 *   what follows
 * @returns those after the branches
 */
function check(branches: Item[][], before: readonly Item[]): Item[] {
  const after: Item[] = [];
  for (const branch of branches) {
    let open = [...before];
    for (const x of branch) {
      if (x.kind === "behind" && repeats(x.branches))
        throw new RegexError("has a repetition inside a look-behind");
      const unbounded = x.high > BOUNDED;
      const needs = x.low > 0 && x.kind !== "zero" && (x.kind !== "group" || width(x.branches) > 0);
      if (needs && open.length > 2)
        throw new RegexError(
          "has three repetitions that can share characters before something that must follow",
        );
      if (x.kind === "look" || x.kind === "behind") check(x.branches, []);
      else if (x.kind === "group") {
        open = check(x.branches, x.low === 1 && x.high === 1 ? open : []);
        if (unbounded) open.push(x);
      } else if (x.kind === "set" && unbounded)
        open = [...open.filter((o) => o.wide || x.wide || o.text === x.text), x];
      else if (needs) open = []; // a required item that follows a repetition ends it
    }
    for (const o of open) if (!after.includes(o)) after.push(o);
  }
  return after;
}
