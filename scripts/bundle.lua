-- Runs several of the other scripts, one after the other: what one client asks of a server at the same moment. Each runs as if it had
-- been sent alone, and one that fails does not keep the next from running. (But once one has written, Redis refuses none of the
-- others for want of memory.) Redis parses one command in place of many, and prepares one script.
--
-- KEYS     those of all calls
-- ARGV     for each call: a letter for its script and two digits, how many keys and arguments it has; and then the arguments
--
-- Reply    the replies of all calls
local byte, unpack, KEYS, ARGV = string.byte, unpack, KEYS, ARGV

-- In the scripts, KEYS[1] is KEYS1 here, and so on; ARGV[#ARGV] is last.
local function run(script, last, KEYS1, KEYS2, KEYS3, KEYS4, ARGV1, ARGV2, ARGV3, ARGV4, ARGV5, ARGV6)
  -- include scripts
end

local replies, key, arg = {}, 0, 1
while ARGV[arg] do
  local script, keys, args = byte(ARGV[arg], 1, 3)
  keys, args = keys - 48, args - 48
  local ok, reply = pcall(run, script, ARGV[arg + args], KEYS[key + 1], KEYS[key + 2], keys > 2 and KEYS[key + 3], keys > 3 and KEYS[key + 4],
    unpack(ARGV, arg + 1, arg + args))
  if not ok and type(reply) == 'string' then -- before Redis 7; since then it is a table
    reply = {err = 'ERR Error running script (in a bundle): ' .. reply} -- as if it had been sent alone
  end
  replies[#replies + 1] = reply or false -- nil would end the list
  key, arg = key + keys, arg + args + 1
end
return replies
