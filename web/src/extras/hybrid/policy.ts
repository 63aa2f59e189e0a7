// Where a call is computed: a pure function of signals.

import { InputError } from "../../shared/errors.ts";
import type { DeviceState } from "./device.ts";
import { type SideRates, SPREADS, units } from "./rates.ts";
import type { Where } from "./side.ts";

/** What a policy knows of a call and of the machine. */
export interface Signals {
  /** Whether the call must stay here. */
  readonly private: boolean;
  /** Whether the browser believes to be connected. */
  readonly online: boolean;
  /** `slow-2g` to `4g`, where the browser tells. */
  readonly effectiveType?: string | undefined;
  /** Mbit/s, where the browser tells. */
  readonly downlink?: number | undefined;
  /** Milliseconds of a round trip, where the browser tells. */
  readonly rtt?: number | undefined;
  /** Whether the user saves data. */
  readonly saveData: boolean;
  /** Where the browser tells. */
  readonly battery?: { readonly level: number; readonly charging: boolean } | undefined;
  /** Whether there is a device side, and whether its model is here. */
  readonly device:
    | {
        readonly state: DeviceState;
        /** Bytes of the model that are still to be downloaded; undefined: not known. */
        readonly missing?: number | undefined;
        readonly rates: SideRates;
      }
    | undefined;
  /** Whether there is a cloud side that can do the call. */
  readonly cloud: { readonly rates: SideRates } | undefined;
  /** Whether the model is split, and the first part runs here. */
  readonly split: boolean;
  /** Options of the call that only the device has. */
  readonly deviceOnly: readonly string[];
  /** Tokens of the prompt, estimated as a quarter of its characters. */
  readonly prompt: number;
  /** New tokens at most. */
  readonly tokens: number;
  /** Where the last call got its first token. */
  readonly last?: Where | undefined;
}

/** What a policy decides. */
export interface Decision {
  /**
   * `race`: both sides begin, and the one that has the first token goes on. `split`: the first part
   * of a model here, the rest there.
   */
  where: Where | "split" | "race";
  /** The reasons, for people. */
  why: string[];
  /** Milliseconds without a first token after which the other side begins as well. */
  patience?: number;
}

/** Decides where a call is computed. It must depend on nothing but the signals. */
export type Policy = (signals: Signals) => Decision;

/**
 * What a policy decides. It cannot change the signals: whether a call is private is not up to it.
 * @throws InputError if it decides nothing
 */
export function decided(policy: Policy, signals: Signals): Decision {
  Object.freeze(signals.deviceOnly);
  const decision: unknown = policy(Object.freeze(signals));
  if (typeof (decision as Decision | null)?.where === "string") return decision as Decision;
  throw new InputError("it decides nothing", "policy", "Return { where, why }, and no promise.");
}

/** The option `private`. @throws InputError if it is neither true nor false */
export function isPrivate(given: unknown, where: string): boolean {
  if (given === undefined || given === null || typeof given === "boolean") return given === true;
  throw new InputError(`private is ${String(given).slice(0, 40)}`, where, "Give true or false.");
}

/** Options of {@link rules}. */
export interface Rules {
  /**
   * `faster`: the side that is expected to have the first token sooner. `device`, `cloud`: this one
   * wherever it can. Default: `faster`.
   */
  prefer?: "faster" | Where;
  /** Whether both sides may begin where neither is surely faster. Default: true. */
  race?: boolean;
  /** Whether a battery below 20 % that is not charged is saved. Default: true. */
  saveBattery?: boolean;
}

const LOW = 0.2; // of the battery
const RELIABLE = 0.005; // share of failures
const HYSTERESIS = 1.2;
const SURE = 2; // spreads
const MIN_PATIENCE = 250; // milliseconds

/** The default policy, with options. The guide explains its rules in their order. */
export function rules(options: Rules = {}): Policy {
  const { prefer = "faster", race = true, saveBattery = true } = options;
  return (signals) => {
    const forced = theOnlyOne(signals);
    if (forced) return forced;
    const low = saveBattery && isLow(signals);
    if (low) return { where: "cloud", why: ["the battery is low"], patience: patienceOf(signals) };
    if (prefer !== "faster") {
      const why = [`the ${prefer} is preferred`];
      return { where: prefer, why, patience: prefer === "cloud" ? patienceOf(signals) : undefined };
    }
    return faster(signals, race);
  };
}

