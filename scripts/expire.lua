-- Gives a key an expiry. Not a script of its own: scripts include it where they may have created
-- the key, with these locals:
--
-- key, ms  the key, and its time to live in milliseconds
--
-- Without the permission for PEXPIRE, a new key would stay forever. It is then deleted, and the
-- script fails.
if type(redis.pcall('pexpire', key, ms)) == 'table' then
  if redis.call('pttl', key) == -1 then
    redis.call('del', key)
  end
  redis.call('pexpire', key, ms)
end
