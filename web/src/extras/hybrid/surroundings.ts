// What a policy knows of the machine.

import type { Signals } from "./policy.ts";

type Machine = Pick<
  Signals,
  "online" | "effectiveType" | "downlink" | "rtt" | "saveData" | "battery"
>;

interface Browser {
  onLine?: boolean;
  connection?: { effectiveType?: string; downlink?: number; rtt?: number; saveData?: boolean };
  getBattery?: () => Promise<{ level: number; charging: boolean }>;
}

/** The signals of the browser. What it does not tell is undefined. */
export async function machine(): Promise<Machine> {
  const browser = (globalThis.navigator ?? {}) as Browser;
  const { effectiveType, downlink, rtt, saveData = false } = browser.connection ?? {};
  // a page may not be permitted to ask
  const battery = await browser.getBattery?.call(browser).catch(() => undefined);
  return {
    online: browser.onLine !== false,
    effectiveType,
    downlink,
    rtt,
    saveData,
    battery: battery && { level: battery.level, charging: battery.charging },
  };
}
