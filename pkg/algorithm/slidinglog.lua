-- The sliding log in the acquire script. The state is a string: a header, then runs of 14 bytes, oldest first. A run stands for
-- all entries with one time stamp: the stamp, and the number of its last entry, counted through (modulo 2^52), so that how many
-- entries lie between two runs is a difference, and both the count and the n-th oldest are found without adding up.
--   'l' limit, window, last, offset, gone (37 bytes); runs
--       up to 64 runs: read whole, and written anew at each charge
--   'L' limit, window, last, offset, gone, stamp and number of the newest run, runs before the oldest, runs in use (59
--       bytes); runs
--       read and written in place, in a few pieces; what has left is cut off when it is more than what is in use
-- gone is the number of the last entry that came before the oldest run. Limit and window are those of the last charge. In
-- last's upper bits is the mark.
-- From read to write: a runs that have left the window, b the number of the last entry that has, c entries in the window,
-- d and e the number and stamp of the newest run, f runs in use, g runs before them, h bytes before the first run.

--@is
#state >= 37 and (state:byte() == 108 or state:byte() == 76)

--@locals
local run  -- the stamp and number of run k of those in use
local find -- the first run from low to high with a stamp above edge and a number of at least count after b; high is one
local wrap = 4503599627370496 -- what numbers are counted modulo
local chunk, chunkKey, chunkFrom -- runs that were read lately, since whoever asks for one often asks for the next

--@helpers
run = run or function(k)
  local from = h + (g + k) * 14
  if from + 14 <= #state then return unpack('<I7I7', state, from + 1) end
  if chunkKey ~= key or from < chunkFrom or from + 14 > chunkFrom + #chunk then
    chunk, chunkKey, chunkFrom = call('GETRANGE', key, from, from + 55), key, from
  end
  return unpack('<I7I7', chunk, from - chunkFrom + 1)
end
find = find or function(low, high, edge, count)
  local step = 1
  while low + step < high do -- it is near low as a rule
    local stamp, number = run(low + step - 1)
    if stamp > edge and (number - b) % wrap >= count then
      high = low + step - 1
    else
      low, step = low + step, step * 2
    end
  end
  low = low - 1
  while high > low + 1 do
    local middle = floor((low + high) / 2)
    local stamp, number = run(middle)
    if stamp > edge and (number - b) % wrap >= count then high = middle else low = middle end
  end
  return high
end

--@read
state = call('GETRANGE', key, 0, 1023)
local size, form, _, window = #state, nil, nil, pace
a, b, c, d, e, f, g, h, now = 0, 0, 0, 0, 0, 0, 0, 37, time
if size == 0 then
  state = false
else
  form = size >= 37 and state:byte()
  if form == 108 then
    form, _, window, last, high, offset, b = unpack('<BdI7I6BI7I7', state)
    f, d = (size - 37) / 14, b
    if f > 0 then e, d = unpack('<I7I7', state, size - 13) end
  elseif form == 76 then
    form, _, window, last, high, offset, b, e, d, g, f = unpack('<BdI7I6BI7I7I7I7I4I4', state)
    h = 59
  else
    foreign = true
  end
  if not foreign then
    last = last + high % 16 * 281474976710656
    if time >= last then
      now = time
    else
      now = time + offset
      if now < last then now, stale = last, true end
    end
    longer = window < pace
    local edge = now - pace
    if f > 0 and e <= edge then
      a, b = f, d
    elseif h == 37 and f > 0 then
      local stamp, number = unpack('<I7I7', state, 38)
      while stamp <= edge do
        a, b = a + 1, number
        stamp, number = unpack('<I7I7', state, 38 + a * 14)
      end
    elseif h == 59 then
      --@use helpers
      if run(0) <= edge then
        a = find(1, f - 1, edge, 0)
        _, b = run(a - 1)
      end
    end
    c = (d - b) % wrap
  end
end
fits = c + cost <= capacity

--@room
room = capacity - c

