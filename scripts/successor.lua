-- Parses the names of successors: see queue.lua. Not a script of its own: scripts include it.

-- isSuccessor tells whether an owner is a successor of a waiter; if before is given, of an attempt
-- before that one. So a late attempt takes nothing from a later attempt's successor.
local function isSuccessor(owner, waiter, before)
  if string.sub(owner, 1, #waiter + 1) ~= waiter .. '/' then
    return false
  end
  local attempt = tonumber(string.match(owner, '^(%d+)%.', #waiter + 2))
  return attempt ~= nil and (not before or attempt < before)
end

-- attemptIn returns the number of the attempt in an entry: 0 if it has no successor.
local function attemptIn(entry)
  return tonumber(string.match(entry, ' (%d+) %S+$') or '') or 0
end

-- attemptOf returns the number of the attempt in the name of a successor, nil for other owners.
local function attemptOf(owner)
  return tonumber(string.match(owner or '', '/(%d+)%.%d+$') or '')
end
