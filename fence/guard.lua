-- The head of every guarded script.
--
-- KEYS[1]  the key of the resource's highest token
-- ARGV[1]  the caller's token, in decimal
-- ARGV[2]  how long the token is kept from now on, in milliseconds; 0: forever
-- ARGV[3]  1 if a resource without a token is marked, 0 if it is refused
--
-- Tokens are compared as text: a Lua number is exact only up to 2^53.
local function stale()
	local token, seen = ARGV[1], redis.pcall('GET', KEYS[1])
	if type(seen) == 'table' and not string.find(seen.err, 'WRONGTYPE') then
		return seen
	elseif not seen then
		if ARGV[3] ~= '1' then
			return redis.error_reply('FENCEMISSING no token')
		end
	elseif type(seen) == 'table' or not string.find(seen, '^[1-9]%d*$') then
		return redis.error_reply('FENCEBROKEN the key of the fencing token holds something else')
	elseif #seen > #token or #seen == #token and seen > token then
		return redis.error_reply('FENCESTALE ' .. seen)
	end
	if seen ~= token then
		redis.call('SET', KEYS[1], token)
	end
	if ARGV[2] ~= '0' then
		redis.call('PEXPIRE', KEYS[1], ARGV[2])
	elseif seen then
		redis.call('PERSIST', KEYS[1])
	end
	return false
end
