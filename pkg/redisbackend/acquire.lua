-- Decides on the buckets KEYS[1..n], all of one slot, as ratelimit.Store says: all or none over the enforced takes and
-- peeks, everything else always. The algorithms' own parts stand where the @ lines are (script.go puts them there).
--
-- ARGV[i], packed: kind, op (+ 8: shadow, + 16: a take that may yet be undone), cost, capacity, pace (tokens per
-- microsecond, or the window). After that for force the overdraft; for undo what the take had before and its time.
-- The reply is one record for each bucket, one after the other: its first byte says what became of it (done, denied, or
-- admitted but not charged; + 16 x mark), the rest is the algorithm's own.
--
-- A state's last has 52 bits, enough until 2112. In the four above them is the mark: takes may yet be undone, until so many
-- steps of 65,536 microseconds after the beginning of the one that last is in. Without, and in a state that an older script
-- wrote, they are 0.
--
-- ARGV[n + 1], if there is one: how many calls this one stands for, all of them the same takes and peeks of enforced buckets. They are
-- decided as if one came right after the other. The reply then begins with how many are admitted. The records are those of the first
-- call; if some are admitted and others not, those of the first one denied come after them, which are the same for all that follow.
--
-- Whatever can go wrong goes wrong in the first loop: nothing is written before everything is read and checked. No function
-- and, for one bucket, no table is made on the way: each costs as much as a tenth of a decision.
local call, pack, unpack, floor = redis.call, struct.pack, struct.unpack, math.floor
local clock = call('TIME')
local time = clock[1] * 1000000 + clock[2]

local n, saved, out = #KEYS, nil, ''
local calls, single = 1, not ARGV[n + 1]
if not single then
  calls = tonumber(ARGV[n + 1])
  if not (calls and calls >= 2 and calls <= 65536 and calls % 1 == 0) then
    return redis.error_reply('ERR acquire: bad number of calls')
  end
end
local admitted = calls -- so far
local key, kind, op, shadow, open, cost, capacity, pace
local x, y     -- undo: what the take had before, and when it was; force: the overdraft
local state    -- as read
local now      -- by the bucket's own clock
local fits     -- a take or peek of cost would be admitted
local stale    -- what is stored has to be written even if nothing is charged: other algorithm, or a step back of time
local longer   -- the key may have to live longer than it was told to, since the policy is another one now
local a, b, c, d, e, f, g, h -- the algorithm's own, from read to write
local mark, low, high -- the mark, counted from now; last with it as it is written, in two pieces
local last, offset, spent, of -- for a change of algorithm: the clock, and how much of what was in use
local room     -- a take fits room / cost times
if n > 1 then saved = {} end
--@locals

for i = 1, n do
  key = KEYS[i]
  kind, op, cost, capacity, pace = unpack('<BBddd', ARGV[i])
  stale, longer, high = false, false, 0
  open = op > 16
  if open then op = op - 16 end
  shadow = op > 8
  if shadow then op = op - 8 end
  x, y = 0, 0
  if op == 3 then x, y = unpack('<dd', ARGV[i], 27) elseif op == 5 then x = unpack('<d', ARGV[i], 27) end
  if not (op >= 1 and op <= 7 and cost >= 1 and cost <= 9007199254740992 and capacity >= 0 and capacity < 1e15
      and pace >= 0 and pace < 1e16 and x > -1e16 and x < 1e16 and y > -1e16 and y < 1e16
      and (single or op <= 2 and not shadow)) then
    return redis.error_reply('ERR acquire: bad argument ' .. i)
  end
  local foreign = false
  --@read
  if foreign then
    --@spent
    if time >= last then now = time else now = math.max(last, time + offset) end
    stale = true
    --@adopt
  end
  mark = 0
  if high > 15 then
    mark = (high - high % 16) / 16 + floor(last / 65536) - floor(now / 65536)
    if mark < 0 then mark = 0 end
  end
  if op <= 2 and not fits and not shadow then
    admitted = 0
  elseif op == 1 and admitted > 1 then
    --@room
    -- A quotient is never rounded up to a whole number k: cost * k is a number that room is below by a whole step then.
    admitted = math.min(admitted, floor(room / cost))
  end
  if saved then
    saved[i] = {kind, op, shadow, cost, capacity, pace, x, y, state, now, fits, stale, longer, a, b, c, d, e, f, g, h, open, mark}
  end
end

local short, rest = admitted > 0 and admitted < calls, ''
for i = 1, n do
  if saved then
    local s = saved[i]
    key, kind, op, shadow, cost, capacity, pace = KEYS[i], s[1], s[2], s[3], s[4], s[5], s[6]
    x, y, state, now, fits, stale, longer = s[7], s[8], s[9], s[10], s[11], s[12], s[13]
    a, b, c, d, e, f, g, h, open, mark = s[14], s[15], s[16], s[17], s[18], s[19], s[20], s[21], s[22], s[23]
  end
  local result = 1 -- done
  if op <= 2 then
    if not fits then
      result = 2 -- denied
    elseif admitted == 0 or op == 2 then
      result = 3 -- admitted, not charged
    elseif open then
      mark = 15
    end
  end
  low = now % 281474976710656
  high = (now - low) / 281474976710656 + 16 * mark
  --@write
end
if single then return out end
return pack('<d', admitted) .. out .. rest
