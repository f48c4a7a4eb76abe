-- Gives a key an expiry. This is not a script: scripts include it where they may have made the key, with these locals:
--
-- key, ms  the key, and its time to live in milliseconds
--
-- The user may lack the permission. A key without an expiry would stay for ever, so it is then deleted, and the script fails.
if type(redis.pcall('pexpire', key, ms)) == 'table' then
  if redis.call('pttl', key) == -1 then
    redis.call('del', key)
  end
  redis.call('pexpire', key, ms)
end
