-- Gives a key an expiry. Not a script of its own: scripts include it where they may have created
-- the key, with these locals:
--
-- key, ms  the key, and its time to live in milliseconds
--
-- A key without an expiry would stay forever. If the user may not set one, the new key is deleted,
-- and the script fails.
if type(redis.pcall('pexpire', key, ms)) == 'table' then
  if redis.call('pttl', key) == -1 then
    redis.call('del', key)
  end
  redis.call('pexpire', key, ms)
end
