// The widgets' modules as they are. Node takes a .js without package.json for CommonJS, so they are read as text and
// imported from data URLs; imports among them are followed. A module has one address, so it is loaded once.

import { readFileSync } from "node:fs";

const addressOf = (stem) => {
  const text = readFileSync(new URL(`../../../widgets/${stem}.js`, import.meta.url), "utf8");
  const linked = text.replace(/from "\.\/([\w-]+)\.js"/g, (_, module) => `from "${addressOf(module)}"`);
  return `data:text/javascript;base64,${Buffer.from(`${linked}\n//# sourceURL=${stem}.js`).toString("base64")}`;
};

export const load = (stem) => import(addressOf(stem));
