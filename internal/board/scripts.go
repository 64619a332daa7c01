package board

import "github.com/envoy-rls/envoy-rls/pkg/redisbackend"

// What stands in a key begins with its version: 16 decimal digits that grow with each change. It is the time of the change in microseconds
// where possible, so that a Redis which has lost something does not give an old version again.
var (
	// pollScript returns the versions of two keys, each with what it holds if that is another one than the caller's. ARGV: those versions.
	pollScript = redisbackend.NewScript(`
local out = {}
for i = 1, #KEYS do
  local version = redis.call('GETRANGE', KEYS[i], 0, 15)
  out[2 * i - 1] = version
  out[2 * i] = version ~= ARGV[i] and redis.call('GET', KEYS[i]) or ''
end
return out
`)

	// writeScript replaces what a key holds, unless it is another version than the caller expects. ARGV: that version, the new one or '' for
	// the next, one that the next has to come after, what to hold, and for how many milliseconds. It returns the new version, or ''.
	writeScript = redisbackend.NewScript(`
local version = redis.call('GETRANGE', KEYS[1], 0, 15)
if version ~= ARGV[1] then return '' end
` + nextVersion + `
local new = ARGV[2]
if new == '' then new = after(version, ARGV[3]) end
redis.call('SET', KEYS[1], new .. ARGV[4], 'PX', ARGV[5])
return new
`)

	// appendScript puts a line before those that a key holds, of which the last are cut off. ARGV: the line, how many bytes of lines to
	// hold, and for how many milliseconds.
	appendScript = redisbackend.NewScript(nextVersion + `
local state, most = redis.call('GET', KEYS[1]) or '', tonumber(ARGV[2])
local lines = ARGV[1] .. '\n' .. state:sub(17)
if #lines > most then lines = lines:sub(1, most):match('^.*\n') or '' end
redis.call('SET', KEYS[1], after(state:sub(1, 16), '') .. lines, 'PX', ARGV[3])
return ''
`)

	// setScript makes a key hold ARGV[1] for ARGV[2] milliseconds.
	setScript = redisbackend.NewScript(`redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) return ''`)

	// getScript returns what keys hold, ARGV[1] bytes of each at most.
	getScript = redisbackend.NewScript(`
local out = {}
for i = 1, #KEYS do out[i] = redis.call('GETRANGE', KEYS[i], 0, ARGV[1] - 1) end
return out
`)
)

// nextVersion declares after, which gives a version that comes after two others. What is no version counts for none.
const nextVersion = `
local function after(a, b)
  local clock = redis.call('TIME')
  local n = clock[1] * 1000000 + clock[2]
  for _, version in ipairs({a, b}) do
    local old = #version == 16 and version:match('^%d+$') and tonumber(version) or 0
    if old >= n and old < 9e15 then n = old + 1 end
  end
  return string.format('%016.0f', n)
end
`
