-- One step on one entry. KEYS: the entry. ARGV: step, fingerprint, token, milliseconds to live, and for complete: free replays, answer.
-- The entry is a hash: f fingerprint, t token, and, of a completed one, n free replays that are left and a answer.
-- Every path that writes sets the time to live. Replies: {state}, {state, free, answer} for claim; 1 or 0 (lost) for the others.
local key, step, fingerprint, token, ms = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local f, t, n = unpack(redis.call('HMGET', key, 'f', 't', 'n'))
local absent, completed, own = not f, n, t == token

local function take()
  redis.call('HSET', key, 'f', fingerprint, 't', token)
  redis.call('PEXPIRE', key, ms)
end

if step == 'claim' then
  if absent then
    take()
    return {1}
  elseif f ~= fingerprint then
    return {3}
  elseif completed then
    local free = 0
    if tonumber(n) > 0 then
      redis.call('HINCRBY', key, 'n', -1)
      free = 1
    end
    return {4, free, redis.call('HGET', key, 'a')}
  elseif own then
    take()
    return {1}
  end
  return {2}
elseif step == 'renew' then
  if absent or own and not completed then
    take()
    return 1
  end
  return 0
elseif step == 'complete' then
  if absent or own and not completed then
    take()
    redis.call('HSET', key, 'n', ARGV[5], 'a', ARGV[6])
    return 1
  end
  return own and 1 or 0
elseif step == 'release' then
  if own and not completed then
    redis.call('DEL', key)
  end
  return 1
end
return redis.error_reply('ERR idempotency: unknown step')
