// Reads field lines on stdin and prints what structured-headers makes of them, one JSON object. The argument is the directory that the package is
// installed under.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const module = join(process.argv[2], 'node_modules/structured-headers/dist/index.js');
const { parseItem, parseList } = await import(pathToFileURL(module));

const sorted = (params) => Object.fromEntries([...params].sort());
const found = {};
for (const line of readFileSync(0, 'latin1').trimEnd().split('\n')) {
  const colon = line.indexOf(':');
  const name = line.slice(0, colon).toLowerCase();
  const value = line.slice(colon + 1);
  if (name === 'retry-after') {
    found[name] = parseItem(value)[0];
    continue;
  }
  found[name] = parseList(value).map(([item, params]) => {
    if (typeof item !== 'string') throw new Error(`${name}: an item that is not a String`);
    return [item, sorted(params)];
  });
}
console.log(JSON.stringify(Object.fromEntries(Object.entries(found).sort())));
