-- Runs several calls of other scripts, one after the other. Each call has the effect and the reply
-- of a call that is sent alone; an error does not stop the calls after it. But after the first
-- write, Redis refuses no later call for lack of memory.
--
-- KEYS     the keys of all calls
-- ARGV     for each call a header, then its arguments. The header is the script's letter, one digit
--          for the number of keys, and one for the number of arguments
--
-- Reply    the replies of all calls
local byte, unpack, KEYS, ARGV = string.byte, unpack, KEYS, ARGV

-- In the scripts, KEYS1 stands for KEYS[1], and so on, and lastArg for ARGV[#ARGV].
local function run(script, lastArg, KEYS1, KEYS2, KEYS3, KEYS4, ARGV1, ARGV2, ARGV3, ARGV4, ARGV5, ARGV6)
  -- include scripts
end

local replies, key, arg = {}, 0, 1
while ARGV[arg] do
  local script, keys, args = byte(ARGV[arg], 1, 3)
  keys, args = keys - 48, args - 48
  local ok, reply = pcall(run, script, ARGV[arg + args], KEYS[key + 1], KEYS[key + 2],
    keys > 2 and KEYS[key + 3], keys > 3 and KEYS[key + 4], unpack(ARGV, arg + 1, arg + args))
  if not ok and type(reply) == 'string' then -- else it is a table, such as that of an error reply
    reply = {err = 'ERR Error running script (in a bundle): ' .. reply}
  end
  replies[#replies + 1] = reply
  key, arg = key + keys, arg + args + 1
end
return replies
