-- Notes that an instance lives, and returns all that have lately. KEYS[1]: a string of records, each a name of 16 characters and the time of
-- its last beat in milliseconds, as a double. ARGV: the name, and for how many milliseconds a beat counts.
-- Of commands it needs those of the acquire script only, so that a user who may decide may do this, too.
local clock = redis.call('TIME')
local now, life = clock[1] * 1000 + math.floor(clock[2] / 1000), tonumber(ARGV[2])
local state, names, out = redis.call('GET', KEYS[1]) or '', {ARGV[1]}, {ARGV[1], struct.pack('<d', now)}
if #state % 24 ~= 0 then state = '' end
for at = 1, math.min(#state, 24 * 1023), 24 do
  local name, last = state:sub(at, at + 15), struct.unpack('<d', state, at + 16)
  -- A time ahead of now was written before the clock was set back, or by another server.
  if name ~= ARGV[1] and last > now - life and last <= now + life then
    names[#names + 1] = name
    out[#out + 1], out[#out + 2] = name, struct.pack('<d', last)
  end
end
redis.call('SET', KEYS[1], table.concat(out), 'PX', 2 * life)
return names
