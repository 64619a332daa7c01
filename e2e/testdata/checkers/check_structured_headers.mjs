// Prints what structured-headers makes of each file of field lines, one JSON object a file. The first argument is the directory that the
// package is installed under.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [installed, ...files] = process.argv.slice(2);
const module = join(installed, 'node_modules/structured-headers/dist/index.js');
const { parseItem, parseList } = await import(pathToFileURL(module));

function read(lines) {
  const found = {};
  for (const line of lines) {
    const colon = line.indexOf(':');
    const name = line.slice(0, colon).toLowerCase();
    const value = line.slice(colon + 1);
    if (name === 'retry-after') {
      found[name] = parseItem(value)[0];
      continue;
    }
    found[name] = parseList(value).map(([item, params]) => {
      if (typeof item !== 'string') throw new Error(`${name}: an item that is not a String`);
      return [item, Object.fromEntries(params)];
    });
  }
  return found;
}

for (const file of files) {
  console.log(JSON.stringify(read(readFileSync(file, 'latin1').trimEnd().split('\n'))));
}
