// Package doctest checks that the documents are true: every command of README and docs runs, every policy file in them
// loads, every Envoy configuration is accepted by the real Envoy, every link leads somewhere.
//
// What a fenced block is depends on the word after the fence:
//   - sh: commands, all of which must succeed. They run in a copy of config/ and envoy/ with the built envoy-rls on PATH.
//   - console: "$ " lines are commands, the others what they print; … stands for anything.
//   - "sh demo", "console demo": the same, while the demo is running.
//   - "sh postgres", "console postgres", sql: the same, and statements, with a PostgreSQL database that is empty when the document begins.
//   - yaml: a policy file, an Envoy configuration, or a part of one, told by its top-level keys.
//   - json: must parse.
//   - text, http: shown only. They must not look like commands.
//
// It has no code of its own.
package doctest