--@spent
--@use helpers
local _, window
if state:byte() == 108 then
  _, of, window, last, high, offset, b = unpack('<BdI7I6BI7I7', state)
  f, g, h, d, e = (#state - 37) / 14, 0, 37, b, 0
  if f > 0 then e, d = unpack('<I7I7', state, #state - 13) end
else
  _, of, window, last, high, offset, b, e, d, g, f = unpack('<BdI7I6BI7I7I7I7I4I4', state)
  h = 59
end
last = last + high % 16 * 281474976710656
local edge = math.max(last, time)
if time < last then edge = math.max(last, time + offset) end
edge = edge - window
if f > 0 and e <= edge then
  b = d
elseif f > 0 and run(0) <= edge then
  _, b = run(find(1, f - 1, edge, 0) - 1)
end
spent = math.min(of, (d - b) % wrap)

--@adopt
a, b, c, d, e, f, g, h = 0, 0, 0, 0, 0, 0, 0, 37
if of > 0 then c = math.min(capacity, math.max(0, math.ceil(capacity * spent / of))) end
state = pack('<BdI7I7I7I7', 108, capacity, pace, now, now - time, 0)
if c > 0 then
  d, e, f = c, now, 1
  state = state .. pack('<I7I7', e, d)
end
fits = c + cost <= capacity

--@write
local stamp = now
if capacity > 131072 then
  -- So many runs would take too much memory: a window has 65,536 stamps, and they are rounded up, never down.
  stamp = now + -now % math.ceil(pace / 65536)
end
if op == 7 then -- as of an empty log
  a, b, c, d, e, f, g, h = 0, 0, 0, 0, 0, 0, 0, 37
  state = pack('<BdI7I7I7I7', 108, capacity, pace, now, now - time, 0)
end
local keep, tail, note = f, nil, 0 -- runs up to keep stay and tail comes after them; what else is to be told
local others, after, wait = 0, 3, 0 -- of several calls: what all but the first were charged; the record of one denied
local first = a
if op <= 2 or op == 5 or op == 7 then
  local charged = 0
  if op >= 5 then charged = math.min(cost, math.max(0, capacity - c)) elseif op == 1 and result == 1 then charged = cost * admitted end
  if charged > 0 then
    if f > a and e == stamp then keep = f - 1 end
    c, d, e = c + charged, (d + charged) % wrap, stamp
    tail = pack('<I7I7', e, d)
  end
  if op >= 5 then
    note = charged
  elseif result == 1 then
    note, others = stamp, charged - cost
    if short and c + cost > capacity then
      after, wait = 2, stamp
      if c + cost - capacity <= c - charged then
        --@use helpers
        wait = run(find(a, f - 1, 0, c + cost - capacity))
      end
    end
  elseif result == 2 and cost <= capacity then
    local number
    if h == 37 then note, number = unpack('<I7I7', state, 38 + a * 14) end
    if h == 59 or number - b < c + cost - capacity then
      --@use helpers
      note = run(find(a, f - 1, 0, c + cost - capacity))
    end
  end
  if stale and charged == 0 then
    -- A note of the clock, or what another algorithm left: nothing is forgotten.
    local _
    _, _, _, _, _, b = unpack('<BdI7I7I7I7', state)
    a, tail = 0, ''
  end
elseif op == 6 then
  call('DEL', key)
  c, keep = 0, a
elseif state then
  --@use helpers
  tail = ''
  if op == 4 and c <= cost then
    c, d, keep = 0, b, a
  elseif op == 4 then
    c = c - cost
    keep, d = find(a, f - 1, 0, c), (b + c) % wrap
    e = run(keep)
    tail = pack('<I7I7', e, d)
  elseif f > a and y <= e then
    local undone = find(a, f - 1, y - 1, 0)
    local at, number = run(undone)
    if at == y then
      local before, previous = b, 0
      if undone > a then previous, before = run(undone - 1) end
      local cut = math.min(cost, (number - before) % wrap)
      local rest, pieces, from = state, {}, h + (g + undone) * 14 + 1
      if h == 59 then rest, from = call('GETRANGE', key, from - 1, h + (g + f) * 14 - 1), 1 end
      for k = undone, f - 1 do
        at, number = unpack('<I7I7', rest, from + (k - undone) * 14)
        number = (number - cut) % wrap
        if k > undone or number ~= before then
          pieces[#pieces + 1] = pack('<I7I7', at, number)
          previous = at
        end
      end
      c, d, e, keep, tail = c - cut, number, previous, undone, table.concat(pieces)
    end
  end
end
local oldest = -1
if keep > first then
  if h == 37 then
    oldest = unpack('<I7', state, 38 + first * 14)
  else
    --@use helpers
    oldest = run(first)
  end
elseif tail and tail ~= '' then
  oldest = unpack('<I7', tail)
end
local runs = keep - a
if tail then runs = runs + #tail / 14 end
local ahead, life = now - time, 0
if runs > 0 and e + pace > now then life = e + pace - now end
-- Until the newest run leaves, in milliseconds, one more since Redis counts from when the script began. An integer below
-- 1e17, which redis.call prints without an exponent.
life = floor((life + ahead) / 1000) + 2
if tail and h == 59 and runs > 32 and g + a <= runs + 64 then
  if tail ~= '' then call('SETRANGE', key, h + (g + keep) * 14, tail) end
  call('SETRANGE', key, 0, pack('<BdI7I6BI7I7I7I7I4I4', 76, capacity, pace, low, high, ahead, b, e, d, g + a, runs))
  call('PEXPIRE', key, life)
elseif tail then
  if keep > a then
    local from, to = h + (g + a) * 14, h + (g + keep) * 14
    if h == 59 then tail = call('GETRANGE', key, from, to - 1) .. tail else tail = state:sub(from + 1, to) .. tail end
  end
  if runs <= 64 then
    tail = pack('<BdI7I6BI7I7', 108, capacity, pace, low, high, ahead, b) .. tail
  else
    tail = pack('<BdI7I6BI7I7I7I7I4I4', 76, capacity, pace, low, high, ahead, b, e, d, 0, runs) .. tail
  end
  call('SET', key, tail, 'PX', life)
elseif longer and runs > 0 and op ~= 6 and call('PTTL', key) < life then
  call('PEXPIRE', key, life)
end
out = out .. pack('<Bdddd', result + 16 * mark, c - others, oldest, note, now)
if short then rest = rest .. pack('<Bdddd', after + 16 * mark, c, oldest, wait, now) end