/** Where a call can or must be computed on one side only. */
function theOnlyOne(signals: Signals): Decision | undefined {
  const { device, cloud, deviceOnly } = signals;
  const here = (...why: string[]): Decision => ({ where: "device", why });
  if (signals.private)
    return signals.split ? here("private: the rest is not asked") : here("private");
  if (signals.split) return ofSplit(signals);
  if (!cloud) return here("there is no other side");
  if (deviceOnly.length) return here(`only the device has ${deviceOnly.join(", ")}`);
  if (!device) return { where: "cloud", why: ["there is no other side"] };
  if (!signals.online) return here("offline");
  return undefined;
}

/** Where a split model runs: whole here, or the rest there. */
function ofSplit({ device, cloud, online }: Signals): Decision {
  const split = (...why: string[]): Decision => ({ where: "split", why });
  const here = (...why: string[]): Decision => ({ where: "device", why });
  if (!device) return split("the whole model is not given");
  if (!online) return here("offline");
  if (device.state !== "ready") return split("the whole model is not here");
  const own = device.rates.first * units("device", 0);
  const { measured, first, failures } = cloud?.rates ?? device.rates;
  if (!measured) return split("it was not measured yet");
  if (!device.rates.measured) return here("the device was not measured yet");
  const text = `device ${Math.round(own)} ms, split ${Math.round(first)} ms expected`;
  return first < own && failures <= RELIABLE ? split(text) : here(text);
}

function isLow({ battery }: Signals): boolean {
  return battery !== undefined && !battery.charging && battery.level < LOW;
}

/** Expected milliseconds to the first token of the device, with loading. */
function expected({ device, downlink, prompt, effectiveType }: Signals): number {
  const { rates, missing, state } = device!;
  const here = rates.first * units("device", prompt);
  if (state === "ready") return here;
  if (missing === undefined) return Infinity;
  const mbits = downlink || (/2g/.test(effectiveType ?? "") ? 0.05 : 5);
  return here + (missing * 8) / (mbits * 1000);
}

/** How long the cloud may take; undefined: not measured. */
function patienceOf({ cloud }: Signals): number | undefined {
  const { measured, first, spread } = cloud!.rates;
  return measured ? Math.max(MIN_PATIENCE, first + SPREADS * spread) : undefined;
}

/** Rules of `prefer: "faster"`. */
function faster(signals: Signals, race: boolean): Decision {
  const { rates } = signals.cloud!;
  const { rates: own, state } = signals.device!;
  const patience = patienceOf(signals);
  const here = expected(signals);
  if (state !== "ready") {
    if (here < rates.first) return { where: "device", why: ["loading it is faster"] };
    const why = [state === "loading" ? "the model is being loaded" : "the model is not here"];
    if (state === "loading" && race) return { where: "race", why };
    return { where: "cloud", why, patience };
  }
  const unknown = !rates.measured ? "cloud" : !own.measured ? "device" : undefined;
  if (unknown) {
    const why = [`the ${unknown} was not measured yet`];
    return race ? { where: "race", why } : { where: "device", why };
  }
  const there = rates.first;
  const text = `device ${Math.round(here)} ms, cloud ${Math.round(there)} ms expected`;
  const hereLate = here + SURE * own.spread * units("device", signals.prompt);
  const thereLate = there + SURE * rates.spread;
  const device: Decision = { where: "device", why: [text] };
  if (hereLate <= there) return device;
  const trusted = rates.failures <= RELIABLE;
  if (thereLate <= here && trusted) return { where: "cloud", why: [text], patience };
  if (race)
    return {
      where: "race",
      why: [text, trusted ? "neither is surely faster" : "the cloud failed lately"],
    };
  if (!trusted) return { ...device, why: [text, "the cloud failed lately"] };
  const kept = signals.last === "cloud" ? here * HYSTERESIS : here / HYSTERESIS;
  return there < kept ? { where: "cloud", why: [text], patience } : device;
}
