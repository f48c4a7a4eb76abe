-- Gives a key an expiry. This is not a script: scripts include it where they may have made the key, with these locals:
--
-- key, ms  the key, and after how many ms it expires
--
-- The user may lack the permission. A key that has no expiry is deleted then, because it would stay for ever, and the script fails.
if type(redis.pcall('pexpire', key, ms)) == 'table' then
  if redis.call('pttl', key) == -1 then
    redis.call('del', key)
  end
  redis.call('pexpire', key, ms)
end
