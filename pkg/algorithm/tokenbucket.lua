-- The token bucket in the acquire script. The state is a string; its length says which form it has:
--   28: tokens, last, capacity, rate            as a rule
--   27: tokens, last, capacity, offset          while the bucket's clock is ahead of the store's
--   36: tokens, last, capacity, rate, offset    where the capacity is 2^40 or more
-- Capacity and rate are those of the last charge, which a change of algorithm and the life of the key depend on. Up to 28 bytes
-- cost Redis the same memory as 16 do, which is why the second form has no rate. In last's upper bits is the mark.
-- From read to write: a tokens at the last change, b tokens now, c microseconds since the last change.

--@is
#state == 28 or #state == 27 or #state == 36

--@read
state = call('GET', key)
if not state then
  a, b, c, now = capacity, capacity, 0, time
else
  local size, was, rate = #state, nil, nil
  offset = 0
  if size == 28 then
    a, last, high, was, rate = unpack('<dI6BI5d', state)
  elseif size == 27 then
    a, last, high, was, offset = unpack('<dI6BI5I7', state)
  elseif size == 36 then
    a, last, high, was, rate, offset = unpack('<dI6BI7dI6', state)
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
    c = now - last
    b = a + c * pace
    if b > capacity then b = capacity end
    longer = was ~= capacity or rate ~= pace
  end
end
fits = b and b >= cost

--@room
room = b

--@spent
local rate
offset = 0
if #state == 28 then
  spent, last, high, of, rate = unpack('<dI6BI5d', state)
elseif #state == 27 then
  spent, last, high, of, offset = unpack('<dI6BI5I7', state)
  rate = 0
else
  spent, last, high, of, rate, offset = unpack('<dI6BI7dI6', state)
end
last = last + high % 16 * 281474976710656
local passed = 0
if time >= last then passed = time - last elseif time + offset > last then passed = time + offset - last end
spent = of - math.min(of, spent + passed * rate)

--@adopt
a = capacity
if of > 0 then a = math.min(a, floor(capacity * (of - spent) / of)) end
b, c = a, 0
fits = b >= cost

--@write
local level, at, write = b, now, true -- what is written
if result == 1 and op == 1 then
  level = b - cost * admitted
elseif op <= 2 then
  level, at, write = a, now - c, stale
elseif op == 3 then
  local held = now - y
  if held < 0 then held = 0 end
  local spilled = x + held * pace - capacity
  if spilled < 0 then spilled = 0 elseif spilled > cost then spilled = cost end
  level, write = math.min(capacity, b + (cost - spilled)), state
elseif op == 4 then
  level, write = math.min(capacity, b + cost), state
elseif op == 5 then
  local room = floor(b + x)
  if room < 1 then
    level, at, write = a, now - c, stale
  else
    level = b - math.min(cost, room)
  end
elseif op == 7 then
  level = capacity - math.min(cost, capacity)
else
  call('DEL', key)
  a, c, write = capacity, 0, false
end
if write or (longer and state and op ~= 6) then
  local ahead = now - time
  -- Until full from now on, in milliseconds; one more since Redis counts from when the script began. An integer below 1e17,
  -- which redis.call prints without an exponent.
  local life = 0
  local missing = capacity - level - (now - at) * pace
  if missing > 0 then life = missing / pace end
  life = (life + ahead) / 1000
  if life < 1e14 then life = floor(life) + 2 else life = 1e14 end
  if not write then
    if missing > 0 and call('PTTL', key) < life then call('PEXPIRE', key, life) end -- one that is full may end
  elseif capacity >= 1099511627776 then
    call('SET', key, pack('<dI6BI7dI6', level, low, high, capacity, pace, math.min(ahead, 281474976710655)), 'PX', life)
  elseif ahead > 0 then
    call('SET', key, pack('<dI6BI5I7', level, low, high, capacity, ahead), 'PX', life)
  else
    call('SET', key, pack('<dI6BI5d', level, low, high, capacity, pace), 'PX', life)
  end
end
out = out .. pack('<Bddd', result + 16 * mark, a, c, now)
if short then
  result = op == 1 and level < cost and 2 or 3
  rest = rest .. pack('<Bddd', result + 16 * mark, level, now - at, now)
end
